"""Whose savepoint it is: it becomes a point of the replica of its job.

A savepoint references only its own files, so nothing in it names its job. The operator does, or its
directory: that begins with six digits of the job's id. This counts only for an id that Flink drew
at random, and if the operators are those of the replica. Fixed ids begin alike.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from cpreplicate.core import uri
from cpreplicate.core.metadata import Metadata
from cpreplicate.errors import NotThere, Refused, UsageError
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.protocol import census
from cpreplicate.protocol.marker import Marker, SourceName, read_marker, source_name
from cpreplicate.protocol.replica import Replica
from cpreplicate.protocol.replica_name import Named, claims, find_replica, is_distinctive, word_of
from cpreplicate.protocol.source import Source, read_metadata

_NAME = re.compile(r"savepoint-([0-9a-f]{6})-[0-9a-f]{12}")


class OwnJob(NamedTuple):
    """The replica of the job of a savepoint, and the name of that job's directory."""

    replica: str
    source: SourceName


def job_of_savepoint(request: SyncRequest, source: Source, metadata: Metadata) -> OwnJob | None:
    """Return the job whose savepoint it is, None if it has no replica, or that is not known.

    A savepoint that has a replica of its own keeps that, unless the request names its job. Costs a
    listing of TARGET_ROOT, and some reads of each replica that comes into question. Raises
    `Refused` if it may be that of several jobs, or cannot be that of the named one, and
    `UsageError` if a job is named and the source is no savepoint.
    """
    if source.job_root is not None:
        if request.savepoint_of is not None:
            raise UsageError(
                f"--job names the job of a savepoint, and {source.checkpoint} is a checkpoint,"
                " which is in the directory of its job. Leave out --job"
            )
        return None
    name = source_name(request.sides.source, source.root)
    if request.savepoint_of is not None:
        return _named(Replica(request.savepoint_of, request.sides.target), name, source, metadata)
    return None if _has_its_own(request, name) else _proven(request, source, metadata)


def has_replicas(request: SyncRequest) -> bool:
    """Return whether there may be replicas in TARGET_ROOT."""
    root = request.target_root
    children = request.sides.target.storage(root).list(root)
    return any(each.is_directory and not each.name.startswith(".") for each in children)


def _named(replica: Replica, name: SourceName, source: Source, metadata: Metadata) -> OwnJob | None:
    """Return the job that the operator names."""
    marker = read_marker(replica.side, replica.root)
    if marker is None:
        raise NotThere(f"{replica.root} is no replica of a job. Nothing was done")
    if claims(marker, name):
        return None
    held = _operators(replica)
    if held and not held & _ids(metadata):
        raise Refused(
            f"{source.checkpoint} has none of the operators of the checkpoints in {replica.root}:"
            " it is a savepoint of another job. Nothing was done. Give another --job, or leave it"
            " out to replicate the savepoint alone"
        )
    return OwnJob(replica.root, marker.sources[-1])


def _has_its_own(request: SyncRequest, name: SourceName) -> bool:
    side = request.sides.target
    with suppress(Refused):  # a damaged marker is reported by who examines it
        root = find_replica(Named(name, is_lone=True), request.target_root, side)
        marker = read_marker(side, root)
        return marker is not None and claims(marker, name)
    return True


def _proven(request: SyncRequest, source: Source, metadata: Metadata) -> OwnJob | None:
    """Return the only job with a replica that the directory of a savepoint can be of."""
    match = _NAME.fullmatch(source.job)
    if match is None:
        return None
    found = [
        (replica, marker)
        for replica, marker in _of_ids(request, match[1])
        if _operators(replica) & _ids(metadata)
    ]
    if not found:
        return None
    replica, marker = found[0]
    if len(found) > 1 or not is_distinctive(marker.job):
        names = ", ".join(each.root for each, _ in found)
        raise Refused(
            f"{source.checkpoint} may be a savepoint of the job of {names}, or of another one:"
            f" many ids begin with {match[1]}. Nothing was done. Give --job and the name or the id"
            f" of its job, such as --job {word_of(replica.root)}. If its job has no replica here,"
            " give another TARGET_ROOT"
        )
    return OwnJob(replica.root, marker.sources[-1])


def _of_ids(request: SyncRequest, begin: str) -> Iterator[tuple[Replica, Marker]]:
    """Yield the replicas of the jobs whose ids begin so."""
    side, root = request.sides.target, request.target_root
    for child in side.storage(root).list(root):
        if not (child.is_directory and child.name.startswith(begin)):
            continue
        replica = Replica(uri.join(root, child.name), side)
        with suppress(Refused):  # a damaged one is that of no job that is known
            marker = read_marker(side, replica.root)
            if marker is not None and marker.sources and marker.job.startswith(begin):
                yield replica, marker


def _operators(replica: Replica) -> frozenset[str]:
    """Return the operators of the newest checkpoint of a replica, none without one."""
    newest = census.take(replica).newest
    if newest is None:
        return frozenset()
    return _ids(read_metadata(replica.uri_of(newest), replica.side).metadata)


def _ids(metadata: Metadata) -> frozenset[str]:
    return frozenset(each.id for each in metadata.operators)
