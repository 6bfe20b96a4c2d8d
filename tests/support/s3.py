"""Runs a real S3 server, moto's, on loopback, and a proxy that makes a server misbehave."""

from __future__ import annotations

import contextlib
import os
import re
import select
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from tests.support.waiting import PATIENCE

START_SECONDS = PATIENCE
REGION = "us-east-1"

# Ends when its stdin does; the port is the kernel's choice. Without a module `crc32c`, moto answers
# with another checksum under the name of CRC32C. S3 decides each conditional write at one instant;
# moto looks and then writes, so of two at the same time both would succeed. It gets one at a time.
# To a part of an upload that has ended S3 answers NoSuchUpload; moto answers 500, after which a
# client tries again.
_SERVER = """
import io, os, sys, threading
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec
import google_crc32c
sys.modules["crc32c"] = module_from_spec(ModuleSpec("crc32c", None))
sys.modules["crc32c"].crc32c = google_crc32c.value
from moto.moto_server import threaded_moto_server
from moto.server import ThreadedMotoServer
from moto.s3.exceptions import NoSuchUpload
from moto.s3.models import S3Backend
upload_part = S3Backend.upload_part
def part_of_an_upload(self, bucket_name, multipart_id, part_id, value):
    try:
        return upload_part(self, bucket_name, multipart_id, part_id, value)
    except KeyError:
        raise NoSuchUpload(upload_id=multipart_id)
S3Backend.upload_part = part_of_an_upload
one_at_a_time = threading.Lock()
class Atomic(threaded_moto_server.DomainDispatcherApplication):
    def __call__(self, environ, start_response):
        if not {"HTTP_IF_MATCH", "HTTP_IF_NONE_MATCH"}.intersection(environ):
            return super().__call__(environ, start_response)
        if environ.get("CONTENT_LENGTH"):  # a client that sends slowly does not hold up the others
            body = environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))
            environ["wsgi.input"] = io.BytesIO(body)
        with one_at_a_time:
            return super().__call__(environ, start_response)
threaded_moto_server.DomainDispatcherApplication = Atomic
answers, sys.stdout = sys.stdout, sys.stderr
server = ThreadedMotoServer("127.0.0.1", 0)
server.start()
print(server.get_host_and_port()[1], file=answers, flush=True)
sys.stdin.read()
os._exit(0)
"""
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class S3Error(Exception):
    """The server did not start."""


