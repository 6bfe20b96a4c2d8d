"""Histories in which replicas are forgotten: jobs that restart under new ids and one name, jobs
that run from replicas which nobody promoted, and names that return between a decision and its end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random

from cpreplicate.core import uri
from cpreplicate.errors import Refused
from cpreplicate.operations.replicas import forget
from cpreplicate.operations.replicas.forget import Candidate, ForgetRequest
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.operations.upkeep.removal import Removal
from cpreplicate.protocol import job_record, json_files
from cpreplicate.runners import ExecutionOptions
from tests.support.cotenant import Job, quiet
from tests.support.histories import OWN, PASSING, Operation, World, newest_recorded
from tests.support.staging import silent

_MOST_JOBS = 8
_ADOPTED = 0.1  # of the removals are of a replica that holds checkpoints of another program
_SEALED = 0.15  # of the replicas that were chosen are promoted before they are removed


class ForgettingWorld(World):
    """Two data centres in which the jobs of each have one name, and replicas are forgotten."""

    def __init__(self, seed: object) -> None:
        super().__init__(f"forgetting {seed}")
        self.history = [f"ForgettingWorld({seed!r})"]
        self.forgetting = Random(f"forgetting {seed}")
        # draws of their own, else all histories change
        self.aiming, self.sealing = Random(f"aiming {seed}"), Random(f"sealing {seed}")
        self.layout = self.forgetting.choice(["own", "own", "archive", "flink"])
        self.is_fixed = self.forgetting.random() < 0.15
        self.operations = FORGETTING

    def name_of(self, job: Job) -> str:
        return f"the job of {job.side}"

    # Operations

    def restart(self) -> None:
        """A job ends, mostly, and starts under another id: it has an earlier life then."""
        earlier = self._any_job()
        self.sync(job=earlier)
        if self.wrong or self.is_fixed or len(self.flink.jobs) >= _MOST_JOBS:
            return
        side, start = earlier.side, self._newest(earlier.root)
        root = self._flink(side, f"{len(self.flink.jobs) + 1:032x}")
        if earlier.is_running and self.forgetting.random() < 0.8:
            self.flink.cancel(earlier)
        is_whole = start is not None and self._is_whole(start)
        if start is not None and is_whole and self.forgetting.random() < 0.5:
            job = self.flink.restore(side, root, start, "NO_CLAIM")
        else:
            job = self.flink.start(side, root)
        self.history.append(f"{job} is the next life of {earlier}")
        self.disk.clock.pass_(1.0)
        with quiet(self.disk):
            self.flink.complete(job)
        self.sync(job=job)

    def start_unpromoted(self) -> None:
        """A job starts from a replica that nobody promoted, and may complete a checkpoint there."""
        replica = self._any_replica()
        if replica.startswith("file:/dc") and replica not in self._sealed():
            self._start_unpromoted(replica, completed=self.forgetting.randint(0, 1))
            if self.forgetting.random() < 0.7:
                self.forget(replica)

    def forget(self, replica: str = "") -> None:
        """Decide which replica may go, let things happen, and remove it; or one that is asked for,
        with its last point.
        """
        draw = self.forgetting.random
        if not replica and self.aiming.random() < _ADOPTED:
            replica = self._adopted_again()
        is_adopted = replica in self.adopted
        request = ForgetRequest(
            ended=draw() < 0.2 and not is_adopted,
            last_point=bool(replica) or draw() < 0.2,
            leaves_others=draw() < 0.3 or is_adopted,
            execution=ExecutionOptions(runner="inline", parallelism=1),
            refuse=self._refuse_used,
        )
        chosen = self._chosen(request, [replica] if replica else self._replicas())
        if chosen is None or self.wrong:
            return
        if draw() < 0.3:
            self.model_steps()
        if draw() < 0.2:
            self.sync()
        if not self.wrong and self.sealing.random() < _SEALED:
            self.promote(chosen.replica)
        if not self.wrong:
            self.counts["sealed after it was chosen"] += chosen.replica in self._sealed()
            self._forget(chosen, request)

    def _adopted_again(self) -> str:
        """A job whose directory became a replica goes on from what was replicated there, by its own
        checkpoint, which is adopted, too. Return the replica; no job runs from it.
        """
        id_ = f"{0xAD0 + len(self.flink.jobs):032x}"
        replica = self._flink("B", id_)
        if self.is_fixed or len(self.flink.jobs) >= _MOST_JOBS:
            return ""
        source = self.flink.start("A", self._flink("A", id_))
        self._adopt_beyond(self.flink.start("B", replica), source)
        newest = newest_recorded(self.disk, replica)
        start = self._published(f"{replica}/{newest}") if newest is not None else None
        if self.wrong or start is None:
            return ""
        self._adopt_beyond(self.flink.restore("B", replica, start, "LEGACY"), source)
        if self.wrong or replica not in self.adopted:
            return ""
        self.counts["adopted again"] += 1
        return replica

    def _adopt_beyond(self, job: Job, source: Job) -> None:
        """A job completes a checkpoint and ends, and one of its id at the other side goes on beyond
        that, and is synced into its directory.
        """
        with quiet(self.disk):
            self.flink.complete(job)
            self.flink.cancel(job)
            while True:
                self.disk.clock.pass_(1.0)
                made = self.flink.complete(source)
                if made is not None and made.number > job.number:
                    break
        request = SyncRequest(
            source.root,
            self._flink("B"),
            adopt=True,
            execution=ExecutionOptions(runner="inline", parallelism=1),
            subsumption_wait=0.0,
            name=self.name_of(source),
        )
        self._perform(self._sync_operation(request, is_odd=False))

    def _chosen(self, request: ForgetRequest, replicas: list[str]) -> Candidate | None:
        self.forgetting.shuffle(replicas)
        for replica in replicas:
            chosen = self._outcome(lambda replica=replica: forget.candidate(replica, request))  # type: ignore[misc]
            if isinstance(chosen, Candidate):
                return chosen
            self.history.append(f"{replica} is not to be forgotten: {chosen!r}")
            self.counts["not to be forgotten"] += 1
        return None

    def _forget(self, chosen: Candidate, request: ForgetRequest) -> None:
        replica, before = chosen.replica, self._below("file:")
        names = self._names()
        words = [
            word for word in ("ended", "last_point", "leaves_others") if getattr(request, word)
        ]
        operation = Operation(
            "forget",
            f"{replica} {' '.join(words)}",
            lambda: forget.forget(chosen, request, silent),
            replica,
            because=self._why_not_forgotten(replica),
        )
        outcome = self._perform(operation)
        if isinstance(outcome, Removal):
            self._judge_removal(replica, request, before, names)

    # Judging

    def _refuse_used(self, replica: str) -> None:
        """Raise as `forget --flink` does for a replica from which a job runs."""
        if (job := self._user_of(replica)) is not None:
            raise Refused(f"{job} needs {replica}")

    def _user_of(self, replica: str) -> Job | None:
        running = self.flink.running()
        return next((job for job in running if _needs(job, replica)), None)

    def _why_not_forgotten(self, replica: str) -> str:
        if f"{OWN}/sealed" in self._below(replica):
            return "the replica is sealed"
        if tenants := self._tenants(replica) - self.adopted.get(replica, set()):
            return f"a job keeps {min(tenants)}"
        job = self._user_of(replica)
        return f"{job} needs it" if job is not None else ""

    def _judge_removal(
        self,
        replica: str,
        request: ForgetRequest,
        before: Mapping[str, bytes],
        names: Mapping[str, str],
    ) -> None:
        theirs = self.flink.owned.keys() | self.strangers | self.unproven
        left = [
            path
            for path in self._below(replica)
            if f"{replica}/{path}" not in theirs and not PASSING.fullmatch(path)
        ]
        if left and not request.leaves_others:
            self.wrong.append(f"{replica}/{left[0]} is left of what was forgotten")
        self._judge_needed(before, replica)
        times = self._points(replica, before)
        if not times or request.last_point:
            return
        later = [
            max(points.values())
            for other, name in names.items()
            if uri.parent(other) == uri.parent(replica) and name == names.get(replica)
            if other != replica and (points := self._points(other, self._below("file:")))
        ]
        self.counts["an earlier life was forgotten"] += 1
        if max(later, default=0.0) <= max(times.values()):
            self.wrong.append(f"the newest point of its job was forgotten with {replica}")

    def _names(self) -> dict[str, str]:
        found = {
            each: self.disk.data(f"{each}/{OWN}/{job_record.NAME}") for each in self._replicas()
        }
        read = {each: json_files.parse(data) or {} for each, data in found.items() if data}
        return {each: str(fields["name"]) for each, fields in read.items() if "name" in fields}

    def _remember(self, operation: Operation, outcome: object) -> None:
        super()._remember(operation, outcome)
        if operation.kind == "forget" and operation.replica not in self._replicas():
            self._drop(operation.replica)

    def _drop(self, replica: str) -> None:
        """What was known of a replica does not hold for one that a sync begins in its place."""
        for each in (self.sources, self.adopted, self.starts, self._judged):
            each.pop(replica, None)
        for names in (self.broken, self.renamed, self.secondhand, self.unclear):
            names.discard(replica)


def _needs(job: Job, replica: str) -> bool:
    return any(uri.below(each, replica) for each in job.needed)


FORGETTING: dict[Callable[..., object], float] = {
    ForgettingWorld.sync: 3,
    ForgettingWorld.watch: 2,
    ForgettingWorld.restart: 4,
    ForgettingWorld.start_unpromoted: 1.5,
    ForgettingWorld.forget: 6,
    ForgettingWorld.sweep: 1.5,
    ForgettingWorld.fail_over: 1.5,
    ForgettingWorld.unseal: 1,
    ForgettingWorld.damage: 0.7,
}
