"""RPC from the processes of a run to the one that started it.

It uses a socket that asks for a key, because executors are on other machines and messages are
pickled. Whoever reaches the port may connect: a port scanner, a process that is frozen. So each
connection asks for the key in a thread of its own, within a time limit, and only so many at once.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import socket
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from cpreplicate.storage.base import Transient

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

_CONNECT_SECONDS = 10.0
HANDSHAKE_SECONDS = 30.0  # until both sides have shown that they have the key
# Connections that have not shown the key yet. One more ends the oldest of them: an honest one takes
# milliseconds.
MOST_UNKNOWN = 128
_NO_MORE = 0.1  # seconds to wait where the process has no descriptor or thread left
Answers = Mapping[str, Callable[..., Any]]


class RpcAddress(NamedTuple):
    """The address of an RPC server and the key for calls. It travels to executors."""

    socket: tuple[str, int]
    key: bytes


class RpcClient:
    """A client of an RPC server, with one connection for all threads of this process."""

    def __init__(self, address: RpcAddress) -> None:
        self._address = address
        self._lock = threading.Lock()
        self._connection: Connection | None = None

    def call(self, name: str, *arguments: Any) -> Any:
        """Call a function of the server by its name and return the result.

        Raises `Transient` if the server cannot be reached, and the exception that the function
        raised there.
        """
        from multiprocessing import AuthenticationError

        try:
            with self._lock:
                if self._connection is None:
                    self._connection = _connected(self._address)
                answer = self._answer_to(self._connection, (name, *arguments))
        except (OSError, EOFError, AuthenticationError) as error:
            reason = str(error) or "it ended the connection"
            raise Transient(
                errno.EIO, f"the driver, which holds the run's limits, cannot be reached: {reason}"
            ) from error
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _answer_to(self, connection: Connection, question: tuple[Any, ...]) -> Any:
        """Send a question, and return what is answered.

        An interrupt between the two ends the connection: the next question would get this answer.
        """
        try:
            connection.send(question)
            return connection.recv()
        except BaseException:
            self._connection = None
            connection.close()
            raise


def _connected(address: RpcAddress) -> Connection:
    """Connect to a server; both sides show that they have the key."""
    from multiprocessing.connection import answer_challenge, deliver_challenge

    # a firewall may drop packets without an answer
    line = _Line(socket.create_connection(address.socket, _CONNECT_SECONDS))
    with line.closed_on_error(), line.broken_after(HANDSHAKE_SECONDS):
        answer_challenge(line.connection, address.key)
        deliver_challenge(line.connection, address.key)
    return line.connection


@contextlib.contextmanager
def serve(
    answers: Answers,
    host: str,
    bind: str | None = None,
    port: int = 0,
    handshake: float = HANDSHAKE_SECONDS,
) -> Iterator[RpcAddress]:
    """Serve functions by name at `host` while the block runs.

    The server listens at `bind`, if that differs from `host`. A client that has not shown the key
    within `handshake` seconds is disconnected.
    """
    server = _Server(answers, _bare(bind or host), port, handshake)
    try:
        yield RpcAddress((_bare(host), server.port), server.key)
    finally:
        server.close()


def _bare(host: str) -> str:
    """Return a host without the brackets that Spark demands around an address of IPv6."""
    return host.strip("[]")


def _listener(host: str, port: int) -> socket.socket:
    """Return a socket that listens at a host: by IPv4, unless that has addresses of IPv6 only."""
    found = {each[0] for each in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)}
    family = socket.AF_INET if socket.AF_INET in found else socket.AF_INET6
    return socket.create_server((host, port), family=family, backlog=MOST_UNKNOWN)


class _Line:
    """A connection that any thread may break off while another one waits for it."""

    def __init__(self, connected: socket.socket) -> None:
        from multiprocessing.connection import Connection

        connected.setblocking(True)
        self.connection: Connection = Connection(connected.detach())
        self._lock = threading.Lock()

    def break_off(self) -> None:
        """End the connection. The thread that uses it wakes up and closes it."""
        with self._lock:  # otherwise the descriptor might be that of another one by now
            if self.connection.closed:
                return
            with (
                contextlib.suppress(OSError),
                socket.socket(fileno=os.dup(self.connection.fileno())) as line,
            ):
                line.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            self.connection.close()

    @contextlib.contextmanager
    def closed_on_error(self) -> Iterator[None]:
        """Close the connection if the block raises."""
        try:
            yield
        except BaseException:
            self.close()
            raise

    @contextlib.contextmanager
    def broken_after(self, seconds: float) -> Iterator[None]:
        """Break the connection off if the block takes longer, however many bytes arrive."""
        timer = threading.Timer(seconds, self.break_off)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()


class _Server:
    """An RPC server for clients with the key, with one thread for each."""

    def __init__(self, answers: Answers, host: str, port: int, handshake: float) -> None:
        self.key = uuid.uuid4().bytes
        self._answers, self._handshake = answers, handshake
        self._listener = _listener(host, port)
        self._address: tuple[str, int] = self._listener.getsockname()[:2]
        self.port = self._address[1]
        self._lock = threading.Lock()
        self._lines: dict[_Line, None] = {}
        self._unknown: dict[_Line, None] = {}  # the oldest first
        self._closed = threading.Event()
        self._acceptor = threading.Thread(target=self._accept, name="rpc", daemon=True)
        self._acceptor.start()

    def close(self) -> None:
        """Break off all connections and stop."""
        self._closed.set()
        with contextlib.suppress(OSError):
            # wake the thread that waits for a connection
            socket.create_connection(self._address, 1).close()
        self._acceptor.join(1)
        self._listener.close()
        with self._lock:
            lines = list(self._lines)
        for line in lines:
            line.break_off()

    def _accept(self) -> None:
        while not self._closed.is_set():
            try:
                self._admit(_Line(self._listener.accept()[0]))
            except (OSError, RuntimeError):
                # the client left, there is no descriptor or thread left, or the server ends
                self._closed.wait(_NO_MORE)

    def _admit(self, line: _Line) -> None:
        """Serve a connection in a thread of its own. Nothing here waits for the client."""
        with line.closed_on_error():
            thread = threading.Thread(target=self._serve, args=(line,), name="rpc", daemon=True)
            self._register(line)
            try:
                thread.start()
            except BaseException:
                self._forget(line)
                raise

    def _register(self, line: _Line) -> None:
        """List a connection. If too many have not shown the key, break off the oldest of them."""
        with self._lock:
            self._lines[line] = self._unknown[line] = None
            crowd = len(self._unknown) - MOST_UNKNOWN
            oldest = list(itertools.islice(self._unknown, max(0, crowd)))
            for one in oldest:
                del self._unknown[one]
        for one in oldest:
            one.break_off()

    def _forget(self, line: _Line) -> None:
        with self._lock:
            del self._lines[line]
            self._unknown.pop(line, None)

    def _serve(self, line: _Line) -> None:
        from multiprocessing import AuthenticationError

        try:
            self._ask_for_key(line)
            self._answer(line.connection)
        except (AuthenticationError, EOFError, OSError, ValueError):
            pass  # a client without the key, one that left or was silent, or the server's end
        finally:
            self._forget(line)
            line.close()

    def _ask_for_key(self, line: _Line) -> None:
        from multiprocessing.connection import answer_challenge, deliver_challenge

        with line.broken_after(self._handshake):
            deliver_challenge(line.connection, self.key)
            answer_challenge(line.connection, self.key)
        with self._lock:
            self._unknown.pop(line, None)

    def _answer(self, connection: Connection) -> None:
        while not self._closed.is_set():
            name, *arguments = connection.recv()
            connection.send(self._answer_to(name, arguments))

    def _answer_to(self, name: str, arguments: list[Any]) -> Any:
        try:
            return self._answers[name](*arguments)
        except Exception as error:  # noqa: BLE001  # the caller raises it
            return error
