"""Whether `promote` would succeed, and why not: the one answer for all that approve.

`promote` asks here before it changes anything, and so do `status`, `verify`, the pages, metrics and
alerts of a service. What only a try shows (the right to write, the lease) is added by who tries it.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import NamedTuple

from cpreplicate.core.placement import METADATA, is_checkpoint
from cpreplicate.errors import CpreplicateError, NotThere, Obstacle, Obstructed, Refused
from cpreplicate.protocol import census, json_files, ownership, seal
from cpreplicate.protocol.census import Census
from cpreplicate.protocol.job_record import read_job_record
from cpreplicate.protocol.marker import Marker
from cpreplicate.protocol.replica import Replica
from cpreplicate.protocol.replica_state import State
from cpreplicate.protocol.seal import Seal

_REPLICA = "REPLICA is <target root>/<job-id>"


@dataclass(frozen=True)
class Held:
    """What a directory holds that decides whether it can be promoted, examined or only listed.

    `sealed` is its seal. The other fields are those of the same name in `State`.
    """

    census: Census
    marker: Marker | None
    is_empty: bool
    links: tuple[str, ...]
    sealed: Seal | None

    @property
    def unrecorded(self) -> tuple[str, ...]:
        """The checkpoints of others that nobody accepted."""
        return self.census.unrecorded


class Unready(NamedTuple):
    """Why `promote` would not succeed: its error.

    `obstacle` is None if nothing in the replica is in the way: it only holds no checkpoint of
    cpreplicate's own, or an adopted one is asked for.
    """

    error: CpreplicateError
    obstacle: Obstacle | None = None

    def __str__(self) -> str:
        return str(self.error)


def held(replica: Replica, state: State) -> Held:
    """Return what an examined directory holds. Reads the seal, if there is one."""
    sealed = seal.read(replica) if seal.NAME in state.own else None
    return Held(state.census, state.marker, state.is_empty, state.links, sealed)


def unready(replica: Replica, found: Held, checkpoint: str | None = None) -> Unready | None:
    """Return why `promote` would refuse a replica, None if it would not.

    `checkpoint` is the one that is asked for, None for the newest. A sealed replica is promoted
    already: what a job writes there is no obstacle. But the checkpoint that it was promoted with
    must be there.
    """
    if found.links:
        return _obstructed(ownership.of_link(replica.uri_of(found.links[0])), "link")
    if found.sealed is not None:
        return unready_sealed(replica, found.sealed, found.census)
    if found.is_empty:
        return Unready(nothing_there(replica))
    for reason in ownership.foreign(found, replica):
        obstacle = ownership.obstacle(found)
        assert obstacle is not None, "it is the kind of this reason"
        return _obstructed(reason, obstacle)
    if checkpoint in found.census.adopted:
        return Unready(Refused(ownership.of_adopted(replica.uri_of(str(checkpoint)))))
    return None if found.census.own else Unready(no_checkpoint(replica))


def nothing_there(replica: Replica) -> NotThere:
    """Return the error of a directory that is not there, or empty."""
    return NotThere(f"{replica.root} is not there or is empty. {_REPLICA}")


def no_checkpoint(replica: Replica) -> NotThere:
    """Return the error of a replica without a checkpoint of cpreplicate's own."""
    return NotThere(f"{replica.root} holds no committed checkpoint. {_REPLICA}")


def unready_sealed(replica: Replica, sealed: Seal, found: Census | None = None) -> Unready | None:
    """Return why how a job is started from a sealed replica is not known, None if it is.

    No other checkpoint is taken in place of the promoted one: the job would go back behind what it
    has done since. Takes the census by lengths if none is given.
    """
    name = sealed.checkpoint
    if not is_checkpoint(name):
        return _obstructed(_of_damaged_seal(replica), "gone")
    found = census.take(replica) if found is None else found
    if name in (*found.own, *found.derived):
        return None
    if name in found.others:
        return _obstructed(_of_replaced(replica, sealed), "gone")
    return _obstructed(_of_gone(replica, sealed, found), "gone")


def _obstructed(text: str, obstacle: Obstacle) -> Unready:
    return Unready(Obstructed(text, obstacle), obstacle)


def _of_gone(replica: Replica, sealed: Seal, found: Census) -> str:
    left = (*found.own, *found.derived)
    others = f" What is left here is not what the job did last: {', '.join(left)}." if left else ""
    return (
        f"{replica.root} is sealed {seal.describe(replica)}, and {sealed.checkpoint} is not there"
        " any more: Flink deletes the checkpoint that a job was restored from with CLAIM once the"
        f" job has completed others. Nothing was done. {_own_checkpoints(replica, sealed)}{others}"
        f" {_way_out(replica)}"
    )


def _of_replaced(replica: Replica, sealed: Seal) -> str:
    return (
        f"{replica.root} is sealed {seal.describe(replica)}, and the {METADATA} of"
        f" {sealed.checkpoint} is not the one that was promoted: a job writes its checkpoints here."
        f" Nothing was done. {_own_checkpoints(replica, sealed)} {_way_out(replica)}"
    )


def _of_damaged_seal(replica: Replica) -> str:
    return (
        f"{seal.seal_uri(replica)} is damaged, so it is not known with which checkpoint the replica"
        " was promoted. Nothing was done. Start the job from its own newest checkpoint. If no job"
        f" was started from the replica: {_unsealing(replica)}"
    )


def _own_checkpoints(replica: Replica, sealed: Seal) -> str:
    """Return where the job has its own checkpoints, as far as the replica knows it."""
    recorded = read_job_record(replica.side, replica.root)
    named = "the job" if recorded is None else f"the job {recorded.name}"
    return (
        f"Start {named} from the newest checkpoint of its own: the directory of its id below"
        " execution.checkpointing.dir (state.checkpoints.dir) of the cluster that it was started"
        f" on, completed after {json_files.clock(sealed.modified)}. `cpreplicate inspect DIR`"
        " prints the newest one."
    )


def _way_out(replica: Replica) -> str:
    return f"Only if no job was started from the replica since: {_unsealing(replica)}"


def _unsealing(replica: Replica) -> str:
    return (
        f"run `cpreplicate unseal {shlex.quote(replica.root)} --no-job-uses-it`, and promote again"
    )
