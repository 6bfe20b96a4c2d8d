"""A worker process, as the service sees it that has started it."""

from __future__ import annotations

import itertools
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import NamedTuple

from cpreplicate.errors import described
from cpreplicate.operations.jobs.job import JobKey
from cpreplicate.operations.jobs.schedule import Ending
from cpreplicate.operations.jobs.workers.messages import (
    Answer,
    Asked,
    AtSpark,
    Begin,
    Channel,
    End,
    Known,
    Left,
    Order,
)
from cpreplicate.storage.waiting.side_call import SideCall, in_thread

_STDERR = 2
_START_SECONDS = 120  # of silence, on a busy machine, before the first sign of life
_END_SECONDS = 2.0  # until a worker that was asked to end is killed
_PAGE = os.sysconf("SC_PAGE_SIZE")
PATH_VARIABLE = "CPREPLICATE_WORKER_PATH"
"""The environment variable with the places of modules of a worker."""
_START = (
    "import os, sys; sys.path[:] = os.environ.pop({variable!r}).split(os.pathsep);"
    " from cpreplicate.operations.jobs.workers.worker import main; main(int(sys.argv[1]))"
)


class WorkerDied(Exception):
    """The worker died before it answered."""


SILENT = "it did not answer any more, and was killed"


def start_command() -> tuple[str, ...]:
    """Return the words that start a worker, which gets the number of a descriptor behind them."""
    return (sys.executable, "-c", _START.format(variable=PATH_VARIABLE))


class WorkerProcess:
    """A process that was started by `command`, which gets a descriptor as one word more.

    It begins a session of its own: what is typed in the terminal of the service does not reach it.
    It ends when the service does, however that ends. `heard` is called with its messages, by
    a thread that listens.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        begin: Begin,
        heard: Callable[[NamedTuple], None],
    ) -> None:
        self.name, self._heard = name, heard
        self.death: str | None = None
        self.victims: list[JobKey] = []  # the jobs that were under way when it died
        self._silence = -_START_SECONDS
        self._is_hearing = False
        self.known: dict[JobKey, object] = {}  # what was sent of each job
        self.commons: dict[int, object] = {}  # what was sent by number
        self._numbers = itertools.count()
        self._pending: dict[int, tuple[JobKey, SimpleQueue[Ending | AtSpark | None]]] = {}
        self._ordering = threading.Lock()
        self._reason: str | None = None
        ours, theirs = socket.socketpair()
        try:
            self._process = _started([*command, str(theirs.fileno()), name], theirs.fileno())
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
        self.pid = self._process.pid
        self._channel = Channel(ours)
        self.send(begin)
        try:
            self._listening: SideCall[None] = in_thread(self._listen, f"worker {name}")
        except RuntimeError:
            self._process.kill()
            self._process.wait()
            self._channel.close()
            raise

    @property
    def is_idle(self) -> bool:
        """Whether it was asked nothing that it has not answered."""
        return not self._pending

    @property
    def under_way(self) -> list[JobKey]:
        """The jobs of which it was asked something that it has not answered."""
        return [key for key, _ in list(self._pending.values())]

    @property
    def memory(self) -> int | None:
        """The resident memory in bytes, None of a process that has ended."""
        return resident_memory(self.pid)

    def ask(
        self,
        asked: Asked,
        key: JobKey,
        level: int,
        news: Callable[[], tuple[Sequence[NamedTuple], Known | None]],
        seconds: float | None = None,
    ) -> Ending | AtSpark:
        """Have it try a job or look at it; wait for the end of that, or for some seconds.

        `news` returns what is to be sent before that, and what has changed of the job. Raises
        `WorkerDied`.
        """
        answer: SimpleQueue[Ending | AtSpark | None] = SimpleQueue()
        number = next(self._numbers)
        self._pending[number] = key, answer
        with self._ordering:
            before, known = news()
            self.send(*before, Order(number, asked, key, level, known))
        if self.death is not None:
            self._give_up()
        with suppress(Empty):
            ending = answer.get(timeout=seconds)
            if ending is None:
                raise WorkerDied(self.name)
            return ending
        return "done"

    def forget(self, key: JobKey) -> None:
        """Let it forget a job, of which nothing is known to be sent then."""
        with self._ordering:
            if self.known.pop(key, None) is not None:
                self.send(Left(key))

    def silent_for(self) -> int:
        """Return how often this was asked since the last message, this time included."""
        # what is done with a message may take its time, such as a line for a full pipe
        self._silence = 0 if self._is_hearing else self._silence + 1
        return self._silence

    def send(self, *messages: NamedTuple) -> None:
        """Send messages. One that has died gets none: the thread that listens notices that."""
        with suppress(OSError):
            self._channel.send(*messages)

    def kill(self, reason: str | None = None) -> None:
        """End it at once; `reason` is why it died then."""
        self._reason = self._reason or reason
        self._process.kill()

    def end(self) -> None:
        """Let it end, of which nothing is asked any more; kill it if that takes long."""
        in_thread(lambda: self.send(End()), f"end of worker {self.name}")
        if not self._listening.wait(_END_SECONDS):
            self.kill()
            self._listening.wait(_END_SECONDS)

    def _listen(self) -> None:
        try:
            while True:
                messages = self._channel.receive()
                self._is_hearing = True
                for message in messages:
                    self._hear(message)
                self._silence, self._is_hearing = 0, False
        except (EOFError, OSError):
            pass
        except Exception as error:  # noqa: BLE001  # it sends nothing that can be understood
            self._reason = f"it sent what cannot be read: {described(error)}"
        finally:
            self._end()

    def _hear(self, message: NamedTuple) -> None:
        if not isinstance(message, Answer):
            self._heard(message)
            return
        _, answer = self._pending.pop(message.number, (None, None))
        if answer is not None:
            answer.put(message.ending)

    def _end(self) -> None:
        self._process.kill()  # it may have closed the connection only
        death = _death(self._process.wait())
        self.victims = self.under_way
        self.death = self._reason or death  # from now on who asks gives up
        self._give_up()
        self._channel.close()

    def _give_up(self) -> None:
        for number in list(self._pending):
            _, answer = self._pending.pop(number, (None, None))
            if answer is not None:
                answer.put(None)


def resident_memory(pid: int) -> int | None:
    """Return the resident memory of a process in bytes, None if there is none (proc(5), statm)."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
    except (OSError, IndexError, ValueError):
        return None


def _started(words: Sequence[str], descriptor: int) -> subprocess.Popen[bytes]:
    """Start a worker. What it or a library prints on stdout is no result: it goes to stderr."""
    places = os.pathsep.join(sys.path)
    return subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=_STDERR,
        pass_fds=[descriptor],
        env={**os.environ, PATH_VARIABLE: places},
        start_new_session=True,
    )


def _death(code: int) -> str:
    if code >= 0:
        return f"it ended with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    if -code == signal.SIGKILL:
        more = ": by a person, or by the kernel because memory is short (`dmesg`, or the events of"
        return f"it was killed by SIGKILL{more} the container, name that)"
    return f"it was killed by {name}"
