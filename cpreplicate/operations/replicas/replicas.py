"""Which replicas are asked for: those below a target root, and those of configured jobs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import NamedTuple

from cpreplicate.core import uri
from cpreplicate.core.notify import Notify, silent
from cpreplicate.core.placement import CHECKPOINT_NAME, JOB_ID, job_root
from cpreplicate.errors import CpreplicateError, NotThere
from cpreplicate.operations.change.target_root import inside_replica
from cpreplicate.operations.sync.place import replica_root
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.protocol.marker import is_replica, source_name
from cpreplicate.protocol.replica import Replica
from cpreplicate.protocol.replica_name import Named, find_replica, is_distinctive, is_savepoint_name
from cpreplicate.storage import Side, Sides
from cpreplicate.storage.reading import Reading, is_file


@dataclass(frozen=True)
class ReplicaRef:
    """A replica that is asked for.

    `source` is None if the replica itself names it. `name` is that of a configuration. `is_found`:
    the replica, or else the job of the source, was found by listing a root. `is_plain`: it was seen
    there as a directory, and not as a link to one.
    """

    replica: str
    source: str | None = None
    name: str | None = None
    priority: int = 0
    is_found: bool = False
    allow_older: bool = False
    is_plain: bool = False


def replicas_below(
    root: str, sources: Sequence[str], sides: Sides, notify: Notify = silent
) -> list[ReplicaRef]:
    """Return the replicas below a target root, and the jobs of sources that have none there.

    `root` may be a replica itself. A source is a job's directory, or a root of such. Directories of
    others that may not be read are left out, which `notify` gets. Raises `NotThere` if there is
    neither a replica nor a job.
    """
    jobs = list(chain.from_iterable(_jobs(source, sides.source) for source in sources))
    if is_replica(Replica(root, sides.target)):
        return [ReplicaRef(root, _source_of(root, jobs, sides))]
    try:
        children = sides.target.storage(root).list(root)
    except NotADirectoryError as error:
        raise _no_replica(root, "is a file", sides.target) from error
    found = {
        child.name: not child.is_link
        for child in sorted(children, key=lambda child: child.name)
        if child.is_directory and child.name[:1] != "."
    }
    names = [name for name in found if not _is_closed(uri.join(root, name), sides.target, notify)]
    source_of = {_name_in(root, set(names), source, sides): source for source in jobs}
    names += sorted(source_of.keys() - set(names))
    if not names:
        is_none = not children and is_file(root, sides.target.storage(root))
        problem = "is a file" if is_none else "is not there or holds no replica"
        raise _no_replica(root, problem, sides.target)
    return [
        ReplicaRef(
            uri.join(root, name),
            source_of.get(name),
            is_found=True,
            is_plain=found.get(name, False),
        )
        for name in names
    ]


def _is_closed(directory: str, side: Side, notify: Notify) -> bool:
    """Return whether a directory may not be read and has no name that a job's id begins.

    Such are `lost+found` and those of other users. Costs nothing where the name has an id: what
    fails there is in the result of that replica.
    """
    if JOB_ID.match(uri.name(directory)):
        return False
    try:
        is_replica(Replica(directory, side))
    except PermissionError:
        notify(left_out(directory))
        return True
    except (CpreplicateError, OSError):
        return False  # who examines it reports it
    return False


def left_out(directory: str) -> str:
    """Return the line for a directory that may not be read, and so is taken for no job's."""
    return f"{directory} may not be read by this user, so it was left out"


def _name_in(root: str, names: Collection[str], source: str, sides: Sides) -> str:
    """Return the name of the replica of a job among those in a target root, or that it would have.

    Costs nothing if there is one only that it can be.
    """
    directory = job_root(source)
    named = Named(source_name(sides.source, directory), is_savepoint_name(uri.name(directory)))
    there = [name for name in named.names if name in names]
    if not there or (there == [named.likely] and is_distinctive(uri.name(directory))):
        return named.likely
    return uri.name(find_replica(named, root, sides.target))


def _source_of(replica: str, jobs: Sequence[str], sides: Sides) -> str | None:
    """Return the one of the jobs whose replica is the only one that is asked for."""
    name = uri.name(replica)
    is_of = partial(_name_in, uri.parent(replica), {name})
    return next((source for source in jobs if is_of(source, sides) == name), None)


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
    """Return the replica of a job that is configured.

    Where its source has none, the replica of a random id is that of the job under another address:
    its data centre may be lost, and what its file names may be a former address.
    """
    source, replica = request.source.rstrip("/"), replica_root(request)
    id_ = uri.name(job_root(source))
    if is_distinctive(id_) and uri.name(replica) != id_:
        side, of_id = request.sides.target, uri.join(request.target_root, id_)
        is_there = is_replica(Replica(replica, side))
        replica = of_id if not is_there and is_replica(Replica(of_id, side)) else replica
    return ReplicaRef(replica, source, name, priority, is_found, request.allow_older)


def _jobs(source: str, side: Side) -> Iterator[str]:
    """Yield the directory of each job at or below a source. Costs one listing."""
    if job_root(source) != source:  # a checkpoint of the job
        yield source
        return
    children = [child for child in side.storage(source).list(source) if child.is_directory]
    if not children or any(CHECKPOINT_NAME.fullmatch(child.name) for child in children):
        yield source
        return
    for child in children:
        if child.name[:1] != ".":
            yield uri.join(source, child.name)
