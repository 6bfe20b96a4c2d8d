"""Large files, split into ranges that several tasks copy, and joined at the target.

Else the stream of a file that has more bytes than the share of a slot is the end of the run:
docs/adr/0019.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import NamedTuple

import numpy as np

from cpreplicate.errors import CpreplicateError, described
from cpreplicate.runners.base import Done
from cpreplicate.runners.batching import BATCHES_A_SLOT
from cpreplicate.runners.copy_rows import Indexes, WithRanges, sizes_of
from cpreplicate.runners.tasks import Copy, CopyRange, Outcome, Task
from cpreplicate.storage import Checksum, Sides, Storage
from cpreplicate.storage.base import RANGE
from cpreplicate.storage.statuses import Attributes
from cpreplicate.storage.transfer import joined
from cpreplicate.storage.waiting import cancellation

_log = logging.getLogger(__name__)
_CALLS = 8  # at the same time, by which files are begun and joined


class Splitting(NamedTuple):
    """How files are split: for so many `slots`, into ranges of at most so many bytes.

    A range is a multiple of `unit`, and has at least one.
    """

    slots: int
    most: int | None = None
    unit: int = RANGE

    def length(self, sizes: Indexes) -> int:
        """Return how many bytes a range has: a slot's share of all has four, as it has batches."""
        units = math.ceil(int(sizes.sum()) / (self.slots * BATCHES_A_SLOT) / self.unit)
        most = units if self.most is None else self.most // self.unit
        return self.unit * max(1, min(units, most))


@contextmanager
def joining(
    actions: Sequence[Task],
    splitting: Splitting,
    sides: Sides,
    done: Done | None,
    joined: Callable[[], None] = lambda: None,
) -> Iterator[Joining]:
    """Begin the files that are copied as ranges. Give up those that the block does not join.

    `joined` is called for each file that is, from any thread, before `done`.

    These are copies of at least two ranges, where the target can join them. None is split for one
    slot, in which its ranges would follow each other.
    """
    with ThreadPoolExecutor(_CALLS, "join") as pool:
        files: list[_File] = []
        try:
            files += _begun(actions, splitting, sides, pool)
            yield Joining(actions, files, done, joined, pool)
        finally:
            for file in files:
                file.end()


class Joining:
    """The actions of a run, with ranges in place of its large files.

    `tasks` are executed instead of the actions, and `done` is called with their outcomes. Then
    `results` are those of the actions. A file is joined as soon as its ranges are there.
    """

    def __init__(
        self,
        actions: Sequence[Task],
        files: Sequence[_File],
        done: Done | None,
        joined: Callable[[], None],
        pool: ThreadPoolExecutor,
    ) -> None:
        self._files, self._of_others, self._joined, self._pool = files, done, joined, pool
        self._file_of = {each.target: file for file in files for each in file.ranges}
        ranges = [each for file in files for each in file.ranges]
        self.tasks = WithRanges.of(actions, ranges) if files else actions
        self.done = self._note if files else done

    @property
    def unjoined(self) -> list[Copy]:
        """The copies whose ranges could not be joined. They are to be made whole."""
        return [file.copy for file in self._files if file.is_refused]

    def results(self, outcomes: Sequence[Outcome]) -> list[Outcome]:
        """Return the outcomes of the actions, but for those that are `unjoined`."""
        others = [each for each in outcomes if each.target not in self._file_of]
        for outcome in outcomes:
            if outcome.target in self._file_of:
                self._note(outcome)
        results = (file.result() for file in self._files)
        return others + [result for result in results if result is not None]

    def _note(self, outcome: Outcome) -> None:
        """Record the outcome of a task, from any thread."""
        file = self._file_of.get(outcome.target)
        if file is not None:
            file.note(outcome, self._pool, self._done_whole)
        elif self._of_others is not None:
            self._of_others(outcome)

    def _done_whole(self, outcome: Outcome) -> None:
        self._joined()
        if self._of_others is not None:
            self._of_others(outcome)


