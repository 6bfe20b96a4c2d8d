"""RPC from the processes of a run to the one that started it.

It uses a socket that asks for a key, because executors are on other machines and messages are
pickled.
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

_CONNECT_SECONDS = 10.0
Answers = Mapping[str, Callable[..., Any]]


class Address(NamedTuple):
    """The address of an RPC server and the key for calls. It travels to executors."""

    socket: tuple[str, int]
    key: bytes


class RpcClient:
    """A client of an RPC server, with one connection for all threads of this process."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._lock = threading.Lock()
        self._connection: Connection | None = None

    def call(self, name: str, *arguments: Any) -> Any:
        """Call a function of the server by its name and return the result.

        Raises `Transient` if the server cannot be reached, and the exception that the function
        raised there.
        """
        from multiprocessing import AuthenticationError
        from multiprocessing.connection import Client

        try:
            with self._lock:
                if self._connection is None:
                    # a firewall may drop packets without an answer, and `Client` has no timeout
                    socket.create_connection(self._address.socket, _CONNECT_SECONDS).close()
                    self._connection = Client(self._address.socket, authkey=self._address.key)
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
    """Serve functions by name at `host` while the block runs.

    The server listens at `bind`, if that differs from `host`.
    """
    server = _Server(answers, bind or host, port)
    try:
        yield Address((host, server.port), server.key)
    finally:
        server.close()


class _Server:
    """An RPC server for clients with the key, with one thread for each."""

    def __init__(self, answers: Answers, host: str, port: int) -> None:
        from multiprocessing.connection import Listener

        self.key = uuid.uuid4().bytes
        self._answers = answers
        self._listener: Listener = Listener((host, port), backlog=128, authkey=self.key)
        self._address: tuple[str, int] = self._listener.address
        self.port = self._address[1]
        self._connections: list[Connection] = []
        self._closed = False
        threading.Thread(target=self._accept, name="rpc", daemon=True).start()

    def close(self) -> None:
        """Close all connections and stop."""
        self._closed = True
        with contextlib.suppress(OSError):
            # wake the thread that waits for a connection
            socket.create_connection(self._address, 1).close()
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
                # a client without the key, one that left early, or the end of this server
                continue
            self._connections.append(connection)
            threading.Thread(
                target=self._answer, args=(connection,), name="rpc", daemon=True
            ).start()

    def _answer(self, connection: Connection) -> None:
        with connection, contextlib.suppress(EOFError, OSError):
            while not self._closed:
                name, *arguments = connection.recv()
                connection.send(self._answer_to(name, arguments))

    def _answer_to(self, name: str, arguments: list[Any]) -> Any:
        try:
            return self._answers[name](*arguments)
        except Exception as error:  # noqa: BLE001  # the caller raises it
            return error
