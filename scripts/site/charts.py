"""The pictures of docs/performance.md: bars of the numbers of the table above each.

python -m scripts.site.charts    # write docs/images/performance-*.svg again
"""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import NamedTuple

DOCS = Path(__file__).parent.parent.parent / "docs"
FOUND = re.compile(
    r"((?:^\|.*\n)+)\n!\[([^\]]*)\]\((images/performance-[a-z]+\.svg)\)", re.MULTILINE
)
_COLOURS = ("#3f51b5", "#4f9a63", "#c98b3c", "#b0503f")
_LABELS, _BARS, _NUMBERS = 260, 380, 60  # widths in pixels
_BAR, _GAP, _TOP = 18, 14, 34  # heights


class Table(NamedTuple):
    """The rows of a table: a label, and a number or None for each of `series`."""

    series: tuple[str, ...]
    rows: tuple[tuple[str, tuple[float | None, ...]], ...]


def charts(page: str) -> dict[str, str]:
    """Return the SVG of each picture of a page by its path in docs/."""
    found = FOUND.findall(page)
    return {path: svg(table_of(rows), " ".join(title.split())) for rows, title, path in found}


def table_of(text: str) -> Table:
    """Return the table of some lines of Markdown."""
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()]
    rows = tuple(
        (cells[0].replace("`", ""), tuple(float(cell) if cell else None for cell in cells[1:]))
        for cells in lines[2:]
    )
    return Table(tuple(lines[0][1:]), rows)


def svg(table: Table, title: str) -> str:
    """Return a picture with a bar for each number of a table."""
    largest = max(number for _, numbers in table.rows for number in numbers if number is not None)
    parts: list[str] = [_legend(table.series)]
    y = _TOP
    for label, numbers in table.rows:
        bars = [(i, number) for i, number in enumerate(numbers) if number is not None]
        middle = y + len(bars) * _BAR / 2 + 5
        parts.append(_text(_LABELS - 10, middle, label, ' text-anchor="end"'))
        for series, number in bars:
            width = max(_BARS * number / largest, 1.0)
            parts.append(
                f'<rect x="{_LABELS}" y="{y}" width="{width:.1f}" height="{_BAR - 3}"'
                f' fill="{_COLOURS[series]}"/>'
            )
            parts.append(_text(_LABELS + width + 6, y + _BAR - 6, f"{number:g}"))
            y += _BAR
        y += _GAP
    width = _LABELS + _BARS + _NUMBERS
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {y}" width="{width}"'
            f' height="{y}" role="img" font-family="sans-serif" font-size="13">',
            f"<title>{html.escape(title)}</title>",
            f'<rect width="{width}" height="{y}" fill="#fff"/>',
            *parts,
            "</svg>\n",
        )
    )


def _legend(series: tuple[str, ...]) -> str:
    parts, x = [], float(_LABELS)
    for name, colour in zip(series, _COLOURS, strict=False):
        parts.append(f'<rect x="{x:g}" y="8" width="12" height="12" fill="{colour}"/>')
        parts.append(_text(x + 17, 19, name))
        x += 40 + 7.2 * len(name)
    return "\n".join(parts)


def _text(x: float, y: float, text: str, more: str = "") -> str:
    return f'<text x="{x:g}" y="{y:g}"{more}>{html.escape(text)}</text>'


def main() -> None:
    """Write the pictures of docs/performance.md."""
    for path, text in charts((DOCS / "performance.md").read_text()).items():
        (DOCS / path).write_text(text)


if __name__ == "__main__":
    main()
