"""`relocate`: rewrite the `_metadata` of a replica for another place or another form of paths.

No source is needed.
"""

from __future__ import annotations

import functools
import shlex
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import NamedTuple

from cpreplicate.core import restore, uri
from cpreplicate.core.closure import Closure, closure
from cpreplicate.core.lazy import lazy
from cpreplicate.core.metadata import PathRewriter, rewrite
from cpreplicate.core.notify import Notify
from cpreplicate.core.packs import is_pack
from cpreplicate.core.placement import (
    BEFORE_RELOCATE,
    METADATA,
    ReplicaLayout,
    is_derived,
    is_replica_path,
    own_name,
    path_below,
)
from cpreplicate.core.restore import PathsMode, PathSpeller, Restore
from cpreplicate.core.sizes import counted, plural
from cpreplicate.errors import NotThere, Refused
from cpreplicate.operations.change.change import (
    Change,
    opened,
    refuse_links,
    some,
    they_are,
    threads,
)
from cpreplicate.operations.change.target_root import refuse_no_replica
from cpreplicate.operations.upkeep import orphans, unpack
from cpreplicate.operations.upkeep.unpack import PackedFiles, Unpacked, Unpacker, Unpacking
from cpreplicate.protocol import publication, seal
from cpreplicate.protocol.digest import Digest, digest_of
from cpreplicate.protocol.held import HeldReplica
from cpreplicate.protocol.journal import JournalWriter
from cpreplicate.protocol.readiness import no_checkpoint
from cpreplicate.protocol.replica import Replica
from cpreplicate.protocol.replica_state import State
from cpreplicate.protocol.source import MetadataFile, read_metadata
from cpreplicate.runners import ExecutionOptions
from cpreplicate.storage import Side
from cpreplicate.storage.base import Content
from cpreplicate.storage.streams.resuming import resuming

_PIECE = 4 << 20  # bytes
_OF_DERIVED = "what a derived checkpoint references is in the directories of others"
_HELD_IN_MEMORY = 1 << 20  # bytes of a rewritten `_metadata`: there may be many


@dataclass(frozen=True)
class RelocateRequest:
    """What to rewrite and how.

    `root` is where Flink will find the replica, by default where it is. `moved_from` is where it
    was before, by default derived from the paths themselves. `unpack`: write the members of packs
    as files of their own.
    """

    replica: str
    paths: PathsMode = "auto"
    root: str | None = None
    moved_from: str | None = None
    lock_wait: float = 0.0
    unpack: bool = False
    side: Side = field(default=Side())
    execution: ExecutionOptions = field(default=ExecutionOptions())


class _Incomplete(Refused):
    """A checkpoint lacks files, or it is not certain where they are."""


class Relocated(NamedTuple):
    """One checkpoint of the replica, and whether its `_metadata` had to be rewritten.

    `completed` is when it was completed at its source, in seconds since the epoch, None if that is
    not recorded.
    """

    checkpoint: str
    rewritten: bool
    paths: str
    reason: str
    restore: Restore
    completed: float | None = None


@dataclass(frozen=True)
class Relocation:
    """The result for a replica: its checkpoints, newest first.

    `moved_from` are the roots that it was moved from, `unpacked` is what became of its packs.
    `warnings` name the checkpoints that lack files, which are as they were.
    """

    replica: str
    root: str
    moved_from: tuple[str, ...]
    checkpoints: tuple[Relocated, ...]
    warnings: tuple[str, ...] = ()
    unpacked: Unpacked = field(default=Unpacked())


@dataclass(frozen=True)
class _Work:
    """One checkpoint as it is, and what it is rewritten to.

    `packed` are the packed files that become plain ones. With `has_packs`, it will reference packs.
    """

    name: str
    file: MetadataFile
    closure: Closure
    layout: ReplicaLayout
    spelling: restore.ChosenPaths
    root: str
    packed: PackedFiles | None
    has_packs: bool
    completed: float | None

    @property
    def digest(self) -> Digest | None:
        """The digest of the `_metadata` as it was read, None if it was too long to be kept."""
        data = self.file.in_memory
        return None if data is None else digest_of([data])

    def rewritten(self) -> Iterable[bytes]:
        """Return the new bytes, which are computed once unless they are many.

        They are compared, digested and written, so that is asked several times. If they are many,
        they are computed from the `_metadata` as it was: not to be asked once that is replaced.
        """
        is_small = self.file.metadata.length <= _HELD_IN_MEMORY
        return self._held if is_small else self._rewriting()

    @lazy
    def _held(self) -> Sequence[bytes]:
        return list(self._rewriting())

    def _rewriting(self) -> Iterator[bytes]:
        mode = self.spelling.mode
        rewriter: PathRewriter = PathSpeller(self.closure, self.layout, self.root, mode)
        if self.packed is not None:
            rewriter = unpack.rewriter(rewriter, self.packed, self.name, self.root, mode)
        with ExitStack() as stack:
            yield from rewrite(self.file.open(stack), self.file.metadata, rewriter)


