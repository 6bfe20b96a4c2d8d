"""The result of `inspect --refs`, written while it is made: there may be millions of rows."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from json.encoder import encode_basestring_ascii as quoted
from typing import Any

from cpreplicate.operations.inspect import References
from cpreplicate.output.results import Forms, Written
from cpreplicate.output.streams import is_terminal, printable
from cpreplicate.output.text import table

_HEAD = ("operator", "subtask", "state", "handle", "size", "position", "path")
_OF_TABLE = 1000  # rows; more of them are printed without a table of the terminal
_NULL = "null"


def _text(references: References) -> Written:
    """Return a row for each state handle."""
    if is_terminal(sys.stdout) and references.count <= _OF_TABLE:
        rows = (row for batch in references.batches() for row in _cells(batch))
        return table(_HEAD, list(rows))
    return _plain(references)


def _plain(references: References) -> Iterator[str]:
    """Yield lines whose cells are as wide as the widest of their column, but for the last one."""
    widths = [len(title) for title in _HEAD[:-1]]
    for batch in references.batches():
        for column, title in enumerate(_HEAD[:-1]):
            widths[column] = max(widths[column], _width(batch.column(title)))
    form = "  ".join([*(f"{{:<{width}}}" for width in widths), "{}"]).format
    yield form(*_HEAD)
    for batch in references.batches():
        yield "\n".join(form(*row).rstrip() for row in _cells(batch))


def _width(column: Any) -> int:
    """Return how wide the widest cell of a column is."""
    is_coded = hasattr(column, "dictionary")
    values = column.dictionary.to_pylist() if is_coded else _bounds(column)
    return max((len(str(value)) for value in values if value is not None), default=0)


def _bounds(column: Any) -> tuple[int | None, int | None]:
    import pyarrow.compute as pc

    bounds = pc.min_max(column).as_py()
    return bounds["min"], bounds["max"]


def _cells(batch: Any) -> Iterator[tuple[str, ...]]:
    *columns, paths = (_values(batch.column(title)) for title in _HEAD)
    texts = (["" if each is None else str(each) for each in column] for column in columns)
    return zip(*texts, ["" if path is None else printable(path) for path in paths], strict=True)


def _values(column: Any) -> list[Any]:
    """Return a column as objects. Arrow makes one of a dictionary a hundred times as slowly."""
    if not hasattr(column, "dictionary"):
        return list(column.to_pylist())
    names = dict(enumerate(column.dictionary.to_pylist()))
    return [names.get(code) for code in column.indices.to_pylist()]


def _json(references: References) -> Iterator[str]:
    """Yield an array of objects."""
    beginning = "["
    for batch in references.batches():
        yield beginning + ", ".join(_objects(batch))
        beginning = ", "
    yield "]" if beginning != "[" else "[]"


def _ndjson(references: References) -> Iterator[str]:
    return ("\n".join(_objects(batch)) for batch in references.batches())


def _objects(batch: Any) -> Iterator[str]:
    """Yield JSON objects as `json.dumps` writes them, in a third of its time."""
    columns = [_values(batch.column(name)) for name in batch.schema.names]
    operators, subtasks, states, handles, paths, uris, sizes, positions = columns
    for operator, subtask, state, handle, path, file_uri, size, position in zip(
        operators, subtasks, states, handles, paths, uris, sizes, positions, strict=True
    ):
        yield (
            f'{{"operator": {_NULL if operator is None else quoted(operator)},'
            f' "subtask": {_NULL if subtask is None else subtask},'
            f' "state": "{state}", "handle": "{handle}",'
            f' "path": {_NULL if path is None else quoted(path)},'
            f' "uri": {_NULL if file_uri is None else quoted(file_uri)}, "size": {size},'
            f' "position": {_NULL if position is None else position}}}'
        )


FORMS = Forms(_text, _json, _ndjson)
