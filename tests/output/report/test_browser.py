"""Pages in a real Chromium: no errors, nothing fetched, keyboard, contrast, print, and hostile
names.
"""

import re

import pytest

from cpreplicate.output.report import page_of
from cpreplicate.output.report.model import Chart, Column, DataTable, Page, Series
from cpreplicate.output.report.page import html_of
from tests.support.commandline import run
from tests.support.jobs import JOB, write_checkpoint
from tests.support.replicas import FILES, synced
from tests.support.reports import handles_of

pytestmark = [pytest.mark.chromium, pytest.mark.xdist_group("chromium")]

COMMANDS = {
    "inspect": f"inspect dcA/{JOB}",
    "diff": f"diff dcA/{JOB} dcB",
    "sync": f"sync dcA/{JOB} dcB --runner inline --dry-run",
    "verify": f"verify dcB/{JOB} --content --all",
    "fleet": "fleet jobs.toml --dry-run",
    "status": "status dcB",
    "list": "list dcB",
}
EVIL = "shared/<img src=x onerror=hacked=1>"
CLOSING = "shared/</script><script>hacked=2</script>"
# WCAG 2.1, 1.4.3: the least ratio of a text to what is behind it, with the text
CONTRAST = """(() => {
    const channel = (c) => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
    const luminance = ([r, g, b]) =>
        0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
    const parts = (color) => color.match(/[\\d.]+/g).map(Number);
    const behind = (element) => {
        for (let each = element; each; each = each.parentElement) {
            const color = parts(getComputedStyle(each).backgroundColor);
            if (color.length === 3 || color[3] === 1) return color;
        }
        return [255, 255, 255];
    };
    const ratio = (one, other) => {
        const [light, dark] = [luminance(one), luminance(other)].sort((a, b) => b - a);
        return (light + 0.05) / (dark + 0.05);
    };
    const texts = [...document.querySelectorAll("body *")].filter((element) =>
        !["SCRIPT", "NOSCRIPT", "CANVAS"].includes(element.tagName)
        && (element.tagName === "INPUT"
            || [...element.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim())));
    const found = texts.map((element) =>
        [ratio(parts(getComputedStyle(element).color), behind(element)), element.textContent]);
    const style = getComputedStyle(document.documentElement);
    const rgb = (hex) => hex.trim().match(/[0-9a-f]{2}/gi).map((part) => parseInt(part, 16));
    const of = (name) => rgb(style.getPropertyValue(name));
    const bars = [1, 2, 3, 4, 5, 6].map((n) => ratio(of(`--series-${n}`), of("--page")));
    const lines = ["--good", "--notice", "--bad", "--link"].map((n) => ratio(of(n), of("--panel")));
    const least = found.reduce((a, b) => (a[0] < b[0] ? a : b));
    return { count: found.length, least, bars: Math.min(...bars), lines: Math.min(...lines) };
})()"""
# The colours of large areas of the first chart: the numbers of series, else what they are
AREAS = """(() => {
    const canvas = document.querySelector("canvas");
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    const style = getComputedStyle(document.documentElement);
    const numbers = new Map([1, 2, 3, 4, 5, 6].map((n) =>
        [style.getPropertyValue(`--series-${n}`).trim(), n]));
    const counts = new Map();
    for (let at = 0; at < data.length; at += 4) {
        if (data[at + 3] === 0) continue;
        const hex = [...data.slice(at, at + 3)].map((part) => part.toString(16).padStart(2, "0"));
        const color = `#${hex.join("")}${data[at + 3] < 255 ? " " + data[at + 3] : ""}`;
        counts.set(color, (counts.get(color) ?? 0) + 1);
    }
    const large = [...counts].filter(([, count]) => count > 1500).map(([color]) => color);
    return large.map((color) => numbers.get(color) ?? color);
})()"""
COLUMN = """[...document.querySelectorAll('[data-table="%d"] tbody tr')].map(
    (row) => row.children[%d].textContent)"""
