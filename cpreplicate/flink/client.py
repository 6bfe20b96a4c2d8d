"""HTTP to a server that is not trusted: each request ends in time, and its answer is small.

The timeouts of `requests` are for each call of a socket: a server that sends a byte a second meets
none of them. So each request is made in a thread, and after its time its connections are cut.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urljoin, urlsplit, urlunsplit

import requests
from requests.adapters import HTTPAdapter
from requests.auth import HTTPBasicAuth
from requests.cookies import RequestsCookieJar
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

from cpreplicate.flink.address import JobManagerAddress, origin
from cpreplicate.storage import Transient
from cpreplicate.storage.waiting.side_call import in_thread

_CONNECT_SECONDS = 5.0
_CHUNK = 64 << 10
_MOST_REDIRECTS = 5
_MOST_REASON = 300  # characters of what a library states


class RequestLimits(NamedTuple):
    """What one request may take, redirects included."""

    seconds: float = 20.0
    bytes: int = 8 << 20


class Answer(NamedTuple):
    """The status and the body of an answer."""

    status: int
    body: bytes


class Question(NamedTuple):
    """A request: `body` is JSON, or `jar` the path of a file to upload.

    `seconds` are those that it may take, None for those of the limits.
    """

    method: str = "GET"
    body: bytes | None = None
    jar: str | None = None
    seconds: float | None = None


GET = Question()


class Credentials(NamedTuple):
    """What only the server itself gets, and no host that it redirects to.

    `certificate` is the path of a PEM file with the client's certificate and key.
    """

    user: tuple[bytes, bytes] | None = None
    headers: Mapping[str, str] = {}
    certificate: str | None = None


class Silent(Transient):
    """A server did not answer completely within the time of a request."""


class Untrusted(Transient):
    """One side did not accept the certificate of the other."""


class Client:
    """A client of the server at one address; for one request at a time.

    `authority` is the path of the certificates to trust, None for the system's.
    """

    def __init__(
        self,
        address: JobManagerAddress,
        headers: Mapping[str, str],
        certificate: str | None,
        authority: str | None,
        limits: RequestLimits,
    ) -> None:
        self._origin, self._limits, self._authority = origin(address.url), limits, authority
        self._credentials = Credentials(address.user, headers, certificate)
        self._line = self._new_line()
        self._asked = address.url

    def ask(self, url: str, question: Question = GET) -> Answer:
        """Return the answer to a request. Redirects of GET are followed, no others.

        Raises `Transient` if the server cannot be reached, redirects too often, or sends more or
        for longer than the limits allow. What cannot be broken off, such as a question to a name
        server, is left to a thread that does not hold up the end of the process.
        """
        line = self._line
        line.asked = url
        seconds = question.seconds or self._limits.seconds
        try:
            call = in_thread(lambda: self._follow(line, url, question, seconds), "rest")
            if not call.wait_or_be_cancelled(seconds):
                raise _silent(seconds)
            answer = call.result()
        except BaseException as error:
            line.cut()
            self._line = self._new_line()
            if isinstance(error, Transient) or not isinstance(error, Exception):
                raise
            if isinstance(error, requests.exceptions.Timeout):  # it noticed a moment earlier
                raise _silent(seconds) from error
            is_refused = isinstance(error, requests.exceptions.SSLError)
            raise (Untrusted if is_refused else Transient)(_reason(error)) from error
        finally:
            self._asked = line.asked
        line.wires.forget_closed()
        return answer

    @property
    def redirected_to(self) -> str | None:
        """The other host that was asked last, as `http://HOST:PORT`, because of a redirect."""
        return None if self._is_own(self._asked) else _base(self._asked)

    def close(self) -> None:
        """Close the connections; a request that is under way fails."""
        self._line.cut()

    def _new_line(self) -> _Line:
        return _Line(self._credentials, self._authority)

    def _follow(self, line: _Line, url: str, question: Question, seconds: float) -> Answer:
        for session in line.sessions():
            session.cookies.clear()  # a server could add to them for ever
        for _ in range(_MOST_REDIRECTS + 1):
            with line.ask(url, question, self._is_own(url), seconds) as response:
                place = response.headers.get("Location")
                is_redirect = question.method == GET.method and 300 <= response.status_code < 400
                if not (is_redirect and place):
                    return Answer(response.status_code, self._body(response))
            url = _redirected(url, place)
        raise Transient(f"it redirects more than {_MOST_REDIRECTS} times")

    def _is_own(self, url: str) -> bool:
        return origin(url) == self._origin

    def _body(self, response: requests.Response) -> bytes:
        if response.headers.get("Content-Encoding", "identity") not in ("", "identity"):
            raise Transient("its answer is compressed, although that was not asked for")
        body = bytearray()
        while data := response.raw.read(_CHUNK, decode_content=False):
            body += data
            if len(body) > self._limits.bytes:
                raise Transient(f"its answer has more than {self._limits.bytes} bytes")
        return bytes(body)


class _Line:
    """The sessions of a client: `own` has its credentials, `other` is for redirects elsewhere.

    `asked` is the URL that was asked last.
    """

    asked = ""

    def __init__(self, credentials: Credentials, authority: str | None) -> None:
        self.wires = _Wires()
        self._own = _session(self.wires, credentials, authority)
        self._other = _session(self.wires, Credentials(), authority)

    def sessions(self) -> tuple[requests.Session, requests.Session]:
        return self._own, self._other

    def ask(self, url: str, question: Question, is_own: bool, seconds: float) -> requests.Response:
        self.asked = url
        session = self._own if is_own else self._other
        jar = question.jar
        return session.request(
            question.method,
            url,
            data=question.body,
            headers={"Content-Type": "application/json"} if question.body is not None else {},
            files=None if jar is None else {"jarfile": (Path(jar).name, Path(jar).read_bytes())},
            timeout=(_CONNECT_SECONDS, seconds),
            stream=True,
            allow_redirects=False,
            # else REQUESTS_CA_BUNDLE would replace what the user named on the command line
            verify=session.verify,
        )

    def cut(self) -> None:
        """End what is under way, in another thread perhaps, and close everything."""
        self.wires.cut()
        for session in self.sessions():
            session.close()


class _Session(requests.Session):
    def get_redirect_target(self, resp: requests.Response) -> str | None:  # noqa: ARG002  # no redirect is followed
        return None  # else `requests` would read the whole body of a redirect, whatever its size


def _unchanged(request: requests.PreparedRequest) -> requests.PreparedRequest:
    """Return a request as it is: an authentication that adds nothing."""
    return request


def _session(wires: _Wires, credentials: Credentials, authority: str | None) -> requests.Session:
    session = _Session()
    adapter = _Adapter(wires)
    session.mount("http://", adapter)
    session.mount("https://", adapter)
    # without any, `requests` would send what ~/.netrc has for the host, or as its default
    session.auth = HTTPBasicAuth(*credentials.user) if credentials.user else _unchanged
    # Flink compresses nothing, and a small answer could become a huge one
    session.headers.update({"Accept-Encoding": "identity", **credentials.headers})
    session.cert = credentials.certificate
    session.verify = authority or True
    session.cookies = RequestsCookieJar()
    return session


class _Wires:
    """Second handles on the sockets of connections, with which another thread can cut these.

    They are file descriptors: a handle that is a socket would be reported as left open.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._handles: dict[Any, int] = {}
        self._is_cut = False

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        for handle in self._handles.values():
            close(handle)  # `os` may be gone when a process ends

    def add(self, connection: Any, connected: socket.socket) -> None:
        """Remember the socket of a connection; cut it if that is due already."""
        with self._lock:
            former = self._handles.pop(connection, None)
            self._handles[connection] = os.dup(connected.fileno())
            is_late = self._is_cut
        if former is not None:
            os.close(former)
        if is_late:
            self.cut()

    def forget_closed(self) -> None:
        """Close the handles on connections that are closed, so that the server sees them close."""
        with self._lock:
            closed = [connection for connection in self._handles if connection.sock is None]
            for connection in closed:
                os.close(self._handles.pop(connection))

    def cut(self) -> None:
        """End each call of a socket that is under way, now and later."""
        with self._lock:
            self._is_cut = True
            handles, self._handles = list(self._handles.values()), {}
        for handle in handles:
            # it fails if the server closed the connection
            with socket.socket(fileno=handle) as second, suppress(OSError):
                second.shutdown(socket.SHUT_RDWR)


