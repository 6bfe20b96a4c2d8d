"""`unseal`: remove the seal of a replica once no job needs its files.

Then sync, watch and sweep may change it again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from cpreplicate.core import uri
from cpreplicate.core.closure import closure
from cpreplicate.core.placement import CHECKPOINT_NAME, METADATA, is_replica_path
from cpreplicate.errors import NotThere, Refused
from cpreplicate.operations.change import opened, some
from cpreplicate.operations.probe import refuse_held, try_opened
from cpreplicate.operations.target_root import refuse_no_replica
from cpreplicate.operations.upkeep import orphans
from cpreplicate.protocol import seal
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

    `sealed` is by whom, when and for which checkpoint the seal was made.
    """

    replica: str
    sealed: str
    is_dry_run: bool


def unseal(request: UnsealRequest) -> Unsealing:
    """Remove the seal of a replica.

    Raises `NotThere` if there is none, `Refused` if a job may need the replica's files or writes
    its own below it, and `LeaseHeld` if a `promote` is at work.
    """
    replica = Replica(request.replica, request.side)
    refuse_no_replica(replica.root, replica.side)
    if request.dry_run:
        state = orphans.examine(replica)
        sealed = _checked(replica, state, request)
        refuse_held(replica)
        try_opened(replica, state, "unseal", lambda _line: None)
        return Unsealing(replica.root, sealed, True)
    _sealed(replica)
    with opened(replica, lambda _lease: orphans.examine(replica)) as change:
        sealed = _checked(replica, change.state, request)
        replica.storage.delete(seal.seal_uri(replica), durable=True)
    return Unsealing(replica.root, sealed, False)


def _checked(replica: Replica, state: State, request: UnsealRequest) -> str:
    """Return by whom the replica was sealed. Raise if the seal must stay."""
    sealed = _sealed(replica)
    orphans.refuse_unrecorded_files(replica, state)
    if request.job is not None:
        refuse_used(replica, request.job)
    return sealed


def _sealed(replica: Replica) -> str:
    sealed = seal.describe(replica)
    if sealed is None:
        raise NotThere(f"{replica.root} is not sealed. Nothing was done")
    return sealed


def refuse_used(replica: Replica, job: str) -> None:
    """Raise `Refused` if a job may need the replica.

    It does until it has completed a checkpoint of its own. After a CLAIM restore, it does as long
    as one of its checkpoints references the replica.
    """
    if replica.side.storage(job).stat(job) is None and not replica.side.storage(job).list(job):
        raise NotThere(
            f"{job} is not there. Nothing was done. Give the checkpoint directory of the job that"
            " uses the replica"
        )
    names = completed_names(job, replica.side)
    sealed = seal.read(replica)
    if sealed is not None and not any(
        _is_later(uri.join(job, name), sealed, replica.side) for name in names
    ):
        raise Refused(
            f"{job} holds no checkpoint that was completed since {replica.root} was promoted"
            f" ({sealed.checkpoint}), so the job may still need the replica. Nothing was done. Wait"
            " for its first checkpoint. If no job uses the replica, give --no-job-uses-it"
        )
    for name in names:
        used = list(_used(replica, uri.join(job, name)))
        if used:
            raise Refused(
                f"{uri.join(job, name)} references {len(used)} files of {replica.root}: the job"
                f" needs them. Nothing was done. They are {some(used)}"
            )


def _is_later(checkpoint: str, sealed: Seal, side: Side) -> bool:
    """Return whether a checkpoint may be of a job that was started from the sealed one.

    Flink goes on with the number after the one that it restores. Where a job has a fixed id, its
    directory also holds checkpoints from before.
    """
    number = CHECKPOINT_NAME.fullmatch(sealed.checkpoint)
    if number is not None and int(uri.name(checkpoint).removeprefix("chk-")) <= int(number[1]):
        return False
    metadata_uri = uri.join(checkpoint, METADATA)
    status = side.storage(metadata_uri).stat(metadata_uri)
    return status is not None and not 0 < status.modified < sealed.modified


def _used(replica: Replica, checkpoint: str) -> Iterator[str]:
    """Yield the files that a checkpoint references and that may be files of the replica.

    One cluster may have many names (a nameservice, an address, a view). So only the end of the path
    is compared: the replica's name and the path of a file in it.
    """
    step = f"/{uri.name(replica.root)}/"
    for path in closure(read_metadata(checkpoint, replica.side).metadata).files:
        if step not in path or uri.below(path, checkpoint) is not None:
            continue
        inner = path.rpartition(step)[2]
        if is_replica_path(inner) and replica.storage.stat(replica.uri_of(inner)) is not None:
            yield path
