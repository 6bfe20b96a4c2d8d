"""`watch`: keep a standby replica that follows each completed checkpoint of a running job."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from cpreplicate import deleting, lease, ownership, seal, uri
from cpreplicate.errors import CopyFailed, LeaseHeld, MetadataError, NotThere, SourceMovedOn, UsageError
from cpreplicate.placement import CHECKPOINT_NAME
from cpreplicate.planning import Request
from cpreplicate.replica import Replica
from cpreplicate.replicate import Report, sync
from cpreplicate.runners import choose_runner
from cpreplicate.source import find

Say = Callable[[str], None]
Show = Callable[[Report], None]
_PASSING = (CopyFailed, LeaseHeld, MetadataError, NotThere, SourceMovedOn, OSError)  # a newer checkpoint may fare better
_SLICE = 500  # deletes between two looks at the clock


@dataclass
class Backlog:
    """Files that no committed checkpoint of the replica needed when they were put off; deleted between two syncs."""

    request: Request
    replica: str = ""
    targets: list[str] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)

    def add(self, report: Report) -> None:
        self.replica = report.plan.replica
        if report.undeleted:
            self.targets += report.undeleted
            self.dropped += report.plan.dropped

    def work_off(self, until: float, say: Say) -> None:
        """Delete until that time on the monotonic clock. What a checkpoint committed since needs again is left."""
        if not self.targets:
            return
        replica = Replica(self.replica, self.request.sites.target)
        with (
            lease.held(replica.root, replica.site) as hold,
            choose_runner(replace(self.request, runner="inline"), len(self.targets), 0, self.request.sites) as runner,
        ):
            seal.refuse_sealed(replica)
            state = ownership.examine(replica, is_alone=True)
            ownership.refuse_foreign(state, replica)
            needed = {path for each in state.committed for path in each.files}
            self.targets = [target for target in self.targets if target not in needed]
            while self.targets and time.monotonic() < until:
                part, self.targets = self.targets[:_SLICE], self.targets[_SLICE:]
                if failed := deleting.delete(part, replica, runner, hold):
                    say(f"{len(failed)} files could not be deleted and are orphans now: {deleting.some(failed)}")
            if not self.targets:
                self._forget_dropped(replica)

    def _forget_dropped(self, replica: Replica) -> None:
        for name in set(self.dropped) - set(replica.committed_names()):
            ownership.forget(replica, name)
        self.dropped = []


def watch(request: Request, interval: float, say: Say, show: Show) -> None:
    """Sync each checkpoint that completes, looked for every `interval` seconds; ends only by an exception.

    What fails is told, and the newest checkpoint is taken next: the same only while it is the newest. What no other
    checkpoint can mend (`Refused`, `UsageError`) is raised.
    """
    if CHECKPOINT_NAME.fullmatch(uri.name(request.source)):
        raise UsageError(f"{request.source} is one checkpoint; watch takes the directory of its job")
    done, backlog = "", Backlog(request)
    while True:
        until = time.monotonic() + interval
        try:
            newest = find(request.source, request.sites.source, request.allow_older).checkpoint
            if newest != done:
                report = sync(replace(request, source=newest), say)
                done = newest
                backlog.add(report)
                show(report)
            backlog.work_off(until, say)
        except _PASSING as error:
            say(f"{error}; the newest checkpoint is looked for again in {interval:g} s")
        time.sleep(max(0.0, until - time.monotonic()))
