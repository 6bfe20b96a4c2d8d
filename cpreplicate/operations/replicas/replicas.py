"""Which replicas are asked for: those below a target root, and those of configured jobs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from cpreplicate.core import uri
from cpreplicate.core.placement import CHECKPOINT_NAME, job_root
from cpreplicate.errors import NotThere
from cpreplicate.operations.change.target_root import inside_replica
from cpreplicate.operations.sync.request import SyncRequest, replica_root
from cpreplicate.protocol.marker import is_replica
from cpreplicate.protocol.replica import Replica
from cpreplicate.storage import Side, Sides
from cpreplicate.storage.reading import Reading


@dataclass(frozen=True)
class ReplicaRef:
    """A replica that is asked for.

    `source` is None if the replica itself names it. `name` is that of a configuration. `is_found`:
    the replica, or else the job of the source, was found by listing a root.
    """

    replica: str
    source: str | None = None
    name: str | None = None
    priority: int = 0
    is_found: bool = False
    allow_older: bool = False


def replicas_below(root: str, sources: Sequence[str], sides: Sides) -> list[ReplicaRef]:
    """Return the replicas below a target root, and the jobs of sources that have none there.

    `root` may be a replica itself. A source is a job's directory, or a root of such. Raises
    `NotThere` if there is neither a replica nor a job.
    """
    source_of = dict(chain.from_iterable(_jobs(source, sides.source) for source in sources))
    if is_replica(Replica(root, sides.target)):
        return [ReplicaRef(root, source_of.get(uri.name(root)))]
    try:
        children = sides.target.storage(root).list(root)
    except NotADirectoryError as error:
        raise _no_replica(root, "is a file", sides.target) from error
    names = [child.name for child in children if child.is_directory and child.name[:1] != "."]
    names += sorted(source_of.keys() - set(names))
    if not names:
        raise _no_replica(root, "is not there or holds no replica", sides.target)
    return [ReplicaRef(uri.join(root, name), source_of.get(name), is_found=True) for name in names]


def _no_replica(root: str, problem: str, side: Side) -> NotThere:
    """Return the error for what is neither a replica nor a directory of such."""
    advice = inside_replica(root, side) or "TARGET_ROOT is the directory that `sync` was given"
    return NotThere(f"{root} {problem}. {advice}")


class MissingSources(NamedTuple):
    """Sources that are not there: of those `unmounted`, the directory above is not there either."""

    misnamed: tuple[str, ...] = ()
    unmounted: tuple[str, ...] = ()


def missing_sources(sources: Sequence[str], side: Side) -> MissingSources:
    """Return the sources that are not there. Raises `OSError` for what cannot be reached."""
    missing = [source for source in sources if _is_missing(source, side.storage(source))]
    misnamed = tuple(source for source in missing if _is_misnamed(source, side.storage(source)))
    return MissingSources(misnamed, tuple(each for each in missing if each not in misnamed))


def _is_missing(source: str, storage: Reading) -> bool:
    return storage.stat(source) is None and not storage.list(source)


def _is_misnamed(source: str, storage: Reading) -> bool:
    """Return whether the directory above a missing source answers. Else it may not be mounted."""
    above = uri.parent(source)
    is_top = not uri.local_path(above)
    return is_top or not storage.has_directories or storage.stat(above) is not None


def replica_of(request: SyncRequest, name: str, priority: int, is_found: bool) -> ReplicaRef:
    """Return the replica of a job that is configured."""
    source = request.source.rstrip("/")
    replica = replica_root(source, request.target_root)
    return ReplicaRef(replica, source, name, priority, is_found, request.allow_older)


def _jobs(source: str, side: Side) -> Iterator[tuple[str, str]]:
    """Yield the id and the directory of each job at or below a source. Costs one listing."""
    root = job_root(source)
    if root != source:  # a checkpoint of the job
        yield uri.name(root), source
        return
    children = [child for child in side.storage(source).list(source) if child.is_directory]
    if not children or any(CHECKPOINT_NAME.fullmatch(child.name) for child in children):
        yield uri.name(source), source
        return
    for child in children:
        if child.name[:1] != ".":
            yield child.name, uri.join(source, child.name)
