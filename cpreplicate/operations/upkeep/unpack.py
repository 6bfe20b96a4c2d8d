"""`relocate --unpack`: the members of packs become files of their own.

Each member is written to its logical path before any `_metadata` references it there. The packs are
deleted after every `_metadata` was rewritten and read back.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from cpreplicate.core import sizes, uri
from cpreplicate.core.closure import Closure
from cpreplicate.core.ledger import NO_MEMBERS, Member
from cpreplicate.core.metadata import Handle, PathRewriter
from cpreplicate.core.metadata.rewrite import PlainSpelling, Spelling
from cpreplicate.core.packs import is_pack, is_written
from cpreplicate.core.path_columns import texts
from cpreplicate.core.placement import PACKED, Layout, is_replica_path
from cpreplicate.core.restore import relative_to
from cpreplicate.core.sizes import plural
from cpreplicate.errors import CopyFailed, Refused, ReplicaDamaged
from cpreplicate.operations.change.change import Change, refuse_links, some, they_are
from cpreplicate.operations.verify.compare import errors_of
from cpreplicate.protocol import needed
from cpreplicate.protocol.ledger import Ledger
from cpreplicate.protocol.manifest import Manifest, ManifestEntry, ManifestTable
from cpreplicate.protocol.replica import Replica
from cpreplicate.protocol.replica_state import State
from cpreplicate.protocol.source import MetadataFile, segments_of
from cpreplicate.runners import Copy, ExecutionOptions, Outcome, Part, choose_runner
from cpreplicate.storage import Sides, checksum
from cpreplicate.storage.base import TEMPORARY
from cpreplicate.storage.statuses import FileStatus


class PackedFiles(NamedTuple):
    """The packed files that one checkpoint references.

    `paths` maps the first byte of a segment in the `_metadata` to the logical path of its file.
    `members` are pairs of logical path and place. `plain` are the paths of its other files.
    """

    paths: Mapping[int, str]
    members: frozenset[tuple[str, Member]]
    plain: frozenset[str]


@dataclass(frozen=True)
class Unpacking:
    """What is to be done in a replica.

    `members` are the places of all packed files by their logical path, `missing` those of them that
    no file of their own holds yet. `plain` are the other files that a checkpoint needs.
    """

    members: Mapping[str, Member]
    missing: tuple[str, ...]
    plain: frozenset[str]
    state: State
    ledger: Ledger
    names: tuple[str, ...]


class Unpacked(NamedTuple):
    """How many packed files became files of their own, their bytes, and how many packs were
    deleted. `warnings` are about packs that could not be deleted.
    """

    files: int = 0
    bytes: int = 0
    packs: int = 0
    warnings: tuple[str, ...] = ()


def packed_files(file: MetadataFile, files: Closure, layout: Layout) -> PackedFiles:
    """Return the packed files of a checkpoint. Raise `Refused` if one has no valid logical path."""
    paths: dict[int, str] = {}
    members: set[tuple[str, Member]] = set()
    for handle, logical_id in segments_of(file):
        pack = layout.place(files.uri_of(handle))
        if is_pack(pack):
            paths[handle.start] = logical_id
            members.add((logical_id, Member(pack, handle.position or 0, handle.size)))
    _refuse_invalid({path for path, _ in members}, file.uri)
    return PackedFiles(paths, frozenset(members), frozenset(_plain(file, files, layout, paths)))


def _plain(
    file: MetadataFile, files: Closure, layout: Layout, paths: Container[int]
) -> Iterator[str]:
    """Yield the paths of the files that are referenced otherwise than as members of packs."""
    for handle in file.metadata.handles:
        is_file = handle.path is not None and handle.kind != "directory"
        if is_file and handle.start not in paths:
            yield layout.place(files.uri_of(handle))


def _refuse_invalid(paths: Iterable[str], metadata_uri: str) -> None:
    invalid = [path for path in paths if not _is_valid(path)]
    if invalid:
        raise Refused(
            f"{metadata_uri} has {_packed(invalid)} whose logical path is not that of a file in a"
            " replica. Nothing was changed. Sync the checkpoint into another TARGET_ROOT with"
            f" --pack off. {they_are(invalid)}"
        )


def _is_valid(path: str) -> bool:
    return is_replica_path(path) and not is_pack(path) and not uri.name(path).startswith(TEMPORARY)


def without_packs(files: Closure, layout: Layout, packed: PackedFiles) -> Closure:
    """Return the closure without the packs that only segments of packed files name."""
    paths = map(layout.place, files.files)
    is_kept = [not is_pack(path) or path in packed.plain for path in paths]
    return replace(files, files=files.files.take(np.array(is_kept, np.bool_)))


def rewriter(
    other: PathRewriter, packed: PackedFiles, checkpoint: str, root: str, mode: str
) -> PathRewriter:
    """Return the path rewriter that makes packed files plain ones, and leaves the rest to `other`.

    `checkpoint` is the directory of the `_metadata` in the replica, and `root` is where Flink will
    find the replica.
    """

    def rewrite_path(handle: Handle) -> Spelling | None:
        path = packed.paths.get(handle.start) if handle.kind == "segment" else None
        if path is None:
            return other(handle)
        if mode == "relative":
            return PlainSpelling(relative_to(checkpoint, path), handle.size, is_relative=True)
        return PlainSpelling(uri.join(root, path), handle.size, is_relative=False)

    return rewrite_path


def plan(replica: Replica, state: State, packed_by_name: Mapping[str, PackedFiles]) -> Unpacking:
    """Return what is to be unpacked in all committed checkpoints. Change nothing.

    Raises `Refused` if a member cannot be checked, or if its path is taken by a file that differs
    or that cpreplicate did not record.
    """
    ledger = Ledger(replica, state)
    checkpoints = packed_by_name.values()
    others = needed.needed(replica, state, packed_by_name).to_pylist()
    plain = frozenset(others).union(*(one.plain for one in checkpoints))
    pairs = {pair for packed in checkpoints for pair in packed.members}
    members = _checked(replica, ledger, pairs)
    missing = _missing(replica, ledger, members, plain)
    return Unpacking(members, missing, plain, state, ledger, tuple(packed_by_name))


def _checked(
    replica: Replica, ledger: Ledger, pairs: Iterable[tuple[str, Member]]
) -> dict[str, Member]:
    """Return the members by their logical path, with the CRC32C that was recorded for each."""
    crcs = ledger.crcs_of_members()
    members: dict[str, Member] = {}
    unknown, ambiguous = set(), set()
    for path, located in sorted(pairs):
        member = located._replace(crc32c=crcs.get(located[:3]))
        known = members.setdefault(path, member)
        if member.crc32c is None:
            unknown.add(path)
        if (known.length, known.crc32c) != (member.length, member.crc32c):
            ambiguous.add(path)
    if unknown:
        raise Refused(
            f"{replica.root} has {_packed(unknown)} for which no CRC32C is recorded, so"
            f" {plural(len(unknown), 'it', 'they')} cannot be checked. Nothing was changed. Sync"
            " the checkpoint again, or into another TARGET_ROOT with --pack off."
            f" {they_are(sorted(unknown))}"
        )
    _refuse_ambiguous(replica, ambiguous)
    return members


def _refuse_ambiguous(replica: Replica, paths: Collection[str]) -> None:
    if paths:
        raise Refused(
            f"{replica.root} has {_packed(paths)} whose path belongs to a file with other bytes,"
            " too. Nothing was changed. Sync into another TARGET_ROOT with --pack off."
            f" {they_are(sorted(paths))}"
        )


def _packed(paths: Collection[str]) -> str:
    return sizes.counted(len(paths), "packed file")


def _missing(
    replica: Replica, ledger: Ledger, members: Mapping[str, Member], plain: Container[str]
) -> tuple[str, ...]:
    """Return the members that no file of their own holds yet."""
    occupants = _occupants(replica, members)
    missing, ambiguous, foreign = [], [], []
    for path, member in members.items():
        status, entry = occupants.get(path), ledger.files.get(path)
        recorded = (entry.length, entry.crc32c) if entry is not None else None
        is_same = recorded == (member.length, member.crc32c)
        if path in plain and not is_same:
            ambiguous.append(path)
        elif status is not None and not _is_ours(status, path, member, replica, ledger):
            foreign.append(path)
        elif status is None or not is_same or status.length != member.length:
            missing.append(path)
    _refuse_ambiguous(replica, ambiguous)
    if foreign:
        raise Refused(
            f"{replica.root} has"
            f" {sizes.counted(len(foreign), 'file or directory', 'files or directories')} that"
            " cpreplicate did not record, where packed files would be written. Nothing was"
            " changed. If no job uses"
            f" {plural(len(foreign), 'it, remove it', 'them, remove them')}. {they_are(foreign)}"
        )
    return tuple(missing)


def _is_ours(
    status: FileStatus, path: str, member: Member, replica: Replica, ledger: Ledger
) -> bool:
    """Return whether cpreplicate wrote what is where a packed file is to be written.

    Where it is only recorded that a run was about to write there, which died, its content decides.
    """
    if not _is_file(status):
        return False
    if len(ledger.planned_only(texts([path]))):
        return checksum(replica.uri_of(path), replica.side) == (member.length, member.crc32c)
    return path in ledger.files and ledger.files[path].written


def _is_file(status: FileStatus) -> bool:
    return not status.is_directory and not status.is_link


def _occupants(replica: Replica, paths: Iterable[str]) -> dict[str, FileStatus]:
    """Return what is now in the directories of some paths, links and directories included."""
    directories = uri.directories(paths)
    refuse_links(directories, replica)
    replica.present(directories)  # the holder of the lease removes unfinished files by this
    return {
        f"{directory}/{child.name}": child
        for directory in sorted(directories)
        for child in replica.storage.list(replica.uri_of(directory))
    }


class Unpacker:
    """Carries an unpacking out, in two steps: before and after the `_metadata` are rewritten."""

    def __init__(self, unpacking: Unpacking, change: Change) -> None:
        self._unpacking, self._change, self._replica = unpacking, change, change.replica
        self._packs = _packs_to_delete(unpacking, change.replica)
        self._changed = frozenset((*unpacking.members, *self._packs))
        left = unpacking.ledger.left_over(unpacking.names) if self._changed else ()
        self._left = frozenset(map(str, left)) - self._changed

    def write(self, execution: ExecutionOptions) -> None:
        """Record what will be written and deleted, then write the members as files.

        Raises `ReplicaDamaged` if a member is damaged, `CopyFailed` if it cannot be written.
        """
        if not self._changed:
            return
        change, tasks = self._change, self._tasks()
        size = sum(task.extent for task in tasks)
        with change.recording(sorted(self._changed), self._left):
            if not tasks:
                return
            amount = sizes.size(size)
            change.notify(
                f"writing {sizes.counted(len(tasks), 'packed file')}, {amount}, as files of their"
                " own"
            )
            sides = Sides(self._replica.side, self._replica.side)
            with change.running(choose_runner(execution, len(tasks), size, sides)):
                outcomes = change.write(tasks)
        change.complete_journal()  # a run that resumes must know what these files contain
        self._raise_if_failed(tasks, outcomes)
        change.lease.check()  # else another run may have replaced these files since
        self._raise_if_not_as_written()

    def finish(self) -> Unpacked:
        """Delete the packs, and the journal unless it alone lists files that are left.

        If another program completed a checkpoint meanwhile, it may need them: they stay, with a
        warning.
        """
        if not self._changed:
            return Unpacked()
        members = self._unpacking.members.values()
        size = sum(member.length for member in members)
        try:
            self._refuse_later()
        except Refused as error:
            return Unpacked(len(members), size, 0, (f"{error}. The packs were left as they are",))
        failed = self._change.delete(self._packs)
        if not failed:
            self._replica.storage.rmdir(self._replica.uri_of(PACKED))
            self._end()
        not_deleted = f"{sizes.counted(len(failed), 'pack')} could not be deleted: {some(failed)}"
        warnings = (not_deleted,) if failed else ()
        return Unpacked(len(members), size, len(self._packs) - len(failed), warnings)

    def _refuse_later(self) -> None:
        """Raise `Refused` if packs are to be deleted that a checkpoint may need since then."""
        if self._packs:
            unpacking = self._unpacking
            needed.refuse_later(self._replica, unpacking.state, unpacking.names)

    def _tasks(self) -> list[Copy]:
        tasks = []
        for path in self._unpacking.missing:
            pack, offset, length, crc32c = self._unpacking.members[path]
            assert crc32c is not None, "members without a CRC32C were refused"
            source, target = self._replica.uri_of(pack), self._replica.uri_of(path)
            part = Part(offset, crc32c)
            tasks.append(Copy(source, target, length, part=part, inside=self._replica.root))
        return tasks

    def _raise_if_failed(self, tasks: Collection[Copy], outcomes: Collection[Outcome]) -> None:
        failed = list(errors_of(outcomes))
        if failed or len(outcomes) != len(tasks):
            is_damaged = any(outcome.damaged for outcome in outcomes)
            raise (ReplicaDamaged if is_damaged else CopyFailed)(
                f"{len(failed) or 'some'} of {sizes.counted(len(tasks), 'packed file')} could not"
                " be written as files of their own. No _metadata was changed and nothing was"
                f" deleted. Run again to resume. {some(failed)}"
            )

    def _raise_if_not_as_written(self) -> None:
        """Raise `CopyFailed` if another program removed or replaced a file meanwhile."""
        members = self._unpacking.members
        present = _occupants(self._replica, members)
        wrong = [
            path
            for path, member in members.items()
            if (status := present.get(path)) is None
            or not _is_file(status)
            or status.length != member.length
        ]
        if wrong:
            raise CopyFailed(
                f"{sizes.counted(len(wrong), 'file')} of {self._replica.root}"
                f" {plural(len(wrong), 'is not as it was', 'are not as they were')} written. No"
                f" _metadata was changed and nothing was deleted. Run again. {they_are(wrong)}"
            )

    def _end(self) -> None:
        """Remove the journal, unless files are left that no manifest lists."""
        found = (self._replica.manifest(name) for name in self._unpacking.names)
        manifests = [manifest for manifest in found if manifest is not None]
        planned = self._changed | self._left
        left = planned.difference(*(manifest.entries for manifest in manifests))
        self._change.end(left, manifests)


def _packs_to_delete(unpacking: Unpacking, replica: Replica) -> tuple[str, ...]:
    """Return the packs that cpreplicate recorded and that no checkpoint will reference.

    Those that a former unpacking left are among them.
    """
    written = unpacking.ledger.written
    emptied = {member.pack for member in unpacking.members.values()}
    return tuple(
        pack
        for pack in replica.present([PACKED])
        if pack not in unpacking.plain
        and (pack in written or (pack in emptied and is_written(pack, written)))
    )


def as_plain(manifest: Manifest, plain: Container[str]) -> Manifest:
    """Return the manifest of a checkpoint whose packed files are plain ones now.

    `plain` are the paths of the files that it referenced otherwise.
    """
    entries = {
        path: entry
        for path, entry in manifest.entries.items()
        if not is_pack(path) or path in plain
    }
    for path, member in manifest.members.items():
        entries[path] = ManifestEntry(member.length, member.length, member.crc32c)
    return manifest._replace(entries=ManifestTable.of(entries), members=NO_MEMBERS)
