"""Calls from the processes of a run to the one that started it, which knows what only one process
can know.

Over a socket that asks for a key: executors are on other machines, and what is sent is pickled.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from cpreplicate.storage.base import Transient

if TYPE_CHECKING:
    from multiprocessing.connection import Connection, Listener

_PATIENCE = 10.0  # seconds for a connection
Answers = Mapping[str, Callable[..., Any]]


class Address(NamedTuple):
    """Where calls are answered, and the key that lets one call. Travels to executors."""

    place: tuple[str, int]
    key: bytes


class RpcClient:
    """This process's way to the one that answers, for any number of threads, over one connection."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._lock = threading.Lock()
        self._connection: Connection | None = None

    def call(self, name: str, *arguments: Any) -> Any:
        """What it answers.

        Raises `Transient` where it cannot be reached, and what answering raised there.
        """
        from multiprocessing import AuthenticationError
        from multiprocessing.connection import Client

        try:
            with self._lock:
                if self._connection is None:
                    socket.create_connection(
                        self._address.place, _PATIENCE
                    ).close()  # a firewall may just be silent
                    self._connection = Client(self._address.place, authkey=self._address.key)
                self._connection.send((name, *arguments))
                answer = self._connection.recv()
        except (OSError, EOFError, AuthenticationError) as error:
            self._connection = None
            raise Transient(
                errno.EIO, f"the driver, which holds the run's limits, cannot be reached: {error}"
            ) from error
        if isinstance(answer, Exception):
            raise answer
        return answer


@contextlib.contextmanager
def serve(answers: Answers, host: str, bind: str | None = None, port: int = 0) -> Iterator[Address]:
    """Answer calls by name at `host`, for as long as the block runs.

    Listen at `bind`, where that is spelled otherwise.
    """
    server = _Server(answers, bind or host, port)
    try:
        yield Address((host, server.port), server.key)
    finally:
        server.close()


class _Server:
    """Answers whoever knows the key, each in a thread."""

    def __init__(self, answers: Answers, host: str, port: int) -> None:
        from multiprocessing.connection import Listener

        self.key = uuid.uuid4().bytes
        self._answers = answers
        self._listener: Listener = Listener((host, port), backlog=128, authkey=self.key)
        self._address: tuple[str, int] = self._listener.address
        self.port = self._address[1]
        self._connections: list[Connection] = []
        self._closed = False
        threading.Thread(target=self._accept, name="calls", daemon=True).start()

    def close(self) -> None:
        """Answer nobody any more."""
        self._closed = True
        with contextlib.suppress(OSError):
            socket.create_connection(
                self._address, 1
            ).close()  # wakes the thread that waits for one
        self._listener.close()
        for connection in self._connections:
            with (
                contextlib.suppress(OSError),
                socket.socket(fileno=os.dup(connection.fileno())) as line,
            ):
                line.shutdown(socket.SHUT_RDWR)  # its thread wakes up, and closes it

    def _accept(self) -> None:
        from multiprocessing import AuthenticationError

        while not self._closed:
            try:
                connection = self._listener.accept()
            except (AuthenticationError, EOFError, OSError):
                # somebody without the key, or who left before saying who it was; or the end
                continue
            self._connections.append(connection)
            threading.Thread(
                target=self._answer, args=(connection,), name="calls", daemon=True
            ).start()

    def _answer(self, connection: Connection) -> None:
        with connection, contextlib.suppress(EOFError, OSError):
            while not self._closed:
                name, *arguments = connection.recv()
                connection.send(self._answer_to(name, arguments))

    def _answer_to(self, name: str, arguments: list[Any]) -> Any:
        try:
            return self._answers[name](*arguments)
        except Exception as error:  # noqa: BLE001  # it is the caller's, which stands where it can be told
            return error
