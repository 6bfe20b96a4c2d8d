"""Text for people: rich tables on a terminal, else plain aligned columns."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence

from cpreplicate.output.streams import emphasised, is_terminal, printable

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
    width = _terminal_width()
    if width is None:
        return _table_of(columns)
    filled = {head: cells for head, cells in columns.items() if any(cells)}
    shown = _narrowed(filled, dispensable, width)
    if shown is None:
        return "\n".join(_paragraphs(filled, width))
    left_out = [head for head in filled if head not in shown]
    return "\n".join(filter(None, [_table_of(shown), _note(left_out, width)]))


class GrowingTable:
    """A table as `fitted` returns it, whose rows are printed as they become known.

    The first rows decide which columns there are, and how wide they are. One that is `dispensable`
    and has no text in these is left out; `end` names it if a later row has one.
    """

    def __init__(self, first: Mapping[str, Sequence[str]], dispensable: Sequence[str]) -> None:
        self._width = _terminal_width()
        self._left_out: dict[str, None] = {}
        shown: Mapping[str, Sequence[str]] | None = first
        if self._width is not None:
            filled = {
                head: cells
                for head, cells in first.items()
                if any(cells) or head not in dispensable
            }
            shown = _narrowed(filled, dispensable, self._width)
        self._widths = None if shown is None else _widths(shown)
        self._first = first

    def begin(self) -> str:
        """Return the heads, and the first rows."""
        rows = self.rows(self._first)
        if self._widths is None:
            return rows
        heads = self._line(list(self._widths))
        return f"{heads if self._width is None else emphasised(heads)}\n{rows}"

    def rows(self, columns: Mapping[str, Sequence[str]]) -> str:
        """Return more rows."""
        if self._widths is None:
            return "\n".join(_paragraphs(columns, self._width or 0))
        left_out = (head for head in columns if head not in self._widths and any(columns[head]))
        self._left_out |= dict.fromkeys(left_out)
        cells = zip(*(columns[head] for head in self._widths), strict=True)
        return "\n".join(self._line(list(map(printable, row))) for row in cells)

    def _line(self, cells: Sequence[str]) -> str:
        assert self._widths is not None
        padded = (
            cell.ljust(width) for cell, width in zip(cells, self._widths.values(), strict=True)
        )
        return _BETWEEN.join(padded).rstrip()

    def end(self) -> str:
        """Return which columns with texts are not shown."""
        return _note(list(self._left_out), self._width or 0)


def _terminal_width() -> int | None:
    """Return the columns of the terminal; None of a pipe or a file, which have no width."""
    return shutil.get_terminal_size().columns if is_terminal(sys.stdout) else None


def _narrowed(
    columns: Mapping[str, Sequence[str]], dispensable: Sequence[str], width: int
) -> Mapping[str, Sequence[str]] | None:
    """Return the columns that are left where the first that are `dispensable` go while it is
    too wide; None if the others are too wide, too.
    """
    shown = dict(columns)
    for head in dispensable:
        if _width(shown) > width:
            shown.pop(head, None)
    return None if _width(shown) > width else shown


def _note(left_out: Sequence[str], width: int) -> str:
    note = f"not shown at this width: {', '.join(left_out)}"
    return "\n".join(textwrap.wrap(note, width)) if left_out else ""


def _table_of(columns: Mapping[str, Sequence[str]]) -> str:
    return table(tuple(columns), list(zip(*columns.values(), strict=True)))


def _width(columns: Mapping[str, Sequence[str]]) -> int:
    """Return how many characters a line of a table has."""
    widths = _widths(columns).values()
    return sum(widths) + len(_BETWEEN) * (len(widths) - 1)


def _widths(columns: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """Return how many characters the longest text of each column has, or its head."""
    return {head: max(map(len, map(printable, (head, *cells)))) for head, cells in columns.items()}


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
