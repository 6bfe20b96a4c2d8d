"""State handles in columns: each costs about 60 bytes and its path, one of a channel 8 more.

While decoding, handles are noted as *runs*: one handle, or many of equal length one after the
other. A flush reads the fields of all noted handles out of the buffer at once with numpy.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cpreplicate.core.metadata import mutf8
from cpreplicate.core.metadata.handle import (
    CHANNEL_IN,
    CHANNEL_OUT,
    DELTA,
    DIRECTORY,
    EMPTY,
    FILE,
    INLINE,
    KINDS,
    PARTS,
    RELATIVE,
    SEGMENT,
    STATES,
    Handle,
)
from cpreplicate.core.path_columns import are_few
from cpreplicate.errors import MetadataError

Column = npt.NDArray[Any]
_CHUNK = 65_536  # rows
_MOST = np.iinfo(np.int64).max
# The offsets of size and path in a handle, from its type byte. A size behind the path follows the
# path's end.
_SIZE_OFFSET = {FILE: 1, SEGMENT: 9}
_PATH_OFFSET = {FILE: 11, RELATIVE: 3, SEGMENT: 23, DIRECTORY: 2}
BEFORE_HANDLE = -1  # the size of channel state is in the eight bytes before the handle
_DTYPES = {
    "operator": np.int32,
    "subtask": np.int32,
    "state": np.uint8,
    "part": np.uint8,
    "kind": np.uint8,
    "size": np.int64,
    "position": np.int64,
    "start": np.int64,
    "length": np.int32,
    "path_start": np.int64,
    "path_length": np.uint16,
}


class Handles:
    """All state handles of a `_metadata` in the order of the file.

    The directories of type-17 handles are among them. Columns are numpy arrays of equal length:
    `operator` and `subtask` (-1 for none), `state`, `part` and `kind` (indices into `STATES`,
    `PARTS`, `KINDS`), `size`, `position` (-1 for none), `start` and `length` (the handle's bytes in
    the file).

    `size` of a handle of channel state is that of its whole file, which many channels share.
    `state_sizes` has what each channel records for itself.
    """

    def __init__(self, columns: dict[str, Column], paths: bytearray, channel_sizes: Column) -> None:
        self.operator, self.subtask = columns["operator"], columns["subtask"]
        self.state, self.part, self.kind = columns["state"], columns["part"], columns["kind"]
        self.size, self.position = columns["size"], columns["position"]
        self.start, self.length = columns["start"], columns["length"]
        self._path_start, self._path_length = columns["path_start"], columns["path_length"]
        self._paths = paths
        self._channel_sizes = channel_sizes

    def __len__(self) -> int:
        return len(self.start)

    def __iter__(self) -> Iterator[Handle]:
        for first in range(0, len(self), _CHUNK):
            yield from self.chosen(slice(first, first + _CHUNK))

    def paths(self) -> Iterator[str | None]:
        """Yield the recorded path of each handle, None for those that name no file."""
        for first in range(0, len(self), _CHUNK):
            yield from self._paths_of(slice(first, first + _CHUNK))

    def named(self) -> Column:
        """Return the rows of the handles that name a file."""
        return np.flatnonzero(self._path_start >= 0)

    def recorded(self, rows: Column) -> Any:
        """Return the recorded paths of some rows that name a file, as a column of bytes.

        They are in modified UTF-8, as `pyarrow.LargeBinaryArray`.
        """
        starts = self._path_start[rows]
        if are_few(starts):
            return self._recorded_of_few(starts, self._path_length[rows])
        in_order = np.argsort(starts, kind="stable")
        bounds = np.empty(2 * len(rows), np.int64)  # of each path, and of what is between them
        bounds[0::2] = starts[in_order]
        bounds[1::2] = bounds[0::2] + self._path_length[rows][in_order]
        buffers = [None, pa.py_buffer(bounds), pa.py_buffer(self._paths)]
        stored = pa.Array.from_buffers(pa.large_binary(), max(len(bounds) - 1, 0), buffers)
        places = np.empty(len(rows), np.int64)
        places[in_order] = np.arange(0, len(bounds), 2)
        return stored.take(pa.array(places))

    def _recorded_of_few(self, starts: Column, lengths: Column) -> Any:
        paths, bounds = self._paths, zip(starts.tolist(), lengths.tolist(), strict=True)
        return pa.array(
            [paths[start : start + length] for start, length in bounds], pa.large_binary()
        )

    def recorded_texts(self, rows: Column) -> Any:
        """Return the recorded paths of some rows that name a file, as a `pyarrow.LargeStringArray`.

        Raises `UnicodeEncodeError` for a lone surrogate, which no URI has: resolve the paths first.
        """
        recorded = self.recorded(rows)
        try:
            return recorded.cast(pa.large_string())
        except pa.ArrowInvalid:  # only in modified UTF-8: NUL, or characters above U+FFFF
            paths = [mutf8.decode(path) for path in recorded.to_pylist()]
            return pa.array(paths, pa.large_string())

    def state_sizes(self) -> Column:
        """Return the bytes of state of each handle: what a channel records, else `size`."""
        if not len(self._channel_sizes):
            return self.size
        sizes = self.size.copy()
        sizes[_is_channel(self.state)] = self._channel_sizes
        return sizes

    def extents(self, rows: Column) -> tuple[Column, Column]:
        """Return extent and size in bytes of some rows that name a file.

        The extent is the length that the file must at least have. It is zero for a changelog's
        `dstl` file: its handle records the size of the uncompressed payload, which is unrelated to
        the file's length if compression is on (`FsStateChangelogWriter`, observed on 1.20 and 2.3).
        """
        size = self.size[rows]
        # clipped, because a sum over the limit would wrap to a negative one
        size = size + np.clip(self.position[rows], 0, _MOST - size)
        is_payload = (self.part[rows] == DELTA) & (self.kind[rows] != SEGMENT)
        return np.where(is_payload, 0, size), size

    def _paths_of(self, rows: slice | Column) -> list[str | None]:
        """Return the paths of some rows.

        They are decoded as one text where they are side by side and are ASCII. A call for each
        costs more than all else.
        """
        start, length = self._path_start[rows], self._path_length[rows].astype(np.int64)
        is_named, blob = start >= 0, self._paths
        first = int(start[is_named].min(initial=len(blob)))
        end = int((start + length)[is_named].max(initial=0))
        is_dense = end - first <= 2 * int(length[is_named].sum())
        piece = bytes(blob[first:end]) if is_dense else b""
        if is_dense and piece.isascii():
            text = piece.decode("ascii")
            bounds = zip((start - first).tolist(), (start - first + length).tolist(), strict=True)
            return [text[begin:stop] if begin >= 0 else None for begin, stop in bounds]
        bounds = zip(start.tolist(), (start + length).tolist(), strict=True)
        return [
            mutf8.decode(bytes(blob[begin:stop])) if begin >= 0 else None for begin, stop in bounds
        ]

    def chosen(self, rows: slice | Column) -> Iterator[Handle]:
        """Yield the handles of these rows, a slice or their numbers, in that order.

        The values of all of them are in memory at once: `__iter__` asks for a part at a time.
        """
        columns = (
            self.operator,
            self.subtask,
            self.state,
            self.part,
            self.kind,
            self.size,
            self.position,
            self.start,
            self.length,
        )
        for (operator, subtask, state, part, kind, size, position, start, length), path in zip(
            zip(*(column[rows].tolist() for column in columns), strict=True),
            self._paths_of(rows),
            strict=True,
        ):
            yield Handle(
                operator if operator >= 0 else None,
                subtask if subtask >= 0 else None,
                STATES[state],
                PARTS[part],
                KINDS[kind],
                path,
                size,
                position if position >= 0 else None,
                start,
                length,
            )


class Builder:
    """Collects handles while decoding."""

    _FIELDS = 11

    def __init__(self) -> None:
        self.noted = 0  # rows since the last flush
        self.first = 0  # the index in the buffer of the first of them
        self._runs = array("q")
        self._chunks: dict[str, list[Column]] = {name: [] for name in _DTYPES}
        self._paths = bytearray()
        self._channel_sizes: list[Column] = []

    def note(
        self,
        start: int,
        count: int,
        stride: int,
        kind: int,
        path_length: int,
        length: int,
        operator: int,
        subtask: int,
        role: int,
        size: int,
        channel_size: int,
    ) -> None:
        """Note `count` handles of `length` bytes each.

        The first begins at `start` in the buffer, each other `stride` bytes behind the one before.
        `role` is state * 256 + part. `size` counts only for kinds that have no field for it, and
        `channel_size` only for channel state: what its channel records, or `BEFORE_HANDLE`.
        """
        if not self.noted:
            self.first = start
        self._runs.extend(
            (
                start,
                count,
                stride,
                kind,
                path_length,
                length,
                operator,
                subtask,
                role,
                size,
                channel_size,
            )
        )
        self.noted += count

    def flush(self, buffer: bytes, base: int) -> None:
        """Read the fields of the handles noted since the last flush from `buffer`.

        `base` is the index in the file of the buffer's first byte.
        """
        if not self.noted:
            return
        runs = np.array(self._runs, dtype=np.int64).reshape(-1, self._FIELDS)
        self._runs = array("q")
        self.noted = 0
        counts = runs[:, 1]

        def repeated(values: Column, name: str) -> Column:
            """Return a value of each run for each of its handles."""
            column: Column = np.repeat(values.astype(_DTYPES[name]), counts)
            return column

        count = int(counts.sum())
        nth = np.arange(count) - np.repeat(np.cumsum(counts) - counts, counts)
        starts = np.repeat(runs[:, 0], counts) + nth * np.repeat(runs[:, 2], counts)
        rows = {
            "operator": repeated(runs[:, 6], "operator"),
            "subtask": repeated(runs[:, 7], "subtask"),
            "state": repeated(runs[:, 8] >> 8, "state"),
            "part": repeated(runs[:, 8] & 255, "part"),
            "kind": repeated(runs[:, 3], "kind"),
            "size": repeated(runs[:, 9], "size"),
            "position": np.full(count, -1),
            "start": starts + base,
            "length": repeated(runs[:, 5], "length"),
            "path_start": np.full(count, -1),
            "path_length": repeated(runs[:, 4], "path_length"),
        }
        self._read_fields(buffer, base, starts, rows)
        is_channel = _is_channel(rows["state"])
        if is_channel.any():
            recorded = np.repeat(runs[:, 10], counts)[is_channel]
            self._channel_sizes.append(_channel_sizes(buffer, starts[is_channel], recorded))
        for name, values in rows.items():
            self._chunks[name].append(values)

    def build(self) -> Handles:
        """Return the columns. They are made one by one, so that only one is in memory twice."""
        columns = {}
        for name, dtype in _DTYPES.items():
            columns[name] = np.concatenate([np.empty(0, dtype), *self._chunks.pop(name)])
        channel_sizes = np.concatenate([np.empty(0, np.int64), *self._channel_sizes])
        return Handles(columns, self._paths, channel_sizes)

    def _read_fields(
        self, buffer: bytes, base: int, starts: Column, rows: dict[str, Column]
    ) -> None:
        """Read the fields of handles that were noted, all of a kind and length at a time."""
        shapes = rows["kind"].astype(np.int64) << 16 | rows["path_length"]
        for chosen in _alike(shapes):
            kind, path_length = int(rows["kind"][chosen[0]]), int(rows["path_length"][chosen[0]])
            if kind in (INLINE, EMPTY):
                continue
            path_offset = _PATH_OFFSET[kind]
            path_end = path_offset + path_length
            length = path_end + (8 if kind == RELATIVE else 0)
            fields = _gather(buffer, starts[chosen], length)
            if kind != DIRECTORY:
                rows["size"][chosen] = _i64(fields, _SIZE_OFFSET.get(kind, path_end))
            if kind == SEGMENT:
                rows["position"][chosen] = _i64(fields, 1)
            paths = fields[:, path_offset:path_end]
            rows["path_start"][chosen] = self._keep_paths(paths, starts[chosen] + base)

    def _keep_paths(self, paths: Column, handle_starts: Column) -> Column:
        if paths.size and paths.max() >= 0x80:
            _check_paths(paths, handle_starts)
        first = len(self._paths)
        self._paths += paths.tobytes()
        path_starts: Column = first + np.arange(len(paths)) * paths.shape[1]
        return path_starts


def _is_channel(states: Column) -> Column:
    is_channel: Column = (states == CHANNEL_IN) | (states == CHANNEL_OUT)
    return is_channel


def _channel_sizes(buffer: bytes, starts: Column, recorded: Column) -> Column:
    """Return what channels record of their size; where it was not noted it is in the buffer."""
    is_left = recorded == BEFORE_HANDLE
    if is_left.any():
        recorded[is_left] = _i64(_gather(buffer, starts[is_left] - 8, 8), 0)
    return recorded


def _alike(shape: Column) -> list[Column]:
    """Return the rows of each shape.

    They are sorted once. A comparison for each shape would be quadratic if all paths differ in
    length.
    """
    order = np.argsort(shape, kind="stable")
    groups: list[Column] = np.split(order, np.flatnonzero(np.diff(shape[order])) + 1)
    return groups


def _gather(buffer: bytes, starts: Column, length: int) -> Column:
    """Return the `length` bytes at each start, as rows.

    With an item type as long as a row, each row is one copy.
    """
    everywhere: Column = np.ndarray(
        (len(buffer) - length + 1,), dtype=f"V{length}", buffer=buffer, strides=(1,)
    )
    rows: Column = everywhere[starts].view(np.uint8)
    return rows.reshape(len(starts), length)


def _i64(fields: Column, column: int) -> Column:
    numbers: Column = np.ascontiguousarray(fields[:, column : column + 8]).view(">i8").ravel()
    return numbers


def _check_paths(paths: Column, handle_starts: Column) -> None:
    for row in np.flatnonzero(paths.max(axis=1) >= 0x80).tolist():
        try:
            mutf8.decode(paths[row].tobytes())
        except ValueError as error:
            raise MetadataError(
                f"byte {handle_starts[row]}: a state handle's path is not modified UTF-8: {error}"
            ) from error
