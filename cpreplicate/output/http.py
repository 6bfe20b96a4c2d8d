"""A small HTTP server for metrics, probes and other pages. It reads only."""

from __future__ import annotations

import io
import socket
import socketserver
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import MetricsHandler, choose_encoder, gzip_accepted

from cpreplicate.core.clock import MACHINE, Clock
from cpreplicate.core.shard import Shard
from cpreplicate.errors import UsageError
from cpreplicate.operations.jobs.coverage import Discovered
from cpreplicate.operations.jobs.observation import Observation
from cpreplicate.operations.jobs.schedule import Load
from cpreplicate.operations.jobs.snapshots import SnapshotCounts
from cpreplicate.output.metrics import registry_of
from cpreplicate.output.streams import printable, write_message

if TYPE_CHECKING:
    from cpreplicate.operations.jobs.workers.workers import ProcessCounts
    from cpreplicate.operations.replicas.housekeeping import HousekeepingCounts

LOOPBACK = "127.0.0.1"
_CLIENT_SECONDS = 10.0  # without a byte from a client, or taken by it
_END_OF_HEADERS = b"\r\n\r\n"
_MOST_BODY = 1 << 16  # bytes of a request that is refused, which are read
_TEXT = "text/plain; charset=utf-8"
_PATHS = "see /metrics, /healthz, /readyz, /jobs and /jobs/NAME/restore\n"
MOST_OPEN = 100  # connections: each costs a thread and a descriptor
_WAITING = 64  # connections that the system accepts before the server does
_KEPT_FOR = 1.0  # seconds, of an answer with metrics
_MOST_OF_TIME = 10  # at most one part of so many is spent on answers with metrics
_MOST_KEPT = 4  # answers: one for each format that clients ask for


class ListenAddress(NamedTuple):
    """Where a server listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Page(NamedTuple):
    """An answer."""

    status: HTTPStatus
    text: str
    kind: str = _TEXT


Pages = Callable[[str], Page | None]
"""Returns the page of a path as it was sent, None if there is none."""


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
    pages: Pages = lambda _path: None,
    snapshots: Callable[[], SnapshotCounts] | None = None,
    sharing: Callable[[], tuple[Shard, Iterable[str]]] | None = None,
    clock: Clock = MACHINE,
    housekeeping: Callable[[], HousekeepingCounts] | None = None,
    total: Callable[[], Observation] | None = None,
    processes: Callable[[], ProcessCounts] | None = None,
) -> Iterator[ListenAddress]:
    """Serve `/metrics`, `/healthz`, `/readyz` and `pages` while the context lasts.

    Yields the address.
    `remarks` are lines that `/healthz` adds to its answer. They do not change its status: a probe
    that ended the process would end what it does for other jobs, too. Port 0 is replaced by a free
    one. The functions are called from several threads. The end of the context waits for no client.
    Raises `UsageError` if the address cannot be listened on.
    """
    registry = registry_of(
        observations,
        clock,
        load,
        discovered,
        snapshots,
        sharing,
        housekeeping=housekeeping,
        total=total,
        processes=processes,
    )
    site = _Site(_probes(is_alive, is_ready, remarks), pages, _Scrapes(clock))
    try:
        server = _server(address, _handler(registry, site))
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

    def __init__(self, *args: Any, **options: Any) -> None:
        self._open: dict[socket.socket, None] = {}  # the oldest first
        self._lock = threading.Lock()
        super().__init__(*args, **options)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread. Beyond some connections, the oldest one is cut off."""
        with self._lock:
            self._open[request] = None
            surplus = list(self._open)[: max(0, len(self._open) - MOST_OPEN)]
            for oldest in surplus:
                del self._open[oldest]
                with suppress(OSError):
                    oldest.shutdown(socket.SHUT_RDWR)  # its thread sees the end
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

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


class _Probe(NamedTuple):
    """A page whose status is what it is about: `good` or `bad` is its text."""

    is_good: Callable[[], bool]
    good: Callable[[], str]
    bad: str


