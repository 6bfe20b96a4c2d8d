// Charts, drawn by Chart.js: bars, with their numbers in a table below for those who cannot see them.
"use strict";

(() => {
  const BAR = 26; // pixels of a horizontal bar with its gap
  const LABELS = 0.42; // of the width of a chart
  const LETTER = 7; // pixels of a letter of a label
  const charts = JSON.parse(document.getElementById("charts").textContent);
  const drawn = [];

  function paint(chart, hues) {
    const text = theme.color("text");
    const grid = theme.color("line");
    chart.data.datasets.forEach((series, number) => {
      series.backgroundColor = theme.color(`series-${hues[number]}`);
    });
    for (const scale of Object.values(chart.options.scales)) {
      Object.assign(scale.ticks, { color: text });
      scale.grid.color = grid;
      scale.border = { color: grid };
    }
    chart.options.plugins.legend.labels.color = text;
    chart.update(); // with "none", bars would keep the colours they have
  }

  // A label without its middle, where it would take more than its part of a chart: what two ids or
  // paths differ in is at their ends.
  function shortened(text, width) {
    const most = Math.max(12, Math.floor((width * LABELS) / LETTER));
    if (text.length <= most) return text;
    const half = Math.floor((most - 1) / 2);
    return `${text.slice(0, half)}…${text.slice(-half)}`;
  }

  // The unit of the axis, so that its numbers are round in it: 200 KiB and not 195.3 KiB.
  function unitOf(data) {
    const most = Math.max(1, ...data.series.flatMap((series) => series.values));
    const base = { bytes: 1024, seconds: 60 }[data.unit];
    const powers = data.unit === "seconds" ? 2 : 5;
    if (!base) return 1;
    return base ** Math.min(powers, Math.floor(Math.log(most) / Math.log(base)));
  }

  function configuration(data) {
    const unit = unitOf(data);
    const values = {
      stacked: data.stacked,
      beginAtZero: true,
      grid: {},
      ticks: { callback: (value) => format(value * unit, data.unit), maxTicksLimit: 6 },
    };
    if (data.unit === "count") values.ticks.precision = 0;
    const labels = { stacked: data.stacked, grid: { display: false }, ticks: {} };
    if (data.horizontal) {
      labels.ticks.autoSkip = false;
      labels.ticks.callback = function shown(value) {
        return shortened(this.getLabelForValue(value), this.chart.width);
      };
    }
    const label = (item) => `${item.dataset.label}: ${format(item.raw * unit, data.unit)}`;
    return {
      type: "bar",
      data: {
        labels: data.labels,
        datasets: data.series.map((series) => ({
          label: series.name,
          data: series.values.map((value) => value / unit),
          maxBarThickness: 60,
        })),
      },
      options: {
        animation: false,
        maintainAspectRatio: false,
        indexAxis: data.horizontal ? "y" : "x",
        interaction: { mode: "index", axis: data.horizontal ? "y" : "x", intersect: false },
        scales: data.horizontal ? { x: values, y: labels } : { x: labels, y: values },
        // a click on the legend would hide a series, which no key does
        plugins: {
          colors: { enabled: false }, // it gives colours of its own to a series that has none yet
          legend: { labels: {}, onClick: () => {} },
          tooltip: { callbacks: { label } },
        },
      },
    };
  }

  function height(data) {
    const bars = data.stacked ? 1 : data.series.length;
    return data.horizontal ? 90 + BAR * data.labels.length * (bars > 1 ? 1.6 : 1) : 300;
  }

  function numbers(data) {
    const heading = (text) => element("th", { scope: "col", textContent: text });
    const rows = data.labels.map((label, row) =>
      element(
        "tr",
        {},
        element("th", { scope: "row", textContent: label }),
        ...data.series.map((series) =>
          element("td", { className: "number", textContent: format(series.values[row], data.unit) }),
        ),
      ),
    );
    const names = data.series.map((series) => heading(series.name));
    const table = element(
      "table",
      {},
      element("caption", { className: "hidden", textContent: data.title }),
      element("thead", {}, element("tr", {}, heading("name"), ...names)),
      element("tbody", {}, ...rows),
    );
    return element(
      "div",
      { className: "rows", tabIndex: 0, role: "region", ariaLabel: `Numbers: ${data.title}` },
      table,
    );
  }

  function draw(section) {
    const data = charts[Number(section.dataset.chart)];
    const canvas = element("canvas", { role: "img", ariaLabel: `${data.title}. ${data.finding}` });
    const holder = section.querySelector(".canvas");
    holder.style.height = `${height(data)}px`;
    holder.append(canvas);
    const details = section.querySelector("details");
    details.addEventListener("toggle", () => details.append(numbers(data)), { once: true });
    const chart = new Chart(canvas, configuration(data));
    const hues = data.series.map((series) => series.hue);
    drawn.push({ chart, repaint: () => paint(chart, hues) });
    paint(chart, hues);
  }

  // after the first paint: the answer is read meanwhile
  requestAnimationFrame(() => {
    setTimeout(() => {
      document.querySelectorAll("[data-chart]").forEach(draw);
      document.documentElement.dataset.charts = "drawn";
    });
  });
  theme.onChange(() => drawn.forEach(({ repaint }) => repaint()));
  for (const event of ["beforeprint", "afterprint"]) {
    window.addEventListener(event, () => drawn.forEach(({ chart }) => chart.resize()));
  }
})();
