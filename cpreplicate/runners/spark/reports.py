"""Progress reports of tasks to the driver: bytes moved, and finished actions.

A later attempt at a batch leaves out what is finished.
"""

from __future__ import annotations

import contextlib
import functools
import math
import threading
import time
from collections.abc import Collection, Iterator, Sequence

from cpreplicate.runners.base import Done
from cpreplicate.runners.progress import Progress
from cpreplicate.runners.spark import clocks
from cpreplicate.runners.spark.transport import IndexedOutcome, decode_outcomes, encode_outcomes
from cpreplicate.runners.tasks import Outcome, Task, Wanted, Watcher, file_of, is_gone
from cpreplicate.storage import Transient
from cpreplicate.storage.rpc import Answers, RpcAddress, RpcClient

_SECONDS = 1.0  # between two reports of a task
# Seconds after which a driver that no longer answers is taken for dead: before another host takes
# its lease over, which is 120 s after the last heartbeat. It may only have been paused.
_SILENT = 60.0
# Seconds after which it is if nobody listens at its port: another run may begin on its host at once
_REFUSED = 5.0


class ProgressReports:
    """The reports that the driver receives, for any number of stages. A batch has a key."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._lock = threading.Lock()
        self._batches: dict[str, Sequence[Task]] = {}
        self._finished: dict[str, dict[int, Outcome]] = {}
        self._done: dict[str, Done | None] = {}
        self._wanted: dict[str, Wanted] = {}
        self._dropped: dict[str, tuple[int, frozenset[int]]] = {}  # with the version of the drop
        self.heard = -math.inf  # when a task called last, as of `time.monotonic`

    @property
    def answers(self) -> Answers:
        """The functions that tasks call by RPC."""
        return {"begin": self._begin, "report": self._report, "dropped": self._dropped_of}

    def expect(
        self,
        key: str,
        batch: Sequence[Task],
        done: Done | None = None,
        wanted: Wanted | None = None,
    ) -> None:
        """Expect reports of a batch; `done` is called with each outcome that is a success.

        The task can ask which of its actions are not `wanted` any more.
        """
        with self._lock:
            self._batches[key], self._finished[key], self._done[key] = batch, {}, done
            if wanted is not None:
                self._wanted[key] = wanted

    def finished(self, key: str) -> dict[int, Outcome]:
        """Return the known successes of a batch by the index of the action."""
        with self._lock:
            return dict(self._finished[key])

    def forget(self, key: str) -> None:
        """Drop a batch; reports that come later are ignored."""
        with self._lock:
            del self._batches[key], self._finished[key], self._done[key]
            self._wanted.pop(key, None)
            self._dropped.pop(key, None)
            self._progress.end(key)

    def _begin(self, key: str, attempt: int) -> bytes:
        """Record that an attempt begins, and return what earlier ones finished."""
        self.heard = time.monotonic()
        with self._lock:
            done = dict(self._finished.get(key, {}))
            if key in self._batches:
                self._progress.begin(key)
                self._progress.add(key, *_amount(done.values()))
                self._progress.retry(int(attempt > 0))
        return encode_outcomes(IndexedOutcome(*item) for item in done.items())

    def _dropped_of(self, key: str) -> frozenset[int] | None:
        """Return which actions of a batch are not wanted any more, None if none is ever dropped."""
        self.heard = time.monotonic()
        with self._lock:
            batch, wanted = self._batches.get(key), self._wanted.get(key)
            version, dropped = self._dropped.get(key, (0, frozenset()))
        if batch is None or wanted is None:
            return None
        if version != (now := wanted.version):
            targets = map(file_of, batch)
            dropped = frozenset(index for index, target in enumerate(targets) if not wanted(target))
            with self._lock:
                self._dropped[key] = now, dropped
        return dropped

    def _report(self, key: str, moved: int, data: bytes) -> None:
        """Record the bytes that a task moved, and the outcomes that it reports."""
        self.heard = time.monotonic()
        with self._lock:
            batch = self._batches.get(key)
            if batch is None:
                return  # the batch was finished by another attempt
            finished, reported = self._finished[key], decode_outcomes(data, batch)
            fresh = {
                index: outcome
                for index, outcome in reported
                if outcome.error is None and index not in finished
            }
            finished.update(fresh)
            wanted = self._wanted.get(key)
            errors = (each for _, each in reported if each.error is not None)
            failed = sum(not is_gone(outcome, wanted) for outcome in errors)
            self._progress.add(key, *_amount(fresh.values()), moved, failed)
            done = self._done[key]
        if done is not None:
            for outcome in fresh.values():
                done(outcome)


def _amount(outcomes: Collection[Outcome]) -> tuple[int, int]:
    """Return how many files and bytes are done."""
    files = sum(outcome.files for outcome in outcomes)
    return files, sum(outcome.bytes for outcome in outcomes)


class Reporter(Watcher):
    """The sender of a task's progress reports.

    If the driver cannot be reached at all, nothing is sent: the task's result contains all
    outcomes. If it answered at first and then does not for `silent` seconds, the task is cancelled:
    the run is over, and another one may work on the replica. After `refused` seconds that is so if
    nobody listens at its port.
    """

    def __init__(
        self,
        address: RpcAddress,
        key: str,
        attempt: int,
        silent: float = _SILENT,
        refused: float = _REFUSED,
    ) -> None:
        super().__init__()
        self._client: RpcClient | None = client_of(address)
        self._key, self._attempt = key, attempt
        self._lock = threading.Lock()
        self._moved, self._outcomes = 0, list[IndexedOutcome]()
        self._dropped: frozenset[int] | None = frozenset()
        self._silent, self._refused = silent, refused
        self._asked_since, self._patience = math.inf, silent
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._send_reports, name="reports", daemon=True)
        self.indexes: Sequence[int] = ()

    def begin(self, batch: Sequence[Task]) -> dict[int, Outcome] | None:
        """Return what earlier attempts finished, or None if the driver cannot be reached."""
        try:
            data = self._client.call("begin", self._key, self._attempt) if self._client else None
        except Transient:
            self._client = data = None
        if data is None:
            return None
        return {indexed.position: indexed.outcome for indexed in decode_outcomes(data, batch)}

    def check_clock(self, sent: float) -> None:
        """See `clocks.check`. To be called after `begin`."""
        clocks.check(self._client, sent)

    def moved(self, count: int) -> None:
        with self._lock:
            self._moved += count
        self._end_without_driver()
        super().moved(count)

    def is_wanted(self, index: int) -> bool:
        return not self._dropped or self.indexes[index] not in self._dropped

    def done(self, index: int, outcome: Outcome) -> None:
        with self._lock:
            self._outcomes.append(IndexedOutcome(self.indexes[index], outcome))

    def __enter__(self) -> Reporter:
        self._learn_what_is_dropped()
        if self._asked_since < math.inf:
            self._client, self._asked_since = None, math.inf  # it is not reached from here
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self._send_report()

    def _send_reports(self) -> None:
        while not self._ended.wait(_SECONDS):
            self._send_report()
            self._learn_what_is_dropped()

    def _learn_what_is_dropped(self) -> None:
        if self._client is None or self._dropped is None:
            return
        with self._asking():
            self._dropped = self._client.call("dropped", self._key)

    def _send_report(self) -> None:
        with self._lock:
            moved, outcomes, self._moved, self._outcomes = self._moved, self._outcomes, 0, []
        if self._client is None or not (moved or outcomes):
            return
        with self._asking():
            self._client.call("report", self._key, moved, encode_outcomes(outcomes))
            return
        with self._lock:  # for the next report
            self._moved, self._outcomes = self._moved + moved, [*outcomes, *self._outcomes]

    @contextlib.contextmanager
    def _asking(self) -> Iterator[None]:
        """Ask the driver in the block, which ends when it answers, or cannot be reached."""
        self._asked_since = min(self._asked_since, time.monotonic())
        try:
            yield
        except Transient as error:
            is_refused = isinstance(error.__cause__, ConnectionRefusedError)
            self._patience = self._refused if is_refused else self._silent
        else:
            self._asked_since = math.inf

    def _end_without_driver(self) -> None:
        if time.monotonic() - self._asked_since >= self._patience:
            self.stop()


@functools.cache
def client_of(address: RpcAddress) -> RpcClient:
    """Return the client of this process for an address: one connection for all tasks."""
    return RpcClient(address)
