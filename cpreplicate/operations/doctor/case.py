"""What the checks of `doctor` examine, and what they learnt so far."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from cpreplicate.core import uri
from cpreplicate.core.placement import job_root
from cpreplicate.core.plan import Plan
from cpreplicate.operations.kafka.check import KafkaAsked
from cpreplicate.operations.sync.place import replica_root
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.operations.sync.source.state import SourceState, replica_root_of
from cpreplicate.protocol.replica import Replica
from cpreplicate.storage import Side, Storage


class Visit(NamedTuple):
    """What a task on an executor reports; `problems` name the sides that it does not reach."""

    host: str
    python: str
    version: str
    problems: tuple[str, ...]


@dataclass(frozen=True)
class Configured:
    """The directories of Hadoop configuration that were read for the two sides."""

    source: tuple[str, ...] = ()
    target: tuple[str, ...] = ()


@dataclass
class Case:
    """A request of a sync. Checks set the other fields for those that need them.

    `source_state` is set once the checkpoint was read, `plan` once it is known that a sync would
    not be refused. `offset`: how many seconds the clock of the target is ahead of this machine's.
    `visits` are the reports of tasks on executors. `kafka` is that at which the job would start.
    """

    request: SyncRequest
    configured: Configured = field(default=Configured())
    kafka: KafkaAsked | None = None
    source_state: SourceState | None = None
    plan: Plan | None = None
    offset: float | None = None
    visits: list[Visit] = field(default_factory=list)

    @property
    def job(self) -> str:
        """The name of the source's directory."""
        if self.source_state is not None:
            return self.source_state.source.job
        return uri.name(self.job_root)

    @property
    def job_root(self) -> str:
        """The directory of the job, as far as SOURCE alone shows it."""
        if self.source_state is not None:
            return self.source_state.source.root
        return job_root(self.request.source)

    def replica(self) -> Replica:
        """Return the replica into which the sync would write."""
        request = self.request
        if self.source_state is None:
            return Replica(replica_root(request), request.sides.target)
        return Replica(replica_root_of(self.source_state), request.sides.target)


@dataclass(frozen=True)
class CaseSide:
    """A side of a subject: its name in findings, how it is reached, and its URI."""

    name: str
    side: Side
    uri: str
    configured: tuple[str, ...]

    @property
    def storage(self) -> Storage:
        """The storage that holds the URI."""
        return self.side.storage(self.uri)


def source_of(subject: Case) -> CaseSide:
    """Return the place of SOURCE."""
    request, configured = subject.request, subject.configured.source
    return CaseSide("source", request.sides.source, request.source, configured)


def target_of(subject: Case) -> CaseSide:
    """Return the place of TARGET_ROOT."""
    request, configured = subject.request, subject.configured.target
    return CaseSide("target", request.sides.target, request.target_root, configured)
