"""A worker process: it tries the jobs that the service sends it."""

from __future__ import annotations

import gc
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from cpreplicate.core.clock import MACHINE
from cpreplicate.core.log_context import begin_job, log_context
from cpreplicate.errors import described
from cpreplicate.operations.jobs.attempt import Attempts, Replicated
from cpreplicate.operations.jobs.job import JobKey
from cpreplicate.operations.jobs.memory import Collector
from cpreplicate.operations.jobs.observation import Observation
from cpreplicate.operations.jobs.policy import KeepTrying
from cpreplicate.operations.jobs.schedule import Ending
from cpreplicate.operations.jobs.state import JobState
from cpreplicate.operations.jobs.workers.messages import (
    Alive,
    Answer,
    AtSpark,
    Begin,
    Cancel,
    Channel,
    Common,
    Detail,
    End,
    Forgot,
    Kind,
    Learned,
    Left,
    Line,
    Order,
    Shown,
    Took,
)
from cpreplicate.operations.jobs.workers.parent import end_with
from cpreplicate.runners import ExecutionOptions, NeedsSpark, WarmRunners
from cpreplicate.storage import Sides
from cpreplicate.storage.waiting.retry_reports import report_retries_to
from cpreplicate.storage.waiting.side_call import in_pool, in_thread

_BEAT = 1.0  # seconds between two signs of life
_MOST_THREADS = 1000
_LOST = 1  # exit code after the service has died
# what ends the service ends this process: a person or the system may signal all of them
_OF_SERVICE = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main(descriptor: int) -> None:
    """Carry out what the service that started this process orders by a socket, until it ends it.

    If the service dies, so does this process, at once: what was being copied is resumed by whoever
    replicates the job next.
    """
    service = os.getppid()
    for number in _OF_SERVICE:
        signal.signal(number, lambda _number, _frame: None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _OF_SERVICE)
    # as of the command line: a plan creates millions of objects and no cycles
    gc.set_threshold(5_000_000, 20, 20)
    gc.freeze()
    end_with(service, signal.SIGKILL)  # this process may be stopped, or hang
    channel = Channel(socket.socket(fileno=descriptor))
    try:
        worker = _Worker(channel, *channel.receive())
        with worker.runners:
            while not worker.has_ended:
                worker.carry_out(channel.receive())
    except (EOFError, OSError):
        os._exit(_LOST)
    except Exception as error:  # noqa: BLE001  # a bug, or another release
        channel.send(Line("warn", log_context(), f"a worker ends: {described(error)}"))
        os._exit(_LOST)


class _Details(logging.Handler):
    """Sends what layers below report to the service."""

    def __init__(self, send: Callable[[NamedTuple], None]) -> None:
        super().__init__()
        self._send = send

    def emit(self, record: logging.LogRecord) -> None:
        self._send(Detail(record.levelno, log_context(), record.getMessage()))


class _Worker:
    """What a worker knows of its jobs, and the threads that try them."""

    def __init__(self, channel: Channel, begin: Begin) -> None:
        self._channel, self._begin = channel, begin
        self._states: dict[JobKey, JobState] = {}
        self._commons: dict[int, tuple[Sides, ExecutionOptions]] = {}
        self._lock, self._sending = threading.Lock(), threading.Lock()
        self._busy = 0
        self.has_ended = False
        self.runners = WarmRunners(begin.sides, begin.execution, 0.0, has_spark=False)
        self._begin_log(begin.log_level)
        notify: Callable[[str], None] = partial(self._report, "notify")
        self._warn: Callable[[str], None] = partial(self._report, "warn")
        report_retries_to(notify)
        self._attempts = Attempts(
            self.runners,
            KeepTrying(),
            begin.interval,
            begin.look_again,
            self._lock,
            notify,
            self._show,
            MACHINE,
            self._changed,
        )
        self._collector = Collector(MACHINE)
        self._begin_call = in_pool(ThreadPoolExecutor(_MOST_THREADS, "job"))
        in_thread(self._beat, "beat")

    def carry_out(self, messages: tuple[NamedTuple, ...]) -> None:
        """Take over messages, in their order; tries go on in threads."""
        for message in messages:
            if isinstance(message, Order):
                state = self._state_of(message)
                self._begin_call(partial(self._obey, message, state), "job")
            elif isinstance(message, Common):
                self._commons[message.number] = message.sides, message.execution
            elif isinstance(message, Left):
                self._states.pop(message.key, None)
            elif isinstance(message, Forgot):
                self._forget(message.key)
            elif isinstance(message, Cancel):
                self._attempts.cancel()
            elif isinstance(message, End):
                self.has_ended = True

    def _state_of(self, order: Order) -> JobState:
        """Return the state of a job, with what the service knows of it."""
        known = order.known
        if known is None:
            return self._states[order.key]
        sides, execution = self._commons[known.common]
        request = replace(known.job.request, sides=sides, execution=execution)
        job = replace(known.job, request=request)
        state = self._states.get(order.key)
        if state is None or known.memory is not None:
            state = JobState(job, self._warn, self._begin.look_within)
            if known.memory is not None:
                state.remember(known.memory)
            self._states[order.key] = state
        with self._lock:
            state.label = known.label
            state.update(job, known.discovered)
        return state

    def _obey(self, order: Order, state: JobState) -> None:
        begin_job(state.label)
        with self._lock:
            self._busy += 1
        ending: Ending | AtSpark = "failed"
        try:
            ending = self._done(order, state)
        except NeedsSpark:
            ending = "spark"
        except Exception as error:  # noqa: BLE001  # the service waits for an answer
            self._warn(f"{state.label}: {described(error)}. It is tried again")
        finally:
            with self._lock:
                self._busy -= 1
            self._answer(order, state, ending)

    def _done(self, order: Order, state: JobState) -> Ending:
        if order.asked == "attempt":
            return self._attempts.attempt(state, order.level)
        if order.asked == "glance":
            self._attempts.glance(state)
        else:
            self._attempts.look_now(state)
        return "done"

    def _answer(self, order: Order, state: JobState, ending: Ending | AtSpark) -> None:
        with self._sending:  # what was learned later is sent later
            with self._lock:
                learned, times = Learned(order.key, state.memory), self._attempts.total
                self._attempts.total = Observation(times.name)
            took = [Took(times)] if times.seconds else []
            self._channel.send(*took, learned, Answer(order.number, ending))

    def _changed(self, state: JobState) -> None:
        """Send what is known in the midst of a try, which may take hours."""
        with self._sending:
            with self._lock:
                learned = Learned(state.job.key, state.memory)
            self._channel.send(learned)

    def _forget(self, key: JobKey) -> None:
        state = self._states.get(key)
        if state is None:
            return
        with self._lock:
            state.forgot()
        in_thread(partial(self._changed, state), "forgot")

    def _show(self, replicated: Replicated) -> None:
        if replicated.report.runner is not None:
            self._channel.send(Shown(log_context(), replicated))

    def _report(self, kind: Kind, line: str) -> None:
        self._channel.send(Line(kind, log_context(), line))

    def _begin_log(self, level: int) -> None:
        log = logging.getLogger("cpreplicate")
        for handler in list(log.handlers):
            log.removeHandler(handler)
        log.addHandler(_Details(self._channel.send))
        log.setLevel(level)
        log.propagate = False

    def _beat(self) -> None:
        """Send a sign of life each second, and give back memory while no job is tried."""
        while not self.has_ended:
            self._channel.send(Alive())
            self._collector.tidy(is_resting=not self._busy)
            time.sleep(_BEAT)
