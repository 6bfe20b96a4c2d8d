"""Storage of `webhdfs:` and `swebhdfs:` URIs by Hadoop's REST protocol, through `requests`.

A file costs five to seven HTTP requests. Use it for clusters that offer nothing but HTTP.
"""

from __future__ import annotations

import errno
import io
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, BinaryIO, cast
from urllib.parse import quote, urlsplit

import requests
import urllib3

from cpreplicate.core import uri as uris
from cpreplicate.errors import UsageError
from cpreplicate.storage.backends.hdfs.common import (
    HdfsClientStorage,
    Usage,
    path_of,
    uses_kerberos,
    written_as,
)
from cpreplicate.storage.backends.hdfs.damage import Arrivals, node_of
from cpreplicate.storage.backends.hdfs.errors import Unread, translated
from cpreplicate.storage.backends.hdfs.kerberos_errors import raised_for_kerberos
from cpreplicate.storage.backends.web.spnego import Exchange, Spnego
from cpreplicate.storage.base import (
    CHUNK,
    Content,
    NoAnswer,
    NotAuthenticated,
    Transient,
    WriteSettings,
)
from cpreplicate.storage.statuses import Attributes, FileStatus
from cpreplicate.storage.streams.positioned import PositionedReader
from cpreplicate.storage.waiting.bounds import answered, limit
from cpreplicate.storage.waiting.deadlines import DEFAULT

_BEHIND_THE_END = "Cannot seek after EOF"  # of a DataNode
_CONNECT_SECONDS = 10.0
_PERMISSION = 0o644  # of new files, if a request has none
_PROGRESS = 4096  # bytes: with fewer of them within its deadline, an answer counts as none
# a DataNode creates the file of an interrupted request in this time; then it can be deleted
_SETTLE_SECONDS = 1.0
_UNAUTHENTICATED = 401
_NO_CREDENTIALS = (
    "the HTTP server does not accept the credentials (401). Correct the ticket, the options user"
    " and password, or the option token"
)
_SECRET = re.compile(r"\b(delegation|token|password)=[^&\s'\")]+")


