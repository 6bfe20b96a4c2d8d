"""HTTP servers on loopback that answer as no server should."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

Script = Callable[[socket.socket, bytes], None]
"""Gets a connection, and the head of the request that came over it."""


class Hostile:
    """A server that answers each request by a script; `requests` are the heads that it got."""

    def __init__(self, script: Script) -> None:
        self.requests: list[bytes] = []
        self._script = script
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._connections: list[socket.socket] = []
        self.place = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.url = f"http://{self.place}"

    @property
    def accepted(self) -> int:
        """How many connections there were."""
        return len(self._connections)

    def run(self) -> None:
        """Accept connections until `close`."""
        with contextlib.suppress(OSError):
            while True:
                connection = self._listener.accept()[0]
                self._connections.append(connection)
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def close(self) -> None:
        """Close every connection, also those that a script reads from: `close` alone waits."""
        for each in (self._listener, *self._connections):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection:
            while head := _head(connection):
                self.requests.append(head)
                self._script(connection, head)


@contextlib.contextmanager
def hostile(script: Script) -> Iterator[Hostile]:
    """Run a server while the block lasts."""
    server = Hostile(script)
    threading.Thread(target=server.run, daemon=True).start()
    try:
        yield server
    finally:
        server.close()


def answer(body: bytes, status: str = "200 OK", *headers: str) -> Script:
    """A complete answer; the connection stays open."""
    lines = [f"HTTP/1.1 {status}", *headers, f"Content-Length: {len(body)}", "", ""]
    return lambda connection, _head: connection.sendall("\r\n".join(lines).encode() + body)


def endless(head: bytes, part: bytes, pause: float = 0.0) -> Script:
    """A beginning, and then a part again and again until the client closes the connection."""
    waiting = threading.Event()

    def send(connection: socket.socket, _head: bytes) -> None:
        connection.sendall(head)
        while not waiting.wait(pause):
            connection.sendall(part)

    return send


def _head(connection: socket.socket) -> bytes:
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        byte = connection.recv(1)
        if not byte:
            return b""
        head += byte
    return head
