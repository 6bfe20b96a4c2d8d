"""State handles in columns: hundreds of thousands of them cost about 60 bytes each and their path.

While decoding, handles are noted as *runs* (one handle, or many of equal length one after the
other); a flush reads the fields of all noted handles out of the buffer at once with numpy.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from cpreplicate.core.metadata import mutf8
from cpreplicate.core.metadata.model import (
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
from cpreplicate.errors import MetadataError

Column = npt.NDArray[Any]
_CHUNK = 65_536  # rows
_MOST = np.iinfo(np.int64).max
# Where size, position and path lie in a handle, from its type byte on; a size behind the path is
# told from the path's end.
_SIZE_AT = {FILE: 1, SEGMENT: 9}
_PATH_AT = {FILE: 11, RELATIVE: 3, SEGMENT: 23, DIRECTORY: 2}
_DTYPES = {
    "operator": np.int32, "subtask": np.int32, "state": np.uint8, "part": np.uint8, "kind": np.uint8, "size": np.int64,
    "position": np.int64, "start": np.int64, "length": np.int32, "path_at": np.int64, "path_length": np.uint16,
}  # fmt: skip


class Handles:
    """All state handles of a `_metadata` in the order of the file, the directories of type-17
    handles among them.

    Columns are numpy arrays of equal length: `operator` and `subtask` (-1 for none), `state`,
    `part` and `kind` (indices into `STATES`, `PARTS`, `KINDS`), `size`, `position` (-1 for none),
    `start` and `length` (the handle's bytes in the file).
    """

    def __init__(self, columns: dict[str, Column], paths: bytearray) -> None:
        self.operator, self.subtask = columns["operator"], columns["subtask"]
        self.state, self.part, self.kind = columns["state"], columns["part"], columns["kind"]
        self.size, self.position = columns["size"], columns["position"]
        self.start, self.length = columns["start"], columns["length"]
        self._path_at, self._path_length, self._paths = (
            columns["path_at"],
            columns["path_length"],
            paths,
        )

    def __len__(self) -> int:
        return len(self.start)

    def __iter__(self) -> Iterator[Handle]:
        for first in range(0, len(self), _CHUNK):
            yield from self._rows(slice(first, first + _CHUNK))

    def paths(self) -> Iterator[str | None]:
        """The recorded path of each handle, None for those that name no file."""
        for first in range(0, len(self), _CHUNK):
            yield from self._paths_of(slice(first, first + _CHUNK))

    def located(self) -> Iterator[tuple[str, int, int, int]]:
        """Path, kind (of `KINDS`), extent and size of each handle that names a file, in bytes.

        The extent is how long the file must at least be. It is zero for a changelog's `dstl` file:
        its handle tells the uncompressed payload, which is unrelated to the file's length when
        compression is on (`FsStateChangelogWriter`, observed on 1.20 and 2.3).
        """
        for first in range(0, len(self), _CHUNK):
            rows = slice(first, first + _CHUNK)
            kind, size = self.kind[rows], self.size[rows]
            # more would not be told from less
            size = size + np.clip(self.position[rows], 0, _MOST - size)
            extent = np.where((self.part[rows] == DELTA) & (kind != SEGMENT), 0, size)
            extents = extent.tolist()
            # one number for both: a million cost 30 MB
            sizes = extents if np.array_equal(extent, size) else size.tolist()
            found = zip(self._paths_of(rows), kind.tolist(), extents, sizes, strict=True)
            is_named = bool((self._path_at[rows] >= 0).all())
            yield from found if is_named else (row for row in found if row[0] is not None)  # type: ignore[misc]  # they name a file

    def _paths_of(self, rows: slice) -> list[str | None]:
        """Decoded as one text where they lie side by side and are ASCII: a call for each costs more
        than all else.
        """
        at, length = self._path_at[rows], self._path_length[rows].astype(np.int64)
        named, blob = at >= 0, self._paths
        first, end = int(at[named].min(initial=len(blob))), int((at + length)[named].max(initial=0))
        is_dense = end - first <= 2 * int(length[named].sum())
        piece = bytes(blob[first:end]) if is_dense else b""
        if is_dense and piece.isascii():
            text = piece.decode("ascii")
            bounds = zip((at - first).tolist(), (at - first + length).tolist(), strict=True)
            return [text[begin:end] if begin >= 0 else None for begin, end in bounds]
        bounds = zip(at.tolist(), (at + length).tolist(), strict=True)
        return [
            mutf8.decode(bytes(blob[begin:end])) if begin >= 0 else None for begin, end in bounds
        ]

    def _rows(self, rows: slice) -> Iterator[Handle]:
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
                operator if operator >= 0 else None, subtask if subtask >= 0 else None, STATES[state], PARTS[part],
                KINDS[kind], path, size, position if position >= 0 else None, start, length,
            )  # fmt: skip


class Builder:
    """Collects handles while decoding."""

    _FIELDS = 10

    def __init__(self) -> None:
        self.noted = self.first = (
            0  # rows since the last flush, and where in the buffer the first of them begins
        )
        self._runs = array("q")
        self._chunks: dict[str, list[Column]] = {name: [] for name in _DTYPES}
        self._paths = bytearray()

    def note(
        self, at: int, count: int, stride: int, kind: int, path_length: int, length: int,
        operator: int, subtask: int, role: int, size: int,
    ) -> None:  # fmt: skip
        """Note `count` handles of `length` bytes, the first at `at` of the buffer, each `stride`
        bytes behind the former.

        `role` is state * 256 + part; `size` counts only for kinds whose size is not a field to be
        read.
        """
        if not self.noted:
            self.first = at
        self._runs.extend(
            (at, count, stride, kind, path_length, length, operator, subtask, role, size)
        )
        self.noted += count

    def flush(self, buffer: bytes, base: int) -> None:
        """Read the fields of what was noted since the last flush from `buffer`, which begins at
        byte `base` of the file.
        """
        if not self.noted:
            return
        runs = np.array(self._runs, dtype=np.int64).reshape(-1, self._FIELDS)
        self._runs = array("q")
        self.noted = 0
        counts = runs[:, 1]
        run = np.repeat(np.arange(len(runs)), counts)
        nth = np.arange(len(run)) - np.repeat(np.cumsum(counts) - counts, counts)
        at = runs[run, 0] + nth * runs[run, 2]
        rows = {
            "operator": runs[run, 6], "subtask": runs[run, 7], "state": runs[run, 8] >> 8, "part": runs[run, 8] & 255,
            "kind": runs[run, 3], "size": runs[run, 9], "position": np.full(len(run), -1), "start": at + base,
            "length": runs[run, 5], "path_at": np.full(len(run), -1), "path_length": runs[run, 4],
        }  # fmt: skip
        self._read_fields(buffer, base, at, rows)
        for name, values in rows.items():
            self._chunks[name].append(values.astype(_DTYPES[name]))

    def build(self) -> Handles:
        """The columns; one after the other, so that only one is held twice."""
        columns = {}
        for name, dtype in _DTYPES.items():
            columns[name] = np.concatenate([np.empty(0, dtype), *self._chunks.pop(name)])
        return Handles(columns, self._paths)

    def _read_fields(self, buffer: bytes, base: int, at: Column, rows: dict[str, Column]) -> None:
        for chosen in _alike(rows["kind"] << 16 | rows["path_length"]):
            kind, path_length = int(rows["kind"][chosen[0]]), int(rows["path_length"][chosen[0]])
            if kind in (INLINE, EMPTY):
                continue
            path_at = _PATH_AT[kind]
            fields = _gather(
                buffer, at[chosen], path_at + path_length + (8 if kind == RELATIVE else 0)
            )
            if kind != DIRECTORY:
                rows["size"][chosen] = _i64(fields, _SIZE_AT.get(kind, path_at + path_length))
            if kind == SEGMENT:
                rows["position"][chosen] = _i64(fields, 1)
            rows["path_at"][chosen] = self._keep_paths(
                fields[:, path_at : path_at + path_length], at[chosen] + base
            )

    def _keep_paths(self, paths: Column, at: Column) -> Column:
        if paths.size and paths.max() >= 0x80:
            _check_paths(paths, at)
        first = len(self._paths)
        self._paths += paths.tobytes()
        places: Column = first + np.arange(len(paths)) * paths.shape[1]
        return places


def _alike(shape: Column) -> list[Column]:
    """The rows of each shape.

    Sorted once: a comparison for each shape would be quadratic if all paths differ in length.
    """
    order = np.argsort(shape, kind="stable")
    groups: list[Column] = np.split(order, np.flatnonzero(np.diff(shape[order])) + 1)
    return groups


def _gather(buffer: bytes, at: Column, length: int) -> Column:
    """The `length` bytes at each of some places, as rows.

    An item type as long as a row makes each row one copy.
    """
    everywhere = np.ndarray(
        (len(buffer) - length + 1,), dtype=f"V{length}", buffer=buffer, strides=(1,)
    )
    rows: Column = everywhere[at].view(np.uint8)
    return rows.reshape(len(at), length)


def _i64(fields: Column, column: int) -> Column:
    numbers: Column = np.ascontiguousarray(fields[:, column : column + 8]).view(">i8").ravel()
    return numbers


def _check_paths(paths: Column, at: Column) -> None:
    for row in np.flatnonzero(paths.max(axis=1) >= 0x80).tolist():
        try:
            mutf8.decode(paths[row].tobytes())
        except ValueError as error:
            raise MetadataError(
                f"byte {at[row]}: a state handle's path is not modified UTF-8: {error}"
            ) from error
