"""What is asked of a switch, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from cpreplicate.core.start import Starting
from cpreplicate.flink.control import FlinkControl, SavepointFormat
from cpreplicate.operations.change.job_result import JobResult
from cpreplicate.operations.kafka.check import KafkaAsked
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.operations.verify.verify import NOTHING, Sample
from cpreplicate.protocol.switch_record import Stop

SwitchOutcome = Literal[
    "switched", "switched before", "can be switched", "promoted", "taken back", "failed"
]


class Program(NamedTuple):
    """What is run: a jar, by its path here, or by its name or id in the cluster, and how.

    Without `jar`, it is the only one that the cluster has. `{job}` in an argument stands for the
    name of the job.
    """

    jar: str | None = None
    entry_class: str | None = None
    arguments: tuple[str, ...] = ()
    parallelism: int | None = None


class Programs(NamedTuple):
    """What is run at the target, and what at the origin if the job is started again there."""

    program: Program
    origin_program: Program


class Clusters(NamedTuple):
    """The JobManagers of a switch. Without a target, the start is left to the operator."""

    origin: FlinkControl
    target: FlinkControl | None = None


@dataclass(frozen=True)
class SwitchRequest:
    """Which job is switched, and how; `sync` is the template of its rounds of copies.

    `job` is a name, or an id. Rounds are made until one copies less than `small` bytes, and at most
    `most_rounds`. The end of the job and its start are waited for `patience` seconds each, asking
    each `pause` seconds. `origin_program` is what is run if it is started again where it was. The
    files of the sample `content` are read before the job is stopped. At `kafka`, the job is to go
    on: that is checked before, and again with the last point.
    """

    job: str
    sync: SyncRequest
    stop: Stop = "checkpoint"
    savepoints: str | None = None
    savepoint_format: SavepointFormat = "NATIVE"
    program: Program = field(default=Program())
    origin_program: Program = field(default=Program())
    small: int = 64 << 20
    most_rounds: int = 10
    patience: float = 600.0
    pause: float = 0.2
    dry_run: bool = False
    take_back: bool = False
    content: Sample = NOTHING
    kafka: KafkaAsked | None = None


class Round(NamedTuple):
    """A round of copies: which checkpoint, and how much of it was copied in how many seconds.

    `taken` are the seconds that the job took for the checkpoint, None if it was not asked for it.
    """

    checkpoint: str
    files: int
    bytes: int
    seconds: float
    taken: float | None = None


@dataclass(frozen=True)
class Preview:
    """What is known of a switch before anything is stopped.

    `directory` is that of the job, as its JobManager names it, `behind` what the replica lacks of
    its `newest` checkpoint, which has so many `files` and `bytes`. `withdraws` are the points that
    a copy of it withdraws, `space` is what is left at the replica's storage, None if that is not
    known. `jar` is what is run at the target, and `way_back` what is run at the origin if the
    switch fails, None if that is left to the operator. `kafka` is what was found there. `call` are
    the seconds of a call to the replica's storage. `refusals` are reasons why it is not switched;
    the first ends the command.
    """

    name: str
    job_id: str
    directory: str
    newest: str
    replica: str
    behind: Round
    starting: Starting
    origin_version: str
    target_version: str | None = None
    jar: str | None = None
    way_back: str | None = None
    slots: tuple[int, int] | None = None
    files: int = 0
    bytes: int = 0
    withdraws: tuple[str, ...] = ()
    space: str | None = None
    kafka: str | None = None
    call: float = 0.0
    refusals: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class JobSwitch(JobResult[SwitchOutcome]):
    """What became of a job.

    `phases` are seconds from the time when its end was asked for: when it had ended, when its last
    point was copied, when the replica was promoted, when the target accepted the job, when all of
    its tasks ran, and when it had completed its first checkpoint. `repeated` are the seconds before
    the end whose records are processed again. `expected` is how long it was, or is, expected to
    stand still, by its last switch; None if none was measured. Then `least` is how long at least,
    by what this run measured, without its start at the target; None if it measured nothing.
    """

    job_id: str | None = None
    new_job: str | None = None
    replica: str | None = None
    checkpoint: str | None = None
    preview: Preview | None = None
    starting: Starting | None = None
    rounds: tuple[Round, ...] = ()
    phases: Mapping[str, float] = field(default_factory=dict)
    repeated: float | None = None
    expected: float | None = None
    least: float | None = None
    warnings: tuple[str, ...] = ()

    @property
    def own(self) -> tuple[str, ...]:
        return self.name, self.job_id or "", self.replica or ""

    @property
    def standstill(self) -> float | None:
        """The seconds from the request for its end until all of its tasks ran again."""
        return self.phases.get("running")
