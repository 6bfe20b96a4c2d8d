"""Newer checkpoints of a job, looked for while one of them is copied, and when to turn to one.

Flink retains one checkpoint by default: a job that checkpoints each ten seconds deletes what is
being copied. Most of its files stay, because the next checkpoint needs them, too.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from cpreplicate.core import sizes, uri
from cpreplicate.core.clock import MACHINE, Clock
from cpreplicate.core.notify import Notify
from cpreplicate.core.path_columns import (
    Numbers,
    Texts,
    chosen,
    concatenated,
    rows_of,
    texts,
    without,
)
from cpreplicate.core.placement import METADATA
from cpreplicate.core.plan import Plan
from cpreplicate.errors import CpreplicateError, CutShort, NotThere, SourceMovedOn
from cpreplicate.operations.sync.source.state import (
    MOST_GONE,
    SourceState,
    is_followed,
    read_source,
)
from cpreplicate.protocol.source import Source, highest_first, newest
from cpreplicate.runners import Outcome, RunnerStopped, Wanted
from cpreplicate.storage.waiting.cancellation import cancellable
from cpreplicate.storage.waiting.side_call import in_thread

MOST_WITHOUT_GAIN = 8  # turns in a row, none of which left less to be copied than one before
# of the bytes that are left, one part: a larger `_metadata` is not read for a comparison
_COMPARED_SHARE = 8
_MOST_AT_ONCE = 16  # large files that are copied at the same time
_PAUSE = 0.5  # seconds between two looks, however many files vanish
_END_SECONDS = 1.0  # for the end of a look at a source that does not answer


class Left(NamedTuple):
    """What is left to be copied: files, and about how many bytes."""

    files: int
    bytes: int


@dataclass
class Turns:
    """How a run gains on a job that goes on writing.

    `names` are the checkpoints that it turned from. `fresh` are the bytes of files that were new at
    a turn, `least` the fewest bytes of files not complete that were left to be copied, at a turn or
    when copies began, `without_gain` the last turns in a row without gain. `least_begun` and
    `begun_without_gain` are those of the begin of copies: between these, a large file may be copied
    for long. `began` and `last` are when the copies and the last turn began.
    """

    began: float
    names: tuple[str, ...] = ()
    fresh: int = 0
    least: float = math.inf
    without_gain: int = 0
    last: float = 0.0
    least_begun: float = math.inf
    begun_without_gain: int = 0

    def add(self, former: str, fresh: int, left: int, maybe: int, now: float) -> None:
        """Count a turn from a checkpoint to one with so many fresh bytes, of which `left` are left.

        Up to `maybe` bytes of what is left may be copied already, of files that are not complete:
        it is a gain if less than the least so far may be left. `now` is that of the clock.
        """
        self.names = (*self.names, former)
        self.fresh, self.last = self.fresh + fresh, now
        self.without_gain = 0 if left - maybe < self.least else self.without_gain + 1
        self.least = min(self.least, left)

    def begin(self, left: int) -> None:
        """Count the begin of copies, when none is under way."""
        self.begun_without_gain = 0 if left < self.least_begun else self.begun_without_gain + 1
        self.least_begun = min(self.least_begun, left)

    @property
    def gain_nothing(self) -> bool:
        """Whether the run goes on without gain."""
        return max(self.without_gain, self.begun_without_gain) >= MOST_WITHOUT_GAIN

    def rate(self, count: int, until: float) -> str:
        """Return bytes a second since the copies began, as people read it."""
        return f"{sizes.size(int(count / max(until - self.began, 1e-3)))}/s"


class Following:
    """Looks for newer checkpoints of a job while one of them is copied.

    Where the source is followed, a look lists the job's directory every few seconds, and at once
    if a file is not there. The run turns to the newest checkpoint when the one that it copies
    begins to vanish, unless the newest one has all that is left to be copied: then it is finished
    from there. It turns, too, when the newest one leaves less to be copied. What both need is
    copied on, and what only the former one needed is dropped.
    """

    def __init__(self, source_state: SourceState, notify: Notify, clock: Clock = MACHINE) -> None:
        self._wanted = Wanted()
        self.turns = Turns(clock.monotonic())
        self._request = source_state.request
        self._is_followed = is_followed(source_state.request, source_state.source)
        self._state: SourceState = source_state
        self._newer: SourceState | None = None
        self._notify, self._clock = notify, clock
        self._lock, self._wake = threading.RLock(), threading.Event()
        self._is_lost = self._is_copying = False
        self._copied: dict[str, Outcome] = {}
        self.packs: dict[str, int] = {}  # where those end that were written, by their path
        self._written: set[str] = set()
        self._begun: list[Texts] = []
        self._root, self._held, self._waiting = "", texts(()), texts(())
        self._compared: tuple[str, bool] | None = None
        self._refusal: SourceMovedOn | None = None
        self.files = self._bytes = 0  # copied so far

    @contextmanager
    def looking(self) -> Iterator[None]:
        """Look for newer checkpoints while the block runs, in a thread of its own."""
        if not self._is_followed or math.isinf(self._request.look_every):
            yield
            return
        ended = threading.Event()
        looks = in_thread(lambda: self._look_until(ended), "newer")
        try:
            yield
        finally:
            ended.set()
            self._wake.set()
            if looks.wait(_END_SECONDS):
                looks.result()

    @contextmanager
    def copying(self, plan: Plan, tasks: Texts) -> Iterator[None]:
        """Let looks turn while the block copies files to these paths of the replica."""
        with self._lock:
            self._root, self._held = plan.replica, plan.keeps.files.paths
            self._waiting, self._wanted = tasks, Wanted()
            self._begun.append(tasks)
            self._is_lost, self._is_copying, self._compared = False, True, None
            left = self._left(self._state)
            self.turns.least = min(self.turns.least, left.bytes)
            self.turns.begin(left.bytes)
            if self.turns.gain_nothing:
                self._refusal = self._no_gain(self._state, left)
                raise self._refusal
        try:
            yield
        finally:
            with self._lock:
                self._is_copying = False

    def done(self, outcome: Outcome) -> None:
        """Record the outcome of a copy; may be called by any thread, and more than once."""
        path = uri.below(outcome.target, self._root)
        if outcome.missing:
            self._is_lost = True
            self._wake.set()
        elif outcome.error is None and path is not None and path not in self._copied:
            self._copied[path] = outcome
            self.files += 1
            self._bytes += outcome.bytes

    @property
    def copied(self) -> dict[str, Outcome]:
        """The outcomes of the copies that the current checkpoint needs, by the path."""
        return dict(self._copied)

    @property
    def begun(self) -> Texts:
        """The paths to which the run has begun to copy files. What is there is its own."""
        return concatenated(self._begun)

    @property
    def wanted(self) -> Wanted | None:
        """Which copies are still wanted, None if all are."""
        return self._wanted if self._is_followed else None

    def is_still_failed(self, outcome: Outcome) -> bool:
        """Return whether a copy failed that the checkpoint needs to which the run has turned."""
        if not outcome.is_worth_a_try or self._newer is None:
            return False
        return uri.below(outcome.target, self._root) in self._newer.needed

    @property
    def newer(self) -> SourceState | None:
        """The checkpoint that the run has turned to. Raises `SourceMovedOn` if it gains nothing."""
        with self._lock:
            if self._refusal is not None:
                raise self._refusal
            return self._newer

    def take(self) -> SourceState:
        """Return the checkpoint that the run has turned to, which is the current one from now on.

        `copied` is what it needs of what the run has copied.
        """
        with self._lock:
            newer = self.newer
            assert newer is not None, "the run has turned"
            self._written.update(path for path, each in self._copied.items() if each.pack is None)
            ends = ((each.pack, each.offset + each.bytes) for each in self._copied.values())
            for pack, end in ends:
                path = uri.below(pack, self._root) if pack is not None else None
                if path is not None:
                    self.packs[path] = max(end, self.packs.get(path, 0))
            self._copied = self._carried(newer)
            self._state, self._newer = newer, None
            return newer

    def settle(self) -> bool:
        """Turn to a newer checkpoint, since files are missing. Return False if there is none.

        The source is looked at twice before that. Raises `SourceMovedOn` as `newer`.
        """
        if not self._is_followed:
            return False
        for seconds in (0.0, self._request.subsumption_wait):
            time.sleep(seconds)
            self._look_for_one_to_read()
            if self.newer is not None:
                return True
        return False

    def _look_for_one_to_read(self) -> None:
        for _ in range(MOST_GONE):
            with suppress(SourceMovedOn):  # a newer one was subsumed, too, before it was read
                self.look(must_turn=True)
                return

    def abandoned(self) -> list[str]:
        """Return the paths of the files that were copied for former checkpoints only."""
        needed = self._state.needed.paths
        paths: list[str] = without(texts(sorted(self._written)), needed).to_pylist()
        return paths

    def look(self, must_turn: bool = False) -> None:
        """Look for a newer checkpoint, and turn to it if that is the shorter way to a commit.

        Raises what `read_source` raises.
        """
        with self._lock:
            current = self._newer or self._state
            source = self._found(current)
            if source is None or not (must_turn or self._is_copying):
                return
            is_lost = must_turn or self._is_lost or not _is_there(current)
            left = self._left(current)
            if not must_turn and not self._is_compared(source, left, is_lost):
                return
            try:
                newer = read_source(self._request, source)
            except CutShort:
                return  # it is still being written
            if must_turn or self._is_better(newer, current, left, is_lost):
                self._turn(current, newer)

    def _look_until(self, ended: threading.Event) -> None:
        def go_on() -> None:
            if ended.is_set():
                raise RunnerStopped

        with cancellable(go_on):
            while not ended.is_set():
                self._wake.wait(self._request.look_every)
                self._wake.clear()
                # who copies finds out whether the source is lost
                with suppress(CpreplicateError, OSError, RunnerStopped):
                    go_on()
                    self.look()
                ended.wait(min(_PAUSE, self._request.look_every))

    def _found(self, current: SourceState) -> Source | None:
        """Return the newest checkpoint, if it is newer than the one that is copied."""
        root = current.source.job_root
        if root is None:
            return None
        try:
            found = newest(root, self._request.sides.source, self._request.allow_older)
        except NotThere:
            return None
        if found.checkpoint == current.source.checkpoint:
            return None
        names = uri.name(found.checkpoint), uri.name(current.source.checkpoint)
        is_newer = self._request.allow_older or highest_first(names)[0] == names[0]
        return found if is_newer else None

    def _is_compared(self, source: Source, left: Left, is_lost: bool) -> bool:
        """Return whether a checkpoint is read to find out whether it is better, once."""
        if self._compared == (source.checkpoint, is_lost):
            return False
        self._compared = source.checkpoint, is_lost
        if is_lost:
            return True
        metadata = uri.join(source.checkpoint, METADATA)
        status = self._request.sides.source.storage(metadata).stat(metadata)
        return status is not None and status.length * _COMPARED_SHARE <= left.bytes

    def _is_better(
        self, newer: SourceState, current: SourceState, left: Left, is_lost: bool
    ) -> bool:
        if not is_lost:
            return self._left(newer).bytes < left.bytes
        paths = chosen(current.needed.paths, self._is_left(current))
        return bool((rows_of(paths, newer.needed.paths) < 0).any())

    def _turn(self, current: SourceState, newer: SourceState) -> None:
        is_fresh = rows_of(newer.needed.paths, current.needed.paths) < 0
        fresh, left = int(newer.needed.costs[is_fresh].sum()), self._left(newer)
        former, name = current.placement.name, newer.placement.name
        self.turns.add(former, fresh, left.bytes, self._most_begun(), self._clock.monotonic())
        self._newer = newer
        needed = newer.needed.paths
        if self.turns.gain_nothing:
            self._refusal, needed = self._no_gain(newer, left), texts(())
        dropped = without(self._waiting, needed).to_pylist()
        self._wanted.drop(uri.join(self._root, path) for path in dropped)
        self._notify(
            f"turned from {former} to {name}, which the job completed since:"
            f" {sizes.counted(left.files, 'file')}, {sizes.size(left.bytes)}, left to be copied"
        )

    def _most_begun(self) -> int:
        """Return how many bytes of files that are not complete may be copied by now.

        Before the first file is complete, that is all of them: executors may still start.
        """
        needed = self._state.needed
        is_begun = self._is_left(self._state) & (rows_of(needed.paths, self._waiting) >= 0)
        costs = np.sort(needed.costs[is_begun])
        return int(costs[-_MOST_AT_ONCE:].sum()) if self._copied else int(costs.sum())

    def _no_gain(self, newer: SourceState, left: Left) -> SourceMovedOn:
        turns, now = self.turns, self._clock.monotonic()
        return SourceMovedOn(
            f"{newer.source.root}: the job replaces its files as fast as they are copied. This run"
            f" turned {sizes.counted(len(turns.names), 'time')}, from {turns.names[0]} to"
            f" {newer.placement.name}, and after the last {MOST_WITHOUT_GAIN} turns no less was"
            f" left than before: {sizes.size(left.bytes)}. The copies carried"
            f" {turns.rate(self._bytes, now)}, and new files came at"
            f" {turns.rate(turns.fresh, turns.last)}. Nothing was committed or deleted. Files that"
            " were copied stay useful. Let the job retain more checkpoints"
            " (state.checkpoints.num-retained, in Flink 2 execution.checkpointing.num-retained)"
            " or complete them less often (execution.checkpointing.interval), or raise"
            " --bandwidth"
        )

    def _left(self, state: SourceState) -> Left:
        is_left = self._is_left(state)
        return Left(int(is_left.sum()), int(state.needed.costs[is_left].sum()))

    def _is_left(self, state: SourceState) -> Numbers:
        """Return which of the files of a checkpoint are neither held nor copied."""
        paths, copied = state.needed.paths, texts(list(self._copied))
        is_left: Numbers = (rows_of(paths, self._held) < 0) & (rows_of(paths, copied) < 0)
        return is_left

    def _carried(self, newer: SourceState) -> dict[str, Outcome]:
        """Return what was copied that another checkpoint needs as it is."""
        outcomes, carried = dict(self._copied), dict[str, Outcome]()
        paths = texts(outcomes)
        rows = rows_of(paths, newer.needed.paths).tolist()
        former = rows_of(paths, self._state.needed.paths).tolist()
        for (path, outcome), row, before in zip(outcomes.items(), rows, former, strict=True):
            if row < 0 or before < 0:
                continue
            (_, file), (_, copied) = newer.needed.row(row), self._state.needed.row(before)
            is_member = outcome.pack is not None  # a segment of a segment cannot be spelled
            if (
                file.uri == copied.uri
                and file.extent <= outcome.bytes
                and not (is_member and file.segment)
            ):
                carried[path] = outcome
        return carried


def _is_there(state: SourceState) -> bool:
    metadata = state.file.uri
    return state.file.side.storage(metadata).stat(metadata) is not None
