"""Find the checkpoint that a SOURCE argument means, and read its `_metadata`."""

from __future__ import annotations

import io
import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any, BinaryIO, NamedTuple, cast

from cpreplicate.core import uri
from cpreplicate.core.metadata import Handle, Metadata, decode
from cpreplicate.core.metadata.segments import segments
from cpreplicate.core.placement import CHECKPOINT_NAME, JOB_ID, METADATA
from cpreplicate.errors import CutShort, MetadataError, NoJob, NotThere, Refused, SourceMovedOn
from cpreplicate.protocol.digest import Digest, digest_of
from cpreplicate.storage import FileStatus, Side
from cpreplicate.storage.base import CHUNK
from cpreplicate.storage.reading import Reading
from cpreplicate.storage.streams.resuming import Resuming, ask_or_resume, read_or_resume

# Bytes. A larger `_metadata` is read through a window each time it is needed.
_KEPT_IN_MEMORY = 16 << 20
_JOB_NAME = re.compile(r"(?!\.)[^/]+")
_SOURCE = "SOURCE is a checkpoint, a job's directory or a savepoint"
_SHOWN = 3  # ids of jobs in a message


@dataclass(frozen=True)
class Source:
    """A completed checkpoint or savepoint.

    `job_root` is None for a savepoint, which is outside any job's directory. `completed` is when
    its `_metadata` appeared, in seconds since the epoch; None if the storage does not date it.
    `unfinished` are newer ones of the job that were passed over: their `_metadata` is empty or cut
    short.
    """

    checkpoint: str
    job: str
    job_root: str | None
    completed: float | None = None
    unfinished: tuple[str, ...] = ()

    @property
    def root(self) -> str:
        """The directory that names the source: that of its job, or the savepoint's own."""
        return self.job_root or self.checkpoint

    @property
    def savepoint(self) -> str | None:
        """The URI of a savepoint, None of a checkpoint."""
        return self.checkpoint if self.job_root is None else None


def find(path: str, side: Side, allow_older: bool = False) -> Source:
    """Return the checkpoint at `path`, or the newest completed one if that is a job's directory.

    Costs one stat for a checkpoint, and one listing and a stat or two for a job's directory. Raises
    `NotThere`. Raises `Refused` if it is not clear which checkpoint is the newest: `allow_older`
    takes the one that was completed last.
    """
    directory = uri.parent(path) if uri.name(path) == METADATA else path
    if CHECKPOINT_NAME.fullmatch(uri.name(directory)):
        return _completed(directory, side)
    if (status := _metadata_status(directory, side)) is not None:
        return Source(directory, _job_name(directory), None, status.dated)
    return newest(directory, side, allow_older)


def is_named(path: str, source: Source) -> bool:
    """Return whether `path` names this checkpoint itself, and not the directory of its job."""
    return source.checkpoint == (uri.parent(path) if uri.name(path) == METADATA else path)


def completed_names(job_root: str, side: Side) -> list[str]:
    """Return the completed checkpoints in a job's directory, the highest number first."""
    children = side.storage(job_root).list(job_root)
    names = highest_first(child.name for child in children if child.is_directory)
    return [name for name in names if _metadata_status(uri.join(job_root, name), side) is not None]


def highest_first(names: Iterable[str]) -> list[str]:
    """Return the checkpoint directories among `names`, the highest number first."""
    numbered = [
        (int(match[1]), name) for name in names if (match := CHECKPOINT_NAME.fullmatch(name))
    ]
    return [name for _, name in sorted(numbered, reverse=True)]


def _completed(checkpoint: str, side: Side) -> Source:
    status = _metadata_status(checkpoint, side)
    if status is None:
        raise NotThere(
            f"{checkpoint} has no {METADATA}: it is not there, was subsumed, or has not completed."
            " Give the job's directory to take its newest completed checkpoint"
        )
    job_root = uri.parent(checkpoint)
    return Source(checkpoint, _job_name(job_root), job_root, status.dated)


