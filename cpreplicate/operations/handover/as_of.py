"""Which checkpoint of a replica is promoted: one by its name, or the newest one as of a time."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from cpreplicate.core.sizes import counted, plural
from cpreplicate.errors import NotThere, Refused, UsageError
from cpreplicate.operations.change.change import some
from cpreplicate.protocol import census, json_files, seal
from cpreplicate.protocol.census import Census
from cpreplicate.protocol.replica import Replica
from cpreplicate.protocol.replica_state import State

_NEAREST = 3  # points that an error names


def asked(
    replica: Replica, state: State | None, checkpoint: str | None, as_of: float | None
) -> str | None:
    """Return the name of the checkpoint to promote, None for the newest one.

    `state` is as it was examined, None if the replica is sealed. `as_of` is a time in seconds since
    the epoch: the newest checkpoint that was completed by then is taken. Raises `NotThere` if there
    is none, and `Refused` if the replica is sealed for another one.
    """
    if checkpoint is not None and as_of is not None:
        raise UsageError(
            "a checkpoint and a time are given, which both choose one. Give one of them"
        )
    name = checkpoint if as_of is None else _completed_by(as_of, replica, _census(replica, state))
    reason = seal.reason_against(replica, name) if state is None else None
    if reason is not None:
        raise Refused(reason)
    return name


def warnings_of_newer(replica: Replica, state: State | None, name: str) -> Iterator[str]:
    """Yield what the operator should know if a checkpoint is promoted that is not the newest.

    `state` is as of `asked`.
    """
    ordered = _census(replica, state).own
    newer = ordered[: ordered.index(name)] if name in ordered else []
    if newer:
        yield (
            f"{some(newer)} {plural(len(newer), 'is', 'are')} newer than {name}, and"
            f" {plural(len(newer), 'stays', 'stay')} in {replica.root}. After a CLAIM restore"
            f" the job deletes files of {name} that they may share: do not restore them then"
        )


def _census(replica: Replica, state: State | None) -> Census:
    return census.take(replica) if state is None else state.census


def _completed_by(time: float, replica: Replica, found: Census) -> str:
    """Return the checkpoint that was completed last at or before a time, to the second."""
    dated = ((name, found.completed(name)) for name in found.own)
    completed = {name: at for name, at in dated if at is not None}
    reached = [name for name in completed if math.floor(completed[name]) <= time]
    if not reached:
        raise NotThere(_nothing_by(time, replica, completed, len(found.own) - len(completed)))
    return max(reached, key=lambda name: completed[name])


def _nothing_by(time: float, replica: Replica, completed: Mapping[str, float], undated: int) -> str:
    nearest = sorted(completed, key=lambda name: completed[name])[:_NEAREST]
    named = ", ".join(f"{name} ({json_files.clock(completed[name])})" for name in nearest)
    parts = [f"{replica.root} holds no checkpoint that was completed by {json_files.clock(time)}"]
    parts += [f"The nearest, which are later, are {named}"] if nearest else []
    parts += [f"The time of {counted(undated, 'checkpoint')} is not recorded"] if undated else []
    return f"{'. '.join(parts)}. Give --checkpoint to promote one by its name"