class S3Server:
    """An S3 in a process of its own, empty at the start."""

    def __init__(self) -> None:
        self.port = 0
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> S3Server:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> S3Server:
        """Starts it; it answers."""
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed by close
        self._process = subprocess.Popen(
            [sys.executable, "-c", _SERVER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env={**os.environ, "AWS_DEFAULT_REGION": REGION},
        )
        try:
            self.port = self._announced_port(self._process)
        except BaseException:
            self.close()
            raise
        return self

    def _announced_port(self, process: subprocess.Popen[str]) -> int:
        assert process.stdout is not None
        readable, _, _ = select.select([process.stdout], [], [], START_SECONDS)
        line = process.stdout.readline() if readable else ""
        if not line:
            self._log.seek(0)
            raise S3Error(f"moto did not start\n{self._log.read()[-4000:]}")
        return int(line)

    def close(self) -> None:
        """Ends the process, and lets go of its pipes."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait(timeout=PATIENCE)
            for stream in (process.stdin, process.stdout, self._log):
                assert stream is not None
                stream.close()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def options(self) -> dict[str, Any]:
        """What s3fs takes to reach it."""
        return s3fs_options(self.endpoint)

    def make_bucket(self, name: str) -> str:
        """Create it, and return its URI."""
        with _DIRECT.open(
            urllib.request.Request(f"{self.endpoint}/{name}", method="PUT"), timeout=PATIENCE
        ):
            return f"s3://{name}"


def side_options(endpoint: str) -> dict[str, str]:
    """Return the options with which cpreplicate reaches a server of the tests, or a proxy of it."""
    return {"key": "test", "secret": "test", "endpoint_url": endpoint, "region": REGION}


def s3fs_options(endpoint: str) -> dict[str, Any]:
    """What s3fs takes to reach a server of the tests, or a proxy in front of it."""
    return {
        "key": "test",
        "secret": "test",
        "endpoint_url": endpoint,
        "client_kwargs": {"region_name": REGION},
    }


@dataclass
class Fault:
    """What happens to the next `times` requests whose request line, `PUT /bucket/key HTTP/1.1`,
    holds `only`.

    A body is cut after so many bytes of it, and the connections with it.
    """

    times: int
    only: str = ""
    seconds: float = 0.0
    status: bytes | None = None
    cut_request: int | None = None
    cut_response: int | None = None


_SLOW_DOWN = ("SlowDown", "Please reduce your request rate.")
_MESSAGE = "Answered by a test."
_ERROR = (
    '<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{}</Code><Message>{}</Message>'
    "<RequestId>0</RequestId></Error>"
)


class FaultyProxy:
    """A TCP proxy in front of `host:port` that misbehaves on request, and is transparent
    otherwise.

    It reads the heads of HTTP requests and lets a connection carry one. With `http=False` it looks
    at nothing: a connection is a request, its line is empty and all of it is body. `requests` are
    the request lines that came in, and `heads` these with their headers, in lower case. With `tls`
    it is reached by HTTPS.
    """

    def __init__(
        self, target: str, *, http: bool = True, tls: ssl.SSLContext | None = None
    ) -> None:
        host, port = target.removeprefix("http://").rsplit(":", 1)
        self.requests: list[str] = []
        self.heads: list[str] = []
        self._tls = tls
        self._rule: Callable[[str], str | None] = lambda _head: None
        self._target = (host, int(port))
        self._http = http
        self._faults: list[Fault] = []
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._dropped: tuple[bytes, ...] = ()
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self._closed = False
        self._acceptor = threading.Thread(target=self._accept, name="faulty-proxy", daemon=True)
        self._acceptor.start()

    def __enter__(self) -> FaultyProxy:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Breaks every connection and waits for its threads."""
        with self._lock:
            self._closed = True
            connections = [self._listener, *self._open]
        for connection in connections:
            _break(connection)
        self._listener.close()
        self._acceptor.join(timeout=PATIENCE)
        for thread in self._threads:
            thread.join(timeout=PATIENCE)

    @property
    def address(self) -> str:
        """`host:port`."""
        return "{}:{}".format(*self._listener.getsockname())

    @property
    def endpoint(self) -> str:
        return f"http://{self.address}"

    @property
    def options(self) -> dict[str, Any]:
        """What s3fs takes to reach an S3 server through it."""
        return s3fs_options(self.endpoint)

    def slow_down(self, times: int, only: str = "") -> None:
        """Answers `503 SlowDown`, as S3 does, without asking the server."""
        self._add(Fault(times, only, status=b"503 Slow Down"))

    def cut_request(self, times: int, after: int, only: str = "") -> None:
        """Break the connections once `after` bytes of the body have reached the server."""
        self._add(Fault(times, only, cut_request=after))

    def cut_response(self, times: int, after: int, only: str = "") -> None:
        """Ends the connection once `after` bytes of the response's body have reached the client."""
        self._add(Fault(times, only, cut_response=after))

    def delay(self, seconds: float, times: int = sys.maxsize, only: str = "") -> None:
        """Holds each request back for that long."""
        self._add(Fault(times, only, seconds))

    def ignore(self, *headers: str) -> None:
        """Withhold these headers of requests, as a server does that does not know them."""
        self._dropped = tuple(f"{header.lower()}:".encode() for header in headers)

    def answer(self, rule: Callable[[str], str | None]) -> None:
        """Answer requests for which the rule returns an error, such as "501 NotImplemented".

        It gets a head in lower case. The server is not asked.
        """
        self._rule = rule

    def heal(self) -> None:
        """Takes back every fault that has not happened yet, and forgets `requests`."""
        self._dropped, self._rule = (), lambda _head: None
        with self._lock:
            self._faults.clear()
            self.requests.clear()
            self.heads.clear()

    @property
    def pending(self) -> int:
        """How many faults other than delays have not happened yet."""
        with self._lock:
            return sum(fault.times for fault in self._faults if not fault.seconds)

    def _add(self, fault: Fault) -> None:
        with self._lock:
            self._faults.append(fault)

    def _take(self, line: str) -> Fault:
        """Return the faults of this request: every matching delay, and the first other match."""
        with self._lock:
            self.requests.append(line)
            fitting = [fault for fault in self._faults if fault.times > 0 and fault.only in line]
            delays = [fault for fault in fitting if fault.seconds]
            others = [fault for fault in fitting if not fault.seconds][:1]
            for fault in (*delays, *others):
                fault.times -= 1
        return replace(*(others or [Fault(1)]), seconds=sum(delay.seconds for delay in delays))

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            thread = threading.Thread(
                target=self._serve, args=(client,), name="faulty-proxy", daemon=True
            )
            self._threads = [*(running for running in self._threads if running.is_alive()), thread]
            thread.start()

    @contextlib.contextmanager
    def _kept(self, connection: socket.socket) -> Iterator[socket.socket]:
        """Closed at the end of the block, broken before when the proxy closes."""
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self._lock:
            self._open.add(connection)
            if self._closed:
                _break(connection)
        try:
            yield connection
        finally:
            with self._lock:
                self._open.discard(connection)
                connection.close()

    def _serve(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError), self._kept(self._decrypting(client)) as client:
            head, rest = _read_head(client) if self._http else (b"", b"")
            if self._http and not head:
                return
            fault = self._take(head.partition(b"\r\n")[0].decode("latin-1"))
            text = head.decode("latin-1").lower()
            self.heads.append(text)
            time.sleep(fault.seconds)
            if fault.status is not None:
                _refuse(client, fault.status, _ERROR.format(*_SLOW_DOWN))
                return
            if (error := self._rule(text)) is not None:
                number, _, code = error.partition(" ")
                body = "" if text.startswith("head ") else _ERROR.format(code, _MESSAGE)
                _refuse(client, f"{number} Refused".encode(), body)
                return
            with self._kept(socket.create_connection(self._target)) as server:
                server.sendall(_one_request_a_connection(head, self._dropped))
                self._relay(client, server, rest, fault)

    def _decrypting(self, client: socket.socket) -> socket.socket:
        if self._tls is None:
            return client
        try:
            return self._tls.wrap_socket(client, server_side=True)
        except OSError:
            client.close()
            raise

    def _relay(
        self, client: socket.socket, server: socket.socket, rest: bytes, fault: Fault
    ) -> None:
        upload = threading.Thread(
            target=_upload, args=(client, server, rest, fault.cut_request), daemon=True
        )
        upload.start()
        try:
            _download(server, client, fault.cut_response, self._http)
        finally:
            _break(server)
            _break(client)
            upload.join()


def _upload(client: socket.socket, server: socket.socket, rest: bytes, limit: int | None) -> None:
    """Hands on what the client sends; at the limit, breaks both connections."""
    with contextlib.suppress(OSError):
        if _pour(client, server, rest, limit):
            server.shutdown(socket.SHUT_WR)
            return
    _break(server)
    _break(client)


def _download(server: socket.socket, client: socket.socket, limit: int | None, http: bool) -> None:
    rest = b""
    if http:
        head, rest = _read_head(server)
        while re.match(rb"HTTP/1\.\d 1\d\d", head):  # 100 Continue comes before the answer
            client.sendall(head)
            head, rest = _read_head(server, rest)
        client.sendall(head)
    _pour(server, client, rest, limit)


def _pour(source: socket.socket, sink: socket.socket, data: bytes, limit: int | None) -> bool:
    """Hands on `data` and what comes after it; whether that ended before the limit."""
    left = sys.maxsize if limit is None else limit
    while left > 0:
        sink.sendall(data[:left])
        left -= len(data)
        if left <= 0:
            break
        data = source.recv(65536)
        if not data:
            return True
    return False


def _read_head(connection: socket.socket, data: bytes = b"") -> tuple[bytes, bytes]:
    """The bytes up to the empty line, and what came with them.

    All and nothing where the connection ends before.
    """
    while b"\r\n\r\n" not in data:
        more = connection.recv(65536)
        if not more:
            return data, b""
        data += more
    end = data.index(b"\r\n\r\n") + 4
    return data[:end], data[end:]


def _one_request_a_connection(head: bytes, dropped: tuple[bytes, ...] = ()) -> bytes:
    """The head, with a request to close the connection after the answer."""
    if not head:
        return head
    line, *fields = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    unwanted = (b"connection:", *dropped)
    kept = [field for field in fields if not field.lower().startswith(unwanted)]
    return b"\r\n".join([line, *kept, b"Connection: close", b"", b""])


def _refuse(client: socket.socket, status: bytes, text: str) -> None:
    """Answers, and reads what the client still sends: a connection closed with unread data would be
    reset.
    """
    body = text.encode()
    fields = b"Content-Type: application/xml\r\nContent-Length: %d\r\nConnection: close" % len(body)
    client.sendall(b"HTTP/1.1 %s\r\n%s\r\n\r\n%s" % (status, fields, body))
    client.shutdown(socket.SHUT_WR)
    client.settimeout(PATIENCE)
    while client.recv(65536):
        pass


def _break(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    """One S3 for all tests; a test makes buckets of its own."""
    with S3Server() as server:
        yield server
