"""`webhdfs:` and `swebhdfs:` through fsspec: HTTP only, five to seven calls a file; for clusters that offer nothing else.

fsspec's class renames in the old way, which never replaces, and loses the class of what the NameNode raises; both are
added here.
"""

from __future__ import annotations

import contextlib
import errno
import io
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, BinaryIO, cast
from urllib.parse import quote

import requests
from fsspec.implementations.webhdfs import WebHDFS

from cpreplicate import uri as places
from cpreplicate.errors import UsageError
from cpreplicate.storage.base import CHUNK, Attributes, Content, FileStatus, Transient, refuse_unusable
from cpreplicate.storage.hdfs_errors import translated
from cpreplicate.storage.renaming import RenamingStorage
from cpreplicate.storage.settings import WriteSettings

_TIMEOUTS = (10.0, 120.0)  # seconds to connect and between two bytes; requests itself would wait for ever
_SETTLES = 1.0  # seconds in which a DataNode has made the file of a request that broke off, so that it can be deleted
_SECRET = re.compile(r"\b(delegation|token|password)=[^&\s'\")]+")
_OPTIONS = ("user", "password", "token", "proxy_to", "session_cert")


class WebHdfsStorage(RenamingStorage):
    """One NameNode's HTTP server. Guarantees are those of HDFS: `rename2`, through the parameter `renameoptions`."""

    streams = 16
    put_calls = 4

    def __init__(self, filesystem: str, options: Mapping[str, str], write: WriteSettings) -> None:
        self._fs = _WebHdfs(**_arguments(filesystem, options))
        given = {"replication": write.replication, "blocksize": write.block_size}
        self._write = {name: value for name, value in given.items() if value is not None}

    def open(self, uri: str) -> BinaryIO:
        with _telling(uri):
            return cast(BinaryIO, io.BufferedReader(_Reader(self._fs, _path(uri), self._length(uri)), CHUNK))

    def _length(self, uri: str) -> int:
        status = self.stat(uri)
        if status is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", uri)
        if status.is_directory:
            raise IsADirectoryError(errno.EISDIR, "is a directory", uri)
        return status.length

    def stat(self, uri: str) -> FileStatus | None:
        try:
            with _telling(uri):
                return _status(uri, self._fs._call("GETFILESTATUS", path=_path(uri)).json()["FileStatus"])
        except (FileNotFoundError, NotADirectoryError):
            return None

    def list(self, uri: str) -> list[FileStatus]:
        try:
            with _telling(uri):
                found = self._fs._call("LISTSTATUS", path=_path(uri)).json()["FileStatuses"]["FileStatus"]
        except FileNotFoundError:
            return []
        return [_status(places.join(uri, each["pathSuffix"]), each) for each in found]

    def write_new(self, uri: str, content: Content) -> int:
        counted = _Counted(content())
        with _telling(uri):
            answer = self._fs._call("CREATE", "put", _path(uri), redirect=False, **self._write)
        target = self._fs._apply_proxy(answer.headers["Location"])
        try:
            with _telling(uri):
                self._fs.told(self._fs.session.put(target, data=counted))
        except OSError:
            time.sleep(_SETTLES)
            if counted.failure is not None:  # HTTP libraries tell a failure of the content as one of the connection
                raise counted.failure from None
            raise
        return counted.length

    def rename(self, uri: str, new_uri: str, replace: bool) -> bool:
        refuse_unusable(new_uri)
        options: dict[str, Any] = {"destination": _path(new_uri), "renameoptions": "OVERWRITE" if replace else "NONE"}
        try:
            with _telling(new_uri):
                self._fs._call("RENAME", "put", _path(uri), **options)
        except FileNotFoundError:
            return False
        return True

    def set_attributes(self, uri: str, attributes: Attributes) -> None:
        milliseconds = int(attributes.modified * 1000)
        with _telling(uri):
            if attributes.permission is not None:
                self._fs._call("SETPERMISSION", "put", _path(uri), permission=f"{attributes.permission:o}")
            self._fs._call("SETTIMES", "put", _path(uri), modificationtime=milliseconds, accesstime=milliseconds)

    def delete(self, uri: str, durable: bool = False) -> bool:  # noqa: ARG002  # the edit log is synced before the answer
        try:
            with _telling(uri):
                return bool(self._fs._call("DELETE", "delete", _path(uri), recursive="false").json()["boolean"])
        except OSError as error:
            if error.errno == errno.ENOTEMPTY:
                raise IsADirectoryError(errno.EISDIR, "is a directory", uri) from error
            raise

    def rmdir(self, uri: str) -> bool:
        status = self.stat(uri)
        if status is None or not status.is_directory:
            return False
        try:
            return self.delete(uri)
        except IsADirectoryError:
            return False


