"""A page as one file of HTML: everything is inside it, and nothing is fetched.

What came from outside is text: escaped in HTML, and set as text by the script. The policy allows
the page's own script and style by their hashes, so nothing else runs, whatever a name holds.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import html
import json
import os
import re
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from cpreplicate.output import run
from cpreplicate.output.report.model import Chart, Column, DataTable, Page, Value
from cpreplicate.output.streams import printable
from cpreplicate.version import __version__

_SCRIPTS = ("theme.js", "charts.js", "tables.js")
_LIBRARY = "vendor/chart.umd.min.js"
_LICENSE = "vendor/chart.LICENSE.md"
_SOURCE_MAP = re.compile(r"^//# sourceMappingURL=.*$", re.MULTILINE)  # it is not in the page
_MARKS = {"good": "✓", "notice": "!", "bad": "✗"}
_WORDS = {"good": "", "notice": "Warning: ", "bad": "Error: "}


def html_of(page: Page) -> str:
    """Return the page as a document of HTML, which needs no other file."""
    style, library, script = _static("page.css"), _library(), _own_script()
    policy = (
        f"default-src 'none'; script-src {_hash(library)} {_hash(script)};"
        f" style-src {_hash(style)}; base-uri 'none'; form-action 'none'"
    )
    return _lines(
        "<!DOCTYPE html>",
        '<html lang="en">',
        "<head>",
        '<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="color-scheme" content="light dark">',
        f"<title>{_text(page.title)}</title>",
        f"<style>{style}</style>",
        "</head>",
        "<body>",
        _head(page),
        _main(page),
        f'<script type="application/json" id="charts">{_json_in_html(_charts(page))}</script>',
        f"<script>{library}</script>",
        f"<script>{script}</script>",
        "</body>",
        "</html>",
    )


def _head(page: Page) -> str:
    made = run.timestamp(run.current().started)[:19].replace("T", " ")
    return _lines(
        '<a class="skip" href="#main">Skip to the answer</a>',
        "<header>",
        f"<h1>{_text(page.title)}</h1>",
        f"<p>cpreplicate {_text(__version__)}, {made} UTC</p>",
        '<button type="button" id="theme">Dark</button>',
        "</header>",
    )


def _main(page: Page) -> str:
    return _lines(
        '<main id="main" tabindex="-1">',
        _answer(page),
        _facts(page.facts),
        _notes(page.notes),
        "<noscript><p>Charts and tables need JavaScript. The script is in this file, and reads"
        " nothing else.</p></noscript>",
        *(_chart(number, chart) for number, chart in enumerate(page.charts)),
        *(_table(number, table) for number, table in enumerate(page.tables)),
        "</main>",
    )


def _answer(page: Page) -> str:
    restore = "" if page.restore is None else f" <code>{_text(page.restore)}</code>"
    return _lines(
        f'<p class="answer {page.tone}"><span aria-hidden="true">{_MARKS[page.tone]}</span>',
        f'<span><span class="hidden">{_WORDS[page.tone]}</span>{_text(page.answer)}{restore}</span>'
        "</p>",
    )


def _facts(facts: Iterable[tuple[str, str]]) -> str:
    rows = (f"<dt>{_text(name)}</dt><dd>{_text(value)}</dd>" for name, value in facts)
    return f"<dl>{''.join(rows)}</dl>"


def _notes(notes: Sequence[str]) -> str:
    if not notes:
        return ""
    items = "".join(f"<li>{_text(note)}</li>" for note in notes)
    return f'<section class="notes"><h2>Warnings and errors</h2><ul>{items}</ul></section>'


def _chart(number: int, chart: Chart) -> str:
    return _lines(
        f'<section class="chart" data-chart="{number}">',
        f"<h2>{_text(chart.title)}</h2>",
        f"<p>{_text(chart.finding)}</p>",
        '<div class="canvas"></div>',
        "<details><summary>Show the numbers</summary></details>",
        "</section>",
    )


def _table(number: int, table: DataTable) -> str:
    return _lines(
        f'<section class="table" data-table="{number}">',
        f"<h2>{_text(table.title)}</h2>",
        _left_out(table),
        '<p class="loading">The rows are read…</p>',
        f'<script type="text/plain">{_packed(table)}</script>',
        "</section>",
    )


def _left_out(table: DataTable) -> str:
    if not table.left_out:
        return ""
    whole = f"{len(table) + table.left_out:,}"
    return (
        f"<p>The {len(table):,} largest of {whole} rows are on this page."
        " --output ndjson prints all of them.</p>"
    )


def _packed(table: DataTable) -> str:
    """Return a table in columns, compressed. Characters of HTML are none of Base64."""
    columns = [_column(column) for column in table.columns]
    data = json.dumps({"title": table.title, "columns": columns}, separators=(",", ":"))
    return base64.b64encode(gzip.compress(data.encode(), mtime=0)).decode()


def _column(column: Column) -> dict[str, Any]:
    """Return a column. Texts that occur several times are numbers of a list, and what all begin
    with stands once: this halves the time until they are shown and sorted.
    """
    head: dict[str, Any] = {"name": column.name, "unit": column.unit}
    if column.unit not in ("text", "time"):
        return {**head, "values": list(column.values)}
    codes = {value: code for code, value in enumerate(dict.fromkeys(column.values))}
    if 2 * len(codes) > len(column.values):
        return {**head, **_texts(column.values)}
    return {**head, **_texts(list(codes)), "codes": [codes[value] for value in column.values]}


def _texts(values: Sequence[Value]) -> dict[str, Any]:
    texts = [printable(str(value)) if value not in (None, "") else None for value in values]
    named = [text for text in texts if text is not None]
    beginning = os.path.commonprefix(named)  # noqa: RUF071  # of characters, not of directories
    length = len(beginning)
    return {
        "beginning": beginning,
        "texts": [None if text is None else text[length:] for text in texts],
    }


def _charts(page: Page) -> list[dict[str, Any]]:
    return [
        {
            "title": printable(chart.title),
            "finding": printable(chart.finding),
            "labels": list(map(printable, chart.labels)),
            "series": [
                {
                    "name": printable(series.name),
                    "values": list(series.values),
                    "hue": series.hue or place,
                }
                for place, series in enumerate(chart.series, 1)
            ],
            "unit": chart.unit,
            "stacked": chart.is_stacked,
            "horizontal": chart.is_horizontal,
        }
        for chart in page.charts
    ]


def _json_in_html(value: object) -> str:
    """Return JSON that holds no character by which a script element could end."""
    return json.dumps(value).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _text(text: str) -> str:
    return html.escape(printable(text))


def _lines(*parts: str) -> str:
    return "\n".join(filter(None, parts))


@cache
def _static(name: str) -> str:
    return (files(__package__) / "static").joinpath(*name.split("/")).read_text("utf-8")


@cache
def _library() -> str:
    """Return the charting library, with its license, which each copy has to hold."""
    return f"/*\n{_static(_LICENSE)}*/\n{_SOURCE_MAP.sub('', _static(_LIBRARY))}"


@cache
def _own_script() -> str:
    return "\n".join(map(_static, _SCRIPTS))


def _hash(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"
