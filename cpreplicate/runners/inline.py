"""The runner that uses threads of this process, for plans too small to be worth a JVM."""

from __future__ import annotations

import resource
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from itertools import count
from typing import Any, Generic

from cpreplicate.core.packs import WRITERS
from cpreplicate.runners.base import Done, In, Out
from cpreplicate.runners.batch import SLOTS, perform
from cpreplicate.runners.options import ExecutionOptions
from cpreplicate.runners.progress import Progress, showing
from cpreplicate.runners.tasks import (
    Outcome,
    RunnerStopped,
    Task,
    Watcher,
    current_wanted,
    file_of,
    is_gone,
    size_of,
)
from cpreplicate.storage import Sides
from cpreplicate.storage.waiting import cancellation

_TRIES = 3
PAUSE = 0.2  # seconds before the second try, doubled before the next
_MAPPED = 16  # calls of `map` at once, which wait for storages far more than they compute
# Calls of `map` at once for local files, which hardly wait. More would hinder each other.
_MAPPED_HERE = 2


_TRIED = 32  # calls of `each` in this thread after which it is known whether they wait
LATE = 1.0  # seconds that what is known waits for what is asked for before it


class InlineRunner:
    """A runner that copies `streams` or `parallelism` files at once.

    By default, the storages determine the number.
    """

    name = "inline"
    is_elsewhere = False

    def __init__(
        self, sides: Sides, execution: ExecutionOptions | None = None, reason: str = "asked for"
    ) -> None:
        execution = execution or ExecutionOptions()
        self.reason = reason
        self._sides = sides
        self._streams = execution.streams or execution.parallelism
        self._progress = Progress()
        self._active: set[_Counter] = set()
        self._is_cancelled = False
        self._shown = showing(self._progress, execution.show)

    def run(
        self,
        actions: Sequence[Task],
        level: int = 0,  # noqa: ARG002  # all are as important
        done: Done | None = None,
    ) -> list[Outcome]:
        """Execute all actions and return their outcomes.

        Tries again what failed, except a copy whose source is missing or too short, and what its
        storages have tried for as long as they may.
        """
        self._progress.expect(len(actions), sum(map(size_of, actions)))
        outcomes = {outcome.target: outcome for outcome in self._perform(actions, done)}
        for again in range(1, _TRIES):
            failed = [action for action in actions if _is_tried_again(outcomes[action.target])]
            if not failed:
                break
            time.sleep(PAUSE * 2 ** (again - 1))
            self._progress.retry(len(failed))
            outcomes.update((outcome.target, outcome) for outcome in self._perform(failed, done))
        errors = (outcome for outcome in outcomes.values() if outcome.error is not None)
        wanted = current_wanted()
        self._progress.fail(sum(not is_gone(outcome, wanted) for outcome in errors))
        return list(outcomes.values())

    def map(
        self, function: Callable[[In], Out], items: Sequence[In], places: Sequence[str] = ()
    ) -> list[Out]:
        """Return what a function returns for each item, in order; several calls run at once."""
        is_here = bool(places) and all(uri.startswith("file:") for uri in places)
        go_on = cancellation.current()

        def checked(item: In) -> Out:
            go_on()
            with cancellation.cancellable(go_on):
                return function(item)

        with ThreadPoolExecutor(
            self._streams or (_MAPPED_HERE if is_here else _MAPPED), "map"
        ) as pool:
            return list(pool.map(checked, items))

    def each(
        self,
        function: Callable[[In], Out],
        items: Sequence[In],
        places: Sequence[str] = (),
        here: Callable[[In], Out] | None = None,
    ) -> Each[Out]:
        """Return what a function that reads small files returns for each item, as it is known.

        Several calls run at once where they wait. Calls for local files hardly do: their threads
        would hinder each other, and take twice the CPU. They are made in this thread, by `here` if
        that is given, until one raises `Waits`.
        """
        is_here = bool(places) and all(uri.startswith("file:") for uri in places)
        return Each(self._each(function, items, (here or function) if is_here else None))

    def _each(
        self,
        function: Callable[[In], Out],
        items: Sequence[In],
        here: Callable[[In], Out] | None,
    ) -> Iterator[tuple[int, Out] | None]:
        go_on = cancellation.current()

        def called(item: In) -> Out:
            go_on()
            with cancellation.cancellable(go_on):
                return function(item)

        begun = 0
        if here is not None:
            for begun, found in enumerate(_until_it_waits(here, items, go_on), 1):
                yield begun - 1, found
        with ThreadPoolExecutor(self._streams or _MAPPED, "each") as pool:
            futures = [pool.submit(called, item) for item in items[begun:]]
            yield from _as_known(dict(zip(futures, count(begun), strict=False)))

    def _perform(self, actions: Sequence[Task], done: Done | None) -> list[Outcome]:
        """Perform tasks by threads of this process; `cancel` ends them."""
        counter = _Counter(self._progress, actions, done)
        self._active.add(counter)
        if self._is_cancelled:
            raise RunnerStopped
        try:
            return perform(actions, self._sides, self._streams, SLOTS, counter, WRITERS)
        except RunnerStopped:
            cancellation.go_on()  # what stopped it is the better reason
            raise
        finally:
            self._active.discard(counter)
            self._progress.end(counter)

    def limited(self, sides: Sides) -> Sides:
        """See `Runner`: the limits are kept in this process."""
        return sides

    def cancel(self) -> None:
        """See `Runner`."""
        self._is_cancelled = True
        for counter in list(self._active):
            counter.stop()

    def __enter__(self) -> InlineRunner:
        self._shown.__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        self._shown.__exit__(*exception)


