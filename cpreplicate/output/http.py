"""A small HTTP server for metrics and probes."""

from __future__ import annotations

import io
import socket
import socketserver
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import MetricsHandler

from cpreplicate.errors import UsageError
from cpreplicate.operations.jobs.schedule import Load
from cpreplicate.operations.jobs.sight import Discovered
from cpreplicate.operations.observation import Observation
from cpreplicate.output.metrics import registry_of
from cpreplicate.output.streams import printable, write_message

LOOPBACK = "127.0.0.1"
_CLIENT_SECONDS = 10.0  # without a byte from a client, or taken by it
_END_OF_HEADERS = b"\r\n\r\n"
_WAITING = 64  # connections that the system accepts before the server does


class ListenAddress(NamedTuple):
    """Where a server listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str) -> ListenAddress:
    """Return the address that `PORT` or `HOST:PORT` means; without a host, the loopback interface.

    Raises `UsageError`.
    """
    host, colon, port = text.rpartition(":")
    is_bracketed = host.startswith("[") and host.endswith("]")
    host = host[1:-1] if is_bracketed else host
    is_ambiguous = ":" in host and not is_bracketed
    is_port = port.isascii() and port.isdigit() and int(port) < 1 << 16
    if not is_port or is_ambiguous or (colon and not host):
        raise UsageError(
            f"{text}: expected PORT or HOST:PORT, such as 9464 for this machine only, 0.0.0.0:9464"
            " or [::]:9464 for every interface"
        )
    return ListenAddress(host or LOOPBACK, int(port))


@contextmanager
def serve(
    address: ListenAddress,
    observations: Callable[[], Sequence[Observation]],
    is_alive: Callable[[], bool],
    is_ready: Callable[[], bool],
    load: Callable[[], Load] | None = None,
    remarks: Callable[[], Sequence[str]] = lambda: (),
    discovered: Callable[[], Discovered] = Discovered,
) -> Iterator[ListenAddress]:
    """Serve `/metrics`, `/healthz` and `/readyz` while the context lasts, and yield the address.

    `remarks` are lines that `/healthz` adds to its answer. They do not change its status: a probe
    that ended the process would end what it does for other jobs, too. Port 0 is replaced by a free
    one. The functions are called from several threads. The end of the context waits for no client.
    Raises `UsageError` if the address cannot be listened on.
    """
    registry = registry_of(observations, load=load, discovered=discovered)
    handler = _handler(registry, is_alive, is_ready, remarks)
    try:
        server = _server(address, handler)
    except OSError as error:
        raise UsageError(
            f"cannot listen on {address}: {error.strerror or error}. Give another HOST:PORT, or end"
            " the process that uses this one"
        ) from error
    with server:
        thread = threading.Thread(
            target=server.serve_forever, args=(0.1,), name="metrics", daemon=True
        )
        thread.start()
        try:
            yield ListenAddress(address.host, server.server_address[1])
        finally:
            server.shutdown()


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True  # else a service could not restart for a minute
    daemon_threads = True
    block_on_close = False
    request_queue_size = _WAITING

    def handle_error(self, _request: Any, _client_address: Any) -> None:
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):  # else the client left, or was too slow
            name = type(error).__name__
            write_message(f"cpreplicate: warning: a request for metrics failed: {name}: {error}")


class _Server6(_Server):
    address_family = socket.AF_INET6


def _server(address: ListenAddress, handler: type[MetricsHandler]) -> _Server:
    kind = _Server6 if ":" in address.host else _Server
    return kind((address.host, address.port), handler)


def _handler(
    served: CollectorRegistry,
    alive: Callable[[], bool],
    ready: Callable[[], bool],
    remarks: Callable[[], Sequence[str]],
) -> type[MetricsHandler]:
    def healthy() -> str:
        return "\n".join(["ok", *map(printable, remarks())])

    probes = {
        "/healthz": (alive, healthy, "the service loop has not made progress in time"),
        "/readyz": (ready, lambda: "ok", "not each JobManager, root and job was tried yet"),
    }

    class Handler(MetricsHandler):
        registry = served
        timeout = _CLIENT_SECONDS
        server_version, sys_version = "cpreplicate", ""

        def do_GET(self) -> None:  # noqa: N802  # the name is that of the base class
            path = urlsplit(self.path).path
            if path == "/metrics":
                super().do_GET()
            elif path in probes:
                self._probe(*probes[path])
            else:
                self._answer(HTTPStatus.NOT_FOUND, "see /metrics, /healthz and /readyz")

        def do_HEAD(self) -> None:  # noqa: N802
            client, self.wfile = self.wfile, io.BytesIO()
            try:
                self.do_GET()
                head, end, _body = self.wfile.getvalue().partition(_END_OF_HEADERS)
            finally:
                self.wfile = client
            client.write(head + end)

        def _probe(self, is_good: Callable[[], bool], good: Callable[[], str], bad: str) -> None:
            if is_good():
                self._answer(HTTPStatus.OK, good())
            else:
                self._answer(HTTPStatus.SERVICE_UNAVAILABLE, bad)

        def _answer(self, status: HTTPStatus, text: str) -> None:
            body = f"{text}\n".encode(errors="replace")
            self.send_response(status)
            self.send_header("Content-Type", "text/plain; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    return Handler
