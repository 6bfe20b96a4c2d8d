"""As many threads at once as one lock of the interpreter can use.

Threads that compute in Python, or ask a local disk, hand the lock of the interpreter to each other
at every call of the system: sixteen of them take twice the CPU of two, and end later. Threads that
wait for a remote storage do not. So a piece of work is admitted if it would be the second, and else
once those under way leave the interpreter idle.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator

_PLACES = 2  # one that computes, and one that the disk keeps waiting
_BUSY = 0.9  # of a core: more cannot be had of one interpreter
_LOOK = 0.01  # seconds between two looks, and between two admissions that are due to idleness
_YOUNG = 1.0  # seconds: what takes longer waits, or copies much, and keeps no place


class Admission:
    """Admits pieces of work, of threads of one process; each is admitted in the end.

    Where those under way hang, one more is admitted each `_LOOK` seconds.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        cpu: Callable[[int], float] | None = None,
    ) -> None:
        self._clock, self._cpu = clock, cpu or _cpu_seconds
        self._lock = threading.Lock()
        self._waiting: deque[threading.Event] = deque()  # only the first one looks
        self._began: dict[int, float] = {}
        self._seen: dict[int, float] = {}
        self._used = 0.0
        self._looked = clock()

    @property
    def waiting(self) -> int:
        """How many threads wait to be admitted."""
        return len(self._waiting)

    @contextlib.contextmanager
    def admitted(self) -> Iterator[None]:
        """Wait until this thread is admitted, after those that came before; then run the block."""
        thread = threading.get_ident()
        if thread in self._began:  # work within work
            yield
            return
        self._enter(thread)
        try:
            yield
        finally:
            self._leave(thread)

    def _enter(self, thread: int) -> None:
        turn = threading.Event()
        with self._lock:
            self._waiting.append(turn)
        try:
            while not self._begins(thread, turn):
                turn.clear()
                turn.wait(_LOOK if self._waiting[0] is turn else None)
        except BaseException:
            self._give_up(turn)
            raise

    def _begins(self, thread: int, turn: threading.Event) -> bool:
        with self._lock:
            if self._waiting[0] is not turn or not self._is_admitted():
                return False
            self._waiting.popleft()
            self._began[thread] = self._clock()
            self._seen[thread] = self._cpu(thread)
            self._wake_first()
            return True

    def _give_up(self, turn: threading.Event) -> None:
        with self._lock:
            with contextlib.suppress(ValueError):  # it began meanwhile
                self._waiting.remove(turn)
            self._wake_first()

    def _leave(self, thread: int) -> None:
        with self._lock:
            self._count(thread)
            del self._began[thread], self._seen[thread]
            self._wake_first()

    def _wake_first(self) -> None:
        if self._waiting:
            self._waiting[0].set()

    def _is_admitted(self) -> bool:
        now = self._clock()
        if sum(now - began < _YOUNG for began in self._began.values()) < _PLACES:
            return True
        if now - self._looked < _LOOK:
            return False
        for thread in self._began:
            self._count(thread)
        is_idle = self._used < _BUSY * (now - self._looked)
        self._used, self._looked = 0.0, now
        return is_idle

    def _count(self, thread: int) -> None:
        used = self._cpu(thread)
        self._used += used - self._seen[thread]
        self._seen[thread] = used


def _cpu_seconds(thread: int) -> float:
    """Return the CPU time of a thread of this process; of the whole process where that is all
    that the system has, as on macOS.
    """
    if not hasattr(time, "pthread_getcpuclockid"):
        return time.process_time() / _PLACES
    return time.clock_gettime(time.pthread_getcpuclockid(thread))


_OF_THIS_PROCESS = Admission()  # the lock of the interpreter is one for the process, too
admitted = _OF_THIS_PROCESS.admitted