class _Adapter(HTTPAdapter):
    """Makes connections whose sockets `wires` knows."""

    def __init__(self, wires: _Wires) -> None:
        self._pools = _pools(wires)
        super().__init__()

    def init_poolmanager(self, *args: Any, **options: Any) -> None:
        super().init_poolmanager(*args, **options)
        self.poolmanager.pool_classes_by_scheme = self._pools

    def proxy_manager_for(self, proxy: str, **options: Any) -> Any:
        manager = super().proxy_manager_for(proxy, **options)
        if not proxy.lower().startswith("socks"):
            manager.pool_classes_by_scheme = self._pools
        return manager


def _pools(wires: _Wires) -> dict[str, type[HTTPConnectionPool]]:
    # `connect` would be too late: it includes the handshake of TLS
    class Plain(HTTPConnection):
        def _new_conn(self) -> socket.socket:
            connected: socket.socket = super()._new_conn()
            wires.add(self, connected)
            return connected

    class Secure(Plain, HTTPSConnection):
        pass

    class PlainPool(HTTPConnectionPool):
        ConnectionCls = Plain

    class SecurePool(HTTPSConnectionPool):
        ConnectionCls = Secure

    return {"http": PlainPool, "https": SecurePool}


def _silent(seconds: float) -> Silent:
    return Silent(f"no complete answer came within {seconds:g} s")


def _redirected(url: str, place: str) -> str:
    """Return where a redirect leads, without a user and a password."""
    try:
        parts = urlsplit(urljoin(url, place))
        target = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], fragment=""))
        if origin(target)[0] in ("http", "https") and parts.hostname:
            return target
    except ValueError:
        pass
    raise Transient("it redirects to what is no URL of HTTP")


def _base(url: str) -> str:
    """Return the beginning of a URL, up to its path."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def _reason(error: Exception) -> str:
    """Return in one short line why a request failed: the text of the innermost exception.

    Those around it repeat the URL, which the caller states.
    """
    while error.__cause__ is not None or error.__context__ is not None:
        inner = error.__cause__ or error.__context__
        if not isinstance(inner, Exception):
            break
        error = inner
    text = " ".join(str(error).split()) or type(error).__name__
    return text[:_MOST_REASON]