def newest(
    job_root: str, side: Side, allow_older: bool, unfinished: Collection[str] = ()
) -> Source:
    """Return the newest completed checkpoint of a job's directory; see `find`.

    Those with the names `unfinished` are passed over.
    """
    storage = side.storage(job_root)
    children = _children(job_root, storage)
    found = _newest_among(job_root, children, storage, unfinished)
    if found is None and any(CHECKPOINT_NAME.fullmatch(child.name) for child in children):
        # the one that was listed may have been subsumed by the next one just then
        children = storage.list(job_root)
        found = _newest_among(job_root, children, storage, unfinished)
    if found is not None:
        _refuse_ambiguous(job_root, found, allow_older)
        name, completed = found.last
        passed = tuple(highest_first(found.unfinished))
        return Source(uri.join(job_root, name), _job_name(job_root), job_root, completed, passed)
    _refuse_root_of_jobs(job_root, children)
    if not children and not _is_directory(job_root, storage):  # an object store lists nothing
        raise _is_file(job_root)
    problem = (
        "holds no completed checkpoint (no chk-N with a _metadata that is not empty)"
        if children
        else "is not there or is empty"
    )
    raise NotThere(f"{job_root} {problem}. {_SOURCE}")


def _children(job_root: str, storage: Reading) -> Sequence[FileStatus]:
    """Return what is in a job's directory. Raise `NoJob` if it is a file."""
    with suppress(NotADirectoryError):
        children = storage.list(job_root)
        # some clients list a file as if it were its own child
        if len(children) != 1 or children[0].is_directory or _is_directory(job_root, storage):
            return children
    raise _is_file(job_root)


def _is_file(job_root: str) -> NoJob:
    return NoJob(f"{job_root} is a file, or is below one. {_SOURCE}")


def _is_directory(path: str, storage: Reading) -> bool:
    status = storage.stat(path)
    return status is None or status.is_directory


def _refuse_root_of_jobs(path: str, children: Sequence[FileStatus]) -> None:
    """Raise `NoJob` if a directory without checkpoints holds the directories of jobs."""
    jobs = sorted(
        each.name for each in children if each.is_directory and JOB_ID.fullmatch(each.name)
    )
    if not jobs:
        return
    more = f" and {len(jobs) - _SHOWN} more" if len(jobs) > _SHOWN else ""
    raise NoJob(
        f"{path} holds no checkpoint but the directories of jobs: {', '.join(jobs[:_SHOWN])}{more}."
        f" Give one of them as SOURCE, such as {uri.join(path, jobs[0])}. To replicate every job"
        f" below it, run `cpreplicate watch --jobs-under {shlex.quote(path)} TARGET_ROOT`, or"
        " `cpreplicate fleet` with a [[root]] table"
    )


class _Newest(NamedTuple):
    """Two completed checkpoints, that with the highest number and that completed last.

    Each is a name and the time of its `_metadata`, None if the storage does not date it. Where not
    both are dated, the number decides, so that the two are the same. `unfinished` are names that
    were passed over.
    """

    highest: tuple[str, float | None]
    last: tuple[str, float | None]
    unfinished: tuple[str, ...] = ()


def _newest_among(
    job_root: str, children: Sequence[FileStatus], storage: Reading, unfinished: Collection[str]
) -> _Newest | None:
    """Return the newest completed checkpoints, or None if no listed one is complete.

    One with an empty `_metadata` is not: some writers create the file before they fill it.
    """
    changed = {child.name: child.dated for child in children if child.is_directory}
    found: _Newest | None = None
    passed: list[str] = []
    for name in highest_first(changed):
        if found is not None and _is_before(changed[name], found.last[1]):
            # A directory changes when its `_metadata` appears, so this one was completed before.
            continue
        status = storage.stat(uri.join(job_root, f"{name}/{METADATA}"))
        if status is None:
            continue
        if not status.length or name in unfinished:
            passed.append(name)
            continue
        completed = (name, status.dated)
        found = found or _Newest(completed, completed, tuple(passed))
        if found.highest[1] is None:
            return found
        if _is_before(found.last[1], completed[1]):
            found = found._replace(last=completed)
    return found


