"""What the job of a replica is started from, as a service last observed it. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from cpreplicate.core import uri
from cpreplicate.core.start import Starting
from cpreplicate.operations.jobs.observation import Observation
from cpreplicate.operations.jobs.restore_state import RestoreState

T = TypeVar("T")


@dataclass(frozen=True)
class RestorePoint:
    """From what a job would be started, and whether `promote` would succeed; times are seconds.

    `replica` is its URI without a password, and `source_name` the name of the directory that the
    job writes, most often its id. `observed` is when the replica was last looked at, in
    seconds since the epoch: what is returned here was so then. `lag` is None if it is not known;
    while the source `is_unseen`, it is the age of the replica's newest checkpoint. `unready` is why
    `promote` would not succeed, None if nothing is known that is in its way. `error` is that of the
    last try, if it failed.
    """

    name: str
    replica: str
    source_name: str
    restore_state: RestoreState
    observed: float | None
    lag: float | None
    is_unseen: bool
    unready: str | None
    error: str | None

    @property
    def job(self) -> str:
        """The name of its replica's directory: the id of the job, or what begins with it."""
        return uri.name(self.replica)

    @property
    def starting(self) -> Starting | None:
        """How the job is started, None without a checkpoint."""
        return self.restore_state.starting


def restore_point(observation: Observation, now: float) -> RestorePoint:
    """Return what an observed job is started from, at a time in seconds since the epoch."""
    return RestorePoint(
        observation.name,
        uri.without_password(observation.replica),
        uri.name(observation.source),
        observation.restore_state or RestoreState(),
        observation.replica_looked,
        _lag(observation, now),
        observation.is_unseen(now),
        _unready(observation),
        observation.last_error,
    )


def selected(candidates: Sequence[T], observed: Callable[[T], Observation], job: str) -> list[T]:
    """Return the jobs that a text means: the URI of a replica, else an id, else a name.

    A name may be that of several jobs, or of one that restarted. So may an id, below several roots.
    """
    of_replica, of_id, of_name = [], [], []
    for candidate in candidates:
        observation = observed(candidate)
        if uri.without_password(observation.replica) == job:
            of_replica.append(candidate)
        elif job and job in (uri.name(observation.replica), uri.name(observation.source)):
            of_id.append(candidate)
        elif observation.name == job:
            of_name.append(candidate)
    return of_replica or of_id or of_name


def _lag(observation: Observation, now: float) -> float | None:
    if observation.source_newest is None and not observation.is_unseen(now):
        return None
    lag = observation.lag(now)
    return None if math.isinf(lag) else lag


def _unready(observation: Observation) -> str | None:
    restore_state = observation.restore_state
    if observation.replica_looked is None or restore_state is None:
        return observation.last_error or "the replica was not looked at yet"
    if restore_state.refusal is not None:
        return restore_state.refusal
    if restore_state.starting is None:
        if restore_state.sealed is not None:
            return f"{restore_state.sealed.checkpoint}, for which it is sealed, is not there"
        return "it holds no checkpoint that cpreplicate committed"
    if restore_state.sealed is not None:
        return None  # it is promoted already
    return "another process holds its lease" if observation.is_lease_held else None
