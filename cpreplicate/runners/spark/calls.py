"""Calls of a function by tasks, several at the same time in each: they wait more than they compute.

What a call returns is reported to the driver at once. So an attempt at a task leaves out what
earlier ones have done, and what killed its worker holds up no other call for long.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple

from pyspark import TaskContext

from cpreplicate.protocol.lease import TOLERATED_SKEW
from cpreplicate.runners.base import In, Out
from cpreplicate.runners.spark import clocks, executors
from cpreplicate.runners.spark.reports import client_of
from cpreplicate.runners.tasks import RunnerStopped
from cpreplicate.storage import Transient
from cpreplicate.storage.rpc import Answers, RpcAddress, RpcClient
from cpreplicate.storage.waiting.cancellation import cancellable

AT_ONCE = 8  # calls of a task
_A_TASK = 32  # calls, so that those that take longer than others leave few threads idle at its end
_LOOK = 1.0  # seconds between two questions of a task whether it is to stop
EASE = 5.0  # seconds in which tasks that are to stop may end by themselves
# Each call takes a lease by the clock of its own host, and the next holder may be on any other.
_MOST_SKEW = TOLERATED_SKEW / 2


class Lost(NamedTuple):
    """What is reported of a call that is not made again: its worker died while it was alone."""


def dealt(count: int, slots: int, most: int) -> list[list[int]]:
    """Return the calls of each task, at most so many, in the order in which the tasks begin.

    Calls are numbered by importance. The tasks that run at the same time have the next ones in
    turn, so none waits behind less important ones.
    """
    waves = max(1, round(count / (slots * _A_TASK)), math.ceil(count / (slots * most)))
    size = max(1, math.ceil(count / waves))
    groups = []
    for start in range(0, count, size):
        wave = range(start, min(start + size, count))
        tasks = min(slots, len(wave))
        groups += [list(wave[number::tasks]) for number in range(tasks)]
    return groups


class Before(NamedTuple):
    """What earlier attempts at a task did: calls that are done, that were under way at their end,
    and that are not made again.
    """

    done: frozenset[int]
    begun: frozenset[int]
    given_up: frozenset[int]


@dataclass
class _Expected:
    """A task as the driver knows it. `attempts` are those that run."""

    done: Callable[[int, Any], None]
    known: set[int] = field(default_factory=set)
    begun: set[int] = field(default_factory=set)
    alone: set[int] = field(default_factory=set)
    attempts: set[int] = field(default_factory=set)


class CallReports:
    """The reports of calls that the driver receives, for any number of tasks. Each has a key."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._expected: dict[str, _Expected] = {}
        self._stopped: set[str] = set()
        self.heard = -math.inf  # when a task called last, as of `time.monotonic`

    @property
    def answers(self) -> Answers:
        """The functions that tasks call by RPC."""
        return {
            "calls": self._begin_task,
            "call": self._begin,
            "called": self.report,
            "calls_stop": self._is_stopped,
            "calls_end": self._end_task,
        }

    @contextmanager
    def expecting(self, keys: Sequence[str], done: Callable[[int, Any], None]) -> Iterator[None]:
        """Pass on what is reported of tasks while the block runs, of each call once."""
        with self._lock:
            self._expected.update((key, _Expected(done)) for key in keys)
        try:
            yield
        finally:
            with self._lock:
                for key in keys:
                    del self._expected[key]
                self._stopped.difference_update(keys)

    def stop(self, keys: Collection[str]) -> None:
        """Let tasks stop, and wait until they have given back what they hold, but not for long."""
        with self._lock:
            self._stopped.update(keys)
        until = time.monotonic() + EASE
        while self._are_running(keys) and time.monotonic() < until:
            time.sleep(_LOOK / 10)

    def report(self, key: str, index: int, result: Any) -> None:
        """Take over what a call returned."""
        self.heard = time.monotonic()
        with self._lock:
            task = self._expected.get(key)
            if task is None or index in task.known:
                return
            task.known.add(index)
        task.done(index, result)

    def _are_running(self, keys: Collection[str]) -> bool:
        with self._lock:
            return any(self._expected[key].attempts for key in keys if key in self._expected)

    def _begin_task(self, key: str, attempt: int) -> Before | None:
        """Record that an attempt begins. Return None if the task is not wanted any more."""
        self.heard = time.monotonic()
        with self._lock:
            task = self._expected.get(key)
            if task is None or key in self._stopped:
                return None
            task.attempts.add(attempt)
            given_up = frozenset(task.alone - task.known)
            begun = frozenset(task.begun - task.known - given_up)
            return Before(frozenset(task.known), begun, given_up)

    def _begin(self, key: str, index: int, is_alone: bool) -> bool:
        """Record that a call begins. Return whether another attempt, which may go on, began it."""
        self.heard = time.monotonic()
        with self._lock:
            task = self._expected.get(key)
            if task is None:
                return False
            was_begun = index in task.begun or index in task.alone
            (task.alone if is_alone else task.begun).add(index)
            return was_begun

    def _is_stopped(self, key: str) -> bool:
        self.heard = time.monotonic()
        with self._lock:
            return key in self._stopped or key not in self._expected

    def _end_task(self, key: str, attempt: int) -> None:
        with self._lock:
            task = self._expected.get(key)
            if task is not None:
                task.attempts.discard(attempt)


