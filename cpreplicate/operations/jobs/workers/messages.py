"""What a service and its worker processes send each other, and the channel between them.

Messages are pickled: each end is started by the other. What must not be seen by others, such as the
keys of a storage, is in messages only, never among the arguments of a process.
"""

from __future__ import annotations

import pickle
import socket
import threading
from multiprocessing.connection import Connection
from typing import Any, Literal, NamedTuple, TypeAlias

from cpreplicate.core.log_context import LogContext
from cpreplicate.operations.jobs.attempt import Replicated
from cpreplicate.operations.jobs.job import Job, JobKey
from cpreplicate.operations.jobs.observation import Observation
from cpreplicate.operations.jobs.schedule import Ending
from cpreplicate.operations.jobs.state import Memory
from cpreplicate.runners import ExecutionOptions
from cpreplicate.storage import Sides

Asked: TypeAlias = Literal["attempt", "glance", "look_now"]
Kind: TypeAlias = Literal["notify", "warn"]
AtSpark: TypeAlias = Literal["spark"]
"""The answer to a try whose plan is worth Spark, which the service has."""


class Begin(NamedTuple):
    """The first message to a worker: how it works; see `ServiceSettings` for the times.

    `log_level` is that from which on its layers report.
    """

    sides: Sides
    execution: ExecutionOptions
    interval: float
    look_again: float
    look_within: float
    log_level: int


class Common(NamedTuple):
    """What requests have in common, which is sent once: the numbers stand for it."""

    number: int
    sides: Sides
    execution: ExecutionOptions


class Known(NamedTuple):
    """A job as the service knows it; `memory` is None where that of the worker holds.

    Its request is without what `common` stands for.
    """

    job: Job
    label: str
    discovered: float
    common: int
    memory: Memory | None


class Order(NamedTuple):
    """What a worker is to do with a job; `known` is None if nothing of it has changed."""

    number: int
    asked: Asked
    key: JobKey
    level: int
    known: Known | None


class Left(NamedTuple):
    """A job that a worker no longer has."""

    key: JobKey


class Forgot(NamedTuple):
    """A job whose replica was removed."""

    key: JobKey


class Cancel(NamedTuple):
    """All tries under way, and later ones, are cancelled."""


class End(NamedTuple):
    """The worker ends. Nothing is under way."""


class Learned(NamedTuple):
    """What a worker knows of a job by now."""

    key: JobKey
    memory: Memory


class Took(NamedTuple):
    """The times of syncs since the last such message."""

    times: Observation


class Answer(NamedTuple):
    """An order was carried out; `ending` is that of a try."""

    number: int
    ending: Ending | AtSpark


class Line(NamedTuple):
    """A line for people, and what the thread worked on that reports it."""

    kind: Kind
    context: LogContext
    text: str


class Detail(NamedTuple):
    """A record of `logging`."""

    level: int
    context: LogContext
    text: str


class Shown(NamedTuple):
    """A sync that changed a replica."""

    context: LogContext
    replicated: Replicated


class Alive(NamedTuple):
    """The worker lives; it sends this every second."""


class Channel:
    """One end of a connection between a service and a worker. Any thread may send."""

    def __init__(self, connected: socket.socket) -> None:
        self._connection: Connection = Connection(connected.detach())
        self._lock = threading.Lock()

    def send(self, *messages: NamedTuple) -> None:
        """Send messages together. Raises `OSError` if the other end is gone."""
        data = pickle.dumps(messages, pickle.HIGHEST_PROTOCOL)
        with self._lock:
            self._connection.send_bytes(data)

    def receive(self) -> tuple[Any, ...]:
        """Wait for messages. Raises `EOFError` or `OSError` if the other end is gone."""
        messages: tuple[Any, ...] = pickle.loads(self._connection.recv_bytes())
        return messages

    def close(self) -> None:
        """Close this end. Only the thread that receives may."""
        with self._lock:
            self._connection.close()
