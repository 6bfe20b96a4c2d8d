"""What this process does of a run's actions while the executors that are to do them start."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from cpreplicate.core.packs import WRITERS
from cpreplicate.runners.base import Done
from cpreplicate.runners.batch import SLOTS, perform
from cpreplicate.runners.batching import BATCH_FILES
from cpreplicate.runners.copy_rows import Copies, sizes_of, taken
from cpreplicate.runners.progress import Progress
from cpreplicate.runners.tasks import (
    Copy,
    Delete,
    Outcome,
    RunnerStopped,
    Task,
    Watcher,
    current_wanted,
)
from cpreplicate.storage import Sides
from cpreplicate.storage.base import RANGE
from cpreplicate.storage.waiting.side_call import in_thread

_log = logging.getLogger(__name__)

# Larger files are split into ranges, by which several executors copy them (`ranges.Splitting`).
_LARGEST = 2 * RANGE
_STALLED = 10.0  # seconds without a byte after which executors do what was begun here
_LOOK = 0.05  # seconds between two looks at what is under way


def worth_it(actions: Sequence[Task]) -> bool:
    """Return whether there is something among the actions that this process would do."""
    return bool(len(_rows(actions)))


class EarlyWork(Watcher):
    """Copies and deletes by threads of this process, a few thousand at a time, until `hand_over`.

    What is known to be done is in `outcomes`, and was reported to `done`. What failed here has not
    failed: executors may reach what this process does not. After the first failure nothing more is
    begun. On leaving the block, what is under way is broken off, and waited for.
    """

    def __init__(
        self,
        actions: Sequence[Task],
        sides: Sides,
        streams: int | None,
        progress: Progress,
        done: Done | None,
    ) -> None:
        super().__init__()
        self._actions, self._sides, self._streams = actions, sides, streams
        self._progress, self._done, self._wanted = progress, done, current_wanted()
        self._rows = _rows(actions)
        self._first = 0  # of the rows that are performed
        self._lock = threading.Lock()
        self._is_over = False
        self._begun: set[int] = set()
        self._outcomes: dict[int, Outcome] = {}
        self._moved_at = time.monotonic()

    def __enter__(self) -> EarlyWork:
        self._progress.begin(self)
        self._work = in_thread(self._perform, "early")
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._work.wait()
        self._progress.end(self)

    @property
    def outcomes(self) -> list[Outcome]:
        """What is known to be done, or is not wanted any more."""
        with self._lock:
            return list(self._outcomes.values())

    @property
    def has_ended(self) -> bool:
        """Whether all that can be done here was tried, or nothing more is begun."""
        return self._work.has_ended

    def has_done_all(self) -> bool:
        """Return whether every action is done. Raises what a mistake in the program raised."""
        if not self.has_ended:
            return False
        self._work.result()
        return len(self._outcomes) == len(self._actions)

    def hand_over(self) -> Sequence[Task]:
        """Begin nothing more. Return the actions that were not begun."""
        with self._lock:
            self._is_over = True
            begun = self._begun
        return self._without(begun)

    def finish(self, go_on: Callable[[], None]) -> Sequence[Task]:
        """Return what was not done, after the end of what was begun.

        What stands still is broken off, unless limits may be what holds it up. `go_on` may raise,
        to wait no longer.
        """
        self.hand_over()
        while not self._work.wait(_LOOK):
            go_on()
            is_stalled = time.monotonic() - self._moved_at > _STALLED
            if is_stalled and not self._sides.target.limits.any:
                self.stop()
        self._work.result()
        with self._lock:
            undone = self._begun - self._outcomes.keys()
        return taken(self._actions, np.array(sorted(undone), np.int64))

    def is_wanted(self, index: int) -> bool:
        row = int(self._rows[self._first + index])
        with self._lock:
            if row not in self._begun:
                if self._is_over:
                    return False
                self._begun.add(row)
        return self._wanted is None or self._wanted(self._actions[row].target)

    def moved(self, count: int) -> None:
        if count:
            self._moved_at = time.monotonic()
            self._progress.add(self, moved=count)
        super().moved(count)

    def done(self, index: int, outcome: Outcome) -> None:
        row = int(self._rows[self._first + index])
        with self._lock:
            if row not in self._begun:
                return
            if outcome.error is not None and not outcome.dropped:
                self._is_over = True
                return
            self._outcomes[row] = outcome
        self._moved_at = time.monotonic()
        if self._done is not None:
            self._done(outcome)
        if outcome.error is None:
            self._progress.add(self, outcome.files, outcome.bytes)

    def _perform(self) -> None:
        for first in range(0, len(self._rows), BATCH_FILES):
            if self._is_over:
                return
            self._first = first
            rows = self._rows[first : first + BATCH_FILES]
            batch = list(taken(self._actions, rows))
            try:
                perform(batch, self._sides, self._streams, SLOTS, self, WRITERS)
            except RunnerStopped:
                return
            except (RuntimeError, MemoryError) as error:  # no thread is left here, or no memory
                _log.debug("executors do what this process cannot: %s", error)
                self._is_over = True
                return

    def _without(self, rows: set[int]) -> Sequence[Task]:
        is_left = np.ones(len(self._actions), np.bool_)
        is_left[list(rows)] = False
        return taken(self._actions, np.flatnonzero(is_left))


def _rows(actions: Sequence[Task]) -> np.ndarray[Any, Any]:
    """Return the rows of the actions that are done here: copies of all but large files, deletes."""
    is_small = sizes_of(actions) < _LARGEST
    if not isinstance(actions, Copies):
        kinds = (isinstance(action, (Copy, Delete)) for action in actions)
        is_small &= np.fromiter(kinds, np.bool_, len(actions))
    return np.flatnonzero(is_small)
