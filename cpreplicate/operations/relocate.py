"""`relocate`: rewrite the `_metadata` of a replica where it lies, or where it was moved to; no
source is needed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import NamedTuple

from cpreplicate.core import restore, uri
from cpreplicate.core.closure import Closure, closure
from cpreplicate.core.metadata import rewrite
from cpreplicate.core.placement import BEFORE_RELOCATE, METADATA, is_replica_path
from cpreplicate.core.restore import PathsMode, Restore
from cpreplicate.errors import NotThere, Refused
from cpreplicate.operations import orphans
from cpreplicate.operations.deletion import refuse_links, some
from cpreplicate.protocol import publication, seal
from cpreplicate.protocol.digest import digest_of
from cpreplicate.protocol.lease import Lease, acquire
from cpreplicate.protocol.replica import Replica
from cpreplicate.protocol.source import MetadataFile, read_metadata
from cpreplicate.storage import Side
from cpreplicate.storage.base import Content

Notify = Callable[[str], None]
_PIECE = 4 << 20  # bytes


@dataclass(frozen=True)
class RelocateRequest:
    """What to rewrite and how. `root` is where Flink is to find the replica, by default where it
    lies.

    `moved_from` is where it lay before; by default it is told from the paths themselves.
    """

    replica: str
    paths: PathsMode = "auto"
    root: str | None = None
    moved_from: str | None = None
    lock_wait: float = 0.0
    side: Side = field(default=Side())


class Relocated(NamedTuple):
    """One checkpoint of the replica, and whether its `_metadata` had to be rewritten."""

    checkpoint: str
    rewritten: bool
    paths: str
    reason: str
    restore: Restore


@dataclass(frozen=True)
class Relocation:
    """What became of a replica: newest checkpoint first.

    `moved_from` are the places that it was moved from.
    """

    replica: str
    root: str
    moved_from: tuple[str, ...]
    checkpoints: tuple[Relocated, ...]
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Work:
    """One checkpoint as it is and as it is to be."""

    name: str
    file: MetadataFile
    closure: Closure
    layout: _Lain
    spelling: restore.Paths
    root: str

    def rewritten(self) -> Iterator[bytes]:
        rewriter = restore.path_rewriter(self.closure, self.layout, self.root, self.spelling.mode)
        with ExitStack() as stack:
            yield from rewrite(self.file.open(stack), self.file.metadata, rewriter)


@dataclass(frozen=True)
class _Lain:
    """The files of a replica by the places that its `_metadata` tells: below one of `roots`."""

    name: str
    roots: tuple[str, ...]

    def place(self, source: str) -> str:
        return next(path for root in self.roots if (path := _path_below(source, root)) is not None)

    def place_directory(self, source: str) -> str:
        return self.place(source)


def relocate(
    request: RelocateRequest, notify: Notify, names: Sequence[str] | None = None
) -> Relocation:
    """Rewrite every committed checkpoint, or those named, under the lease.

    Each `_metadata` is replaced atomically, and none before all are found whole; what it was is
    kept beside until all are done and read back. Raises `Refused`, having changed nothing, where a
    file is missing or cannot be told.
    """
    replica = Replica(request.replica, request.side)
    _work(replica, names, request)
    with acquire(replica.root, replica.side, request.lock_wait, notify) as lease:
        return relocate_held(replica, names, request, lease)


def relocate_held(
    replica: Replica, names: Sequence[str] | None, request: RelocateRequest, lease: Lease
) -> Relocation:
    """The same where the lease is held already."""
    work = _work(replica, names, request, is_alone=True)
    changed = [each for each in work if not _is_written(replica, each)]
    for each in reversed(changed):  # the oldest first, so that the files' times tell the newest
        _keep_way_back(replica, each.name)
        _replace(replica, each.name, each.rewritten, lease)
    for each in work:
        _carry_manifest_over(replica, each.name)
    if wrong := [each.name for each in changed if not _is_written(replica, each)]:
        for name in wrong:
            _replace(replica, name, functools.partial(_pieces, replica, _way_back(name)), lease)
        raise OSError(
            f"{replica.root}: {some(wrong)} did not read back as written; what was there before is"
            " there again"
        )
    for each in work:
        replica.storage.delete(replica.uri_of(_way_back(each.name)))
    replica.storage.rmdir(replica.uri_of(BEFORE_RELOCATE))
    moved = {root for each in work for root in each.layout.roots if root != replica.root}
    done = tuple(_relocated(each, each in changed) for each in work)
    return Relocation(
        replica.root, request.root or replica.root, tuple(sorted(moved)), done, _warnings(work)
    )


def _warnings(work: Sequence[_Work]) -> tuple[str, ...]:
    found = (
        warning for each in work for warning in restore.warnings(each.file.metadata, each.spelling)
    )
    return tuple(dict.fromkeys(found))


def _is_written(replica: Replica, work: _Work) -> bool:
    data = replica.metadata_bytes(work.name)
    return data is not None and data.digest == digest_of(work.rewritten())


def _replace(replica: Replica, name: str, content: Content, lease: Lease) -> None:
    """Publish another spelling of a checkpoint.

    Both are recorded as cpreplicate's before it appears.
    """
    data = replica.metadata_bytes(name)
    if data is None:
        raise NotThere(f"{replica.uri_of(name)} was withdrawn meanwhile; run again")
    publication.announce_rewrite(replica, name, data.digest, content)
    replica.publish(name, content, lease.check, replace=True)


def _relocated(work: _Work, changed: bool) -> Relocated:
    checkpoint = uri.join(work.root, work.name)
    return Relocated(
        work.name,
        changed,
        work.spelling.reported,
        work.spelling.reason,
        restore.restore(work.file.metadata, work.spelling.mode, checkpoint),
    )


def _work(
    replica: Replica, names: Sequence[str] | None, request: RelocateRequest, is_alone: bool = False
) -> list[_Work]:
    seal.refuse_sealed(replica)
    state = orphans.examine(replica, is_alone)
    if is_alone:  # else another run may be writing
        orphans.refuse_newer_files(replica, state)
    committed = [each.name for each in state.committed]
    if not committed:
        raise NotThere(
            f"{replica.root} holds no committed checkpoint; REPLICA is <target root>/<job-id>"
        )
    return [_one(replica, name, request) for name in committed if names is None or name in names]


def _one(replica: Replica, name: str, request: RelocateRequest) -> _Work:
    file = read_metadata(replica.uri_of(name), replica.side)
    found = closure(file.metadata)
    roots = (replica.root, *_former_roots(found, replica, request))
    layout = _Lain(name, roots)
    _refuse_wanting(found, layout, replica, name)
    return _Work(
        name,
        file,
        found,
        layout,
        restore.choose(file.metadata, found, request.paths),
        request.root or replica.root,
    )


def _former_roots(found: Closure, replica: Replica, request: RelocateRequest) -> Iterator[str]:
    """Where the replica lay before, if it was moved: the one root below which all is that it names
    elsewhere.
    """
    elsewhere = [
        place
        for place in (*found.files, *sorted(found.directories))
        if _path_below(place, replica.root) is None
    ]
    if not elsewhere:
        return
    candidates = [request.moved_from] if request.moved_from else _candidates(elsewhere[0])
    for root in candidates:
        if all(_path_below(place, root) for place in elsewhere) and _are_there(
            elsewhere, root, found, replica
        ):
            yield root
            return
    raise Refused(
        f"{replica.root} references {len(elsewhere)} files elsewhere, such as {elsewhere[0]}, and"
        " they are not all here as they would be had the replica been moved. Nothing was changed;"
        " give the place that it was moved from with --moved-from"
    )


def _candidates(place: str) -> list[str]:
    """The places that may be the replica's root, the longest first, going by what a path in a
    replica looks like.
    """
    steps = place.split("/")
    return [
        "/".join(steps[:at])
        for at in range(len(steps) - 1, 0, -1)
        if is_replica_path("/".join(steps[at:]))
    ]


def _are_there(places: Iterable[str], root: str, found: Closure, replica: Replica) -> bool:
    files = [
        path
        for place in places
        if place in found.files and (path := _path_below(place, root)) is not None
    ]
    return set(files) <= replica.present(uri.directories(files)).keys()


def _path_below(place: str, root: str) -> str | None:
    path = uri.below(place, root)
    return path if path is not None and is_replica_path(path) else None


def _refuse_wanting(found: Closure, layout: _Lain, replica: Replica, name: str) -> None:
    extents = {layout.place(place): file.extent for place, file in found.files.items()}
    refuse_links(uri.directories(extents), replica)
    present = replica.present(uri.directories(extents))
    wanting = [path for path, extent in extents.items() if present.get(path, -1) < extent]
    if wanting:
        raise Refused(
            f"{replica.uri_of(name)} lacks {len(wanting)} files, or they are too short; nothing was"
            f" changed: {some(wanting)}"
        )


def _way_back(name: str) -> str:
    return f"{BEFORE_RELOCATE}/{name}"


def _keep_way_back(replica: Replica, name: str) -> None:
    replica.storage.put(
        replica.uri_of(_way_back(name)), lambda: _pieces(replica, f"{name}/{METADATA}")
    )


def _pieces(replica: Replica, path: str) -> Iterator[bytes]:
    with replica.storage.open(replica.uri_of(path)) as stream:
        while piece := stream.read(_PIECE):
            yield piece


def _carry_manifest_over(replica: Replica, name: str) -> None:
    """A manifest names the digest of the `_metadata` that it describes: now that of the one that
    replaced it.
    """
    if replica.storage.stat(replica.uri_of(_way_back(name))) is None:
        return
    known, now, before = (
        replica.manifest(name),
        replica.metadata_bytes(name),
        digest_of(_pieces(replica, _way_back(name))),
    )
    if known is not None and now is not None and known.metadata == before != now.digest:
        replica.write_manifest(name, known._replace(metadata=now.digest))
