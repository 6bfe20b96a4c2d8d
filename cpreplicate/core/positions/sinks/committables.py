"""The committables that the committer of a sink keeps in `streaming_committer_raw_states`.

Flink wraps those of each connector in the same way. The order of fields is that of
`CommittableCollectorSerializer`, and up to Flink 1.14 of `StreamingCommitterStateSerializer`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from cpreplicate.core.positions.fields import Fields, block, i32
from cpreplicate.core.positions.list_states import datum
from cpreplicate.core.positions.model import Unreadable

COMMITTER = "streaming_committer_raw_states"
_MAGIC = 0xB91F252C
_LISTED, _COLLECTED = 1, 2  # versions of an element: up to Flink 1.14, and later
_PENDING_STATES = (0, 1)  # received, retry; 2 failed and 3 committed are not committed again


class Committable(NamedTuple):
    """What a sink's own serializer wrote in this version of it.

    `checkpoint` is that at which it was made, None up to Flink 1.14. `is_pending`: the restored job
    commits it.
    """

    checkpoint: int | None
    version: int
    data: bytes
    is_pending: bool = True


def committables(element: bytes) -> Iterator[Committable]:
    """Yield the committables in an element of the committer's list. Raises `Unreadable`."""
    version, fields = _opened(element)
    if version == _LISTED:
        own, every = _list(fields)
        yield from (Committable(None, own, data) for data in every)
    else:
        of_checkpoint, managers = _list(fields)
        for manager in managers:
            yield from _of_checkpoint(of_checkpoint, Fields(manager))
    fields.end()


def emptied(element: bytes) -> bytes:
    """Return an element of the committer's list without its committables. Raises `Unreadable`."""
    version, fields = _opened(element)
    return i32(version) + block(_MAGIC.to_bytes(4, "big") + i32(fields.i32(), 0))


def _opened(element: bytes) -> tuple[int, Fields]:
    """Return the version of an element, and its fields behind the magic number."""
    version, content = datum(element)
    if version not in (_LISTED, _COLLECTED):
        raise Unreadable(f"version {version} of committables is not known")
    fields = Fields(content)
    if fields.i32() & 0xFFFFFFFF != _MAGIC:
        raise Unreadable("the magic number of committables is missing")
    return version, fields


def _list(fields: Fields) -> tuple[int, list[bytes]]:
    """Read what `SimpleVersionedSerialization.writeVersionAndSerializeList` wrote."""
    version = fields.i32()
    return version, [fields.block() for _ in range(fields.count(4))]


def _of_checkpoint(of: int, fields: Fields) -> Iterator[Committable]:
    """Yield the committables of one checkpoint, of all subtasks of a sink.

    Its version `of` is 0 up to Flink 1.19: then it has no number of subtasks.
    """
    checkpoint = fields.i64()
    if of not in (0, 1):
        raise Unreadable(f"version {of} of a checkpoint's committables is not known")
    if of:
        fields.i32()  # the number of subtasks
    version, subtasks = _list(fields)
    fields.end()
    if version not in (0, 1, 2):
        raise Unreadable(f"version {version} of a subtask's committables is not known")
    for subtask in subtasks:
        inner = Fields(subtask)
        if version:
            inner.i32()  # its number
        _, requests = _list(inner)
        inner.take(4 * (2 if version == 2 else 3))  # how many there were, and are left
        inner.end()
        yield from (_requested(checkpoint, Fields(each)) for each in requests)


def _requested(checkpoint: int, fields: Fields) -> Committable:
    """Read a request to commit."""
    version, data = fields.i32(), fields.block()
    fields.i32()  # retries
    state = fields.i32()
    fields.end()
    if state not in range(4):
        raise Unreadable(f"a state {state} of a committable is not known")
    return Committable(checkpoint, version, data, state in _PENDING_STATES)