class _Scrapes:
    """The answers with metrics. Each is made once for all scrapes of a second.

    One that takes long to make, as that of a thousand jobs, is kept for longer, so that scrapes
    cost the syncs little time, however many there are.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._kept: dict[object, tuple[float, bytes]] = {}

    def answer(self, kind: object, make: Callable[[], bytes]) -> bytes:
        """Return the answer of a kind that is kept, else one that is made."""
        with self._lock:
            began = self._clock.monotonic()
            until, answer = self._kept.get(kind, (began, b""))
            if began < until:
                return answer
            answer = make()
            ended = self._clock.monotonic()
            self._kept.pop(kind, None)
            for oldest in list(self._kept)[: len(self._kept) + 1 - _MOST_KEPT]:
                del self._kept[oldest]
            pause = max(_KEPT_FOR, (ended - began) * _MOST_OF_TIME)
            self._kept[kind] = (ended + pause, answer)
            return answer


class _Site(NamedTuple):
    """What a server answers with."""

    probes: Mapping[str, _Probe]
    pages: Pages
    scrapes: _Scrapes


def _probes(
    is_alive: Callable[[], bool], is_ready: Callable[[], bool], remarks: Callable[[], Sequence[str]]
) -> dict[str, _Probe]:
    def healthy() -> str:
        return "\n".join(["ok", *map(printable, remarks())])

    late = "the service loop has not made progress in time"
    early = "not each JobManager, root and job was asked yet"
    return {
        "/healthz": _Probe(is_alive, healthy, late),
        "/readyz": _Probe(is_ready, lambda: "ok", early),
    }


def _handler(registry: CollectorRegistry, site: _Site) -> type[MetricsHandler]:
    return type("Handler", (_Handler,), {"registry": registry, "site": site})


class _Handler(MetricsHandler):
    """Answers the requests for a site. A subclass names it."""

    site: _Site
    timeout = _CLIENT_SECONDS
    server_version, sys_version = "cpreplicate", ""

    def do_GET(self) -> None:  # noqa: N802  # the name is that of the base class
        try:
            path = urlsplit(self.path).path
        except ValueError:  # such as of a host in brackets
            self._answer(Page(HTTPStatus.BAD_REQUEST, "the path is no path of a URL\n"))
            return
        if path == "/metrics":
            self.wfile.write(self.site.scrapes.answer(self._kind(), self._metrics))
        elif path in self.site.probes:
            self._probe(self.site.probes[path])
        else:
            self._answer(self.site.pages(path) or Page(HTTPStatus.NOT_FOUND, _PATHS))

    def refuse(self) -> None:
        """Answer a method that would change something."""
        self._answer(
            Page(HTTPStatus.METHOD_NOT_ALLOWED, "only GET and HEAD are answered\n"),
            allow="GET, HEAD",
        )
        self._discard_body()

    do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = do_TRACE = do_CONNECT = refuse  # noqa: N815  # names of http.server

    def do_HEAD(self) -> None:  # noqa: N802  # a name of http.server
        head, end, _body = self._captured(self.do_GET).partition(_END_OF_HEADERS)
        self.wfile.write(head + end)

    def _metrics(self) -> bytes:
        return self._captured(super().do_GET)

    def _kind(self) -> object:
        """Return what decides what an answer with metrics is, besides the metrics."""
        form = choose_encoder(self.headers.get("Accept", ""))[1]
        is_packed = gzip_accepted(self.headers.get("Accept-Encoding", ""))
        names = parse_qs(urlsplit(self.path).query).get("name[]", ())
        return tuple(names), self.request_version, form, is_packed

    def _captured(self, answer: Callable[[], None]) -> bytes:
        """Return the bytes that a method would send."""
        client, self.wfile = self.wfile, io.BytesIO()
        try:
            answer()
            return self.wfile.getvalue()
        finally:
            self.wfile = client

    def _probe(self, probe: _Probe) -> None:
        if probe.is_good():
            self._answer(Page(HTTPStatus.OK, f"{probe.good()}\n"))
        else:
            self._answer(Page(HTTPStatus.SERVICE_UNAVAILABLE, f"{probe.bad}\n"))

    def _answer(self, page: Page, allow: str | None = None) -> None:
        body = page.text.encode(errors="replace")
        self.send_response(page.status)
        self.send_header("Content-Type", page.kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        if allow is not None:
            self.send_header("Allow", allow)
        self.end_headers()
        self.wfile.write(body)

    def _discard_body(self) -> None:
        """Read what the client sends: it would else lose the answer to a reset connection."""
        length = self.headers.get("Content-Length", "")
        if length.isascii() and length.isdigit():
            self.rfile.read(min(int(length), _MOST_BODY))