class _File:
    """A file that is copied as ranges."""

    def __init__(
        self,
        copy: Copy,
        ranges: Sequence[CopyRange],
        storage: Storage,
        attributes: Attributes | None,
    ) -> None:
        self.copy, self.ranges = copy, ranges
        self._joint, self._storage, self._attributes = ranges[0].joint, storage, attributes
        self._lock = threading.Lock()
        self._outcomes: dict[str, Outcome] = {}
        self._joined: Future[Outcome | None] | None = None
        self._go_on = cancellation.current()

    @property
    def is_refused(self) -> bool:
        """Whether all its ranges were copied, and could not be joined."""
        return self._joined is not None and self._joined.result() is None

    def note(self, outcome: Outcome, pool: ThreadPoolExecutor, done: Done) -> None:
        """Record the outcome of a range. Begin to join the file if it was the last one."""
        with self._lock:
            if self._joined is not None:
                return
            self._outcomes[outcome.target] = outcome
            copied = [each for each in self._outcomes.values() if each.error is None]
            if len(copied) == len(self.ranges):
                self._joined = pool.submit(self._join, done)

    def result(self) -> Outcome | None:
        """Return the outcome of the file, None if it is refused. Waits until it is joined."""
        if self._joined is not None:
            return self._joined.result()
        errors = (each for each in self._outcomes.values() if each.error is not None)
        error = min(errors, key=lambda each: each.is_worth_a_try)  # what is final first
        return error._replace(target=self.copy.target)

    def end(self) -> None:
        """Remove what was written of a file that was not joined."""
        joined = self._joined
        is_over = joined is not None and not joined.cancel() and joined.exception() is None
        if is_over and not self.is_refused:
            return
        # the error of the run matters more, and the next run removes what is left
        with suppress(OSError, CpreplicateError):
            self._storage.give_up_join(self.copy.target, self._joint)

    def _join(self, done: Done) -> Outcome | None:
        outcomes = [self._outcomes[each.target] for each in self.ranges]
        whole = joined(Checksum(each.bytes, each.crc32c or 0) for each in outcomes)
        receipts = [each.receipt or "" for each in outcomes]
        try:
            with cancellation.cancellable(self._go_on):
                place = self.copy.target, self._joint
                self._storage.join(*place, receipts, whole.bytes, self._attributes)
        except (OSError, CpreplicateError) as error:
            _log.warning(
                "%s is copied again as a whole: its ranges cannot be joined. %s",
                self.copy.target,
                described(error),
            )
            return None
        seconds = sum(each.seconds for each in outcomes)
        outcome = Outcome(self.copy.target, *whole, seconds)
        done(outcome)
        return outcome


def _begun(
    actions: Sequence[Task], splitting: Splitting, sides: Sides, pool: ThreadPoolExecutor
) -> list[_File]:
    """Begin the files that are worth it, and can be joined."""
    if splitting.slots < 2 or not len(actions):
        return []
    sizes = sizes_of(actions)
    length = splitting.length(sizes)
    chosen = [actions[row] for row in np.flatnonzero(sizes >= 2 * length).tolist()]
    copies = [each for each in chosen if isinstance(each, Copy) and _is_split(each, length)]
    files = pool.map(lambda copy: _begin(copy, length, sides), copies)
    return [file for file in files if file is not None]


def _is_split(copy: Copy, length: int) -> bool:
    """Return whether a file is read from the source into a file of its own, and does not grow."""
    is_plain = copy.part is None and copy.pack is None and copy.token is None
    return is_plain and copy.extent >= 2 * length


def _begin(copy: Copy, length: int, sides: Sides) -> _File | None:
    """Begin a file, None if that is not possible: what is wrong is met when it is copied whole."""
    storage = sides.target.storage(copy.target, copy.inside)
    if not storage.joins:
        return None
    with suppress(OSError, CpreplicateError):
        attributes = _attributes(copy, sides)
        joint = storage.begin_join(copy.target, max(copy.extent, copy.size))
        if joint is not None:
            return _File(copy, _ranges(copy, length, joint), storage, attributes)
    return None


def _attributes(copy: Copy, sides: Sides) -> Attributes | None:
    status = sides.source.storage(copy.source).stat(copy.source) if sides.preserve else None
    return None if status is None else status.attributes


def _ranges(copy: Copy, length: int, joint: str) -> list[CopyRange]:
    """Return the ranges of a file. The last one has what there is beyond the extent, too."""
    *starts, last = range(0, copy.extent, length)
    place = copy.source, copy.target
    size = max(copy.extent, copy.size) - last
    return [
        *(CopyRange(*place, start, length, length, False, joint, copy.inside) for start in starts),
        CopyRange(*place, last, copy.extent - last, size, True, joint, copy.inside),
    ]
