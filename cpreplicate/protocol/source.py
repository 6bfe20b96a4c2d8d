"""Finding the checkpoint that a SOURCE argument means, and reading its `_metadata`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain
from typing import BinaryIO, NamedTuple

from cpreplicate.core import uri
from cpreplicate.core.metadata import Metadata, decode
from cpreplicate.core.placement import CHECKPOINT_NAME, METADATA
from cpreplicate.errors import MetadataError, NotThere, Refused, SourceMovedOn
from cpreplicate.protocol.digest import Digest, digest_of
from cpreplicate.storage import Side
from cpreplicate.storage.base import CHUNK

# bytes; a larger `_metadata` is read through a window each time it is needed
_HELD_IN_MEMORY = 16 << 20
_JOB_NAME = re.compile(r"(?!\.)[^/]+")


@dataclass(frozen=True)
class Source:
    """A completed checkpoint or savepoint.

    `job_root` is None for a savepoint, which lies outside any job's directory.
    """

    checkpoint: str
    job: str
    job_root: str | None

    @property
    def root(self) -> str:
        """What the source is known by: its job's directory, or a savepoint's own."""
        return self.job_root or self.checkpoint


def find(place: str, side: Side, allow_older: bool = False) -> Source:
    """Return the checkpoint at `place`: itself, or the newest completed one of a job's directory.

    Costs one stat for a checkpoint; for a job's directory one listing and a stat or two more.
    Raises `NotThere`; raises `Refused` where it is not clear which one is the newest, unless to
    `allow_older`: then the one completed last is taken.
    """
    place = uri.parent(place) if uri.name(place) == METADATA else place
    if CHECKPOINT_NAME.fullmatch(uri.name(place)):
        return _completed(place, side)
    if _has_metadata(place, side):
        return Source(place, _job_name(place), None)
    return _newest(place, side, allow_older)


def completed_names(job_root: str, side: Side) -> list[str]:
    """Return the completed checkpoints in a job's directory, the highest number first."""
    children = side.storage(job_root).list(job_root)
    names = newest_first(child.name for child in children if child.is_directory)
    return [name for name in names if _has_metadata(uri.join(job_root, name), side)]


def newest_first(names: Iterable[str]) -> list[str]:
    """The checkpoint directories among `names`, newest first."""
    numbered = [
        (int(match[1]), name) for name in names if (match := CHECKPOINT_NAME.fullmatch(name))
    ]
    return [name for _, name in sorted(numbered, reverse=True)]


def _completed(place: str, side: Side) -> Source:
    if not _has_metadata(place, side):
        raise NotThere(f"{place} has no {METADATA}: it is not there, was subsumed, or has not completed; give the job's"
                       " directory to take its newest completed checkpoint")  # fmt: skip
    return Source(place, _job_name(uri.parent(place)), uri.parent(place))


def _newest(job_root: str, side: Side, allow_older: bool) -> Source:
    storage = side.storage(job_root)
    children = storage.list(job_root)
    changed = {child.name: child.modified for child in children if child.is_directory}
    highest: tuple[str, float] | None = None
    last = ("", 0.0)
    for name in newest_first(changed):
        if highest is not None and 0 < changed[name] < last[1]:
            # a directory changes when its `_metadata` appears, so this one was completed before
            continue
        status = storage.stat(uri.join(job_root, f"{name}/{METADATA}"))
        if status is not None:
            highest = highest or (name, status.modified)
            last = max(last, (name, status.modified), key=lambda each: each[1])
    if highest is not None:
        _refuse_ambiguous(job_root, highest, last, allow_older)
        return Source(uri.join(job_root, last[0]), _job_name(job_root), job_root)
    what = (
        "holds no completed checkpoint (no chk-N with a _metadata)"
        if children
        else "is not there or is empty"
    )
    raise NotThere(f"{job_root} {what}; SOURCE is a checkpoint, a job's directory or a savepoint")


