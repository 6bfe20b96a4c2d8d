"""Whether Spark's executors still answer, so that a run does not wait for machines that are gone.

Spark itself waits for executors without end. It does not notice either, for minutes, that machines
vanished without closing their connections.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import random
import re
import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

from pyspark import SparkContext

from cpreplicate.runners.options import DYNAMIC, is_true
from cpreplicate.runners.tasks import EngineLost
from cpreplicate.storage.waiting import cancellation
from cpreplicate.storage.waiting.side_call import SideCall, in_thread

_log = logging.getLogger(__name__)
# of addresses as `host:port`: the family, and what connect(2) takes
Places: TypeAlias = dict[str, tuple[int, Any]]

LOST_SECONDS = 60.0  # without an executor that answers, once there was one
# Until the first executor: a full cluster, an image or an archive to be fetched delays it.
FIRST_SECONDS = 600.0
_TO_END = 10.0  # seconds that the end of a run takes, of those that it may wait
_PAUSE = 1.0  # seconds between two looks
_CONNECT_SECONDS = 3.0
_ANSWER_SECONDS = 6.0  # for Spark's own JVM and the names of its machines
_MOST_ASKED = 64  # executors that are connected to in one look
_STANDALONE = "spark://"
_DRIVER = "driver"  # its id among those of executors
LOCAL = re.compile(r"local(\[.*\])?")


class EngineWatch:
    """Notices that no executor has answered for `timeout` seconds while jobs run.

    `answers` returns whether one does. Until the first one has come, the time is `FIRST_SECONDS`
    unless a `timeout` is given. `comes_and_goes`: executors may be released between two jobs.
    """

    def __init__(
        self,
        master: str,
        answers: Callable[[], bool],
        timeout: float | None = None,
        comes_and_goes: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._master, self._answers, self._timeout = master, answers, timeout
        self._comes_and_goes, self._clock = comes_and_goes, clock
        self._lock = threading.Lock()
        self._jobs = 0
        self._has_answered = False
        self._silent_since: float | None = None
        self.is_lost = False

    @contextlib.contextmanager
    def job(self) -> Iterator[None]:
        """Watch while the block runs a job of Spark."""
        with self._lock:
            if self._jobs == 0:
                self._silent_since = None
                self._has_answered = self._has_answered and not self._comes_and_goes
            self._jobs += 1
        try:
            yield
        finally:
            with self._lock:
                self._jobs -= 1

    def look(self) -> None:
        """Look once, unless no job runs."""
        if not self._jobs:
            return
        began, answers = self._clock(), self._answers()
        with self._lock:
            if answers:
                self._has_answered, self._silent_since = True, None
            elif self._silent_since is None:
                self._silent_since = began
            elif self._clock() - self._silent_since >= self._limit():
                self.is_lost = True

    def check(self) -> None:
        """Raise `EngineLost` once no executor has answered for too long."""
        if self.is_lost:
            raise EngineLost(errno.ETIMEDOUT, self._reason(), self._master)

    def _seconds(self) -> float:
        return self._timeout or (LOST_SECONDS if self._has_answered else FIRST_SECONDS)

    def _limit(self) -> float:
        """Return the seconds of silence after which the run must end to have ended in time."""
        return max(self._seconds() - _TO_END, self._seconds() / 2)

    def _reason(self) -> str:
        if self._has_answered:
            return (
                "no executor of Spark has answered for as long as --engine-timeout allows"
                f" ({self._seconds():.0f} s). Check the master, its workers and the network. What"
                " was copied is kept"
            )
        return (
            "no executor of Spark that can run a task has come within"
            f" {self._seconds():.0f} s. Free slots of the cluster, or let executors reach the ports"
            " of the driver (docs/clusters.md), or give a longer --engine-timeout. What was"
            " copied is kept"
        )


@contextlib.contextmanager
def watching(engine: Engine, timeout: float | None) -> Iterator[EngineWatch]:
    """Provide a watch that looks every second whether an executor answers."""
    watch = EngineWatch(engine.master, engine.answers, timeout, engine.comes_and_goes)
    ended = threading.Event()

    def look_until_ended() -> None:
        while not ended.wait(_PAUSE):
            watch.look()

    thread = threading.Thread(target=look_until_ended, name="engine", daemon=True)
    thread.start()
    try:
        yield watch
    finally:
        ended.set()
        thread.join(_CONNECT_SECONDS)  # it may wait for longer: a name server may not answer


class Engine:
    """The executors of a session.

    `heard` returns when a task reported last, as of `time.monotonic`. Spark itself has
    `answer_within` seconds for an answer. `comes_and_goes`: executors may be released between two
    jobs.
    """

    def __init__(
        self,
        context: SparkContext,
        heard: Callable[[], float],
        answer_within: float = _ANSWER_SECONDS,
    ) -> None:
        self._context, self._heard, self._answer_within = context, heard, answer_within
        self.master = str(context.master)
        self.comes_and_goes = is_true(context.getConf().get(DYNAMIC))
        self._masters = masters(self.master)
        self._places: Places = {}
        self._runs_tasks = False
        self._question: SideCall[bool] | None = None

    def answers(self) -> bool:
        """Return whether an executor answers.

        Those count that Spark considers alive, and that have the cores for a task. If no standalone
        master answers, who could report that they are gone, one of them must accept a connection.
        If Spark itself does not answer, none does: its locks may be held without end by a thread
        that waits for the cluster.
        """
        if LOCAL.fullmatch(self.master):
            return True  # tasks run in the process of the driver
        question = self._question or in_thread(self._is_answered, "spark")
        self._question = None if question.wait(self._answer_within) else question
        return self._question is None and question.result()

    def _is_answered(self) -> bool:
        try:
            return self._has_executors() and self._is_reached()
        except Exception as error:  # noqa: BLE001  # py4j's of a JVM or a session that has ended
            _log.debug("the executors of Spark are not known: %s", error)
            return False

    def _has_executors(self) -> bool:
        if not self._runs_tasks:
            self._runs_tasks = any(each.maxTasks() > 0 for each in some_executors(self._context))
        return self._runs_tasks and bool(self._context._jsc.sc().getExecutorIds().size())

    def _is_reached(self) -> bool:
        if not self._masters or time.monotonic() - self._heard() < _CONNECT_SECONDS:
            return True
        return accepts_any([*self._masters, *self._some_addresses()], self._places)

    def _some_addresses(self) -> list[str]:
        """Return the addresses of executors that Spark considers alive."""
        return [str(each.hostPort()) for each in some_executors(self._context)]


def some_executors(context: SparkContext) -> list[Any]:
    """Return the `ExecutorSummary` of at most 64 executors that Spark considers alive."""
    known = context._jsc.sc().statusStore().executorList(True)
    chosen = random.sample(range(known.size()), min(known.size(), _MOST_ASKED))
    summaries = [known.apply(index) for index in chosen]
    return [each for each in summaries if each.id() != _DRIVER]


def masters(url: str) -> list[str]:
    """Return the addresses in the URL of a standalone master; nothing for other managers."""
    return url.removeprefix(_STANDALONE).split(",") if url.startswith(_STANDALONE) else []


def wait_for_master(url: str, timeout: float | None) -> None:
    """Return once a standalone master accepts connections.

    Raises `EngineLost` if none does in time. Spark itself would try for a minute, and then name no
    reason.
    """
    addresses, end = masters(url), time.monotonic() + (timeout or LOST_SECONDS)
    while addresses and not accepts_any(addresses):
        if time.monotonic() >= end:
            raise EngineLost(errno.ETIMEDOUT, _no_master(timeout or LOST_SECONDS), url)
        cancellation.go_on()
        time.sleep(_PAUSE)


def _no_master(seconds: float) -> str:
    return (
        f"no Spark master has answered for {seconds:.0f} s, which is as long as --engine-timeout"
        " allows. Start it, correct --master, or open its port for this machine. What was copied"
        " is kept"
    )


def accepts_any(addresses: Sequence[str], places: Places | None = None) -> bool:
    """Return whether something accepts a connection at one of the addresses, each `host:port`.

    All are tried at the same time, for a few seconds. `places` are those that were resolved before,
    and become more: a server of names that is lost with the others would not answer for longer.
    """
    places = {} if places is None else places
    with selectors.DefaultSelector() as selector, contextlib.ExitStack() as sockets:
        for address in addresses:
            with contextlib.suppress(OSError, ValueError):
                connecting = sockets.enter_context(_connecting(address, places))
                selector.register(connecting, selectors.EVENT_WRITE)
        end = time.monotonic() + _CONNECT_SECONDS
        while selector.get_map() and (left := end - time.monotonic()) > 0:
            for key, _ in selector.select(left):
                assert isinstance(key.fileobj, socket.socket)
                if key.fileobj.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0:
                    return True
                selector.unregister(key.fileobj)
    return False


def _connecting(address: str, places: Places) -> socket.socket:
    """Return a socket that connects, without waiting for that."""
    if address not in places:
        host, _, port = address.rpartition(":")
        found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
        places[address] = found[0][0], found[0][4]
    family, place = places[address]
    connecting = socket.socket(family, socket.SOCK_STREAM)
    connecting.setblocking(False)
    connecting.connect_ex(place)
    return connecting
