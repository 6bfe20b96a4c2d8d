"""A server that accepts connections and never answers: a frozen host."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator


class SilentServer:
    """Its `address` is `host:port`. `reached` is set when the first client sends something."""

    def __init__(self, port: int = 0) -> None:
        self._listener = socket.create_server(("127.0.0.1", port))
        self._lines: list[socket.socket] = []
        self.reached = threading.Event()
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """End all connections."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for line in self._lines:
            line.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                line = self._listener.accept()[0]
                self._lines.append(line)
                threading.Thread(target=self._listen, args=(line,), daemon=True).start()

    def _listen(self, line: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while line.recv(4096):
                self.reached.set()


@contextlib.contextmanager
def silent_server(port: int = 0) -> Iterator[SilentServer]:
    """Provide a server that never answers, at a port or at a free one, while the block runs."""
    server = SilentServer(port)
    try:
        yield server
    finally:
        server.close()
