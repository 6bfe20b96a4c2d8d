"""The list states of operators and the states of coordinators, read on demand.

The decoder skips the names and offsets of list states: only positions in sources need them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import BinaryIO, NamedTuple

import numpy as np

from cpreplicate.core.metadata import mutf8
from cpreplicate.core.metadata.handle import COORDINATOR, INLINE, Handle
from cpreplicate.core.metadata.model import Metadata
from cpreplicate.core.metadata.window import WINDOW, Window

_MOST_BYTES = 8 << 20  # of one inline state, and of the offsets of one list: they are in a window
_MERGED = 17


class ListStates(NamedTuple):
    """The list states of a subtask that were asked for, as one operator state handle records them.

    `offsets` are those of the elements of each state, in the stream that `handle` is of, None if
    they take more than 8 MiB. `inline` are the bytes of the stream where they are in the
    `_metadata`. `handle` is None if there is no stream. `places` are the bytes in the file at which
    the offsets of each state begin.
    """

    operator: int
    offsets: Mapping[str, tuple[int, ...] | None]
    handle: Handle | None
    inline: bytes | None
    places: Mapping[str, int]


class CoordinatorState(NamedTuple):
    """The state of an operator's coordinator, None if it is longer than 8 MiB.

    Its handle has the bytes from `start` to `end` of the file.
    """

    operator: int
    state: bytes | None
    start: int
    end: int


def operator_states(
    data: bytes | BinaryIO, metadata: Metadata, names: frozenset[str] | None, window: int = WINDOW
) -> Iterator[ListStates | CoordinatorState]:
    """Yield list states of these names, and the states of coordinators, in the order of the file.

    Without `names`, all list states of a subtask are given. `metadata` was decoded from `data`,
    which is read as `decode` does.
    """
    encoded = None if names is None else frozenset(map(mutf8.encode, names))
    reader = _Reader(Window(data, _let_go, window), metadata, encoded)
    for start, operator, end in _places(metadata):
        if end:
            yield CoordinatorState(operator, reader.coordinator(start), start, end)
        elif (states := reader.list_states(start, operator)) is not None:
            yield states


def _places(metadata: Metadata) -> list[tuple[int, int, int]]:
    """Return first byte and operator of each state, and the end of one that is a coordinator's."""
    handles = metadata.handles
    rows = np.flatnonzero((handles.state == COORDINATOR) & (handles.kind == INLINE))
    columns = (handles.start, handles.operator, handles.start + handles.length)
    coordinators = zip(*(column[rows].tolist() for column in columns), strict=True)
    pairs = iter(metadata.operator_states)
    lists = ((*place, 0) for place in zip(pairs, pairs, strict=True))
    return sorted([*coordinators, *lists])


def _let_go(_buffer: bytes, _base: int) -> None:
    """Let a buffer go: nothing in it was noted."""


class _Reader:
    """Reads handles of a `_metadata` that was decoded before, so their structure is known."""

    def __init__(self, window: Window, metadata: Metadata, names: frozenset[bytes] | None) -> None:
        self._in = window
        self._handles, self._names = metadata.handles, names

    def coordinator(self, start: int) -> bytes | None:
        """Return the bytes of the inline handle at `start`."""
        self._go_to(start)
        return self._inline_bytes()

    def list_states(self, start: int, operator: int) -> ListStates | None:
        """Return the list states of the operator state handle at `start`, None without any."""
        window = self._in
        self._go_to(start)
        kind = window.u8()
        offsets: dict[str, tuple[int, ...] | None] = {}
        places: dict[str, int] = {}
        for _ in range(window.i32()):
            window.ahead()
            name = window.utf("a state's name")
            window.u8()
            count = window.i32()
            if self._names is None or name in self._names:
                text = mutf8.decode(name)
                places[text] = window.offset
                offsets[text] = self._offsets(count)
            else:
                window.skip(8 * count)
        if not offsets:
            return None
        window.ahead()
        if kind == _MERGED:
            window.path("a directory's path")
            window.path("a directory's path")
            window.u8()
        return ListStates(operator, offsets, *self._stream(window.offset), places)

    def _go_to(self, start: int) -> None:
        self._in.skip(start - self._in.offset)
        self._in.ahead()

    def _offsets(self, count: int) -> tuple[int, ...] | None:
        if 8 * count > _MOST_BYTES:
            self._in.skip(8 * count)
            return None
        numbers = np.frombuffer(self._in.take(8 * count), ">i8")
        return tuple(numbers.tolist())

    def _stream(self, start: int) -> tuple[Handle | None, bytes | None]:
        """Return the handle of the stream at `start`, and the bytes of one that is inline."""
        row = int(np.searchsorted(self._handles.start, start))
        if row == len(self._handles) or self._handles.start[row] != start:
            return None, None  # nothing, or wrapped in key groups
        (handle,) = self._handles.chosen(slice(row, row + 1))
        return handle, self._inline_bytes() if handle.kind == "inline" else None

    def _inline_bytes(self) -> bytes | None:
        window = self._in
        window.u8()
        window.utf("a handle's name")
        length = window.i32()
        return window.take(length) if length <= _MOST_BYTES else None
