"""What a service does beside its syncs: it sweeps what it follows, and forgets what has ended.

Both are rare: a round a day, by one thread, which holds up no replication. A replica is only swept
if a listing of `.cpreplicate/` shows that runs which failed or died left something there, and once
a week in any case: such a run may have left temporary files and no trace.
"""

from __future__ import annotations

import threading
import zlib
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

from cpreplicate.core import uri
from cpreplicate.core.clock import MACHINE, Clock
from cpreplicate.core.log_context import begin_job
from cpreplicate.core.notify import Notify, named, silent
from cpreplicate.core.plan import Cap
from cpreplicate.core.shard import WHOLE, Shard
from cpreplicate.errors import LeaseHeld, NotThere, Refused, Sealed, described
from cpreplicate.flink.control import FlinkControl
from cpreplicate.operations.jobs.service import Service
from cpreplicate.operations.jobs.state import Followed
from cpreplicate.operations.replicas import forget
from cpreplicate.operations.replicas.forget import Candidate, ForgetRequest
from cpreplicate.operations.replicas.replica_status import ReplicaStatus
from cpreplicate.operations.replicas.replicas import replicas_below
from cpreplicate.operations.upkeep import orphans
from cpreplicate.operations.upkeep.sweep import SweepRequest, sweep
from cpreplicate.protocol.replica import Replica
from cpreplicate.runners import ExecutionOptions, RunnerStopped
from cpreplicate.storage import Sides, Transient
from cpreplicate.storage.waiting.cancellation import cancellable
from cpreplicate.storage.waiting.side_call import SideCall, in_thread

_DAY = 24 * 3600.0
_FIRST = 600.0  # seconds from the start: the jobs are looked at before that
_AGAIN = 3600.0  # seconds after a round that a storage ended which could not be reached
_PATIENCE = 5.0  # seconds for which the end of the service waits for a call
_WEEK = 7  # days
_WAIT = 60.0  # seconds for which a sweep waits for a sync of the replica
_SLICE = 5000  # files that are removed under one lease, which holds up the job meanwhile
_MOST_LOST = 3  # replicas that are not reached, each after --retry-for, before others are left out
_NO_CAP = Cap(1.0, is_share=True)
_ELSEWHERE = (LeaseHeld, NotThere, Sealed)
"""Another run works there or has done it, or the replica was promoted: nothing is wrong."""


class HousekeepingCounts(NamedTuple):
    """What a service has done beside its syncs since it started.

    `swept` files of `swept_bytes` were removed by sweeps, and `forgotten` replicas. `kept` replicas
    were old enough at the last round, and stay. `failures` are sweeps and removals that failed or
    were refused.
    """

    swept: int = 0
    swept_bytes: int = 0
    forgotten: int = 0
    kept: int = 0
    failures: int = 0


@dataclass(frozen=True)
class HousekeepingSettings:
    """What a service does beside its syncs; times are seconds.

    `sweep_every` is the time between two rounds, 0 for no sweeps. Replicas of ended jobs are
    removed once they are older than `forget_ended`, None for never, and only those of jobs in the
    `shard`. `lists_sources`: jobs are found by their directories. Then a replica whose
    source holds a checkpoint stays: it would be copied again. `clusters` are asked whether one of
    their jobs runs from a replica, before that is removed.
    """

    sweep_every: float = _DAY
    forget_ended: float | None = None
    shard: Shard = WHOLE
    lists_sources: bool = True
    sides: Sides = field(default=Sides())
    execution: ExecutionOptions = field(default=ExecutionOptions())
    clusters: Sequence[FlinkControl] = ()

    @property
    def every(self) -> float:
        """The seconds between two rounds."""
        return self.sweep_every or _DAY