def _is_tried_again(outcome: Outcome) -> bool:
    return outcome.is_worth_a_try and not outcome.has_been_retried


class _Counter(Watcher):
    """A watcher that counts finished work in the progress of the run, and passes it on.

    What failed may be tried again, so one task may be done more than once. A copy that is not
    wanted any more and whose file is gone has not failed: less is expected.
    """

    def __init__(self, progress: Progress, actions: Sequence[Task], done: Done | None) -> None:
        super().__init__()
        self._progress, self._done = progress, done
        self._actions, self._wanted = actions, current_wanted()
        progress.begin(self)

    def is_wanted(self, index: int) -> bool:
        return self._wanted is None or self._wanted(file_of(self._actions[index]))

    def moved(self, count: int) -> None:
        self._progress.add(self, moved=count)
        super().moved(count)

    def done(self, index: int, outcome: Outcome) -> None:
        if self._done is not None:
            self._done(outcome)
        if outcome.error is None:
            self._progress.add(self, outcome.files, outcome.bytes)
        elif is_gone(outcome, self._wanted):
            self._progress.expect(-1, -size_of(self._actions[index]))
        else:
            self._progress.add(self, failed=1)


class Waits(Exception):
    """What is asked for may be waited for long: other threads are to do that."""


class Each(Generic[Out]):
    """What a function returns for each item.

    It is iterated as it becomes known: in the order of the items, but that what is late holds up
    the others for a second at most.
    """

    def __init__(self, numbered: Iterator[tuple[int, Out] | None]) -> None:
        self._numbered = numbered
        self._known: dict[int, Out] = {}

    def __iter__(self) -> Iterator[Out]:
        return (found[0] for found in self.or_late() if found is not None)

    def or_late(self) -> Iterator[tuple[Out] | None]:
        """Yield what is known, and None for each second in which nothing more became known."""
        yield from [(found,) for found in self._known.values()]
        for numbered in self._numbered:
            if numbered is None:
                yield None
            else:
                number, found = numbered
                self._known[number] = found
                yield (found,)

    def complete(self) -> list[Out]:
        """Return all of it, in the order of the items."""
        for _ in self.or_late():
            pass
        return [self._known[number] for number in sorted(self._known)]


def _until_it_waits(
    function: Callable[[In], Out], items: Sequence[In], go_on: Callable[[], None]
) -> Iterator[Out]:
    """Yield what each call returns, in this thread, until calls wait more than once each."""
    waits = 0
    for number, item in enumerate(items, 1):
        go_on()
        before = _waits()
        try:
            found = function(item)
        except Waits:
            return
        waits += _waits() - before
        yield found
        if number % _TRIED == 0:
            if waits > _TRIED:
                return
            waits = 0


def _as_known(futures: Mapping[Future[Out], int]) -> Iterator[tuple[int, Out] | None]:
    """Yield what is numbered, as `Each` has it. What has not begun is cancelled in the end."""
    waiting = deque(futures)
    try:
        while waiting:
            if not waiting[0].done():
                wait([waiting[0]], LATE)
            known = [waiting[0]] if waiting[0].done() else [each for each in waiting if each.done()]
            if not known:
                yield None
            for future in known:
                waiting.remove(future)
                yield futures[future], future.result()
    finally:
        for future in waiting:
            future.cancel()


def _waits() -> int:
    """Return how often this thread gave its core away, because it had to wait."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
