"""When a JobManager is asked for the newest checkpoint of a job: when the next one is due."""

from __future__ import annotations

import math
from dataclasses import dataclass

from cpreplicate.flink import CompletedCheckpoint

_SHARE_OF_QUIET = 4  # what is overdue is asked for again after one part of so many of the time
_MOST = 300.0  # seconds between two questions for a job
_LEAST = 5.0  # seconds: for less no question is left out
_EARLY = 0.9  # of the time between two checkpoints: then the next one is due


@dataclass
class Pace:
    """The instants at which a job was asked for, and what that shows of its checkpoints.

    A job that completes one now and then is asked when the next one is due, by the time between the
    last two, and from then on ever more rarely while none comes. Times are those of a monotonic
    clock. `what` is what the overview reports of the job: if that changes, it is asked for at once.
    """

    what: object = None
    _newest: CompletedCheckpoint | None = None
    _asked: float = -math.inf
    _due: float = -math.inf

    def is_due(self, what: object, now: float) -> bool:
        """Return whether to ask for a job of which the overview reports that."""
        if what != self.what or now < self._asked:
            return True
        overdue = self._asked - self._due
        pause = -overdue if overdue < 0 else overdue / _SHARE_OF_QUIET
        return pause < _LEAST or now - self._asked >= min(pause, _MOST)

    def saw(self, what: object, newest: CompletedCheckpoint, now: float) -> None:
        """Record what a question answered; `now` is when it was asked."""
        if newest != self._newest or what != self.what:
            is_next = self._newest is not None and what == self.what
            # it was completed after the last question
            self._due = self._asked + _EARLY * _between(self._newest, newest) if is_next else now
            self._newest, self.what = newest, what
        self._asked = now


def _between(before: CompletedCheckpoint | None, after: CompletedCheckpoint) -> float:
    """Return the seconds from one checkpoint to the next, by the clock that dates both."""
    if before is None or after.checkpoint_id <= before.checkpoint_id:
        return 0.0
    numbers = after.checkpoint_id - before.checkpoint_id
    return max(0.0, after.completed - before.completed) / numbers
