"""A switch that is under way."""

from __future__ import annotations

import time
from dataclasses import dataclass
from threading import Event

from cpreplicate.core.notify import Notify
from cpreplicate.operations.handover.switch.request import Clusters, SwitchRequest
from cpreplicate.protocol.switch_record import SwitchLog, SwitchRecord
from cpreplicate.storage import Side


@dataclass(frozen=True)
class Switching:
    """A switch that is under way: its log, and who is asked.

    Once `is_halted` is set, a job that runs is not stopped any more. `former` is the last switch of
    the job of which the standstill is known.
    """

    log: SwitchLog
    clusters: Clusters
    request: SwitchRequest
    notify: Notify
    is_halted: Event
    former: SwitchRecord | None = None

    @property
    def side(self) -> Side:
        """The side of the replica."""
        return self.request.sync.sides.target

    def phases(self, phases: dict[str, float], name: str) -> dict[str, float]:
        """Return the phases with one more, that ends now."""
        stopped = self.log.record.stopped
        return phases if stopped is None else {**phases, name: time.time() - stopped}