class CallTask(Generic[In, Out]):
    """The function that makes the calls of one task on an executor, and returns what is not
    reported.

    `function` gets an item, and whether another attempt may have begun with it: that may go on
    where the driver does not see it; `is_again`: it may with each. `is_limited`: calls need the
    driver's rate limiter.
    """

    def __init__(
        self,
        function: Callable[[In, bool], Out],
        address: RpcAddress,
        needs: executors.Needs,
        is_limited: bool,
        is_again: bool = False,
    ) -> None:
        self._function, self._address, self._needs = function, address, needs
        self._is_limited, self._is_again, self._sent = is_limited, is_again, time.time()

    def __call__(self, keyed: tuple[str, Sequence[tuple[int, In]]]) -> list[tuple[int, Out | Lost]]:
        executors.check(self._needs)
        context = TaskContext.get()
        attempt = context.attemptNumber() if context is not None else 0
        key, items = keyed
        with _Driver(self._address, key, attempt) as driver:
            before = driver.begin()
            if before is None and self._is_limited:
                executors.refuse_unlimited(self._address.socket)
            clocks.check(driver.client, self._sent, _MOST_SKEW)
            results = self._called(dict(items), before, attempt > 0 or self._is_again, driver)
        executors.settle()
        return results

    def _called(
        self, items: dict[int, In], before: Before | None, is_again: bool, driver: _Driver
    ) -> list[tuple[int, Out | Lost]]:
        """Make the calls that are left. One at a time, at last, those that a worker died of."""
        done, begun, given_up = before or Before(frozenset(), frozenset(), frozenset())
        reported = [driver.report(index, Lost()) for index in given_up]
        fresh = [index for index in items if index not in done | begun | given_up]

        def call(index: int, is_alone: bool = False) -> tuple[int, Out] | None:
            driver.go_on()
            was_begun = driver.begin_call(index, is_alone)
            with cancellable(driver.go_on):
                return driver.report(index, self._function(items[index], is_again or was_begun))

        with ThreadPoolExecutor(AT_ONCE, "call") as pool:
            reported += list(pool.map(call, fresh))
        reported += [call(index, is_alone=True) for index in sorted(begun)]
        return [each for each in reported if each is not None]


class _Driver:
    """What a task reports to the driver, and asks it.

    `client` is None where that is not reached.
    """

    def __init__(self, address: RpcAddress, key: str, attempt: int) -> None:
        self.client: RpcClient | None = client_of(address)
        self._key, self._attempt = key, attempt
        self._is_stopped = False
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, name="calls", daemon=True)

    def begin(self) -> Before | None:
        """Return what earlier attempts did, None if the driver is not reached.

        Raises `RunnerStopped` if the calls are not wanted any more.
        """
        try:
            assert self.client is not None
            before: Before | None = self.client.call("calls", self._key, self._attempt)
        except Transient:
            self.client = None
            return None
        if before is None:
            raise RunnerStopped
        self._thread.start()
        return before

    def go_on(self) -> None:
        """Raise `RunnerStopped` once the calls are not wanted any more."""
        if self._is_stopped:
            raise RunnerStopped

    def begin_call(self, index: int, is_alone: bool) -> bool:
        """Report that a call begins. Return whether another attempt is known to have begun it."""
        if self.client is not None:
            with suppress(Transient):
                return bool(self.client.call("call", self._key, index, is_alone))
        return False

    def report(self, index: int, result: Any) -> tuple[int, Any] | None:
        """Report what a call returned. Return it if that is not possible."""
        if self.client is not None:
            with suppress(Transient):
                self.client.call("called", self._key, index, result)
                return None
        return index, result

    def __enter__(self) -> _Driver:
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self.client is not None:
            with suppress(Transient):
                self.client.call("calls_end", self._key, self._attempt)

    def _look(self) -> None:
        """Ask now and then whether to stop. A driver that is gone ends its executors."""
        assert self.client is not None
        while not self._ended.wait(_LOOK):
            with suppress(Transient):
                self._is_stopped = self._is_stopped or self.client.call("calls_stop", self._key)