class WebHdfsStorage(HdfsClientStorage):
    """One NameNode's HTTP server.

    The guarantees are those of HDFS: `renameoptions` makes RENAME call `rename2`.
    """

    streams = 16

    def __init__(
        self,
        filesystem: str,
        options: Mapping[str, str],
        write: WriteSettings,
        deadline: float = DEFAULT,
    ) -> None:
        """`deadline` is in seconds."""
        self._client = _Client(filesystem, options, deadline)
        self._arrivals = Arrivals(self)
        self.written = written = written_as(write, options)
        self.replication = written.expected_replication
        is_default = written.permission == _PERMISSION
        settings = {
            "replication": written.replication,
            "blocksize": written.block_size,
            "permission": None if is_default else f"{written.permission:o}",
        }
        self._write = {name: value for name, value in settings.items() if value is not None}

    def open(self, uri: str) -> BinaryIO:
        length = self._length(uri)
        return self._opened(uri, length, length)

    def open_extent(self, uri: str, extent: int) -> BinaryIO:
        """Open a file, with so many bytes if it lists less and a DataNode has them."""
        listed = self._length(uri)
        reaches = listed < extent and self._reaches(uri, listed, extent)
        return self._opened(uri, listed, extent if reaches else listed)

    def _reaches(self, uri: str, listed: int, extent: int) -> bool:
        """Return whether a DataNode returns the last byte of an extent, which is not listed."""
        try:
            return len(self._bytes(uri, listed, extent - 1, 1)) == 1
        except Transient as error:
            if _BEHIND_THE_END in str(error.strerror):
                return False
            raise

    def _bytes(self, uri: str, listed: int, position: int, size: int) -> bytes:
        """Read by one ranged request. The NameNode takes none that begins behind what it lists."""
        start = min(position, listed - 1) if listed else position
        asked = {"offset": start, "length": position + size - start}
        return self._client.call("GET", "OPEN", uri, **asked).content[position - start :]

    def _opened(self, uri: str, listed: int, length: int) -> BinaryIO:
        def read_at(position: int, buffer: memoryview) -> int:
            """Read by one ranged request."""
            size = min(len(buffer), length - position)
            if size <= 0:
                return 0
            try:
                data = self._bytes(uri, listed, position, size)
            except NoAnswer:
                raise
            except Transient as error:  # a DataNode that meets damage breaks its answer off
                unread = Unread(error.errno, error.strerror, uri)
                unread.is_damaged = partial(self._is_damaged, uri, length)
                raise unread from error
            if not data:
                raise Transient(errno.EIO, f"the file ended before byte {position + 1}", uri)
            self._arrivals.note()
            buffer[: len(data)] = data
            return len(data)

        return cast(BinaryIO, io.BufferedReader(PositionedReader(read_at, lambda: length), CHUNK))

    def _is_damaged(self, uri: str, length: int) -> bool:
        """Return whether a file that no DataNode returned is damaged."""
        op = "GETFILEBLOCKLOCATIONS"
        try:
            found = self._client.query("GET", op, uri, offset=0, length=length)
            blocks = found["BlockLocations"]["BlockLocation"]
            nodes = [node_of(name) for block in blocks for name in block["names"]]
        except (OSError, KeyError, TypeError, ValueError):  # Hadoop before 2.9 does not answer
            return False
        return self._arrivals.prove_damage(uri, nodes)

    def _length(self, uri: str) -> int:
        status = self.stat(uri)
        if status is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", uri)
        if status.is_directory:
            raise IsADirectoryError(errno.EISDIR, "is a directory", uri)
        return status.length

    def stat(self, uri: str) -> FileStatus | None:
        try:
            return _status(uri, self._client.query("GET", "GETFILESTATUS", uri)["FileStatus"])
        except (FileNotFoundError, NotADirectoryError):
            return None

    def list(self, uri: str) -> list[FileStatus]:
        try:
            statuses = self._client.query("GET", "LISTSTATUS", uri)["FileStatuses"]["FileStatus"]
        except FileNotFoundError:
            return []
        return [_status(uris.join(uri, status["pathSuffix"]), status) for status in statuses]

    def write_new(self, uri: str, content: Content) -> int:
        body = _Body(content())
        location = self._client.redirect("PUT", "CREATE", uri, **self._write)
        try:
            self._client.upload(location, body, uri)
        except OSError:
            time.sleep(_SETTLE_SECONDS)
            # urllib3 reports a failure of the body as one of the connection
            if body.failure is not None:
                raise body.failure from None
            raise
        return body.length

    def rename(self, uri: str, new_uri: str, replace: bool) -> bool:
        options = {
            "destination": path_of(new_uri),
            "renameoptions": "OVERWRITE" if replace else "NONE",
        }
        try:
            self._client.call("PUT", "RENAME", uri, new_uri, **options)
        except FileNotFoundError:
            return False
        return True

    def concat(self, uri: str, others: Sequence[str]) -> None:
        self._client.call("POST", "CONCAT", uri, sources=",".join(map(path_of, others)))

    def set_attributes(self, uri: str, attributes: Attributes) -> None:
        milliseconds = int(attributes.modified * 1000)
        if attributes.permission is not None:
            self._client.call("PUT", "SETPERMISSION", uri, permission=f"{attributes.permission:o}")
        self._client.call(
            "PUT", "SETTIMES", uri, modificationtime=milliseconds, accesstime=milliseconds
        )

    def delete_path(self, uri: str) -> bool:
        return bool(self._client.query("DELETE", "DELETE", uri, recursive="false")["boolean"])

    def usage(self, uri: str) -> Usage:
        usage = self._client.query("GET", "GETQUOTAUSAGE", uri)["QuotaUsage"]
        names = ("quota", "fileAndDirectoryCount", "spaceQuota", "spaceConsumed")
        return Usage(*(int(usage[name]) for name in names))


