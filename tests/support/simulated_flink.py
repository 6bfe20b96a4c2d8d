"""JobManagers in memory, for what real ones do too rarely: a death at each call, a lost answer.

A job writes a checkpoint of real files whenever one is triggered, and as it is restored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from cpreplicate.core import uri
from cpreplicate.errors import FlinkRefused
from cpreplicate.flink import CompletedCheckpoint, Overview, RunningJob
from cpreplicate.flink.control import (
    Checkpointing,
    Cluster,
    FlinkControl,
    Jar,
    Operation,
    Restored,
    Run,
    SavepointFormat,
    Slots,
    Version,
)
from cpreplicate.protocol.switch_record import new_id
from cpreplicate.storage import Side
from tests.support.jobs import put_restored

_ENDED = ("CANCELED", "FINISHED", "FAILED")


@dataclass
class SimulatedJob:
    """A job of a simulated cluster."""

    name: str
    state: str = "RUNNING"
    restored: str | None = None
    newest: int = 0
    completed: int = 0
    triggered: dict[str, Operation] = field(default_factory=dict)
    began: float = 0.0
    is_stopping: bool = False


class SimulatedFlink:
    """A session cluster whose jobs write checkpoints below `root`, a URI.

    `before` and `after` are called with the name of each call that changes something.
    """

    def __init__(self, url: str, root: str) -> None:
        self.url, self.root = url, root
        self.jobs: dict[str, SimulatedJob] = {}
        self.version: Version = (2, 3)
        self.is_retained = True
        self.marks: set[tuple[str, str]] = set()
        self.asked: list[Run] = []  # to run a program
        self.ignores_paths = False
        self.process = new_id()  # of its JobManager
        self.options: dict[str, str] = {}  # more of its configuration
        self.before: Callable[[str], None] = lambda _verb: None
        self.after: Callable[[str], None] = lambda _verb: None

    def start(self, job_id: str, name: str, restored: str | None = None) -> None:
        """Start a job, which completes a checkpoint at once."""
        number = int(restored.rpartition("-")[2]) if restored is not None else 0
        began = float(len(self.jobs) + 1)
        self.jobs[job_id] = SimulatedJob(name, restored=restored, newest=number, began=began)
        self.complete(job_id)

    def begin_anew(self, job_id: str, restored: str | None = None) -> None:
        """Start a job again under its id, as each process of an application does."""
        number = int(restored.rpartition("-")[2]) if restored is not None else 0
        former = self.jobs[job_id]
        began = former.began + 0.5
        self.jobs[job_id] = SimulatedJob(former.name, restored=restored, newest=number, began=began)

    def complete(self, job_id: str) -> int:
        """Have a job complete a checkpoint, and return its number."""
        job = self.jobs[job_id]
        job.newest += 1
        job.completed += 1
        own = {"shared/kept": 3000, f"shared/{job.newest}": 1000}
        put_restored(Side(), self.root, job.newest, own, {}, job=job_id)
        return job.newest

    def running(self) -> list[str]:
        """Return the ids of the jobs that have not ended."""
        return [job_id for job_id, job in self.jobs.items() if job.state not in _ENDED]


class SimulatedControl(FlinkControl):
    """A client of a simulated cluster."""

    def __init__(self, cluster: SimulatedFlink) -> None:
        self.url, self.sim = cluster.url, cluster

    def close(self) -> None:
        pass

    def jobs(self) -> Overview:
        found = self.sim.jobs.items()
        return Overview(
            tuple(
                RunningJob(job_id, job.name, job.state in _ENDED, job.state, job.began)
                for job_id, job in found
            )
        )

    def newest_checkpoint(self, job_id: str) -> CompletedCheckpoint | None:
        job = self.sim.jobs.get(job_id)
        if job is None or not job.completed:
            return None
        place = uri.join(self.sim.root, f"{job_id}/chk-{job.newest}")
        return CompletedCheckpoint(job.newest, place, 1.0)

    def cluster(self) -> Cluster:
        return Cluster(self.sim.version, "simulated", True, 0.0)

    def configuration(self) -> Mapping[str, str]:
        own = {"state.savepoints.dir": self.sim.root, "web.tmpdir": f"/tmp/{self.sim.process}"}
        return own | self.sim.options

    def slots(self) -> Slots:
        return Slots(4, 4 - len(self.sim.running()))

    def slots_needed(self, job_id: str) -> int:
        assert job_id in self.sim.jobs
        return 1

    def has_all_tasks(self, job_id: str) -> bool:
        return self.sim.jobs[job_id].state == "RUNNING"

    def checkpointing(self, job_id: str) -> Checkpointing | None:
        assert job_id in self.sim.jobs
        return Checkpointing(1.0, self.sim.is_retained)

    def restored(self, job_id: str) -> Restored | None:
        job = self.sim.jobs.get(job_id)
        return None if job is None else Restored(job.restored, job.completed)

    def trigger_checkpoint(self, job_id: str, trigger_id: str) -> bool:
        def trigger() -> None:
            number = self.sim.complete(job_id)
            self.sim.jobs[job_id].triggered[trigger_id] = Operation(True, True, number)

        if self.sim.version < (1, 17):
            return False
        self._do("trigger", trigger)
        return True

    def checkpoint_result(self, job_id: str, trigger_id: str) -> Operation:
        return self.sim.jobs[job_id].triggered.get(trigger_id, Operation(is_known=False))

    def is_stopping(self, job_id: str) -> bool:
        return self.sim.jobs[job_id].is_stopping

    def mark(self, no_job: str, mark: str) -> bool:
        assert no_job not in self.sim.jobs
        if self.sim.version < (1, 17):
            return False
        self._do("mark", lambda: self.sim.marks.add((no_job, mark)))
        return True

    def is_marked(self, no_job: str, mark: str) -> bool:
        return (no_job, mark) in self.sim.marks

    def cancel(self, job_id: str) -> None:
        def cancel() -> None:
            if self.sim.jobs[job_id].state not in _ENDED:
                self.sim.jobs[job_id].state = "CANCELED"

        self._do("cancel", cancel)

    def stop_with_savepoint(
        self,
        job_id: str,
        trigger_id: str,
        version: Version,
        directory: str | None = None,
        format_type: SavepointFormat = "NATIVE",
    ) -> str:
        raise NotImplementedError

    def savepoint_result(self, job_id: str, trigger_id: str) -> Operation:
        return self.checkpoint_result(job_id, trigger_id)

    def jars(self) -> tuple[Jar, ...]:
        return (Jar("1_job.jar", "job.jar", 1.0),)

    def run(self, jar_id: str, run: Run, version: Version) -> str:
        assert jar_id == "1_job.jar"
        assert version == self.sim.version

        def start() -> None:
            self.sim.asked.append(run)
            if run.job_id in self.sim.jobs:
                raise FlinkRefused("Job has already been submitted.", 400)
            path = None if self.sim.ignores_paths else run.path
            self.sim.start(run.job_id, "orders", path)

        self._do("run", start)
        return run.job_id

    def _do(self, verb: str, change: Callable[[], Any]) -> None:
        self.sim.before(verb)
        change()
        self.sim.after(verb)
