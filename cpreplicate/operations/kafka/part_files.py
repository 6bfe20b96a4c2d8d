"""The part files that a checkpoint needs outside of it, and whether they are where it names them.

The state of a sink of files names them by path. cpreplicate does not copy them: they are no files
of the checkpoint, and a part of what the job has written.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal, NamedTuple

from cpreplicate import errors
from cpreplicate.core import uri
from cpreplicate.core.positions.model import PartFile, Positions, Unread
from cpreplicate.core.sizes import counted
from cpreplicate.errors import PartFilesMissing, Refused
from cpreplicate.operations.change.change import some
from cpreplicate.operations.kafka.positions import CheckpointPositions, positions_in, positions_of
from cpreplicate.protocol.replica import Replica
from cpreplicate.protocol.source import find_whole
from cpreplicate.storage import FileStatus, Side, Transient

Presence = Literal["there", "short", "missing", "upload", "not looked for"]
_AT_ONCE = 8  # files that are looked for at the same time


class NeededFile(NamedTuple):
    """A part file that a restored job needs, and what was found of it.

    `place` is where it is: a pending one that was committed since then has its last name. `found`
    is its length there, None if that is not known. An `upload` is one to an object store that is
    not completed, as far as is known. `reason` is why it was not looked for.
    """

    file: PartFile
    place: str
    presence: Presence
    found: int | None = None
    reason: str | None = None


@dataclass(frozen=True)
class NeededFiles:
    """The part files that a job restored from a checkpoint needs where its state names them.

    `unread` are the states of sinks that may name others. `names` are those of operators, by their
    id. `command` is the `rebase` that leaves all of them out, None if the checkpoint is in no
    replica.
    """

    checkpoint: str
    files: tuple[NeededFile, ...]
    unread: tuple[Unread, ...]
    names: Mapping[str, str]
    command: str | None = None

    @property
    def absent(self) -> tuple[NeededFile, ...]:
        """Those that were not found with all their bytes."""
        return tuple(each for each in self.files if each.presence != "there")


def needed_files(path: str, side: Side, remaps: Sequence[uri.Remap] = ()) -> NeededFiles:
    """Return the part files that the checkpoint at `path` needs, looked for where they are named.

    Raises `NotThere`, `MetadataError`.
    """
    source, file = find_whole(path, side)
    found = positions_of(file, side, remaps)
    assert found is not None, "it is returned wherever it is asked for"
    return _needed(source.checkpoint, found, side, remaps)


def refuse_missing(replica: Replica, name: str, not_read: Collection[str]) -> None:
    """Raise `PartFilesMissing` unless a checkpoint's part files are where its state names them.

    The states of the operators `not_read`, by id or name, are taken as they are.
    """
    found = positions_in(replica, name)
    assert found is not None, "it is returned wherever it is asked for"
    needed = _needed(
        replica.uri_of(name),
        _without(found, not_read),
        replica.side,
        command=shlex.join(
            ["cpreplicate", "rebase", replica.root, "--checkpoint", name, "--drop-pending"]
        ),
    )
    if needed.absent or needed.unread:
        raise PartFilesMissing(_refusal(needed), needed)


def warnings_of(of: CheckpointPositions | None) -> Iterator[str]:
    """Yield what the part files of a checkpoint mean for a job that is restored from it."""
    held = Positions() if of is None else of.found
    names = {} if of is None else of.names
    for kind, meaning in _MEANINGS.items():
        files = [each for each in held.part_files if each.kind == kind]
        if files:
            yield f"{_count(files, kind)} of {_sinks(files, names)} in {_places(files)}. {meaning}"
    buckets = [each for each in held.part_files if each.kind == "bucket"]
    if buckets:
        places = some([each.target for each in buckets])
        yield (
            f"the restored job writes on to the buckets of {_sinks(buckets, names)} in {places},"
            " wherever its sink is"
        )


_MEANINGS = {
    "in-progress": "The restored job goes on to write in them, and does not start where they are"
    " missing: see docs/part-files.md",
    "pending": "The restored job commits them. Where they are missing, so are their records,"
    " without an error: see docs/part-files.md",
}


def _count(files: Sequence[PartFile], kind: str) -> str:
    word = "in progress" if kind == "in-progress" else kind
    size = sum(each.length for each in files)
    return f"{counted(len(files), 'part file')} {word} ({counted(size, 'byte')})"


def _sinks(files: Sequence[PartFile], names: Mapping[str, str]) -> str:
    return ", ".join(sorted({names.get(each.operator, each.operator) for each in files}))


def _places(files: Sequence[PartFile]) -> str:
    """Return the directories of some files."""
    return some(sorted({place_of(each).rpartition("/")[0] for each in files}))


def place_of(file: PartFile) -> str:
    """Return where a part file is until it is committed: of an upload, its object then."""
    return file.target if file.path is None else file.path


def _without(of: CheckpointPositions, not_read: Collection[str]) -> CheckpointPositions:
    """Return what a checkpoint holds without what these operators do, by id or name."""

    def is_kept(operator: str) -> bool:
        return operator not in not_read and of.names.get(operator) not in not_read

    held = of.found
    files = tuple(each for each in held.part_files if is_kept(each.operator))
    unread = tuple(each for each in held.unread if is_kept(each.operator))
    found = Positions(held.positions, held.pending, unread, files)
    return CheckpointPositions(found, of.is_listed, of.names)


def _needed(
    checkpoint: str,
    of: CheckpointPositions,
    side: Side,
    remaps: Sequence[uri.Remap] = (),
    command: str | None = None,
) -> NeededFiles:
    files = [each for each in of.found.part_files if each.is_needed]
    unread = tuple(each for each in of.found.unread if each.is_of_files)
    looked_for = tuple(_looked_for(files, side, remaps))
    return NeededFiles(checkpoint, looked_for, unread, of.names, command)


def _looked_for(
    files: Sequence[PartFile], side: Side, remaps: Sequence[uri.Remap]
) -> Iterator[NeededFile]:
    """Yield what was found of each file, in their order. Several are looked for at a time.

    The first one of a filesystem that does not answer is asked for alone.
    """
    look = _Look(side, remaps)
    first = {uri.filesystem(place_of(each)): each for each in reversed(files)}
    for file in first.values():
        look(file)
    with ThreadPoolExecutor(_AT_ONCE, "part-files") as pool:
        yield from pool.map(look, files)


class _Look:
    """Looks for part files, but no more on a filesystem that failed."""

    def __init__(self, side: Side, remaps: Sequence[uri.Remap]) -> None:
        self._side, self._remaps = side, remaps
        self._failed: dict[str, Exception] = {}

    def __call__(self, file: PartFile) -> NeededFile:
        place = place_of(file)
        is_named = file.kind == "pending" and ":" in file.target  # Flink 1.14 has the key only
        if file.upload is not None and not is_named:
            return NeededFile(file, place, "upload")
        try:
            return self._found(file, place)
        except (Refused, errors.UsageError, OSError) as error:
            return NeededFile(file, place, "not looked for", reason=errors.described(error))

    def _found(self, file: PartFile, place: str) -> NeededFile:
        for each in self._places(file, place):
            at = uri.remap(each, self._remaps)
            status = self._status(at)
            if status is not None:
                length = self._length(at, status.length, file.length)
                presence: Presence = "there" if length >= file.length else "short"
                return NeededFile(file, each, presence, length)
        return NeededFile(file, place, "missing" if file.upload is None else "upload")

    @staticmethod
    def _places(file: PartFile, place: str) -> tuple[str, ...]:
        """Return where a file may be: of an upload, only what it becomes is a file."""
        if file.kind != "pending":
            return (place,)
        return (file.target,) if file.upload is not None else (place, file.target)

    def _status(self, at: str) -> FileStatus | None:
        """Return the status of a file. A filesystem that does not answer is not asked again."""
        filesystem = uri.filesystem(at)
        if filesystem in self._failed:
            raise self._failed[filesystem]
        try:
            return self._side.storage(at).stat(at)
        except (errors.UsageError, Transient) as error:
            self._failed[filesystem] = error
            raise

    def _length(self, at: str, listed: int, needed: int) -> int:
        """Return how long a file is: one of HDFS that its writer has open is longer than listed."""
        if listed >= needed:
            return listed
        with self._side.storage(at).open_extent(at, needed) as stream:
            stream.seek(needed - 1)
            return needed if stream.read(1) else listed


def _refusal(needed: NeededFiles) -> str:
    what = []
    if needed.absent:
        places = some([each.place for each in needed.absent])
        were = counted(len(needed.absent), "part file was", "part files were")
        what.append(f"{were} not found with all bytes: {places}")
    if needed.unread:
        names = [needed.names.get(each.operator, each.operator) for each in needed.unread]
        what.append(f"the state of {some(names)} was not read")
    return (
        f"a job that is restored from {needed.checkpoint} may not start, or may lack records:"
        f" {'; '.join(what)}. Nothing was changed. Copy the part files that the result lists, or"
        f" derive a checkpoint without them: {needed.command}. --not-read OPERATOR takes an"
        " operator's state as it is"
    )
