"""Deletes that a sync put off, to be made between two syncs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from cpreplicate.core.clock import MACHINE, Clock
from cpreplicate.core.notify import Notify
from cpreplicate.core.path_columns import Texts, concatenated, texts, without
from cpreplicate.core.sizes import counted, plural
from cpreplicate.operations.change.change import Change, opened, orphaned, some
from cpreplicate.operations.sync.report import Report
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.protocol import needed, ownership, replica_state, seal
from cpreplicate.protocol.held import HeldReplica
from cpreplicate.protocol.replica import Replica
from cpreplicate.protocol.replica_state import State
from cpreplicate.runners import choose_runner

_SLICE = 500  # deletes between two checks of the time


@dataclass
class Backlog:
    """Deletes that were put off, to be made between two syncs.

    No checkpoint of the replica needed the files when their sync ended. This is asked again before
    they are deleted. `lengths` are those that they had: a file that has another one by now may be
    another program's.
    """

    request: SyncRequest
    replica: str = ""
    targets: list[str] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    lengths: dict[str, int] = field(default_factory=dict)

    def add(self, report: Report) -> None:
        """Add the deletes that a sync put off."""
        self.replica = report.plan.replica
        if report.undeleted:
            self.targets = list(dict.fromkeys([*self.targets, *report.undeleted]))
            self.dropped += report.plan.dropped
            self.lengths.update({each.target: each.bytes for each in report.plan.deletes})

    def work_off(self, until: float, notify: Notify, clock: Clock = MACHINE) -> None:
        """Delete files until that time on the monotonic clock.

        Files that a checkpoint needs that was committed or adopted since are kept. With `--adopt`,
        nothing is deleted while there is a checkpoint that the next sync will accept.
        """
        if not self.targets:
            return
        replica = Replica(self.replica, self.request.sides.target)
        with opened(replica, self._examined, notify=notify) as change:
            if change.state.unrecorded:
                return  # the next sync accepts what a job completed since the last one
            needed_now = needed.needed(replica, change.state)
            self.targets = without(texts(self.targets), needed_now).to_pylist()
            self._leave_replaced(replica, needed_now, notify)
            inline = replace(self.request.execution, runner="inline")
            chosen = choose_runner(inline, len(self.targets), 0, self.request.sides)
            with change.running(chosen):
                self._delete(change, until, clock)
            if not self.targets:
                _report(change.forget(set(self.dropped) - set(replica.committed_names())), notify)
                self.dropped, self.lengths = [], {}

    def _leave_replaced(self, replica: Replica, needed_now: Texts, notify: Notify) -> None:
        """Leave out the files that have another length than they had when they were put off."""
        paths = texts(path for path in self.targets if path in self.lengths)
        lengths = replica.lengths_of(paths, concatenated([paths, needed_now])).at(paths)
        replaced = {
            path
            for path, length in zip(paths.to_pylist(), lengths.tolist(), strict=True)
            if length >= 0 and length != self.lengths[path]
        }
        if replaced:
            self.targets = [path for path in self.targets if path not in replaced]
            have = counted(len(replaced), "file has", "files have")
            notify(
                f"{have} another length than cpreplicate wrote and"
                f" {plural(len(replaced), 'is', 'are')} left: {some(sorted(replaced))}"
            )

    def _examined(self, replica: HeldReplica) -> State:
        """Return the state of the replica. Raise `Refused` if its files must not be deleted."""
        seal.refuse_sealed(replica)
        state = replica_state.examine(replica, is_brief=True)
        is_adopted = state.marker is not None and state.marker.adopted
        ownership.refuse_foreign(state, replica, self.request.adopt and is_adopted)
        return state

    def _delete(self, change: Change, until: float, clock: Clock) -> None:
        while self.targets and clock.monotonic() < until:
            part, self.targets = self.targets[:_SLICE], self.targets[_SLICE:]
            if failed := change.delete(part):
                self.dropped = []  # their manifests still list what is left
                _report(failed, change.notify)


def _report(failed: Sequence[str], notify: Notify) -> None:
    if failed:
        notify(orphaned(failed))