class _Prepared(NamedTuple):
    """The checkpoints to be rewritten, and why others are left as they are."""

    work: Sequence[_Work]
    left: tuple[str, ...] = ()


def relocate(request: RelocateRequest, notify: Notify) -> Relocation:
    """Rewrite every complete committed checkpoint under the lease.

    Each `_metadata` is replaced atomically, after all checkpoints were examined. The former ones
    are kept until all are replaced and read back. Raises `Refused`, having changed nothing, if no
    checkpoint is complete, or it is not certain where its files are; with `unpack`, if one is not.
    """
    replica = Replica(request.replica, request.side)
    refuse_no_replica(replica.root, replica.side)
    state = orphans.examine_unsealed(replica)
    _unpacking(_prepare(replica, state, None, request).work, replica, state, request)

    def examine(held: HeldReplica) -> State:
        state = orphans.examine_unsealed(held)
        # under the lease: before, another run may be writing
        orphans.refuse_newer_files(held, state)
        return state

    with opened(replica, examine, request.lock_wait, notify) as change:
        return _relocate(change, None, request)


def relocate_held(
    replica: HeldReplica, names: Sequence[str], request: RelocateRequest, former: State
) -> Relocation:
    """Rewrite checkpoints as `relocate` does, under a lease that the caller holds.

    The directory is examined again: of what is the same as at a `former` examination, only the
    listings are new. Files that cpreplicate did not record do not stop it: it deletes none of them.
    """
    state = orphans.examine(replica, former)
    if seal.NAME in state.own:
        seal.refuse_sealed(replica)
    journal = JournalWriter(replica.storage, replica.root)
    change = Change(replica, state, replica.lease, lambda _line: None, threads(replica), journal)
    return _relocate(change, names, request)


def would_rewrite(
    replica: Replica, state: State, names: Sequence[str], request: RelocateRequest
) -> list[str]:
    """Return which of the checkpoints `relocate_held` would rewrite. Raises as it does."""
    work = _prepare(replica, state, names, request).work
    return [checkpoint.name for checkpoint in work if not _is_spelled(replica, checkpoint)]


def _relocate(change: Change, names: Sequence[str] | None, request: RelocateRequest) -> Relocation:
    replica = change.replica
    work, left = _prepare(replica, change.state, names, request)
    unpacking = _unpacking(work, replica, change.state, request)
    unpacker = Unpacker(unpacking, change) if unpacking is not None else None
    if unpacker is not None:
        unpacker.write(request.execution)
    is_left = uri.name(BEFORE_RELOCATE) in change.state.own  # by a run that died
    changed = _rewrite_all(work, replica, is_left)
    if changed or is_left:
        for checkpoint in work:
            replica.storage.delete(replica.uri_of(_way_back(checkpoint.name)))
        replica.storage.rmdir(replica.uri_of(BEFORE_RELOCATE))
    unpacked = unpacker.finish() if unpacker is not None else Unpacked()
    moved = {root for checkpoint in work for root in checkpoint.layout.roots} - {replica.root}
    return Relocation(
        replica.root,
        request.root or replica.root,
        tuple(sorted(moved)),
        tuple(_relocated(checkpoint, checkpoint.name in changed) for checkpoint in work),
        left + _warnings(work, replica, request) + unpacked.warnings,
        unpacked,
    )


def _rewrite_all(work: Sequence[_Work], replica: HeldReplica, is_left: bool) -> list[str]:
    """Replace each `_metadata` that changes, and read it back. Return the names of these.

    `is_left`: a run that died may have left ways back.
    """
    changed = [checkpoint for checkpoint in work if not _is_spelled(replica, checkpoint)]
    respelled = {}
    for checkpoint in reversed(changed):  # the oldest first, so that the newest has the latest time
        former = _keep_way_back(replica, checkpoint)
        respelled[checkpoint.name] = _Respelled(former, digest_of(checkpoint.rewritten()))
        _replace(replica, checkpoint.name, checkpoint.rewritten, former)
    if wrong := [name for name, each in respelled.items() if not _has(replica, name, each.now)]:
        for name in wrong:
            _replace(replica, name, functools.partial(_pieces, replica, _way_back(name)))
        raise OSError(
            f"{replica.root}: {some(wrong)} did not read back as written. The former _metadata was"
            " restored. Run again"
        )
    # The oldest first here, too: where two manifests list a file, the one written last counts.
    for checkpoint in reversed(work):
        found = respelled.get(checkpoint.name)
        if found is None and is_left:
            found = _respelled_before(replica, checkpoint.name)
        if found is not None:
            _carry_manifest_over(replica, checkpoint, found)
    return [checkpoint.name for checkpoint in changed]