def _refuse_ambiguous(
    job_root: str, highest: tuple[str, float], last: tuple[str, float], allow_older: bool
) -> None:
    """Numbers restart when a job of a fixed id is started from scratch, while its former
    checkpoints may be retained.
    """
    if last[1] > highest[1] and not allow_older:
        raise Refused(
            f"{job_root}: {last[0]} was completed after {highest[0]}, so the job counts anew, or"
            f" the directory was copied. Nothing was done. Give --allow-older to follow {last[0]},"
            " or name one of the checkpoints"
        )


def _has_metadata(place: str, side: Side) -> bool:
    return side.storage(place).stat(uri.join(place, METADATA)) is not None


def _job_name(place: str) -> str:
    name = uri.name(place)
    if not _JOB_NAME.fullmatch(name):
        raise Refused(
            f"{place}: a replica takes the name of the job's directory, and {name!r} cannot be one"
        )
    return name


@dataclass(frozen=True)
class MetadataFile:
    """A `_metadata` as read: its meaning, and its bytes for as long as they are small enough to
    hold.
    """

    uri: str
    metadata: Metadata
    in_memory: bytes | None
    side: Side

    def open(self, stack: ExitStack) -> bytes | BinaryIO:
        """The bytes again, to be spliced; a stream is closed with `stack`.

        Raises `SourceMovedOn` if they are gone.
        """
        if self.in_memory is not None:
            return self.in_memory
        try:
            return stack.enter_context(self.side.storage(self.uri).open(self.uri))
        except FileNotFoundError as error:
            raise SourceMovedOn(
                f"{self.uri} was subsumed meanwhile; run again to take the newest checkpoint"
            ) from error


def read_metadata(checkpoint: str, side: Side) -> MetadataFile:
    """Read and decode the `_metadata` of a checkpoint's directory; touches no other file and no
    other filesystem.

    Raises `NotThere` and, with the file's place in front, `MetadataError`.
    """
    place = uri.join(checkpoint, METADATA)
    storage = side.storage(place)
    try:
        return storage.around(
            "open", place, lambda: _read(storage.unwrapped.open(place), checkpoint, place, side)
        )
    except FileNotFoundError as error:
        raise NotThere(
            f"{place} is not there; the checkpoint was subsumed or never completed"
        ) from error


def _read(stream: BinaryIO, checkpoint: str, place: str, side: Side) -> MetadataFile:
    with stream:
        first = stream.read(_HELD_IN_MEMORY + 1)
        data: bytes | BinaryIO = first if len(first) <= _HELD_IN_MEMORY else stream
        if data is stream:
            stream.seek(0)
        return MetadataFile(
            place, decoded(data, checkpoint, place), first if data is first else None, side
        )


class MetadataBytes(NamedTuple):
    """A `_metadata` as bytes: its digest, and the bytes themselves as long as they are small enough
    to hold.
    """

    digest: Digest
    in_memory: bytes | None


def read_bytes(checkpoint: str, side: Side) -> MetadataBytes | None:
    """Read the `_metadata` of a checkpoint's directory to its end, without decoding it.

    None if there is none.
    """
    place = uri.join(checkpoint, METADATA)
    storage = side.storage(place)
    try:
        return storage.around("open", place, lambda: _digested(storage.unwrapped.open(place)))
    except FileNotFoundError:
        return None


def _digested(stream: BinaryIO) -> MetadataBytes:
    with stream:
        first = stream.read(_HELD_IN_MEMORY + 1)
        rest = iter(lambda: stream.read(CHUNK), b"")
        is_small = len(first) <= _HELD_IN_MEMORY
        return MetadataBytes(
            digest_of([first] if is_small else chain([first], rest)), first if is_small else None
        )


def decoded(data: bytes | BinaryIO, checkpoint: str, place: str) -> Metadata:
    """Decode a `_metadata` of a checkpoint's directory.

    Raises `MetadataError` with the file's place in front.
    """
    try:
        return decode(data, checkpoint)
    except MetadataError as error:
        raise MetadataError(f"{place}: {error}") from error
