"""A hand-written encoder of what sinks of files write into operator states.

It shares nothing with `cpreplicate.core.positions`.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tests.support.kafka_states import block, i32, i64, listed, utf, versioned

_COLLECTOR, _BUCKET, _COMMITTABLE = 0xB91F252C, 0x1E764B79, 0x1E765C80
_IN_PROGRESS, _PENDING = 0xB3A4073D, 0x2C853C89

__all__ = ["utf", "versioned"]


def _magic(number: int) -> bytes:
    return struct.pack(">I", number)


class Part(NamedTuple):
    """A part file on a disk or on HDFS."""

    target: str
    path: str
    length: int
    is_local: bool = False

    @property
    def plain(self) -> bytes:
        target, path = self.target.encode(), self.path.encode()
        magic = 0x1E744B57 if self.is_local else 0xD7436C5E
        return struct.pack("<IqII", magic, self.length, len(target), len(path)) + target + path


@dataclass(frozen=True)
class Upload:
    """A part file in S3: parts with ETag and length, and an object with what is left."""

    key: str
    upload: str
    parts: Sequence[tuple[str, int]]
    rest: str | None = None
    rest_length: int = 0

    @property
    def plain(self) -> bytes:
        out = struct.pack("<I", 0x98761432) + _text(self.key) + _text(self.upload)
        out += struct.pack("<I", len(self.parts))
        for number, (etag, _) in enumerate(self.parts, 1):
            out += struct.pack("<I", number) + _text(etag)
        out += struct.pack("<q", sum(length for _, length in self.parts))
        rest = self.rest_length if self.rest else -1
        return out + _text(self.rest or "") + struct.pack("<q", rest)


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<I", len(data)) + data


def recoverable(
    magic: int, of: Part | Upload, target: str | None = None, version: int = 2, filesystem: int = 1
) -> bytes:
    """The recoverable of a writer, or of a committer with the size of the file."""
    head = b"" if version == 1 else b"\0" if target is None else b"\1" + utf(target)
    if magic == _PENDING and version > 1:
        head += i64(77)
    return _magic(magic) + head + versioned(filesystem, of.plain)


def opened_bucket(
    version: int,
    part: Part | Upload | None,
    pending: Mapping[int, Sequence[Part]] | None = None,
    path: str = "hdfs://dcA/out/b",
    target: str | None = None,
    recoverable_version: int = 2,
    filesystem: int = 1,
) -> bytes:
    """A bucket in version 1 and 2 of a StreamingFileSink, or 3 of a FileSink, without its frame."""
    out = _magic(_BUCKET) + versioned(1, b"even") + utf(path) + i64(1_700_000_000_000)
    out += bytes([part is not None])
    if part is not None and version == 1:
        out += versioned(filesystem, part.plain)
    elif part is not None:
        own = recoverable(_IN_PROGRESS, part, target, recoverable_version, filesystem)
        out += versioned(recoverable_version, own)
    if version < 3:
        own_version = 2 if version == 2 else 1
        out += i32(own_version, len(pending or {}))
        for checkpoint, files in (pending or {}).items():
            out += i64(checkpoint) + i32(len(files))
            for file in files:
                out += block(file.plain if version == 1 else recoverable(_PENDING, file))
    return out


def bucket(
    version: int,
    part: Part | Upload | None,
    pending: Mapping[int, Sequence[Part]] | None = None,
    path: str = "hdfs://dcA/out/b",
    target: str | None = None,
    recoverable: int = 2,
    filesystem: int = 1,
) -> bytes:
    """An element of the list of a sink's writer."""
    content = opened_bucket(version, part, pending, path, target, recoverable, filesystem)
    return versioned(version, content)


def committable(
    version: int,
    pending: Part | Upload | None = None,
    in_progress: Part | None = None,
    compacted: str | None = None,
    target: str | None = None,
) -> bytes:
    """What a committer commits or removes: 1.13 and 1.14 write version 1, later ones 2.

    It has its version in front, as in a list of committables.
    """
    out = _magic(_COMMITTABLE) + (utf("even") if version > 1 else b"")
    for magic, part in ((_PENDING, pending), (_IN_PROGRESS, in_progress)):
        out += bytes([part is not None])
        if part is not None:
            out += versioned(version, recoverable(magic, part, target, version))
    if version > 1:
        out += bytes([compacted is not None]) + (b"" if compacted is None else utf(compacted))
    return out


def collected(
    release: str,
    checkpoint: int,
    every: Sequence[bytes],
    state: int = 0,
    version: int | None = None,
) -> bytes:
    """An element of the committer's list, as this Flink collects committables."""
    own = version or (2 if any(b"even" in each[:12] for each in every) else 1)
    if release == "1.14":
        return versioned(1, _magic(_COLLECTOR) + listed(own, every))
    requests = listed(0, [versioned(own, each) + i32(0, state) for each in every])
    subtask = {
        "1.17": requests + i32(1, 0, 0),
        "1.20": i32(0) + requests + i32(1, 0, 0),
        "2.3": i32(0) + requests + i32(1, 0),
    }[release]
    of_subtask = {"1.17": 0, "1.20": 1, "2.3": 2}[release]
    subtasks = listed(of_subtask, [subtask])
    of_checkpoint = 0 if release == "1.17" else 1
    manager = i64(checkpoint) + (i32(1) if of_checkpoint else b"") + subtasks
    return versioned(2, _magic(_COLLECTOR) + listed(of_checkpoint, [manager]))


def requests(every: Mapping[int, tuple[Sequence[bytes], Sequence[bytes]]]) -> bytes:
    """The state of a CompactorOperator: what is to be compacted, and passed on, by checkpoint."""
    out = _magic(0xA946BE83) + i32(len(every))
    for checkpoint, (compacted, passed) in every.items():
        request = _magic(0x2FC61E19) + utf("even") + listed(2, compacted) + listed(2, passed)
        out += i64(checkpoint) + listed(1, [request])
    return versioned(1, out)