def _warnings(work: Sequence[_Work], replica: Replica, request: RelocateRequest) -> tuple[str, ...]:
    is_elsewhere = request.root is not None and request.root != replica.root
    found = (
        warning
        for checkpoint in work
        for warning in restore.warnings(
            checkpoint.file.metadata, checkpoint.spelling, checkpoint.has_packs
        )
    )
    of_root = [_of_another_root(replica.root, str(request.root))] if is_elsewhere else []
    return (*of_root, *dict.fromkeys(found))


def _of_another_root(replica_root: str, root: str) -> str:
    return (
        f"the paths are those below {root}: a sync or a promotion of {replica_root} refuses them."
        f" Once a job was started from {root}, leave the replica alone: its files are the job's"
    )


def _is_spelled(replica: Replica, work: _Work) -> bool:
    """Return whether a `_metadata`, as it was read, needs no other spelling."""
    former = work.digest
    rewritten = digest_of(work.rewritten())
    return _has(replica, work.name, rewritten) if former is None else former == rewritten


def _has(replica: Replica, name: str, digest: Digest) -> bool:
    data = replica.metadata_bytes(name)
    return data is not None and data.digest == digest


def _replace(
    replica: HeldReplica, name: str, content: Content, former: Digest | None = None
) -> None:
    """Publish another spelling of a checkpoint's `_metadata`, which is read again just before.

    Both spellings are recorded as cpreplicate's before it appears. Raises `Refused` if it is not
    the `former` one any more.
    """
    data = replica.metadata_bytes(name)
    if data is None:
        raise NotThere(f"{replica.uri_of(name)} was withdrawn meanwhile. Run again")
    if former is not None and data.digest != former:
        raise Refused(_of_another(replica, name))
    publication.announce_rewrite(replica, name, data.digest, content)
    try:
        replica.publish(name, content, replica.lease.check, replace=True)
    except FileExistsError as error:
        raise Refused(_of_another(replica, name)) from error


def _of_another(replica: Replica, name: str) -> str:
    return (
        f"{replica.uri_of(name)}/{METADATA} was replaced by another program during the run: a job"
        " writes its checkpoints here. It was left as it is"
    )


def _relocated(work: _Work, changed: bool) -> Relocated:
    checkpoint = uri.join(work.root, work.name)
    return Relocated(
        work.name,
        changed,
        work.spelling.reported,
        work.spelling.reason,
        restore.restore(work.file.metadata, work.spelling.mode, checkpoint),
        work.completed,
    )


def _prepare(
    replica: Replica, state: State, names: Sequence[str] | None, request: RelocateRequest
) -> _Prepared:
    """Return what is to be rewritten: with `unpack`, all checkpoints.

    One that lacks files is left as it is, unless it was named or none is complete.
    """
    if not state.committed:
        raise no_checkpoint(replica)
    if request.unpack and state.derived:
        raise Refused(
            f"{replica.root} holds {some([each.name for each in state.derived])}, which"
            " `cpreplicate rebase` wrote, and which may need the packs. Nothing was changed. Remove"
            " what you no longer need with `cpreplicate rebase --forget`, then unpack"
        )
    work: list[_Work] = []
    left: list[_Incomplete] = []
    for committed in state.ours:
        name, completed = committed.name, state.records[committed.name].completed
        if names is not None and not request.unpack and name not in names:
            continue
        try:
            work.append(_one(replica, name, request, completed))
        except _Incomplete as error:
            left.append(error)
    if left and (names is not None or request.unpack or not work):
        raise left[0]
    return _Prepared(work, tuple(map(str, left)))


def _unpacking(
    work: Sequence[_Work], replica: Replica, state: State, request: RelocateRequest
) -> Unpacking | None:
    """Return what is to be unpacked, if that was asked for."""
    if not request.unpack:
        return None
    packed = {one.name: one.packed for one in work if one.packed is not None}
    return unpack.plan(replica, state, packed)


def _one(replica: Replica, name: str, request: RelocateRequest, completed: float | None) -> _Work:
    file = read_metadata(replica.uri_of(name), replica.side)
    files = closure(file.metadata)
    roots = (replica.root, *_former_roots(files, replica, name, request))
    layout = ReplicaLayout(name, roots)
    _refuse_incomplete(files, layout, replica, name)
    packed = unpack.packed_files(file, files, layout) if request.unpack else None
    remaining = unpack.without_packs(files, layout, packed) if packed is not None else files
    has_packs = packed is None and any(is_pack(layout.place(path)) for path in files.files)
    paths = "absolute" if is_derived(name) else request.paths
    spelling = restore.choose(file.metadata, remaining, paths, has_packs)
    if is_derived(name):
        spelling = spelling._replace(reason=_OF_DERIVED)
    return _Work(
        name,
        file,
        files,
        layout,
        spelling,
        request.root or replica.root,
        packed,
        has_packs,
        completed,
    )


