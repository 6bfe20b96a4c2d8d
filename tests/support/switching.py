"""Two data centres with a session cluster each, between which jobs are switched."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest

from cpreplicate.flink.control import FlinkControl
from cpreplicate.operations.handover.switch import ending
from cpreplicate.operations.handover.switch.request import Clusters, Program, SwitchRequest
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.runners import ExecutionOptions
from cpreplicate.storage import Sides
from tests.support.sessions import Session, arguments_of
from tests.support.waiting import PATIENCE

RETAINED = ("--retained", "200")  # so that no round loses what it copies


class Pair:
    """The clusters of two data centres, and the URI of the directory of each."""

    def __init__(
        self, a: Session, b: Session, dc_a: str, dc_b: str, sides: Sides | None = None
    ) -> None:
        self.a, self.b, self.dc_a, self.dc_b = a, b, dc_a, dc_b
        self.sides = sides or Sides()
        self.words: tuple[object, ...] = RETAINED
        self._opened: list[FlinkControl] = []

    def of(self, kind: type[FlinkControl], cluster: Session) -> FlinkControl:
        """Return a client of a cluster, which is closed when the test ends."""
        self._opened.append(kind(cluster.url))
        return self._opened[-1]

    def clusters(
        self, a: type[FlinkControl] = FlinkControl, b: type[FlinkControl] = FlinkControl
    ) -> Clusters:
        return Clusters(self.of(a, self.a), self.of(b, self.b))

    def back(self) -> Clusters:
        """The clusters of the way back."""
        return Clusters(self.of(FlinkControl, self.b), self.of(FlinkControl, self.a))

    def close(self) -> None:
        for each in self._opened:
            each.close()

    def start(self, *words: object) -> str:
        """Start the job in A, and return its id."""
        self.words = (*RETAINED, *words)
        return self.a.start(f"{self.dc_a}/checkpoints", *self.words)

    def request(self, is_back: bool = False, **changes: Any) -> SwitchRequest:
        """Return the request of a switch, or of the way back."""
        target, origin = (self.dc_a, self.dc_b) if is_back else (self.dc_b, self.dc_a)
        programs = [
            Program(str(self.a.jar), None, tuple(arguments_of(f"{root}/checkpoints", *self.words)))
            for root in (target, origin)
        ]
        sides = Sides(self.sides.target, self.sides.source) if is_back else self.sides
        execution = ExecutionOptions(runner="inline")
        asked = SwitchRequest(
            "orders",
            SyncRequest("", f"{target}/replicas", sides=sides, execution=execution),
            program=programs[0],
            origin_program=programs[1],
            patience=PATIENCE,
            pause=0.05,
        )
        return replace(asked, **changes)

    def assert_runs_only(self, at: Session, job_id: str) -> None:
        """It runs there, nothing else runs anywhere, and it goes on taking checkpoints."""
        both = (self.a.running(), self.b.running())
        assert both == (([job_id], []) if at is self.a else ([], [job_id]))
        at.wait_for_checkpoints(job_id, 2)


class HurriedTime:
    """The time of a switch: once a JobManager is lost, each look at its clock is much later.

    So a wait for what never comes ends, and each other one has all the time that it needs.
    """

    is_lost = False

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._ahead = 0.0
        monkeypatch.setattr(ending, "time", self)

    def monotonic(self) -> float:
        self._ahead += PATIENCE / 4 if self.is_lost else 0
        return time.monotonic() + self._ahead

    def time(self) -> float:
        return time.time()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)