FOCUS = "document.activeElement.ariaLabel || document.activeElement.textContent"


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """A page of each command, about a source and a replica with hostile names."""
    root = tmp_path_factory.mktemp("pages")
    synced(root, {1: FILES, 2: {**FILES, EVIL: 40, CLOSING: 50}}, keep=2)
    write_checkpoint(root / "dcA", 3, {**FILES, EVIL: 40, CLOSING: 50, "shared/new": 10})
    (root / "jobs.toml").write_text(
        f"[[job]]\nname = {'</title><script>hacked=3</script>'!r}\n"
        f'source = "{root}/dcA/{JOB}"\ntarget = "{root}/dcB"\n'
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        for command, words in COMMANDS.items():
            ended = run(*words.split(), "--report", f"{command}.html")
            assert ended.code == 0, ended
    return root


@pytest.fixture
def wide(browser, tmp_path):
    """A page with a table of several pages, opened."""
    words = ["zebra", "apple", None, "Éclair"]
    columns = (
        Column("name", [f"{words[n % 3]} {n:03}" if n % 50 else None for n in range(250)]),
        Column("kind", [words[n % 4] for n in range(250)]),
        Column("bytes", [None if n == 7 else (n * 37) % 250 * 1024 for n in range(250)], "bytes"),
    )
    page = Page("title", "answer.", tables=(DataTable("Files", *columns),))
    (tmp_path / "page.html").write_text(html_of(page))
    browser.prefer("light")
    browser.open(tmp_path / "page.html")
    return browser


def shown(browser, column, table=0):
    return browser.evaluate(COLUMN % (table, column))


def status(browser):
    return browser.evaluate("document.querySelector('[role=status]').textContent")


def reach(browser, label, backwards=False):
    """Press Tab until what has this label, or this text, has the focus."""
    for _ in range(60):
        browser.tab(backwards)
        if browser.evaluate(FOCUS) == label:
            return
    raise AssertionError(f"{label} cannot be reached by the keyboard")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("command", COMMANDS)
def test_a_page_opens_from_disk_without_an_error_and_fetches_nothing(
    browser, pages, command, theme
):
    page = pages / f"{command}.html"
    browser.prefer(theme)
    browser.open(page)
    assert browser.complaints == []
    assert browser.requests == [page.as_uri()]
    assert browser.evaluate("document.documentElement.dataset.theme") == theme
    assert browser.evaluate("document.querySelectorAll('.loading').length") == 0
    assert shown(browser, 0)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("command", COMMANDS)
def test_every_text_has_enough_contrast(browser, pages, command, theme):
    browser.prefer(theme)
    browser.open(pages / f"{command}.html")
    browser.evaluate("document.querySelectorAll('details').forEach((each) => each.open = true)")
    found = browser.evaluate(CONTRAST)
    assert found["count"] > 20
    assert found["least"][0] >= 4.5, found["least"]
    assert min(found["bars"], found["lines"]) >= 3.0


@pytest.mark.parametrize("command", COMMANDS)
def test_names_from_outside_are_text(browser, pages, command):
    browser.open(pages / f"{command}.html")
    assert browser.evaluate("typeof hacked") == "undefined"
    assert browser.evaluate("document.querySelectorAll('img').length") == 0
    whole = browser.evaluate("document.body.innerText")
    if command in ("inspect", "diff", "sync"):
        assert EVIL in whole
        assert CLOSING in whole
    if command == "fleet":
        assert "</title><script>hacked=3</script>" in whole


def test_a_script_or_a_style_that_is_not_the_page_s_own_is_blocked(browser, pages, tmp_path):
    changed = tmp_path / "changed.html"
    text = (pages / "list.html").read_text()
    added = (
        "<script>window.hacked = 1</script><p id=styled style='color: red'>x</p>"
        "<style>#styled { display: none }</style><img src=x onerror='window.hacked = 2'>"
        "<img src='file:///etc/hostname'>"
    )
    changed.write_text(text.replace("</main>", f"{added}</main>"))
    browser.open(changed)
    browser.wait_for("document.readyState === 'complete'")
    assert browser.evaluate("window.hacked") is None
    style = "getComputedStyle(document.getElementById('styled'))"
    assert browser.evaluate(f"{style}.display") == "block"
    assert browser.evaluate(f"{style}.color") != "rgb(255, 0, 0)"
    assert browser.complaints


def test_charts_are_drawn_with_their_finding_for_those_who_do_not_see_them(browser, pages):
    browser.open(pages / "sync.html")
    titles = browser.evaluate("[...document.querySelectorAll('canvas')].map((c) => c.ariaLabel)")
    assert [title.partition(".")[0] for title in titles] == [
        "Copy, keep and delete by directory",
        "Bytes by operator and kind of state",
        "Checkpoints held before the sync",
    ]
    drawn = """[...document.querySelectorAll('canvas')].map((canvas) => {
        const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
        return data.some((value) => value > 0);
    })"""
    assert browser.evaluate(drawn) == [True] * len(titles)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_bars_have_the_colours_of_their_legend(browser, tmp_path, theme):
    series = tuple(Series(f"s{hue}", [2048 * hue, 4096], hue) for hue in (5, 2, 1))
    page = Page("t", "a.", charts=(Chart("Bytes", "a has most.", ["a", "b"], series),))
    (tmp_path / "page.html").write_text(html_of(page))
    browser.prefer(theme)
    browser.open(tmp_path / "page.html")
    assert set(browser.evaluate(AREAS)) == {1, 2, 5}
    other = {"light": "dark", "dark": "light"}[theme]
    browser.prefer(other)
    browser.wait_for(f"document.documentElement.dataset.theme === '{other}'")
    assert set(browser.evaluate(AREAS)) == {1, 2, 5}


def test_the_numbers_of_a_chart_are_a_table(browser, tmp_path):
    chart = Chart("Bytes", "a has most.", ["a", "b"], (Series("size", [2048, 5]),))
    (tmp_path / "page.html").write_text(html_of(Page("title", "answer.", charts=(chart,))))
    browser.open(tmp_path / "page.html")
    browser.evaluate("document.querySelector('summary').click()")
    browser.wait_for("document.querySelectorAll('details table').length === 1")
    assert browser.evaluate("document.querySelector('details tbody').innerText").split() == [
        *("a", "2.0", "KiB"),
        *("b", "5", "B"),
    ]


def test_a_table_is_sorted_by_its_values_and_empty_cells_are_last(wide):
    click = "document.querySelector('thead th:nth-child(3) button').click()"
    wide.evaluate(click)
    assert shown(wide, 2)[:2] == ["249.0 KiB", "248.0 KiB"]
    wide.evaluate(click)
    assert shown(wide, 2)[:2] == ["0 B", "1.0 KiB"]
    wide.evaluate("[...document.querySelectorAll('.controls button')].at(-1).click()")
    assert shown(wide, 2)[-1] == ""


def test_equal_cells_stay_in_the_order_of_the_rows_in_both_directions(wide, tmp_path):
    columns = (
        Column("row", list(range(6)), "count"),
        Column("seconds", [1.5, None, 2**50, 1.5, 0.25, None], "seconds"),
        Column("word", ["b", "a", "b", "", "a", None]),
    )
    page = Page("t", "a.", tables=(DataTable("Files", *columns),))
    (tmp_path / "ties.html").write_text(html_of(page))
    wide.open(tmp_path / "ties.html")
    orders = []
    for column in (2, 2, 3, 3):
        wide.evaluate(f"document.querySelector('thead th:nth-child({column}) button').click()")
        orders.append("".join(shown(wide, 0)))
    assert orders == ["203415", "403215", "140235", "021435"]


def test_texts_are_sorted_by_their_characters(wide, tmp_path):
    texts = [f"a/{n * 7919 % 1000:04x}/{'x' * (n % 7)}" for n in range(3000)] + ["a/Ā", "a/Ē", "a"]
    page = Page("t", "a.", tables=(DataTable("Files", Column("path", texts)),))
    (tmp_path / "texts.html").write_text(html_of(page))
    wide.open(tmp_path / "texts.html")
    wide.evaluate("document.querySelector('thead button').click()")
    found = []
    for _ in range(31):
        found += shown(wide, 0)
        wide.evaluate("document.querySelectorAll('.controls button')[2].click()")
    assert found == sorted(texts)


def test_a_search_finds_rows_whatever_the_case_and_keeps_the_order(wide):
    wide.evaluate("document.querySelector('thead th:nth-child(3) button').click()")
    wide.evaluate("document.querySelector('input').focus()")
    wide.type("ÉCLAIR")
    assert set(shown(wide, 1)) == {"Éclair"}
    assert status(wide) == "Rows 1 to 62 of 62 that match, of 250"
    numbers = [float(text.split()[0]) for text in shown(wide, 2) if text.endswith("KiB")]
    assert numbers == sorted(numbers, reverse=True)
    wide.type(" no such text")
    assert status(wide) == "No row of 250 matches"


def test_a_search_finds_what_begins_in_the_part_that_all_texts_have_in_common(wide, tmp_path):
    texts = [f"hdfs://a/shared/{n}" for n in range(10)]
    page = Page("t", "a.", tables=(DataTable("Files", Column("path", texts)),))
    (tmp_path / "texts.html").write_text(html_of(page))
    wide.open(tmp_path / "texts.html")
    wide.evaluate("document.querySelector('input').focus()")
    wide.type("shared/7")
    assert shown(wide, 0) == ["hdfs://a/shared/7"]


def test_all_is_done_by_the_keyboard_alone(wide):
    reach(wide, "Skip to the answer")
    wide.enter()
    assert wide.evaluate("document.activeElement.id") == "main"
    reach(wide, "Dark theme", backwards=True)
    wide.enter()
    assert wide.evaluate("document.documentElement.dataset.theme") == "dark"
    reach(wide, "Next rows of files")
    wide.enter()
    assert status(wide) == "Rows 101 to 200 of 250"
    reach(wide, "Last rows of files")
    wide.enter()
    assert status(wide) == "Rows 201 to 250 of 250"
    assert wide.evaluate(FOCUS) == "Last rows of files"
    reach(wide, "Files")  # the rows, which are scrolled by the keyboard
    reach(wide, "bytes")
    wide.enter()
    sort = "document.querySelectorAll('th')[2].ariaSort"
    assert wide.evaluate(sort) == "descending"
    wide.enter()
    assert wide.evaluate(sort) == "ascending"
    reach(wide, "First rows of files", backwards=True)
    wide.tab(backwards=True)
    assert wide.evaluate("document.activeElement.tagName") == "INPUT"
    wide.type("zebra")
    assert wide.evaluate("document.querySelector('tbody').textContent").count("zebra") > 80


def test_what_has_the_focus_is_marked(wide):
    reach(wide, "Dark theme")
    assert wide.evaluate("getComputedStyle(document.activeElement).outlineWidth") == "3px"


def test_a_page_is_printed_light_with_its_rows_and_without_its_controls(browser, pages):
    browser.prefer("dark")
    browser.open(pages / "sync.html")
    seen = """addEventListener('beforeprint', () => {
        window.printed = document.documentElement.dataset.theme;
    })"""
    browser.evaluate(seen)
    pdf = browser.pdf()
    assert pdf.startswith(b"%PDF-")
    assert len(re.findall(rb"/Type\s*/Page\b", pdf)) >= 2
    assert browser.evaluate("window.printed") == "light"
    assert browser.evaluate("document.documentElement.dataset.theme") == "dark"
    browser.call("Emulation.setEmulatedMedia", media="print")
    landscape = {"width": 1032, "height": 700, "deviceScaleFactor": 1, "mobile": False}  # A4
    browser.call("Emulation.setDeviceMetricsOverride", **landscape)
    try:
        assert browser.evaluate("document.documentElement.scrollWidth") <= landscape["width"]
        sizes = "[...document.querySelectorAll('button, input')].map((e) => e.offsetHeight)"
        heads = "[...document.querySelectorAll('thead button')].map((e) => e.offsetHeight)"
        visible = [each for each in browser.evaluate(sizes) if each]
        assert len(visible) == len(browser.evaluate(heads))
        assert browser.evaluate("document.querySelector('.rows').scrollTop") == 0
        is_clipped = "(e) => e.scrollHeight > e.clientHeight + 1"
        every = "[...document.querySelectorAll('.rows')]"
        assert not browser.evaluate(f"{every}.some({is_clipped})")
    finally:
        browser.call("Emulation.setEmulatedMedia", media="")
        browser.call("Emulation.clearDeviceMetricsOverride")


def test_a_page_without_scripts_still_has_the_answer(browser, pages):
    browser.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.complaints.clear()
        browser.call("Page.navigate", url=(pages / "sync.html").as_uri())
        browser.wait_for("document.querySelector('.answer') !== null")
        text = browser.evaluate("document.body.innerText")
    finally:
        browser.call("Emulation.setScriptExecutionDisabled", value=False)
    assert "files, " in text
    assert "Charts and tables need JavaScript" in text


def test_many_rows_are_shown_sorted_and_searched(browser, tmp_path):
    handles = handles_of({f"Window {n}": list(range(1, 401)) for n in range(50)})
    (tmp_path / "page.html").write_text(html_of(page_of(handles)))
    browser.open(tmp_path / "page.html")
    assert (
        browser.evaluate("document.querySelectorAll('[data-table=\"1\"] tbody tr').length") == 100
    )
    browser.evaluate("document.querySelector('[data-table=\"1\"] th:nth-child(7) button').click()")
    assert shown(browser, 6, table=1)[0] == "hdfs://a/job/shared/0000"
    assert browser.complaints == []


def test_on_a_narrow_screen_labels_keep_their_ends_and_words_are_whole(browser, tmp_path):
    labels = [f"orders of the north ({letter * 32})" for letter in "ab"]
    chart = Chart("Lag", "finding.", labels, (Series("lag", [1, 2]),))
    facts = (("replica", f"file:/{'x' * 90}"), ("words", "some words that are not divided"))
    page = Page("title of a page", "answer.", facts=facts, charts=(chart,))
    (tmp_path / "page.html").write_text(html_of(page))
    size = {"width": 400, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.call("Emulation.setDeviceMetricsOverride", **size)
    try:
        browser.open(tmp_path / "page.html")
        shown = browser.evaluate(
            "Chart.getChart(document.querySelector('canvas')).scales.y.ticks.map((t) => t.label)"
        )
        wider = "[...document.querySelectorAll('main *')].filter((e) => e.scrollWidth > 400).length"
        assert browser.evaluate(wider) == 0
        lines = "document.querySelector('header p').getBoundingClientRect().height"
        assert browser.evaluate(lines) < 60, "a line or two, and no column of letters"
    finally:
        browser.call("Emulation.clearDeviceMetricsOverride")
    assert [label.partition("…")[2][-2:] for label in shown] == ["a)", "b)"]
    assert all(label.startswith("orders") and len(label) < 30 for label in shown)


def test_one_checkpoint_or_replica_has_no_chart_of_one_bar(tmp_path):
    replica = synced(tmp_path, {1: FILES})
    for words in (("status", replica.parent), ("list", replica.parent), ("verify", replica)):
        assert run(*words, "--report", tmp_path / "page.html").code == 0
        assert 'data-chart="0"' not in (tmp_path / "page.html").read_text(), words


def test_the_plan_names_the_points_that_go_in_its_first_sentence(tmp_path):
    synced(tmp_path, {1: FILES, 2: FILES}, keep=2)
    source = write_checkpoint(tmp_path / "dcA", 3, FILES)
    words = ("diff", source, tmp_path / "dcB", "--keep", "1", "--keep-less")
    assert run(*words, "--report", tmp_path / "page.html").code == 0
    answer = re.search(
        r'class="answer notice">(.*?)</p>', (tmp_path / "page.html").read_text(), re.S
    )
    assert answer is not None
    assert re.search(r"Withdraws chk-1 \(.*?\), chk-2 \(", answer[1])
