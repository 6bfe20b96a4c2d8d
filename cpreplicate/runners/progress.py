"""Progress of a run, counted by the runner while it runs."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

_WINDOW = 10.0  # seconds over which the rate is measured
_TICK = 1.0  # seconds between two reports


class Snapshot(NamedTuple):
    """The progress at one moment.

    `rate` is in bytes a second, and `left` in seconds; None if it is not known yet. `failed` are
    files whose last try so far failed, `retried` are batches or files that were tried again.
    """

    files: int
    files_total: int
    bytes: int
    bytes_total: int
    rate: float
    left: float | None
    failed: int
    retried: int
    seconds: float


ShowProgress = Callable[[Snapshot, bool], None]  # the second argument: this is the last one


@dataclass
class _Part:
    """What an attempt at a batch has done so far. `moved` includes bytes of unfinished files."""

    files: int = 0
    bytes: int = 0
    moved: int = 0
    failed: int = 0


class Progress:
    """A counter of finished work, for any number of threads.

    A batch that is tried again starts with what its earlier attempt finished.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._parts: dict[object, _Part] = {}
        self._finished = _Part()
        self._files = self._bytes = self._retried = 0
        self._began = clock()
        self._seen: deque[tuple[float, int]] = deque([(self._began, 0)])
        self._moved = 0

    def expect(self, files: int, size: int) -> None:
        """Add work that is to be done. The time counts from the first call."""
        with self._lock:
            if not self._files:
                self._began = self._clock()
                self._seen = deque([(self._began, self._moved)])
            self._files += files
            self._bytes += size

    def retry(self, batches: int = 1) -> None:
        """Count batches or files that are tried again."""
        with self._lock:
            self._retried += batches

    def begin(self, part: object) -> None:
        """Begin an attempt at a part of the work, and drop what an earlier attempt counted."""
        with self._lock:
            self._parts[part] = _Part()

    def add(
        self, part: object, files: int = 0, size: int = 0, moved: int = 0, failed: int = 0
    ) -> None:
        """Count finished files of a part and their bytes, and bytes moved of any file."""
        with self._lock:
            counted = self._parts.setdefault(part, _Part())
            counted.files += files
            counted.bytes += size
            counted.moved += moved
            counted.failed += failed
            self._moved += moved

    def end(self, part: object) -> None:
        """End a part. What it finished stays counted; what failed in it may be tried again."""
        with self._lock:
            counted = self._parts.pop(part, _Part())
            self._finished.files += counted.files
            self._finished.bytes += counted.bytes

    def fail(self, files: int) -> None:
        """Count files that failed and are not tried again."""
        with self._lock:
            self._finished.failed += files

    def snapshot(self) -> Snapshot:
        """Return the progress at this moment."""
        with self._lock:
            now, parts = self._clock(), [self._finished, *self._parts.values()]
            self._seen.append((now, self._moved))
            while len(self._seen) > 1 and now - self._seen[1][0] >= _WINDOW:
                self._seen.popleft()
            since, before = self._seen[0]
            rate = (self._moved - before) / (now - since) if now > since else 0.0
            done = min(self._bytes, sum(max(part.bytes, part.moved) for part in parts))
            files = sum(part.files for part in parts)
            left = self._left(files, done, rate, now - self._began)
            failed = sum(part.failed for part in parts)
            return Snapshot(
                files,
                self._files,
                done,
                self._bytes,
                rate,
                left,
                failed,
                self._retried,
                now - self._began,
            )

    def _left(self, files: int, done: int, rate: float, took: float) -> float | None:
        if self._bytes and rate:
            return (self._bytes - done) / rate
        return took * (self._files - files) / files if files else None


class EachRun:
    """A display of a runner that is kept for many runs: it shows each as if it were the only one.

    Between two runs it shows nothing.
    """

    def __init__(self, show: ShowProgress) -> None:
        self._show = show
        self._before: Snapshot | None = None

    def __call__(self, now: Snapshot, last: bool) -> None:
        run = now if self._before is None else _since(self._before, now)
        is_over = last or run.files + run.failed >= run.files_total
        if run.files_total:
            self._show(run, is_over)
        if is_over:
            self._before = now


def _since(before: Snapshot, now: Snapshot) -> Snapshot:
    return now._replace(
        files=now.files - before.files,
        files_total=now.files_total - before.files_total,
        bytes=now.bytes - before.bytes,
        bytes_total=now.bytes_total - before.bytes_total,
        failed=now.failed - before.failed,
        retried=now.retried - before.retried,
        seconds=now.seconds - before.seconds,
    )


@contextlib.contextmanager
def showing(progress: Progress, show: ShowProgress | None) -> Iterator[None]:
    """Show the progress every second while the block runs, and at its end."""
    if show is None:
        yield
        return
    ended = threading.Event()

    def report() -> None:
        while not ended.wait(_TICK):
            show(progress.snapshot(), False)

    thread = threading.Thread(target=report, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        show(progress.snapshot(), True)