def _former_roots(
    files: Closure, replica: Replica, name: str, request: RelocateRequest
) -> Iterator[str]:
    """Yield the root that the replica was moved from, if it was.

    Below it are all files that a checkpoint references outside the replica.
    """
    elsewhere = [
        path
        for path in (*files.files, *sorted(files.directories))
        if path_below(path, replica.root) is None
    ]
    if not elsewhere:
        return
    candidates = [request.moved_from] if request.moved_from else _candidates(elsewhere[0])
    for root in candidates:
        if all(path_below(path, root) for path in elsewhere) and _are_there(
            elsewhere, root, files, replica
        ):
            yield root
            return
    hint = (
        f"{request.moved_from} is not where it was moved from, or files are lost"
        if request.moved_from
        else "Give the root that it was moved from with --moved-from, unless files of it are lost"
    )
    raise _Incomplete(
        f"{replica.uri_of(name)} references {counted(len(elsewhere), 'file')} elsewhere, such as"
        f" {elsewhere[0]}. Not all of that is here, as it would be if the replica had been moved."
        f" It was left as it is. {hint}"
    )


def _candidates(path: str) -> list[str]:
    """Return the directories that may be the replica's root, the longest first.

    What follows the root must look like a path in a replica.
    """
    steps = path.split("/")
    return [
        "/".join(steps[:index])
        for index in range(len(steps) - 1, 0, -1)
        if is_replica_path("/".join(steps[index:]))
    ]


def _are_there(uris: Iterable[str], root: str, files: Closure, replica: Replica) -> bool:
    paths = [
        path
        for file_uri in uris
        if file_uri in files.files and (path := path_below(file_uri, root)) is not None
    ]
    return set(paths) <= replica.present(uri.directories(paths)).keys()


def _refuse_incomplete(files: Closure, layout: ReplicaLayout, replica: Replica, name: str) -> None:
    extents = {layout.place(path): file.extent for path, file in files.files.items()}
    refuse_links(uri.directories(extents), replica)
    present = replica.present(uri.directories(extents))
    lacking = [path for path, extent in extents.items() if present.get(path, -1) < extent]
    if lacking:
        raise _Incomplete(
            f"{replica.uri_of(name)} lacks {counted(len(lacking), 'file')}, or"
            f" {plural(len(lacking), 'it is', 'they are')} too short. It was left as it is."
            f" `{shlex.join(['cpreplicate', 'verify', '--checkpoint', name, replica.root])}` names"
            f" what repairs it. {they_are(lacking)}"
        )


def _way_back(name: str) -> str:
    return f"{BEFORE_RELOCATE}/{own_name(name)}"


def _keep_way_back(replica: HeldReplica, work: _Work) -> Digest:
    """Write the former `_metadata` of a checkpoint beside it, and return its digest."""
    place, data, digest = _way_back(work.name), work.file.in_memory, work.digest
    if data is not None and digest is not None:
        replica.storage.put(replica.uri_of(place), lambda: [data])
        return digest
    former = f"{work.name}/{METADATA}"
    replica.storage.put(replica.uri_of(place), lambda: _pieces(replica, former))
    return digest_of(_pieces(replica, place))


def _pieces(replica: Replica, path: str) -> Iterator[bytes]:
    with resuming(replica.storage, replica.uri_of(path)) as stream:
        while piece := stream.read(_PIECE):
            yield piece


class _Respelled(NamedTuple):
    """The digests of a `_metadata` before and after it got another spelling."""

    former: Digest
    now: Digest


def _respelled_before(replica: Replica, name: str) -> _Respelled | None:
    """Return the digests of a `_metadata` that a run which died gave another spelling."""
    if replica.storage.stat(replica.uri_of(_way_back(name))) is None:
        return None
    data = replica.metadata_bytes(name)
    former = digest_of(_pieces(replica, _way_back(name)))
    return None if data is None else _Respelled(former, data.digest)


def _carry_manifest_over(replica: HeldReplica, work: _Work, found: _Respelled) -> None:
    """Have the manifest name the digest of the new `_metadata`, as it names the former one's.

    If packed files became plain ones, now or in a run that died, it lists them so.
    """
    manifest = replica.manifest(work.name)
    if manifest is not None and manifest.metadata == found.former != found.now:
        if manifest.members and not work.has_packs:
            plain = work.packed.plain if work.packed is not None else frozenset[str]()
            manifest = unpack.as_plain(manifest, plain)
        replica.write_manifest(work.name, manifest._replace(metadata=found.now))
