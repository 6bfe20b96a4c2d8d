"""Text for people: rich tables on a terminal, else plain aligned columns."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence

from cpreplicate.output.streams import is_terminal, printable

_BETWEEN = "  "  # two columns of a table


def duration(seconds: float) -> str:
    """Return a time as people read it, such as `2 min 05 s`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02} min"
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"


def columns(facts: Iterable[tuple[str, str]]) -> str:
    """Return names and values in two columns, one pair per line."""
    return lines(f"{name:<11} {value}" for name, value in facts)


def lines(texts: Iterable[str]) -> str:
    """Return texts one per line, with control characters escaped."""
    return "\n".join(map(printable, texts))


def table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """Return a table: with rich on a terminal, else in plain aligned columns."""
    rows = [tuple(map(printable, row)) for row in rows]
    return _rich_table(head, rows) if is_terminal(sys.stdout) else _plain_table(head, rows)


def fitted(columns: Mapping[str, Sequence[str]], dispensable: Sequence[str]) -> str:
    """Return a table of columns that all begin with its head, as wide as the terminal is at most.

    Columns without a text are left out. Those that are `dispensable` are left out one after the
    other while the table is too wide, and a line below names them. Where the others are too wide,
    too, each row becomes a paragraph with all its texts. The terminal has as many columns as
    COLUMNS says, if that is set. A pipe or a file has no width: it gets the whole table.
    """
    if not is_terminal(sys.stdout):
        return _table_of(columns)
    width = shutil.get_terminal_size().columns
    filled = {head: cells for head, cells in columns.items() if any(cells)}
    shown = dict(filled)
    for head in dispensable:
        if _width(shown) > width:
            shown.pop(head, None)
    if _width(shown) > width:
        return "\n".join(_paragraphs(filled, width))
    left_out = [head for head in filled if head not in shown]
    note = f"not shown at this width: {', '.join(left_out)}" if left_out else ""
    return "\n".join(filter(None, [_table_of(shown), *textwrap.wrap(note, width)]))


def _table_of(columns: Mapping[str, Sequence[str]]) -> str:
    return table(tuple(columns), list(zip(*columns.values(), strict=True)))


def _width(columns: Mapping[str, Sequence[str]]) -> int:
    """Return how many characters a line of a table has."""
    widths = [max(map(len, map(printable, (head, *cells)))) for head, cells in columns.items()]
    return sum(widths) + len(_BETWEEN) * (len(widths) - 1)


def _paragraphs(columns: Mapping[str, Sequence[str]], width: int) -> Iterable[str]:
    """Yield the lines of each row: its first text, then the others behind their heads."""
    (_, titles), *others = columns.items()
    for number, title in enumerate(titles):
        texts = [f"{head} {cells[number]}" for head, cells in others if cells[number]]
        yield from textwrap.wrap(printable(title), width)
        yield from textwrap.wrap(
            printable(", ".join(texts)), width, initial_indent="  ", subsequent_indent="  "
        )


def _plain_table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    lines = (
        _BETWEEN.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        for row in (head, *rows)
    )
    return "\n".join(line.rstrip() for line in lines)


def _rich_table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """Return a table with a bold head, for a terminal."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, header_style="bold", pad_edge=False)
    for title in head:
        table.add_column(title, overflow="fold")  # a truncated id or path is useless
    for row in rows:
        table.add_row(*map(Text, row))
    console = Console()
    with console.capture() as captured:
        console.print(table)
    return captured.get().rstrip("\n")