class _Body:
    """The chunks of an upload, with the number of their bytes and the exception that ended them."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = chunks
        self.length = 0
        self.failure: Exception | None = None

    def __iter__(self) -> Iterator[bytes]:
        try:
            for chunk in self._chunks:
                self.length += len(chunk)
                yield chunk
        except Exception as error:
            self.failure = error
            raise


class _Client:
    """A client of one NameNode's HTTP server. Every failure is an `OSError` that names the URI."""

    def __init__(self, filesystem: str, options: Mapping[str, str], deadline: float) -> None:
        self._deadline = deadline
        self._address = f"{_address(filesystem)}/webhdfs/v1"
        self._identity = _identity(filesystem, options)
        self._session = _session(options)
        self._has_credentials = "token" in options or "password" in options
        by_ticket = uses_kerberos(options) and not self._has_credentials
        self._spnego = Spnego(filesystem) if by_ticket else None

    def call(
        self, method: str, op: str, uri: str, blame: str | None = None, /, **parameters: object
    ) -> requests.Response:
        """Return the response to an operation on `uri`, redirects followed.

        Errors name `blame` if it is given.
        """
        return self._send(
            method, self._url(uri), blame or uri, params=self._parameters(op, parameters)
        )

    def query(self, method: str, op: str, uri: str, **parameters: object) -> Any:
        """Return the JSON object that answers an operation."""
        response = self.call(method, op, uri, **parameters)
        try:
            return response.json()
        except ValueError:
            raise Transient(
                errno.EIO, f"the answer to {op} is not JSON; is this a NameNode's HTTP server?", uri
            ) from None

    def redirect(self, method: str, op: str, uri: str, **parameters: object) -> str:
        """Return the address to which the NameNode redirects an operation."""
        options = {"params": self._parameters(op, parameters), "allow_redirects": False}
        location = self._send(method, self._url(uri), uri, **options).headers.get("Location")
        if location is None:
            raise Transient(errno.EIO, f"the NameNode did not redirect {op} to a DataNode", uri)
        return location

    def upload(self, location: str, body: Iterable[bytes], uri: str) -> None:
        """Send a file to the DataNode at `location`; it carries the identity already."""
        # HttpFS needs it
        self._send(
            "PUT", location, uri, data=body, headers={"Content-Type": "application/octet-stream"}
        )

    def _url(self, uri: str) -> str:
        return self._address + quote(path_of(uri))

    def _parameters(self, op: str, parameters: Mapping[str, object]) -> dict[str, Any]:
        return {**parameters, **self._identity, "op": op}

    def _send(self, method: str, url: str, uri: str, **options: Any) -> requests.Response:
        """Return the answer to a request. Raise what the server reports, or that it is silent."""
        # to connect, and between two bytes; requests itself waits without a limit
        seconds = limit(self._deadline)
        timeouts = (min(seconds, _CONNECT_SECONDS), seconds)
        exchange = self._spnego.exchange() if self._spnego else None
        if exchange is not None:
            options["auth"] = exchange.auth
        try:
            response = self._session.request(method, url, timeout=timeouts, stream=True, **options)
            _read(response, seconds)
            remote = _remote_exception(response)
            if response.status_code == _UNAUTHENTICATED:
                raise self._unauthenticated(response, exchange, uri)
            if remote is None:
                response.raise_for_status()
                answered()
                return response
        except requests.Timeout as error:
            server = urlsplit(url).netloc.rpartition("@")[2]
            text = f"the HTTP server {server} has not answered for {_waited(error, timeouts):.3g} s"
            raise NoAnswer(errno.ETIMEDOUT, text, uri) from None
        except requests.RequestException as error:
            # its text may hold a token, and so may those of its causes
            text = _SECRET.sub(r"\1=…", str(error))[:300]
            raise Transient(errno.EIO, f"{type(error).__name__}: {text}", uri) from None
        raise translated(*remote, uri)

    def _unauthenticated(
        self, response: requests.Response, exchange: Exchange | None, uri: str
    ) -> OSError:
        """Return what is raised for an answer with the status 401."""
        wanted = response.headers.get("WWW-Authenticate", "")
        if exchange is None and not self._has_credentials and wanted.startswith("Negotiate"):
            return raised_for_kerberos("SIMPLE authentication is not enabled", uri)
        failure = exchange.refused(uri) if exchange else None
        return failure or NotAuthenticated(errno.EACCES, _NO_CREDENTIALS, uri)


