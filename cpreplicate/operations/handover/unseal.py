"""`unseal`: remove the seal of a replica once no job needs its files.

Then sync, watch and sweep may change it again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from cpreplicate.core import uri
from cpreplicate.core.closure import closure
from cpreplicate.core.placement import CHECKPOINT_NAME, METADATA, is_derived, is_replica_path
from cpreplicate.core.sizes import counted, plural
from cpreplicate.errors import NotThere, Refused
from cpreplicate.operations.change.change import opened, some, they_are
from cpreplicate.operations.change.probe import refuse_held, try_opened
from cpreplicate.operations.change.target_root import refuse_no_replica
from cpreplicate.operations.upkeep import orphans
from cpreplicate.protocol import census, seal
from cpreplicate.protocol.marker import Marker, read_marker, source_name
from cpreplicate.protocol.replica import Replica
from cpreplicate.protocol.replica_state import State
from cpreplicate.protocol.seal import Seal
from cpreplicate.protocol.source import completed_names, read_metadata
from cpreplicate.storage import Side


@dataclass(frozen=True)
class UnsealRequest:
    """What to unseal.

    `job` is the checkpoint directory of the job that was started from it, None if no job uses it.
    With `dry_run`, everything is checked and nothing is changed.
    """

    replica: str
    job: str | None
    side: Side = field(default=Side())
    dry_run: bool = False


@dataclass(frozen=True)
class Unsealing:
    """A replica without its seal, or one that can be unsealed.

    `sealed` is by whom, when and for which checkpoint the seal was made. `found` is what shows that
    the job that was started from it does not need it, None if no job was named.
    """

    replica: str
    sealed: str
    is_dry_run: bool
    found: str | None = None


def unseal(request: UnsealRequest) -> Unsealing:
    """Remove the seal of a replica.

    Raises `NotThere` if there is none, `Refused` if a job may need the replica's files or writes
    its own below it, and `LeaseHeld` if a `promote` is at work.
    """
    replica = Replica(request.replica, request.side)
    refuse_no_replica(replica.root, replica.side)
    if request.dry_run:
        state = orphans.examine(replica)
        done = _checked(replica, state, request)
        refuse_held(replica)
        try_opened(replica, state, "unseal", lambda _line: None, only_removes=True)
        return done
    _sealed(replica)
    with opened(replica, orphans.examine) as change:
        done = _checked(replica, change.state, request)
        seal.remove(change.replica)
    return done


def _checked(replica: Replica, state: State, request: UnsealRequest) -> Unsealing:
    """Return by whom the replica was sealed, and what was found. Raise if the seal must stay."""
    sealed = _sealed(replica)
    orphans.refuse_unrecorded_files(replica, state)
    found = refuse_used(replica, request.job) if request.job is not None else None
    return Unsealing(replica.root, sealed, request.dry_run, found)


def _sealed(replica: Replica) -> str:
    sealed = seal.describe(replica)
    if sealed is None:
        raise NotThere(f"{replica.root} is not sealed. Nothing was done")
    return sealed


def refuse_used(replica: Replica, job: str) -> str:
    """Return what shows that a job does not need the replica any more. Raise `Refused` if it may.

    It does until it has completed a checkpoint of its own. After a CLAIM restore, it does as long
    as one of its checkpoints references the replica. That it is this job shows by its id and by its
    operators: a restored job has those of the checkpoint that it was restored from, but so has each
    job that runs the same program.
    """
    if replica.side.storage(job).stat(job) is None and not replica.side.storage(job).list(job):
        raise NotThere(
            f"{job} is not there. Nothing was done. Give the checkpoint directory of the job that"
            " uses the replica"
        )
    marker = read_marker(replica.side, replica.root)
    _refuse_source(replica, marker, job)
    sealed = seal.read(replica) or Seal("unknown", 0.0)
    number = _number(replica, sealed)
    names = completed_names(job, replica.side)
    later = [name for name in names if _is_later(uri.join(job, name), number, sealed, replica.side)]
    if not later:
        raise Refused(
            f"{job} holds no checkpoint that was completed since {replica.root} was promoted"
            f" ({sealed.checkpoint}), so the job may still need the replica. Nothing was done. Wait"
            " for its first checkpoint. If no job uses the replica, give --no-job-uses-it"
        )
    ids = _ids(replica, marker)
    is_named = uri.name(job) in ids
    for name in names:
        paths = list(closure(read_metadata(uri.join(job, name), replica.side).metadata).files)
        is_named = is_named or any(not ids.isdisjoint(path.split("/")) for path in paths)
        used = list(_used(replica, uri.join(job, name), paths))
        if used:
            raise Refused(
                f"{uri.join(job, name)} references {counted(len(used), 'file')} of {replica.root}:"
                f" the job needs {plural(len(used), 'it', 'them')}. Nothing was done."
                f" {they_are(used)}"
            )
    if not is_named:
        raise Refused(
            f"nothing in {job} names the job {' or '.join(sorted(ids))} of {replica.root} or its"
            " files: it may be the directory of another job that runs the same program. Nothing was"
            " done. Give the directory of the job that was started from the replica. A job that was"
            " started under a new id does not show that: if you know that it has completed a"
            " checkpoint and needs nothing in the replica, give --no-job-uses-it"
        )
    return _found(replica, sealed, uri.join(job, later[0]), ids)


def _ids(replica: Replica, marker: Marker | None) -> frozenset[str]:
    """Return the ids that the job of a replica is known by: its directory may have another name."""
    return frozenset([uri.name(replica.root), *([marker.job] if marker is not None else [])])


def _refuse_source(replica: Replica, marker: Marker | None, job: str) -> None:
    """Raise `Refused` if a directory is the one that is replicated, and not what was started."""
    if marker is not None and marker.names(source_name(replica.side, job)):
        raise Refused(
            f"{job} is the source of {replica.root}, not the directory of the job that was started"
            " from it. Nothing was done. Give that one: it is in the data centre of the replica."
            " If no job uses the replica, give --no-job-uses-it"
        )


def _found(replica: Replica, sealed: Seal, checkpoint: str, ids: frozenset[str]) -> str:
    """Return that a checkpoint is of the job that was started from the sealed one, or raise."""
    known = sealed.operators or _operators_of_replica(replica, sealed)
    if not known:
        raise Refused(
            f"it is not known which operators {sealed.checkpoint} of {replica.root} has, so nothing"
            f" shows that {checkpoint} is of the job that was started from it. Nothing was done. If"
            " no job uses the replica, give --no-job-uses-it"
        )
    lacking = known - _operators(checkpoint, replica.side)
    if lacking:
        raise Refused(
            f"{checkpoint} is not of the job that was started from {sealed.checkpoint} of"
            f" {replica.root}, or that was changed: it lacks {len(lacking)} of its"
            f" {counted(len(known), 'operator')}, {some(sorted(lacking))}. Nothing was done. Give"
            " the checkpoint directory of that job. If no job uses the replica, give"
            " --no-job-uses-it"
        )
    operators = "the one operator" if len(known) == 1 else f"the {len(known)} operators"
    return (
        f"{checkpoint} is of the job {' or '.join(sorted(ids))}, has {operators} of"
        f" {sealed.checkpoint}, is newer, and references nothing in the replica"
    )


def _operators_of_replica(replica: Replica, sealed: Seal) -> frozenset[str]:
    """Return the operators of the promoted checkpoint, if it is gone those of another one here."""
    found = census.take(replica)
    for name in dict.fromkeys([sealed.checkpoint, *found.own, *found.derived]):
        if name in found.names:
            return _operators(replica.uri_of(name), replica.side)
    return frozenset()


def _operators(checkpoint: str, side: Side) -> frozenset[str]:
    return frozenset(each.id for each in read_metadata(checkpoint, side).metadata.operators)


def _number(replica: Replica, sealed: Seal) -> int | None:
    """Return the number of the promoted checkpoint, which may be a derived one."""
    if (number := CHECKPOINT_NAME.fullmatch(sealed.checkpoint)) is not None:
        return int(number[1])
    with suppress(NotThere):
        if is_derived(sealed.checkpoint):
            place = replica.uri_of(sealed.checkpoint)
            return read_metadata(place, replica.side).metadata.checkpoint_id
    return None


def _is_later(checkpoint: str, number: int | None, sealed: Seal, side: Side) -> bool:
    """Return whether a checkpoint may be of a job that was started from the sealed one.

    Flink goes on with the number after the one that it restores. Where a job has a fixed id, its
    directory also holds checkpoints from before.
    """
    if number is not None and int(uri.name(checkpoint).removeprefix("chk-")) <= number:
        return False
    metadata_uri = uri.join(checkpoint, METADATA)
    status = side.storage(metadata_uri).stat(metadata_uri)
    return status is not None and (status.dated is None or status.dated >= sealed.modified)


def _used(replica: Replica, checkpoint: str, paths: Sequence[str]) -> Iterator[str]:
    """Yield which of the files that a checkpoint references may be files of the replica.

    One cluster may have many names (a nameservice, an address, a view). So only the end of the path
    is compared: the replica's name and the path of a file in it.
    """
    step = f"/{uri.name(replica.root)}/"
    for path in paths:
        if step not in path or uri.below(path, checkpoint) is not None:
            continue
        inner = path.rpartition(step)[2]
        if is_replica_path(inner) and replica.storage.stat(replica.uri_of(inner)) is not None:
            yield path
