// Tables: rows in columns, of which one page at a time is in the document. All values are set as text.
"use strict";

(() => {
  const ROWS = 100; // of a page
  const FEW = 32; // rows that are compared with each other
  const PLACES = 2 ** 21; // 32 bits of characters and a place are a whole number of 53 bits
  const MOST_ROWS = 2 ** 26; // and so are a rank and a row
  let waiting = 0;

  async function unpacked(text) {
    const binary = atob(text);
    const bytes = new Uint8Array(binary.length);
    for (let index = 0; index < binary.length; index += 1) bytes[index] = binary.charCodeAt(index);
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return JSON.parse(await new Response(stream).text());
  }

  function isText(column) {
    return column.unit === "text" || column.unit === "time";
  }

  // Texts lack the beginning that all of their column have in common.
  function textOf(column, text) {
    return text === null ? "" : column.beginning + text;
  }

  function valueOf(column, row) {
    if (!isText(column)) return column.values[row];
    return textOf(column, column.codes ? column.texts[column.codes[row]] : column.texts[row]);
  }

  // Sorts rows by their texts, of which the first `start` characters are equal. Paths have long
  // beginnings in common, which a comparison of two of them reads again and again. So these are
  // skipped, and the four characters behind them are sorted as numbers, which is much faster.
  function arrange(rows, texts, start) {
    if (rows.length >= PLACES) return rows.sort(comparing(texts));
    const end = start + common(rows, texts, start);
    const keys = Float64Array.from(rows, (row, place) => next(texts[row], end) * PLACES + place);
    keys.sort();
    const before = rows.slice();
    for (let place = 0; place < rows.length; place += 1) rows[place] = before[keys[place] % PLACES];
    for (let first = 0, place = 1; place <= rows.length; place += 1) {
      const least = keys[first] - (keys[first] % PLACES);
      if (place < rows.length && keys[place] < least + PLACES) continue;
      if (place - first < FEW) insertInOrder(rows, texts, first, place);
      else if (place - first < rows.length) arrange(rows.subarray(first, place), texts, end);
      else rows.sort(comparing(texts));
      first = place;
    }
    return rows;
  }

  function comparing(texts) {
    return (one, other) =>
      texts[one] < texts[other] ? -1 : texts[one] > texts[other] ? 1 : one - other;
  }

  function insertInOrder(rows, texts, first, end) {
    for (let next = first + 1; next < end; next += 1) {
      const row = rows[next];
      let place = next;
      for (; place > first && texts[rows[place - 1]] > texts[row]; place -= 1) {
        rows[place] = rows[place - 1];
      }
      rows[place] = row;
    }
  }

  // How many characters from `start` on all the texts have in common.
  function common(rows, texts, start) {
    let beginning = texts[rows[0]].slice(start);
    for (const row of rows) {
      while (!texts[row].startsWith(beginning, start)) beginning = beginning.slice(0, -1);
    }
    return beginning.length;
  }

  // Four characters as a number. Those beyond Latin-1 count as equal, and are compared later.
  function next(text, start) {
    let number = 0;
    for (let place = start; place < start + 4; place += 1) {
      number = number * 256 + (place < text.length ? Math.min(text.charCodeAt(place), 255) : 0);
    }
    return number;
  }

  // The place of each text among all, in the order of its characters; -1 for an empty one.
  function ranksOfTexts(texts) {
    const rows = Uint32Array.from(texts.keys()).filter((row) => texts[row] !== null);
    const order = rows.length ? arrange(rows, texts, 0) : rows;
    const ranks = new Int32Array(texts.length).fill(-1);
    let rank = 0;
    order.forEach((row, place) => {
      if (place && texts[row] !== texts[order[place - 1]]) rank = place;
      ranks[row] = rank;
    });
    return ranks;
  }

  function ranksOfNumbers(values) {
    const order = Float64Array.from(values.filter((value) => value !== null)).sort();
    return Int32Array.from(values, (value) => (value === null ? -1 : placeOf(value, order)));
  }

  // The first place of a number among sorted ones.
  function placeOf(number, order) {
    let [low, high] = [0, order.length - 1];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (order[middle] < number) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  // The place of each row if a column is sorted: equal ones have the same, empty ones -1.
  function ranksOf(column) {
    if (!column.ranks) {
      if (isText(column)) {
        const ranks = ranksOfTexts(column.texts);
        column.ranks = column.codes ? Int32Array.from(column.codes, (code) => ranks[code]) : ranks;
      } else {
        column.ranks = ranksOfNumbers(column.values);
      }
    }
    return column.ranks;
  }

  // Empty cells are last, and equal ones stay in the order of the rows.
  function sorted(rows, column, isDescending) {
    const ranks = ranksOf(column);
    const last = ranks.length;
    const keys = Float64Array.from(rows, (row) => {
      const rank = ranks[row] < 0 ? last : isDescending ? last - 1 - ranks[row] : ranks[row];
      return rank * MOST_ROWS + row;
    });
    return Uint32Array.from(keys.sort(), (key) => key % MOST_ROWS);
  }

  // Return which rows hold the text in any cell of text.
  function matching(columns, count, text) {
    const found = new Uint8Array(count);
    const wanted = text.toLowerCase();
    for (const column of columns.filter(isText)) {
      column.lower ??= column.texts.map((text) => textOf(column, text).toLowerCase());
      const hits = Uint8Array.from(column.lower, (text) => text.includes(wanted));
      if (column.codes) {
        column.codes.forEach((code, row) => {
          if (hits[code]) found[row] = 1;
        });
      } else {
        hits.forEach((hit, row) => {
          if (hit) found[row] = 1;
        });
      }
    }
    return Uint32Array.from(found.keys()).filter((row) => found[row]);
  }

  class Table {
    constructor(section, { title, columns }) {
      this.columns = columns;
      this.count = (columns[0].codes ?? columns[0].texts ?? columns[0].values).length;
      this.rows = Uint32Array.from({ length: this.count }, (_, row) => row);
      this.first = 0;
      this.sortedBy = null;
      this.isDescending = false;
      this.build(section, title);
      this.show();
    }

    build(section, title) {
      this.search = element("input", { type: "search", autocomplete: "off", spellcheck: false });
      this.search.addEventListener("input", () => this.update());
      this.status = element("p", { role: "status" });
      this.buttons = [
        ["First", () => 0],
        ["Previous", () => this.first - ROWS],
        ["Next", () => this.first + ROWS],
        ["Last", () => this.last()],
      ].map(([name, place]) => this.button(name, place, title));
      this.heads = this.columns.map((column, number) => this.head(column, number));
      this.body = element("tbody");
      const table = element(
        "table",
        {},
        element("caption", { className: "hidden", textContent: title }),
        element("thead", {}, element("tr", {}, ...this.heads)),
        this.body,
      );
      const label = element("label", {}, `Search in ${title.toLowerCase()} `, this.search);
      section.append(
        element("div", { className: "controls" }, label, this.status, ...this.buttons),
        element("div", { className: "rows", tabIndex: 0, role: "region", ariaLabel: title }, table),
      );
    }

    button(name, place, title) {
      const made = element("button", { type: "button", textContent: name });
      made.ariaLabel = `${name} rows of ${title.toLowerCase()}`;
      made.addEventListener("click", () => {
        if (made.ariaDisabled === "true") return;
        this.first = Math.max(0, Math.min(place(), this.last()));
        this.show();
      });
      return made;
    }

    head(column, number) {
      const button = element("button", { type: "button", textContent: column.name });
      button.addEventListener("click", () => {
        this.isDescending = this.sortedBy === number ? !this.isDescending : !isText(column);
        this.sortedBy = number;
        this.update();
      });
      return element("th", { scope: "col", className: isText(column) ? "" : "number" }, button);
    }

    last() {
      return Math.max(0, Math.floor((this.rows.length - 1) / ROWS) * ROWS);
    }

    update() {
      this.rows = this.search.value
        ? matching(this.columns, this.count, this.search.value)
        : Uint32Array.from({ length: this.count }, (_, row) => row);
      if (this.sortedBy !== null) {
        this.rows = sorted(this.rows, this.columns[this.sortedBy], this.isDescending);
      }
      this.first = 0;
      this.show();
    }

    show() {
      const shown = this.rows.subarray(this.first, this.first + ROWS);
      this.body.replaceChildren(...Array.from(shown, (row) => this.row(row)));
      this.heads.forEach((head, number) => {
        const order = this.isDescending ? "descending" : "ascending";
        head.ariaSort = number === this.sortedBy ? order : null;
      });
      const [isFirst, isLast] = [this.first === 0, this.first >= this.last()];
      // not `disabled`: the focus would be lost
      this.buttons.forEach((button, number) => {
        button.ariaDisabled = String(number < 2 ? isFirst : isLast);
        button.hidden = this.count <= ROWS;
      });
      this.status.textContent = this.summary(shown.length);
    }

    summary(shown) {
      const whole = format(this.count, "count");
      const found = format(this.rows.length, "count");
      const range = `${format(this.first + 1, "count")} to ${format(this.first + shown, "count")}`;
      if (!shown) return `No row of ${whole} matches`;
      if (this.rows.length === this.count) return `Rows ${range} of ${whole}`;
      return `Rows ${range} of ${found} that match, of ${whole}`;
    }

    row(row) {
      const cells = this.columns.map((column) => {
        const value = valueOf(column, row);
        const cell = element("td", { textContent: format(value, column.unit) });
        if (column.unit !== "text") cell.className = column.unit === "time" ? "time" : "number";
        if (column.unit === "bytes" && value !== null) cell.title = `${value} bytes`;
        return cell;
      });
      return element("tr", {}, ...cells);
    }
  }

  // So that the first sort is as quick as the others.
  function rankWhenIdle(columns) {
    if (!window.requestIdleCallback || !columns.length) return;
    requestIdleCallback(() => {
      ranksOf(columns.shift());
      rankWhenIdle(columns);
    });
  }

  async function load(section) {
    const packed = section.querySelector("script");
    const loading = section.querySelector(".loading");
    try {
      const table = new Table(section, await unpacked(packed.textContent));
      loading.remove();
      rankWhenIdle(table.columns.slice());
    } catch (error) {
      loading.textContent = `The rows cannot be shown: ${error}. Use a current browser.`;
    }
    packed.remove();
    waiting -= 1;
    if (!waiting) document.documentElement.dataset.tables = "loaded";
  }

  const sections = document.querySelectorAll("[data-table]");
  waiting = sections.length;
  if (!waiting) document.documentElement.dataset.tables = "loaded";
  // after the first paint
  requestAnimationFrame(() => setTimeout(() => sections.forEach(load)));
})();