def _is_before(time: float | None, other: float | None) -> bool:
    return time is not None and other is not None and time < other


def _refuse_ambiguous(job_root: str, found: _Newest, allow_older: bool) -> None:
    """Raise `Refused` if the checkpoint completed last has not the highest number.

    Numbers restart when a job of a fixed id is started from scratch. Its former checkpoints may be
    retained.
    """
    highest, last = found.highest[0], found.last[0]
    if last != highest and not allow_older:
        raise Refused(
            f"{job_root}: {last} was completed after {highest}. Nothing was done. If the directory"
            f" was copied, which dates the checkpoints anew, name {uri.join(job_root, highest)} as"
            " SOURCE. If the job was started from scratch, `cpreplicate sync --allow-older` of this"
            f" job follows {last}, and withdraws from the replica those with higher numbers. Move"
            " these out of the directory, too, for a fleet or a service that replicates it"
        )


def _metadata_status(directory: str, side: Side) -> FileStatus | None:
    return side.storage(directory).stat(uri.join(directory, METADATA))


def _job_name(directory: str) -> str:
    name = uri.name(directory)
    if not _JOB_NAME.fullmatch(name):
        raise Refused(
            f"{directory}: the replica is named like this directory, and {name!r} cannot be the"
            " name of one. Give the directory of a job or a savepoint"
        )
    return name


@dataclass(frozen=True)
class MetadataFile:
    """A `_metadata`, decoded.

    `in_memory` are its bytes, or None if they are too many to keep.
    """

    uri: str
    metadata: Metadata
    in_memory: bytes | None
    side: Side

    def open(self, stack: ExitStack) -> bytes | BinaryIO:
        """Return the bytes of the file, or a stream of them that is closed with `stack`.

        Raises `SourceMovedOn` if the file is gone.
        """
        if self.in_memory is not None:
            return self.in_memory
        storage = self.side.storage(self.uri)
        try:
            raw = stack.enter_context(_Subsumable(storage, self.uri))
        except FileNotFoundError as error:
            raise _moved_on(self.uri) from error
        return cast(BinaryIO, stack.enter_context(io.BufferedReader(raw, CHUNK)))


class _Subsumable(Resuming):
    """A stream of a `_metadata`; raises `SourceMovedOn` if the file is gone while it is read."""

    def readinto(self, buffer: Any) -> int:
        try:
            return super().readinto(buffer)
        except FileNotFoundError as error:
            raise _moved_on(str(error.filename)) from error


def _moved_on(metadata_uri: str) -> SourceMovedOn:
    return SourceMovedOn(
        f"{metadata_uri} was subsumed meanwhile. Run again to take the newest checkpoint"
    )


def segments_of(file: MetadataFile) -> Iterator[tuple[Handle, str]]:
    """Yield each segment of a `_metadata` with its logical file id."""
    if not file.metadata.file_merging:
        return
    handles = (handle for handle in file.metadata.handles if handle.kind == "segment")
    with ExitStack() as stack:
        rows = segments(file.open(stack), file.metadata)
        for handle, row in zip(handles, rows, strict=True):
            yield handle, row.logical_id


def read_metadata(checkpoint: str, side: Side) -> MetadataFile:
    """Read and decode the `_metadata` of a checkpoint's directory. No other file is read.

    Raises `NotThere`. Raises `MetadataError`, with the URI of the file in front.
    """
    metadata_uri = uri.join(checkpoint, METADATA)
    storage = side.storage(metadata_uri)
    try:
        with suppress(FileNotFoundError):
            return _read(storage, checkpoint, metadata_uri, side)
        # What was asked ahead may have been answered before the file was there, and `stat` later.
        return _read(storage, checkpoint, metadata_uri, side)
    except FileNotFoundError as error:
        raise NotThere(
            f"{metadata_uri} is not there: the checkpoint was subsumed or has never completed. Give"
            " the job's directory to take its newest completed checkpoint"
        ) from error


def find_whole(path: str, side: Side) -> tuple[Source, MetadataFile]:
    """Find a checkpoint as `find` does, and read it; that of a job's directory as `read_newest`."""
    source = find(path, side)
    if is_named(path, source):
        return source, read_metadata(source.checkpoint, side)
    return read_newest(source, side, False)