def _read(response: requests.Response, seconds: float) -> None:
    """Read the body of a response. Raise `requests.ReadTimeout` if a server only drips it.

    The timeouts of `requests` are for each call of the socket: a byte now and then meets none.
    """
    read = getattr(response.raw, "read1", None)
    if read is None:  # of an older urllib3
        response.content  # noqa: B018  # it reads the body
        return
    body, since, counted = bytearray(), time.monotonic(), 0
    try:
        while data := read(CHUNK, decode_content=True):
            body += data
            if len(body) - counted >= _PROGRESS:
                since, counted = time.monotonic(), len(body)
            elif time.monotonic() - since > seconds:
                raise requests.ReadTimeout
    except urllib3.exceptions.ReadTimeoutError as error:
        raise requests.ReadTimeout from error
    except urllib3.exceptions.HTTPError as error:
        raise requests.ConnectionError(error) from error
    finally:
        response.close()
    response._content = bytes(body)
    response._content_consumed = True  # type: ignore[attr-defined]  # as `content` does


def _waited(error: requests.Timeout, timeouts: tuple[float, float]) -> float:
    return timeouts[0] if isinstance(error, requests.ConnectTimeout) else timeouts[1]


def _remote_exception(response: requests.Response) -> tuple[str, str] | None:
    """Return the Java class and the message of the exception in a response, or None if it carries
    none.
    """
    if response.status_code < 400:
        return None
    try:
        remote = response.json()["RemoteException"]
        return remote.get("javaClassName") or remote["exception"], remote["message"]
    except (ValueError, KeyError, TypeError):
        return None


def _address(filesystem: str) -> str:
    scheme, _, authority = filesystem.partition("://")
    port = authority.rpartition(":")[2]
    if not (port.isdecimal() and 0 < int(port) < 1 << 16):
        raise UsageError(
            f"{filesystem}: name the host and port of a NameNode's HTTP server, as in"
            " webhdfs://namenode:9870/path"
        )
    return f"{'https' if scheme == 'swebhdfs' else 'http'}://{authority}"


def _identity(filesystem: str, options: Mapping[str, str]) -> dict[str, str]:
    """Return the query parameters that name the user of an operation.

    Kerberos and passwords name it elsewhere.
    """
    _refuse_contradictions(filesystem, options)
    if "token" in options:
        return {"delegation": options["token"]}
    identity = {"doas": options["proxy_to"]} if "proxy_to" in options else {}
    user = options.get("user", options.get("hadoop.user.name"))
    if user is not None and "password" not in options and not uses_kerberos(options):
        identity["user.name"] = user
    return identity


def _refuse_contradictions(filesystem: str, options: Mapping[str, str]) -> None:
    if "token" in options and ("user" in options or "proxy_to" in options):
        raise UsageError(
            f"{filesystem}: a delegation token names its user; remove the options user and proxy_to"
        )
    if "user" in options and uses_kerberos(options):
        raise UsageError(
            f"{filesystem}: Kerberos takes the user from the ticket; remove the option user"
        )
    if "password" in options and "user" not in options:
        raise UsageError(f"{filesystem}: the option password needs the option user")


def _session(options: Mapping[str, str]) -> requests.Session:
    session = requests.Session()
    session.cert = options.get("session_cert")
    if "password" in options:
        session.auth = (options["user"], options["password"])
    return session


def _status(uri: str, status: Mapping[str, Any]) -> FileStatus:
    modified, permission = status["modificationTime"] / 1000, int(status["permission"], 8)
    return FileStatus(
        uri, uris.name(uri), status["length"], status["type"] == "DIRECTORY", modified, permission
    )
