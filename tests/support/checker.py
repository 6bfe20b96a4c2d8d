"""An independent checker of replicas: slow, obvious, and sharing no code with cpreplicate.

It reads a replica's `_metadata` field by field, as `docs/metadata-format.md` describes it, and
looks for each file.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeAlias


class Need(NamedTuple):
    """A file that a checkpoint needs: its absolute local path and its least length.

    A segment needs the bytes from `position` to `extent`, and has the logical file id `segment`.
    """

    path: str
    extent: int
    position: int = 0
    segment: str | None = None

    @property
    def is_packed(self) -> bool:
        """Whether it is a member of a pack."""
        return self.segment is not None and "/packed/" in self.path


Lookup: TypeAlias = Callable[[str], "int | None"]


def faults(replica: Path) -> list[str]:
    """What is wrong with the replica: files of its committed checkpoints that are missing, short or
    outside it.
    """
    metadata = sorted(replica.glob("chk-*/_metadata"))
    return [fault for each in metadata for fault in faults_of(each.read_bytes(), each, _length)]


def faults_of(data: bytes, metadata: Path, length_of: Lookup) -> list[str]:
    """The same of one checkpoint whose `_metadata` has these bytes.

    `length_of` is None where there is no such file.
    """
    replica = metadata.parent.parent
    found = []
    for need in needs_of(data, metadata):
        length = length_of(need.path)
        if not need.path.startswith(f"{replica}/"):
            found.append(f"{metadata}: outside: {need.path}")
        elif length is None:
            found.append(f"{metadata}: missing: {need.path}")
        elif length < need.extent:
            found.append(f"{metadata}: short: {need.path}")
    return found


def needs(metadata: Path, check_directories: bool = True) -> list[Need]:
    """Every file that a checkpoint needs, one entry a reference."""
    return needs_of(metadata.read_bytes(), metadata, check_directories)


def needs_of(data: bytes, metadata: Path, check_directories: bool = True) -> list[Need]:
    """The same where the `_metadata` that is at a local path has these bytes."""
    return _Reader(data, metadata.parent, check_directories).read()


def is_copy(source: Need, copy: Need, original: bytes, data: bytes) -> bool:
    """Whether a reference of a replica to a file of these bytes has what its source's has.

    The `original` file at the source may have grown since, unless it was packed.
    """
    if source.segment is not None and source.position != copy.position:
        return False
    if copy.segment is None or source.segment is not None:
        return data == original[: len(data)]
    member = data[copy.position : copy.extent]
    return len(member) >= source.extent and member == original


def _length(path: str) -> int | None:
    return Path(path).stat().st_size if Path(path).is_file() else None


class _Reader:
    def __init__(self, data: bytes, directory: Path, check_directories: bool) -> None:
        self.check_directories = check_directories
        self.directory = directory
        self.data = data
        self.at = 0
        self.version = 0
        self.needs: list[Need] = []

    def read(self) -> list[Need]:
        assert self.i32() == 0x4960672D
        self.version = self.i32()
        self.i64()
        for _ in range(self.i32()):
            self.i32()
            self.skip(self.i32())
        for _ in range(self.i32()):
            self.operator()
        assert self.data[self.at :][:4] == (b"\xac\xed\x00\x05" if self.version >= 4 else b""), (
            "torn, or more than a _metadata"
        )
        return self.needs

    def skip(self, count: int) -> bytes:
        self.at += count
        assert self.at <= len(self.data)
        return self.data[self.at - count : self.at]

    def u8(self) -> int:
        return self.skip(1)[0]

    def i32(self) -> int:
        return int.from_bytes(self.skip(4), "big", signed=True)

    def i64(self) -> int:
        return int.from_bytes(self.skip(8), "big", signed=True)

    def utf(self) -> str:
        return self.skip(struct.unpack(">H", self.skip(2))[0]).decode(errors="replace")

    def operator(self) -> None:
        if self.version >= 5:
            self.utf()
            self.utf()
        self.skip(16 + 4 + 4)
        if self.version == 2:
            self.i32()
        else:
            self.stream()
        for _ in range(self.i32()):
            if self.i32() >= 0:
                self.subtask()

    def subtask(self) -> None:
        if self.version == 2:
            self.i64()
            assert self.i32() == 0
        for _ in ("managed", "raw"):
            if self.i32():
                self.operator_state()
        self.keyed()
        self.keyed()
        if self.version >= 3:
            for _ in ("input channels", "result subpartitions"):
                for _ in range(self.i32()):
                    self.channel()

    def operator_state(self) -> None:
        kind = self.u8()
        if kind == 0:
            return
        for _ in range(self.i32()):
            self.utf()
            self.u8()
            self.skip(8 * self.i32())
        if kind == 17:
            for directory in (self.utf(), self.utf()):
                self.directory_inside(directory)
            self.u8()
        self.stream()

    def directory_inside(self, directory: str) -> None:
        replica = f"{self.directory.parent}/"
        assert not self.check_directories or directory.removeprefix("file:").startswith(replica), (
            f"type-17 directory outside: {directory}"
        )

    def keyed(self) -> None:
        kind = self.u8()
        if kind in (3, 7, 12):
            self.i32()
            self.skip(8 * self.i32())
            self.stream()
        elif kind in (5, 11):
            self.incremental(kind)
        elif kind in (8, 14):
            self.skip(4 + 4 + 8)
            for _ in ("materialized", "delta"):
                for _ in range(self.i32()):
                    self.keyed()
            self.skip(16 if kind == 14 else 8)
        elif kind == 9:
            self.skip(4 + 4 + 8 + 8)
            for _ in range(self.i32()):
                self.i32()
                self.skip(self.i32())
        elif kind in (10, 13):
            self.changelog_stream(kind)
        else:
            assert kind == 0, f"keyed handle {kind}"
        if kind not in (0, 3, 5, 7, 13):
            self.utf()

    def incremental(self, kind: int) -> None:
        self.i64()
        self.utf()
        self.skip(4 + 4 + (8 if kind == 11 else 0))
        self.stream()
        for _ in ("shared", "private"):
            for _ in range(self.i32()):
                self.utf()
                self.stream()

    def changelog_stream(self, kind: int) -> None:
        self.skip(4 + 4)
        for _ in range(self.i32()):
            self.i64()
            self.stream(changelog=True)
        self.skip(8 + 8)
        if kind == 13:
            self.utf()
            self.utf()

    def channel(self) -> None:
        tag = self.u8() if self.version == 6 else 1
        self.i32()
        if tag in (1, 2):
            self.skip(8)
            self.skip(8 * self.i32())
            self.i64()
            self.stream()
        else:
            self.i64()
            self.stream()
            self.skip(self.i32())

    def stream(self, changelog: bool = False) -> None:
        kind = self.u8()
        if kind == 1:
            self.utf()
            self.skip(self.i32())
        elif kind == 2:
            size = self.i64()
            self.need(self.utf(), 0 if changelog else size)
        elif kind == 6:
            path = self.utf()
            self.need(path, 0 if changelog else self.i64())
        elif kind == 3:
            self.i32()
            self.skip(8 * self.i32())
            self.stream()
        elif kind == 15:
            start, size, _scope = self.i64(), self.i64(), self.i32()
            path = self.utf()
            self.need(path, start + size, start, self.utf())
        else:
            assert kind in (0, 16), f"stream handle {kind}"

    def need(self, path: str, extent: int, position: int = 0, segment: str | None = None) -> None:
        local = (
            path.removeprefix("file:") if path.startswith("file:") else f"{self.directory}/{path}"
        )
        self.needs.append(Need(os.path.normpath(local), extent, position, segment))
