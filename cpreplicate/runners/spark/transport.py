"""The encoding of batches and outcomes that travel between driver and executors.

It is Arrow's: a column for each field, instead of objects. So hundreds of thousands of actions cost
the driver tens of megabytes, and a task decodes its own batch only.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Any, NamedTuple

import pyarrow as pa

from cpreplicate.protocol.lease import LeaseToken
from cpreplicate.runners.copy_rows import Copies
from cpreplicate.runners.tasks import Copy, CopyRange, Delete, Outcome, Part, Read, Task

_COPY, _READ, _DELETE, _RANGE = range(4)
_ACTIONS = pa.schema(
    [
        ("kind", pa.uint8()),
        ("source", pa.string()),
        ("target", pa.string()),
        ("extent", pa.int64()),
        ("size", pa.int64()),
        ("grows", pa.bool_()),
        ("until", pa.float64()),
        ("to", pa.string()),
        ("packed", pa.bool_()),
        ("offset", pa.int64()),
        ("crc32c", pa.uint32()),
    ]
)
_OUTCOMES = pa.schema(
    [
        ("index", pa.int32()),
        ("bytes", pa.int64()),
        ("crc32c", pa.uint32()),
        ("seconds", pa.float64()),
        ("error", pa.string()),
        ("missing", pa.bool_()),
        ("late", pa.bool_()),
        ("short", pa.bool_()),
        ("pack", pa.string()),
        ("offset", pa.int64()),
        ("damaged", pa.bool_()),
        ("prefix", pa.int64()),
        ("prefix_crc32c", pa.uint32()),
        ("dropped", pa.bool_()),
        ("receipt", pa.string()),
    ]
)
# a batch is small: threads and zstd would take longer
_COMPRESSED = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)


class _Common(NamedTuple):
    """What the actions of a batch have in common, stored in the metadata of its schema.

    `place` and `token` are of the lease that its growing files need. Sources begin with `origin`,
    targets with `root`, and the URIs of packs with `stem`. `inside` is that of its copies.
    """

    place: str = ""
    token: str = ""
    origin: str = ""
    root: str = ""
    stem: str = ""
    inside: str = ""


class IndexedOutcome(NamedTuple):
    """The outcome of the action at this position of its batch."""

    position: int
    outcome: Outcome


def encode(batch: Sequence[Task]) -> bytes:
    """Return a batch in Arrow's stream format.

    All growing files of a batch must be covered by one lease, all its packs have one stem, and all
    its copies are made inside of one replica.
    """
    columns, common = _copies(batch) if isinstance(batch, Copies) else _actions(batch)
    fields = {name: text for name, text in common._asdict().items() if text}
    return _written(columns, _ACTIONS.with_metadata(fields))


def decode(data: bytes) -> list[Task]:
    """Return the actions of an encoded batch."""
    schema, rows = _rows(data)
    common = _Common(
        **{name.decode(): text.decode() for name, text in (schema.metadata or {}).items()}
    )
    return [_task(row, common, LeaseToken(common.place, common.token)) for row in rows]


def encode_outcomes(outcomes: Iterable[IndexedOutcome]) -> bytes:
    """Return outcomes with their index in the batch. The driver has the actions."""
    rows = [(index, *outcome[1:]) for index, outcome in outcomes]
    columns = list(zip(*rows, strict=True)) or [()] * len(_OUTCOMES)
    return _written(
        [pa.array(column, kind.type) for column, kind in zip(columns, _OUTCOMES, strict=True)],
        _OUTCOMES,
    )


def decode_outcomes(data: bytes, batch: Sequence[Task]) -> list[IndexedOutcome]:
    """Return the outcomes of a batch."""
    return [
        IndexedOutcome(row[0], Outcome(batch[row[0]].target, *row[1:])) for row in _rows(data)[1]
    ]


def _columns(rows: Iterable[tuple[Any, ...]]) -> list[Sequence[Any]]:
    return list(zip(*rows, strict=True)) or [()] * len(_ACTIONS)


def _copies(batch: Copies) -> tuple[list[pa.Array], _Common]:
    """Return the columns of a batch that has nothing but copies, and what these have in common."""
    count, planned = len(batch), batch.planned
    source, target, *others = batch.rows().columns
    kinds = pa.repeat(pa.scalar(_COPY, pa.uint8()), count)
    texts = [column.cast(pa.string()) for column in (source, target)]
    *others, packed = others
    of_deletes = [pa.nulls(count, kind) for kind in (pa.float64(), pa.string())]
    of_parts = [pa.nulls(count, kind) for kind in (pa.int64(), pa.uint32())]
    inside = planned.root.rstrip("/")
    common = _Common(*planned.token, planned.origin, planned.root, planned.stem, inside)
    return [kinds, *texts, *others, *of_deletes, packed, *of_parts], common


def _actions(batch: Sequence[Task]) -> tuple[list[pa.Array], _Common]:
    """Return the columns of any batch, and what its copies have in common."""
    columns = _columns(map(_row, batch))
    copies = [action for action in batch if isinstance(action, Copy)]
    tokens = (copy.token for copy in copies if copy.token is not None)
    stems = (copy.pack for copy in copies if copy.pack is not None)
    inside = next((task.inside for task in batch if isinstance(task, (Copy, CopyRange))), "")
    common = _Common(*next(tokens, LeaseToken("", "")), stem=next(stems, ""), inside=inside)
    return [
        pa.array(column, kind.type) for column, kind in zip(columns, _ACTIONS, strict=True)
    ], common


def _row(action: Task) -> tuple[object, ...]:
    """Return the columns of an action.

    The source of a read is its pack. A range may grow if it is the last one, and goes to its joint.
    """
    if isinstance(action, Copy):
        part = action.part or (None, None)
        grows, is_packed = action.token is not None, action.pack is not None
        sizes = (action.extent, action.size)
        return _COPY, action.source, action.target, *sizes, grows, None, None, is_packed, *part
    if isinstance(action, CopyRange):
        sizes = (action.extent, action.size)
        place = (action.is_last, None, action.joint, None, action.offset, None)
        return _RANGE, action.source, action.file, *sizes, *place
    if isinstance(action, Read):
        nothing = (None, None, None, None, None)
        return _READ, action.pack, action.target, action.extent, *nothing, action.offset, None
    nothing_first = (None, None, None)
    return _DELETE, None, action.target, *nothing_first, action.until, action.to, None, None, None


def _task(row: tuple[Any, ...], common: _Common, token: LeaseToken) -> Task:
    """Return the task of a row, as `_row` wrote it."""
    kind, source, target, extent, size, grows, until, to, is_packed, offset, crc32c = row
    if kind == _READ:
        return Read(target, extent, source, offset)
    if kind == _DELETE:
        return Delete(target, until, to)
    if kind == _RANGE:
        return CopyRange(source, target, offset, extent, size, grows, to, common.inside)
    return Copy(
        common.origin + target if source is None else source,
        common.root + target,
        extent,
        size,
        token if grows else None,
        common.stem if is_packed else None,
        Part(offset, crc32c) if crc32c is not None else None,
        common.inside,
    )


def _written(columns: Sequence[pa.Array], schema: pa.Schema) -> bytes:
    """Return columns in Arrow's stream format."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema, options=_COMPRESSED) as writer:
        writer.write_batch(pa.record_batch(list(columns), schema=schema))
    return bytes(sink.getvalue())


def _rows(data: bytes) -> tuple[pa.Schema, Iterable[tuple[Any, ...]]]:
    """Return the schema and the rows of columns in Arrow's stream format."""
    with pa.ipc.open_stream(data) as reader:
        table = reader.read_all()
    columns = [column.to_pylist() for column in table.columns]
    return table.schema, zip(*columns, strict=True) if columns and columns[0] else repeat((), 0)
