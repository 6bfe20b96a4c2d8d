"""The runner on Spark: one task a batch, with batches and outcomes as Arrow.

It imports pyspark.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import math
import sys
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from pyspark import SparkContext, TaskContext

from cpreplicate.core.log_context import title
from cpreplicate.core.sizes import counted
from cpreplicate.errors import CopyFailed, CpreplicateError, UsageError, described
from cpreplicate.runners import startup_times
from cpreplicate.runners.base import Done, In, Out
from cpreplicate.runners.batch import perform
from cpreplicate.runners.batching import BATCH_BYTES, batches
from cpreplicate.runners.copy_rows import places_of, sizes_of
from cpreplicate.runners.early import EarlyWork, worth_it
from cpreplicate.runners.options import (
    COPIES_IN_DRIVER,
    ExecutionOptions,
    Properties,
    copies_in_driver,
    whole,
)
from cpreplicate.runners.progress import Progress, showing
from cpreplicate.runners.ranges import Splitting, joining
from cpreplicate.runners.spark import executors, failures, session
from cpreplicate.runners.spark.calls import CallReports, CallTask, Lost, dealt
from cpreplicate.runners.spark.clocks import DriverClock
from cpreplicate.runners.spark.engine import Engine, EngineWatch, masters, watching
from cpreplicate.runners.spark.reports import ProgressReports, Reporter
from cpreplicate.runners.spark.transport import (
    IndexedOutcome,
    decode,
    decode_outcomes,
    encode,
    encode_outcomes,
)
from cpreplicate.runners.tasks import (
    EngineLost,
    JobCancelled,
    Outcome,
    RunnerStopped,
    Task,
    current_wanted,
    is_gone,
    size_of,
)
from cpreplicate.storage import Sides
from cpreplicate.storage.rpc import Answers, RpcAddress, serve
from cpreplicate.storage.transfer import around
from cpreplicate.storage.waiting import cancellation
from cpreplicate.storage.waiting.side_call import SideCall, in_thread
from cpreplicate.storage.wrappers.limits import pace

_log = logging.getLogger(__name__)
_Batch = Sequence[Task]
_LOOK = 0.05  # seconds between two looks at a session that starts
_START_SECONDS = 60.0  # for the start of a session that nobody needs any more
_CANCEL_SECONDS = 0.5  # between two checks whether a job is to be cancelled
# for the end of a cancelled job of an engine that is lost, of the seconds that its end may take
_END_SECONDS = 4.0
# for short tasks: each costs its slot some 50 ms, most of it waiting (measured on 4.3), more than a
# check of one job
_TASKS_A_SLOT = 32
_MANY = sys.maxsize
_CALLS = "calls"  # the part of the progress that counts files of calls
_PORTS = 17  # the one that is asked for, and as many more as `spark.port.maxRetries` has
_LAST_PORT = 65_535
_LOST = (
    "the process of Spark in which it was made died, twice: see the executor's log, and whether its"
    " memory is short. Nothing is damaged, and the next run goes on"
)
_JOINED = "joined"  # the part of the progress that counts files of ranges
_POOL = "spark.scheduler.pool"
_LAST = 0  # an attempt with this number or a higher one reports failures instead of failing


class SparkRunner:
    """A runner whose batches are Spark tasks.

    The session starts with the first `run` and stops with the context. Until an executor of a
    cluster runs tasks, this process works on the actions itself: docs/adr/0022. Spark tries a batch
    that fails again, without what it had finished. If Spark gives the whole job up, as when
    executors die at each try or a file fails on every executor, the rest is tried once more, file
    by file.
    """

    name = "spark"

    def __init__(
        self,
        sides: Sides,
        execution: ExecutionOptions | None = None,
        reason: str = "asked for",
        levels: int = 0,
    ) -> None:
        session.refuse_without_java()
        self.reason = reason
        self._sides, self._execution, self._levels = sides, execution or ExecutionOptions(), levels
        self.is_elsewhere = session.is_elsewhere(self._execution)
        self._progress = Progress()
        self._reports = ProgressReports(self._progress)
        self._calls = CallReports()
        self._resources, self._shown = contextlib.ExitStack(), contextlib.ExitStack()
        self._starting = threading.Lock()
        self._started: _Started | None = None
        self._working_early = threading.Lock()  # one run at a time does
        self._start_beside: SideCall[_Started] | None = None
        self._is_ready = False
        self._is_closed = self._is_shown = False
        self._start_thread: int | None = None  # the one that starts a session
        self._numbers = itertools.count()
        self._groups: set[str] = set()
        self._is_cancelled = False

    def run(
        self, actions: Sequence[Task], level: int = 0, done: Done | None = None
    ) -> list[Outcome]:
        """Execute all actions; may be called from several threads.

        `level` is how important they are, 0 the most, if the runner has levels. If Spark gives up,
        an action that is not known to be done is reported as failed. It may have been done. What
        was cancelled in Spark is not started again: raises `JobCancelled`. Raises `EngineLost` if
        no executor answers for too long.
        """
        self._progress.expect(len(actions), int(sizes_of(actions).sum()))
        if (appearing := around().appearing) is not None:
            appearing()  # tasks do not know of it: they are other processes, also on this machine
        with self._may_work_early(actions) as is_early:
            results = (
                self._early(actions, level, done)
                if is_early
                else self._by_executors(actions, self._session(), level, done)
            )
        self._count_failures(actions, results)
        return results

    @contextlib.contextmanager
    def _may_work_early(self, actions: Sequence[Task]) -> Iterator[bool]:
        """Return whether this run works in this process until executors are ready."""
        is_possible = self.is_elsewhere and not self._is_ready and worth_it(actions)
        if not is_possible or not self._working_early.acquire(blocking=False):
            yield False
            return
        try:
            is_own = self._start_beside is not None or session.existing(self._execution) is None
            is_wanted = copies_in_driver(session.given(self._execution, COPIES_IN_DRIVER))
            yield is_own and not self._is_ready and is_wanted
        finally:
            self._working_early.release()

    def _early(self, actions: Sequence[Task], level: int, done: Done | None) -> list[Outcome]:
        """Work here until executors are ready, and leave the rest to them."""
        self._show()
        streams = self._execution.streams
        with EarlyWork(actions, self._sides, streams, self._progress, done) as early:
            starting = self._started_beside(level, places_of(actions))
            while not starting.wait(_LOOK):
                if early.has_done_all():
                    _log.debug("the driver did everything before Spark had an executor")
                    return early.outcomes
                self._go_on()
            try:
                started = starting.result()
            except BaseException:
                self._start_beside = None
                if early.has_done_all():
                    return early.outcomes
                raise
            self._is_ready = True
            left = early.hand_over()
            _log.debug("executors do %s of %s", len(left), counted(len(actions), "task"))
            results = self._by_executors(left, started, level, done)
            results += self._by_executors(early.finish(self._go_on), started, level, done)
            return results + early.outcomes

    def _go_on(self) -> None:
        """Raise if the run of this thread was cancelled."""
        self._refuse_if_over()
        cancellation.go_on()

    def _refuse_if_over(self) -> None:
        """Raise `RunnerStopped` if nobody needs the session any more."""
        if self._is_cancelled or self._is_closed:
            raise RunnerStopped

    def _started_beside(self, level: int, places: Iterable[str]) -> SideCall[_Started]:
        """Begin to start the session in another thread, unless that was begun.

        A start that failed when nobody needed it is no reason for the run of later.
        """
        begun = self._start_beside
        if begun is None or (begun.has_ended and self._started is None):
            ready = partial(self._ready, level, self._needs(places))
            begun = self._start_beside = in_thread(ready, "spark-start")
        return begun

    def _ready(self, level: int, needs: executors.Needs) -> _Started:
        """Return the session once one of its executors has run a task, or cannot."""
        began = time.monotonic()
        with cancellation.cancellable(self._refuse_if_over):
            started = self._session()
            try:
                self._collected(started, _Checked(_nothing, needs), [0], level)
                startup_times.record(str(started.context.master), time.monotonic() - began)
            except session.LOST as error:  # the tasks of the run meet the same
                if self._is_cancelled:
                    raise RunnerStopped from error
                _refuse_cancelled(error)
        return started

    def _by_executors(
        self, actions: Sequence[Task], started: _Started, level: int, done: Done | None
    ) -> list[Outcome]:
        """Return the outcomes of actions that tasks of Spark execute."""
        if not len(actions):
            return []
        splitting = Splitting(started.slots, self._execution.batch_bytes or BATCH_BYTES)
        joined = partial(self._progress.add, _JOINED, files=1)
        with joining(actions, splitting, self._sides, done, joined) as files:
            results = files.results(self._outcomes(files.tasks, started, level, files.done))
            if files.unjoined:
                results += self._outcomes(files.unjoined, started, level, done)
        self._progress.end(_JOINED)
        return results

    def _outcomes(
        self, actions: Sequence[Task], started: _Started, level: int, done: Done | None
    ) -> list[Outcome]:
        """Return the outcomes of all actions, after all tries."""
        last = session.tries(started.context) - 1
        outcomes, left, error = self._tried(actions, started, level, last, done)
        if left and session.is_running(started.context) and not failures.difference(error):
            self._progress.retry()
            retried, _, error = self._tried(left, started, level, _LAST, done)
            outcomes.update(retried)
        return [outcomes.get(action.target) or _given_up(action, error) for action in actions]

    def _tried(
        self,
        actions: Sequence[Task],
        started: _Started,
        level: int,
        last: int,
        done: Done | None,
    ) -> tuple[dict[str, Outcome], list[Task], Exception | None]:
        """Return outcomes by target, the actions that have none, and Spark's error.

        Raises for a job that is not to be started again.
        """
        outcomes, error = self._stage(actions, started, level, last, done)
        if self._is_cancelled:
            raise RunnerStopped
        left = [action for action in actions if action.target not in outcomes]
        if left and error is not None:
            _refuse_final(error)
        return outcomes, left, error

    def _count_failures(self, actions: Sequence[Task], results: Sequence[Outcome]) -> None:
        wanted = current_wanted()
        failed = [outcome for outcome in results if outcome.error is not None]
        gone = {outcome.target for outcome in failed if is_gone(outcome, wanted)}
        self._progress.fail(len(failed) - len(gone))
        if gone:
            sizes = [size_of(action) for action in actions if action.target in gone]
            self._progress.expect(-len(sizes), -sum(sizes))

    def map(
        self, function: Callable[[In], Out], items: Sequence[In], places: Sequence[str] = ()
    ) -> list[Out]:
        """Return the results of a function for all items, in order, by many tasks."""
        started = self._session()
        try:
            checked = _Checked(function, self._needs(places))
            return self._collected(started, checked, items, 0, started.slots * _TASKS_A_SLOT)
        except session.LOST as error:
            if self._is_cancelled:
                raise RunnerStopped from error
            _refuse_final(error)
            raise CpreplicateError(failures.why_given_up(error)) from error

    def spread(
        self,
        function: Callable[[In, bool], Out],
        items: Sequence[In],
        done: Callable[[int, Out], None],
        failed: Callable[[int, Exception], None],
        places: Sequence[str] = (),
        level: int = 0,
        expected: Sequence[tuple[int, int]] = (),
    ) -> None:
        """Call a function for each item, by tasks that make some of the calls at the same time.

        The first items are the most important. `function` also gets whether a call may have been
        begun before: it may go on where that is not seen. `done` is called, by any thread, with the
        index of an item and what was returned, as soon as that is known, and `failed` where nothing
        is: Spark gave up, or no executor answers. `expected` are the files and bytes of each call,
        for the progress. Raises `RunnerStopped`, and what cancels the work of this thread.
        """
        counted = _Counted(self._progress, len(items), expected)

        def known(index: int, result: Out | Lost) -> None:
            counted.done(index)
            if isinstance(result, Lost):
                failed(index, CopyFailed(_LOST))
            else:
                done(index, result)

        error = self._calls_made(function, items, counted.left, known, places, level)
        if error is not None and self._may_go_on(error):
            # each by a task of its own: none fails for another one
            error = self._calls_made(function, items, counted.left, known, places, level, True)
        counted.end()
        for index in sorted(counted.left):
            failed(index, _why_not_called(error))

    def _calls_made(
        self,
        function: Callable[[In, bool], Out],
        items: Sequence[In],
        left: Collection[int],
        known: Callable[[int, Out | Lost], None],
        places: Sequence[str],
        level: int,
        is_again: bool = False,
    ) -> Exception | None:
        """Make the calls that are left; return the error with which Spark gave up, if it did.

        `is_again`: they may have been begun before, and each gets a task of its own.
        """
        started, number, indexes = self._session(), next(self._numbers), sorted(left)
        most = 1 if is_again else _MANY
        keyed = [
            (f"{number}-{task_number}", [(indexes[each], items[indexes[each]]) for each in group])
            for task_number, group in enumerate(dealt(len(indexes), started.slots, most))
        ]
        keys = [key for key, _ in keyed]
        is_limited = self._sides.target.limits.any
        task = CallTask(function, started.address, self._needs(places), is_limited, is_again)
        with self._calls.expecting(keys, known):
            ease = partial(self._calls.stop, keys)
            try:
                unreported = self._collected(started, task, keyed, level, ease=ease)
            except session.LOST as error:
                if self._is_cancelled:
                    raise RunnerStopped from error
                return error
            except EngineLost as error:
                return error
            for key, results in zip(keys, unreported, strict=True):
                for index, result in results:
                    self._calls.report(key, index, result)
        return None

    def _may_go_on(self, error: Exception) -> bool:
        """Return whether another try may succeed after Spark gave up."""
        if isinstance(error, EngineLost) or failures.is_mistake(error):
            return False
        is_final = failures.difference(error) or failures.is_cancelled(error)
        return not is_final and not self.has_ended()

    def _needs(self, places: Iterable[str]) -> executors.Needs:
        return executors.needs(sorted({uri.partition(":")[0] for uri in places}), self._sides)

    def cancel(self) -> None:
        """See `Runner`."""
        self._is_cancelled = True
        if self._started is not None:
            for group in list(self._groups):
                _cancel(self._started.context, group)
        else:
            in_thread(self._break_start_off, "cancel")  # nothing else ends a start of Spark

    @property
    def is_starting(self) -> bool:
        """Whether the session starts, beside runs or after them."""
        return self._start_beside is not None and not self._start_beside.has_ended

    @property
    def has_started(self) -> bool:
        """Whether the session was started."""
        return self._started is not None

    def has_ended(self) -> bool:
        """Return whether the session was started and is of no use any more.

        It has ended, as when its application failed, or its executors do not answer.
        """
        started = self._started
        return started is not None and (self._is_lost() or not session.is_running(started.context))

    def _is_lost(self) -> bool:
        return self._started is not None and self._started.watch.is_lost

    def limited(self, sides: Sides) -> Sides:
        """Return sides for executors, which ask the driver's rate limiter."""
        limits = sides.target.limits
        if limits.any:
            limits = limits._replace(address=self._session().address)
        return sides._replace(
            source=replace(sides.source, limits=limits), target=replace(sides.target, limits=limits)
        )

    def __enter__(self) -> SparkRunner:
        return self

    def __exit__(self, kind: object = None, *_: object) -> None:
        self._shown.close()
        self._end_start(is_hasty=kind is not None or self._is_cancelled)
        self._resources.close()
        self._started = None

    def _end_start(self, is_hasty: bool) -> None:
        """Wait until the session has started, or will not: nobody needs it any more.

        An application that YARN or Kubernetes accepted would wait for its driver. So it is stopped
        when it has begun. If that takes too long, or `is_hasty`, the JVM is ended; and at once
        where a standalone master notices it. `spark-submit` ends its JVM with this process.
        """
        starting, self._start_beside = self._start_beside, None
        if starting is None:
            return
        self._is_closed = True
        is_noticed = bool(masters(self._execution.spark_master() or ""))
        if is_hasty or not starting.wait(0.0 if is_noticed else _START_SECONDS):
            starting.end(self._break_start_off)
        self._is_closed = self._is_ready = False

    def _break_start_off(self) -> None:
        thread = self._start_thread
        if self._started is None and thread is not None:
            session.end_start(thread)

    def _stage(
        self,
        actions: Sequence[Task],
        started: _Started,
        level: int,
        last: int,
        done: Done | None = None,
    ) -> tuple[dict[str, Outcome], Exception | None]:
        """Return outcomes by target, and Spark's error, with which some outcomes are missing."""
        packed = batches(
            actions, started.slots, self._execution.batch_bytes, self._execution.batch_files
        )
        number = next(self._numbers)
        keyed = {f"{number}-{index}": batch for index, batch in enumerate(packed)}
        for key, batch in keyed.items():
            self._reports.expect(key, batch, done, current_wanted())
        needs = self._needs(places_of(actions))
        task = _Task(
            self.limited(self._sides), self._execution.streams, started.address, needs, last
        )
        encoded = [(key, encode(batch)) for key, batch in keyed.items()]
        try:
            results = dict(self._collected(started, task, encoded, level))
            outcomes = [
                indexed.outcome
                for key, batch in keyed.items()
                for indexed in decode_outcomes(results[key], batch)
            ]
            return {outcome.target: outcome for outcome in outcomes}, None
        except session.LOST as error:
            return self._known(keyed), error
        finally:
            for key in keyed:
                self._reports.forget(key)

    def _known(self, keyed: Mapping[str, _Batch]) -> dict[str, Outcome]:
        outcomes = [outcome for key in keyed for outcome in self._reports.finished(key).values()]
        return {outcome.target: outcome for outcome in outcomes}

    def _collected(
        self,
        started: _Started,
        function: Callable[[In], Out],
        items: Sequence[In],
        level: int,
        most: int = _MANY,
        ease: Callable[[], None] | None = None,
    ) -> list[Out]:
        """Return what a function returns for each item, in order, by at most `most` tasks.

        This thread waits while another one calls the JVM: a signal must not interrupt a py4j call.
        `ease` is called before the job is cancelled, which kills its workers.
        """
        context, watch = started.context, started.watch
        group, shown = f"cpreplicate-{uuid.uuid4().hex}", title()

        def job() -> list[Out]:
            if self._is_cancelled:
                raise RunnerStopped
            # an existing session keeps its own pools
            is_ranked = self._levels and started.session.carrier is None
            pool_name = f"level-{level}" if is_ranked else None
            tasks = max(1, min(most, len(items)))
            with started.session.local_properties_kept():
                context.setJobGroup(group, shown, interruptOnCancel=True)
                context.setLocalProperty(_POOL, pool_name)  # type: ignore[arg-type]  # None, too
                return started.session.collected(function, items, tasks)

        if ease is None:
            self._groups.add(group)
        with watch.job():
            collecting = in_thread(job, "spark")
            try:
                while not collecting.wait(_CANCEL_SECONDS):
                    if self._is_cancelled:
                        raise RunnerStopped
                    cancellation.go_on()
                    watch.check()
                return collecting.result()
            except BaseException as error:
                is_lost = isinstance(error, EngineLost)
                if ease is not None and not (is_lost or collecting.has_ended):
                    ease()
                collecting.end(
                    partial(_cancel, context, group), _END_SECONDS if is_lost else math.inf
                )
                raise
            finally:
                self._groups.discard(group)

    def _session(self) -> _Started:
        """Return the session of Spark, which the first call starts.

        What ends the work of this thread ends its wait for another one that starts it.
        """
        while not self._starting.acquire(timeout=_LOOK):
            self._go_on()
        try:
            if self._started is None:
                self._started = self._start_unless_cancelled()
            return self._started
        finally:
            self._starting.release()

    def _start_unless_cancelled(self) -> _Started:
        self._start_thread = threading.get_ident()
        try:
            with cancellation.cancellable(self._refuse_if_over):
                return self._start()
        except (*session.LOST, CpreplicateError) as error:
            if self._is_cancelled:  # which ended the JVM
                raise RunnerStopped from error
            if isinstance(error, session.LOST):  # as where no executor can be started at all
                raise session.not_started(error, self._execution) from error
            raise
        finally:
            self._start_thread = None

    def _start(self) -> _Started:
        """Start the session, the server that executors report to, and the watch of the engine."""
        enter = self._resources.enter_context
        self._show()
        found = enter(session.session(self._execution, self._levels, self._is_lost))
        context = found.context
        answers = {
            **self._reports.answers,
            **self._calls.answers,
            **DriverClock().answers,
            "reserve": pace(self._sides.target.limits).reserve,
        }
        address = self._served(answers, context.getConf().get)
        engine = Engine(context, lambda: max(self._reports.heard, self._calls.heard))
        watch = enter(watching(engine, self._execution.engine_timeout))
        return _Started(found, address, session.slots(context, self._execution), watch)

    def _served(self, answers: Answers, conf: Properties) -> RpcAddress:
        """Serve until the session ends, at the port that is asked for, or one of the next ones.

        Spark does the same with its own ports: another run may be at work, also in this session.
        """
        host, bind = str(conf("spark.driver.host")), conf("spark.driver.bindAddress")
        first = whole(conf, session.PORT, 0)
        last = first + _PORTS - 1
        if last > _LAST_PORT:
            most = _LAST_PORT - _PORTS + 1
            raise UsageError(
                f"{session.PORT}={first} has too few ports behind it. Give {most} or less"
            )
        for port in range(first, last + 1):
            try:
                return self._resources.enter_context(serve(answers, host, bind, port))
            except OSError as error:
                failure = error
        raise CpreplicateError(
            f"the driver can listen at none of the ports {first} to {last} of {bind or host}:"
            f" {described(failure)}. Give --conf {session.PORT}= another one, or end the runs that"
            " listen there. What was copied is kept"
        )

    def _show(self) -> None:
        """Show the progress from now on."""
        if not self._is_shown:
            self._is_shown = True
            self._shown.enter_context(showing(self._progress, self._execution.show))