class Housekeeper:
    """Sweeps and forgets replicas of a service, in a thread of its own while the context lasts.

    What fails, or is refused, is reported once to `warn` and counted, and ends no round.
    """

    def __init__(
        self,
        service: Service,
        settings: HousekeepingSettings,
        notify: Notify,
        warn: Notify,
        clock: Clock = MACHINE,
    ) -> None:
        self._service, self._settings, self._clock = service, settings, clock
        self._notify, self._warn = notify, warn
        self._execution = replace(settings.execution, runner="inline", show=None)
        self._counts = HousekeepingCounts()
        self._reported: dict[tuple[str, str], str] = {}  # what was done, and where
        # in this round, by the filesystem
        self._lost: defaultdict[str, list[Transient]] = defaultdict(list)
        self._stopping = threading.Event()
        self._thread: SideCall[None] | None = None

    def __enter__(self) -> Housekeeper:
        self._thread = in_thread(self._run, "housekeeping")
        return self

    def __exit__(self, *_: object) -> None:
        """Stop. A call of a storage that does not answer is left behind."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.wait(_PATIENCE)

    def counts(self) -> HousekeepingCounts:
        """Return what was done since the start."""
        return self._counts

    def round(self) -> None:
        """Sweep and forget what is due, one replica after the other.

        A filesystem of which some replicas could not be reached is left out from then on. Others
        are not. Raises a `Transient` of such a one at the end, and `RunnerStopped` at the end of
        the service. Anything else concerns one replica.
        """
        self._lost.clear()
        with cancellable(self._go_on):
            if self._settings.sweep_every:
                for each in self._service.followed():
                    self._alone("sweep", each.replica, partial(self._sweep, each))
            if self._settings.forget_ended is not None:
                for root in sorted(self._service.target_roots()):
                    self._alone("forget", root, partial(self._forget_below, root))
        if lost := [error for errors in self._lost.values() for error in errors]:
            raise lost[-1]

    def _run(self) -> None:
        pause = min(_FIRST, self._settings.every)
        while not self._stopping.wait(pause):
            pause = self._settings.every
            try:
                self.round()
            except RunnerStopped:
                return
            except Transient as error:
                self._failed(("round", ""), [f"sweeps are left for later: {described(error)}"])
                pause = min(pause, _AGAIN)

    def _go_on(self) -> None:
        if self._stopping.is_set() or self._service.is_stopping:
            raise RunnerStopped

    def _alone(self, what: str, place: str, function: Callable[[], Sequence[str] | None]) -> None:
        """Do something with one replica, or one root of such; what fails there stays there.

        The function returns what it has to warn of, None if it did not look.
        """
        self._go_on()
        lost = self._lost[uri.filesystem(place)]
        if len(lost) >= _MOST_LOST:
            return
        begin_job(uri.name(place))
        try:
            warnings = function()
        except RunnerStopped:
            raise
        except Transient as error:
            lost.append(error)
            return
        except _ELSEWHERE:
            return
        except Exception as error:  # noqa: BLE001  # it concerns this place only
            warnings = [described(error)]
        if warnings:
            self._failed((what, place), warnings)
        elif warnings is not None:
            self._reported.pop((what, place), None)

    def _failed(self, key: tuple[str, str], warnings: Sequence[str]) -> None:
        self._add(failures=1)
        self._report(key, "\n".join(warnings), self._warn)

    def _report(self, key: tuple[str, str], text: str, notify: Notify) -> None:
        """Report lines, but not what was last reported of the same."""
        if self._reported.get(key) != text:
            self._reported[key] = text
            for line in text.splitlines():
                notify(line)

    def _add(self, **more: int) -> None:
        known = self._counts._asdict()
        added = {name: known[name] + count for name, count in more.items()}
        self._counts = self._counts._replace(**added)

    def _sweep(self, each: Followed) -> list[str] | None:
        """Sweep a replica, in slices between which a sync may have the lease.

        Return the warnings, or None if it was not due, or is behind: its next sync resumes from
        what failed ones left. Without a cap of the job's own nothing is refused: nobody is there to
        allow more.
        """
        side = each.request.sides.target
        if not each.is_in_step or not self._is_due(Replica(each.replica, side)):
            return None
        request = SweepRequest(
            each.replica,
            max_delete=each.request.max_delete or _NO_CAP,
            most=_SLICE,
            lock_wait=_WAIT,
            sides=each.request.sides,
            execution=self._execution,
        )
        is_partial = True
        while is_partial:
            self._go_on()
            done = sweep(request, named(each.label, self._notify))
            self._add(swept=len(done.deletes), swept_bytes=done.bytes)
            if done.warnings:
                return [f"{each.label}: {warning}" for warning in done.warnings]
            is_partial = done.is_partial
        return []

    def _is_due(self, replica: Replica) -> bool:
        """Return whether runs that failed have left a trace, or the replica's day has come."""
        today = int(self._clock.now() // _DAY)
        of_week = zlib.crc32(replica.root.encode(errors="surrogatepass"))
        if (today + of_week) % _WEEK == 0:
            return True
        return orphans.has_traces(replica, self._clock.now() - SweepRequest.min_age)

    def _forget_below(self, root: str) -> Sequence[str]:
        request = ForgetRequest(
            ended=True,
            older_than=self._settings.forget_ended,
            sides=self._settings.sides,
            execution=self._execution,
            refuse=self._refuse_used,
        )
        refs = replicas_below(root, [], self._settings.sides, silent)
        places = [ref.replica for ref in refs if ref.is_found]
        kept, fed = 0, self._fed()
        for chosen in forget.overdue(places, request, partial(self._is_left, fed)):
            if chosen.replica in fed:
                continue  # its first sync died
            if isinstance(chosen, Candidate):
                self._alone("forget", chosen.replica, partial(self._forget, chosen, request))
            else:
                kept += 1
                stays = f"{chosen.replica} is older than --forget-ended, and stays: {chosen.why}"
                self._report(("keep", chosen.replica), stays, self._notify)
        self._counts = self._counts._replace(kept=kept)
        return ()

    def _forget(self, chosen: Candidate, request: ForgetRequest) -> Sequence[str]:
        forget.forget(chosen, request, silent)
        self._service.forgot(chosen.replica)
        self._add(forgotten=1)
        self._notify(f"{chosen.replica} was removed: {chosen.why}")
        return ()

    def _is_left(self, fed: Collection[str], row: ReplicaStatus) -> bool:
        """Return whether a replica is no concern of the policy: it would be copied again."""
        replica = row.observed.replica
        if not row.is_in(self._settings.shard):
            return True
        is_listed = self._settings.lists_sources and row.observed.source_newest is not None
        return is_listed or replica in fed

    def _refuse_used(self, replica: str) -> None:
        if replica in self._fed():
            raise Refused(f"{replica} stays as it is: its job runs again. Nothing was removed")
        try:
            forget.refuse_running(replica, self._settings.clusters, "--forget-flink")
        except Transient as error:  # it is not the replica that does not answer
            raise Refused(
                f"{replica} stays as it is: whether a job runs from it is not known. Nothing was"
                f" removed. {described(error)}"
            ) from error

    def _fed(self) -> set[str]:
        """Return the replicas of jobs whose sources hold a checkpoint, or may."""
        return {each.replica for each in self._service.followed() if each.has_checkpoint}
