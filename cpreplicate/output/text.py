"""Text for people: rich tables on a terminal, else plain aligned columns."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

from cpreplicate.output.streams import is_terminal, printable


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


def _plain_table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    lines = (
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
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