def _nothing(_item: object) -> None:
    """Do nothing: that a task has run is what counts."""


def _refuse_final(error: Exception) -> None:
    """Raise for a job that ended by a mistake in this program, or because somebody cancelled it."""
    if failures.is_mistake(error):
        raise failures.mistake(error) from error
    _refuse_cancelled(error)


def _refuse_cancelled(error: Exception) -> None:
    """Raise for a job that somebody cancelled."""
    if failures.is_cancelled(error):
        raise JobCancelled(failures.why_cancelled(error)) from error


def _why_not_called(error: Exception | None) -> Exception:
    """Return the error of a call that was not made, or whose end is not known."""
    if isinstance(error, EngineLost):
        return error
    if error is not None and failures.is_mistake(error):
        return failures.mistake(error)
    if error is not None and failures.is_cancelled(error):
        return JobCancelled(failures.why_cancelled(error))
    return CopyFailed(failures.why_given_up(error))


class _Counted:
    """The calls that are `left` of some, with files and bytes that count as progress."""

    def __init__(self, progress: Progress, count: int, expected: Sequence[tuple[int, int]]) -> None:
        self.left = set(range(count))
        self._progress, self._expected = progress, expected
        progress.expect(sum(files for files, _ in expected), sum(size for _, size in expected))

    def done(self, index: int) -> None:
        """Count a call that is done."""
        self.left.discard(index)
        if self._expected:
            self._progress.add(_CALLS, *self._expected[index])

    def end(self) -> None:
        """Count the others as failed."""
        if self._expected:
            self._progress.fail(sum(self._expected[index][0] for index in self.left))