class _Reader(io.RawIOBase):
    """A file read a range a request."""

    def __init__(self, fs: _WebHdfs, path: str, length: int) -> None:
        self._fs, self._path, self._length, self._position = fs, path, length, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._position = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._length}[whence] + offset
        return self._position

    def tell(self) -> int:
        return self._position

    def readinto(self, buffer: Any) -> int:
        wanted = min(len(buffer), self._length - self._position)
        if wanted <= 0:
            return 0
        with _telling(self._path):
            data = self._fs._call("OPEN", path=self._path, offset=self._position, length=wanted).content
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)


class _Counted:
    """The bytes of a content, how many there were, and why they ended too early."""

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


class _WebHdfs(WebHDFS):  # type: ignore[misc]  # fsspec is untyped
    """fsspec's class, with time limits and with errors that tell what happened."""

    cachable = False

    def _connect(self) -> None:
        super()._connect()
        for scheme in ("http://", "https://"):
            self.session.mount(scheme, _Patient())

    def _call(self, op: str, method: str = "get", path: str = "", redirect: bool = True, **words: Any) -> Any:
        url = self._apply_proxy(self.url + quote(path))
        words.update(self.pars, op=op)
        return self.told(self.session.request(method.upper(), url, params=words, allow_redirects=redirect))

    @staticmethod
    def told(answer: requests.Response) -> requests.Response:
        """The answer, unless it tells of an exception."""
        if answer.status_code < 400:
            return answer
        try:
            remote = answer.json()["RemoteException"]
        except (ValueError, KeyError):
            answer.raise_for_status()
            raise AssertionError from None  # raise_for_status raises for every status from 400 on
        raise translated(remote.get("javaClassName") or remote["exception"], remote["message"], answer.url.partition("?")[0])


class _Patient(requests.adapters.HTTPAdapter):
    def send(self, *words: Any, **named: Any) -> requests.Response:
        if named.get("timeout") is None:
            named["timeout"] = _TIMEOUTS
        return super().send(*words, **named)


def _arguments(filesystem: str, options: Mapping[str, str]) -> dict[str, Any]:
    scheme, _, authority = filesystem.partition("://")
    host, _, port = authority.partition(":")
    if not port.isdigit():
        raise UsageError(
            f"{filesystem}: name the host and port of a NameNode's HTTP server, as in webhdfs://namenode:9870/path"
        )
    given: dict[str, Any] = {name: options[name] for name in _OPTIONS if name in options}
    kerberos = options.get("hadoop.security.authentication") == "kerberos"
    if not kerberos and "token" not in given and "hadoop.user.name" in options:
        given.setdefault("user", options["hadoop.user.name"])
    return {"host": host, "port": int(port), "use_https": scheme == "swebhdfs", "kerberos": kerberos, **given}


def _path(uri: str) -> str:
    refuse_unusable(uri)
    return places.local_path(uri)


def _status(uri: str, found: Mapping[str, Any]) -> FileStatus:
    modified, permission = found["modificationTime"] / 1000, int(found["permission"], 8)
    return FileStatus(uri, places.name(uri), found["length"], found["type"] == "DIRECTORY", modified, permission)


@contextlib.contextmanager
def _telling(uri: str) -> Iterator[None]:
    """Errors name the place as the user wrote it; what HTTP met may pass, and its text may hold a token: not shown whole."""
    try:
        yield
    except requests.RequestException as error:
        text = _SECRET.sub(r"\1=…", str(error))[:300]
        raise Transient(errno.EIO, f"{type(error).__name__}: {text}", uri) from None
    except OSError as error:
        if isinstance(error.filename, str) and error.filename.startswith("http"):
            error.filename = uri
        raise