def read_newest(source: Source, side: Side, allow_older: bool) -> tuple[Source, MetadataFile]:
    """Read a checkpoint that was found in its job's directory, or the newest whole one before it.

    Flink writes a `_metadata` in place where the filesystem has no recoverable writer, so that it
    is cut short meanwhile, and for ever where the JobManager died. Raises as `read_metadata`, if no
    checkpoint before is whole.
    """
    try:
        return source, read_metadata(source.checkpoint, side)
    except CutShort as error:
        if source.job_root is None:
            raise
        passed = {*source.unfinished, uri.name(source.checkpoint)}
        try:
            before = newest(source.job_root, side, allow_older, passed)
        except NotThere:
            raise error from None
        return read_newest(before, side, allow_older)


def _read(storage: Reading, checkpoint: str, metadata_uri: str, side: Side) -> MetadataFile:
    data = read_or_resume(storage, metadata_uri, _KEPT_IN_MEMORY)
    if isinstance(data, bytes):
        return MetadataFile(metadata_uri, decoded(data, checkpoint, metadata_uri), data, side)
    with data:
        return MetadataFile(metadata_uri, decoded(data, checkpoint, metadata_uri), None, side)


def ask_metadata(checkpoint: str, side: Side) -> None:
    """Begin to read a `_metadata` that `read_bytes` or `read_metadata` is called for soon."""
    metadata_uri = uri.join(checkpoint, METADATA)
    ask_or_resume(side.storage(metadata_uri), metadata_uri, _KEPT_IN_MEMORY)


def ask_source(path: str, side: Side) -> None:
    """Begin what `find` asks of a source soon, and to read the checkpoint if that is named."""
    directory = uri.parent(path) if uri.name(path) == METADATA else path
    storage = side.storage(directory)
    storage.ask("stat", uri.join(directory, METADATA))
    if CHECKPOINT_NAME.fullmatch(uri.name(directory)):
        ask_metadata(directory, side)
    else:
        storage.ask("list", directory)


def ask_newest(path: str, side: Side) -> None:
    """Begin to read the checkpoint that `find` is likely to return for a job's directory.

    Its listing was asked for by `ask_source`. Without that, nothing is asked.
    """
    children = side.storage(path).answer("list", path)
    for name in highest_first(each.name for each in children or () if each.is_directory)[:1]:
        checkpoint = uri.join(path, name)
        side.storage(checkpoint).ask("stat", uri.join(checkpoint, METADATA))
        ask_metadata(checkpoint, side)


class MetadataBytes(NamedTuple):
    """A `_metadata` that is not decoded.

    `in_memory` are its bytes, or None if they are too many to keep, or if it `is_damaged`: then
    nothing was read, and the digest is the recorded one.
    """

    digest: Digest
    in_memory: bytes | None
    is_damaged: bool = False


def read_bytes(checkpoint: str, side: Side) -> MetadataBytes | None:
    """Read the `_metadata` of a checkpoint's directory to its end, or return None if there is none.

    It is not decoded.
    """
    metadata_uri = uri.join(checkpoint, METADATA)
    try:
        return _digested(side.storage(metadata_uri), metadata_uri)
    except FileNotFoundError:
        return None


def _digested(storage: Reading, metadata_uri: str) -> MetadataBytes:
    data = read_or_resume(storage, metadata_uri, _KEPT_IN_MEMORY)
    if isinstance(data, bytes):
        return MetadataBytes(digest_of([data]), data)
    with data as stream:
        pieces = iter(lambda: stream.read(CHUNK), b"")
        return MetadataBytes(digest_of(pieces), None)


def decoded(data: bytes | BinaryIO, checkpoint: str, metadata_uri: str) -> Metadata:
    """Return the decoded `_metadata` of a checkpoint's directory.

    Raises `MetadataError`, with the URI of the file in front.
    """
    try:
        return decode(data, checkpoint)
    except MetadataError as error:
        raise type(error)(f"{metadata_uri}: {error}") from error