def _cancel(context: SparkContext, group: str) -> None:
    with contextlib.suppress(*session.LOST):  # then there is nothing left to be cancelled
        context.cancelJobGroup(group)


class _Started(NamedTuple):
    session: session.Session
    address: RpcAddress
    slots: int
    watch: EngineWatch

    @property
    def context(self) -> SparkContext:
        return self.session.context


class _Checked:
    """A function that raises `Differs` where an executor does not run what the driver runs."""

    def __init__(self, function: Callable[[Any], Any], needs: executors.Needs) -> None:
        self._function, self._needs = function, needs

    def __call__(self, item: Any) -> Any:
        executors.check(self._needs)
        result = self._function(item)
        executors.settle()
        return result


class _Task:
    """The function that executes one batch on an executor."""

    def __init__(
        self,
        sides: Sides,
        streams: int | None,
        address: RpcAddress,
        needs: executors.Needs,
        last: int,
    ) -> None:
        self._sides, self._streams, self._address, self._needs = sides, streams, address, needs
        self._last, self._sent = last, time.time()

    def __call__(self, keyed: tuple[str, bytes]) -> tuple[str, bytes]:
        executors.check(self._needs)
        context = TaskContext.get()
        attempt = context.attemptNumber() if context is not None else 0
        key, batch = keyed[0], decode(keyed[1])
        with Reporter(self._address, key, attempt) as reporter:
            known = reporter.begin(batch)
            if known is None and self._sides.target.limits.any:
                executors.refuse_unlimited(self._address.socket)
            reporter.check_clock(self._sent)
            reporter.indexes = [index for index in range(len(batch)) if index not in (known or {})]
            left = [batch[index] for index in reporter.indexes]
            try:
                outcomes = perform(left, self._sides, self._streams, watcher=reporter)
            except RunnerStopped:
                raise failures.BatchFailed("the driver does not answer any more") from None
        failed = [outcome for outcome in outcomes if outcome.is_worth_a_try]
        if failed and attempt < self._last:
            raise failures.BatchFailed(
                f"{len(failed)} of {counted(len(batch), 'file')}, first {failed[0].target}:"
                f" {failed[0].error}"
            )
        executors.settle()
        return key, encode_outcomes(_merged(known, reporter.indexes, outcomes))


def _merged(
    known: Mapping[int, Outcome] | None, indexes: Sequence[int], outcomes: Iterable[Outcome]
) -> Iterator[IndexedOutcome]:
    yield from itertools.starmap(IndexedOutcome, (known or {}).items())
    yield from map(IndexedOutcome, indexes, outcomes)


def _given_up(action: Task, error: Exception | None) -> Outcome:
    return Outcome(action.target, 0, None, 0.0, failures.why_given_up(error))
