"""`file:` on `os` directly: fsspec's local filesystem has neither fsync, exclusive create nor an atomic rename that
replaces, and its import alone costs a quarter of the time that a run with nothing to do may take.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat as modes
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import BinaryIO

from cpreplicate import uri as places
from cpreplicate.errors import Refused
from cpreplicate.storage.base import TEMPORARY, FileStatus, Storage


class LocalStorage(Storage):
    """Local and mounted directories. Durable by fsync of file and directory; atomic by rename(2)."""

    def open(self, uri: str) -> BinaryIO:
        return open(_path(uri), "rb", opener=_open_regular)

    def stat(self, uri: str) -> FileStatus | None:
        try:
            return _status(uri, os.stat(_path(uri)))
        except (FileNotFoundError, NotADirectoryError):
            return None

    def list(self, uri: str) -> list[FileStatus]:
        try:
            with os.scandir(_path(uri)) as entries:
                return list(_children(uri, entries))
        except FileNotFoundError:
            return []

    def put(self, uri: str, chunks: Iterable[bytes], expect: Callable[[int], None] | None = None) -> int:
        path = _path(uri)
        _make_directory(os.path.dirname(path))
        with _temporary(path) as temporary:
            length = _write(temporary, chunks)
            if expect is not None:
                expect(length)
            os.replace(temporary, path)
        _sync_directory(os.path.dirname(path))
        return length

    def create_exclusive(self, uri: str, data: bytes) -> bool:
        path = _path(uri)
        _make_directory(os.path.dirname(path))
        with _temporary(path) as temporary:
            _write(temporary, [data])
            try:
                os.link(temporary, path)  # link(2) fails if the name is taken, and shows only the whole file
            except FileExistsError:
                return False
        _sync_directory(os.path.dirname(path))
        return True

    def move(self, uri: str, new_uri: str) -> bool:
        try:
            os.rename(_path(uri), _path(new_uri))
        except FileNotFoundError:
            return False
        return True

    def delete(self, uri: str, durable: bool = False) -> bool:
        try:
            os.unlink(_path(uri))
        except FileNotFoundError:
            return False
        if durable:
            _sync_directory(os.path.dirname(_path(uri)))
        return True

    def rmdir(self, uri: str) -> bool:
        try:
            os.rmdir(_path(uri))
        except FileNotFoundError:
            return False
        except OSError:
            if os.listdir(_path(uri)):
                return False
            raise
        return True


def _path(uri: str) -> str:
    path = places.local_path(uri)
    try:
        unusable = b"\0" in os.fsencode(path) or not path.startswith("/")
    except UnicodeEncodeError:
        unusable = True
    if unusable:
        raise Refused(f"{uri!r} names no file that a filesystem could hold")
    return path


def _open_regular(path: str, flags: int) -> int:
    """Only regular files, whatever a `_metadata` names: a pipe would block for ever, and a device may have no end."""
    descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)
    mode = os.fstat(descriptor).st_mode
    if modes.S_ISREG(mode) or modes.S_ISDIR(mode):
        return descriptor  # open() itself tells that it is a directory
    os.close(descriptor)
    raise OSError(errno.EINVAL, "not a regular file", path)


def _make_directory(path: str) -> None:
    """With its parents; each new name is durable too, else a power loss could take the directory with all its files."""
    if os.path.isdir(path):
        return
    parent = os.path.dirname(path)
    _make_directory(parent)
    with contextlib.suppress(FileExistsError):
        os.mkdir(path)
    _sync_directory(parent)


def _status(uri: str, found: os.stat_result) -> FileStatus:
    return FileStatus(uri, places.name(uri), found.st_size, modes.S_ISDIR(found.st_mode), found.st_mtime)


def _children(uri: str, entries: Iterable[os.DirEntry[str]]) -> Iterator[FileStatus]:
    for entry in entries:
        with contextlib.suppress(FileNotFoundError):  # deleted between the listing and the look at it
            yield _status(places.join(uri, entry.name), entry.stat())


@contextlib.contextmanager
def _temporary(path: str) -> Iterator[str]:
    """A name beside `path` for a file that is not whole yet; gone afterwards, unless renamed."""
    temporary = os.path.join(os.path.dirname(path), TEMPORARY + uuid.uuid4().hex)
    try:
        yield temporary
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)


def _write(path: str, chunks: Iterable[bytes]) -> int:
    with open(path, "xb") as file:
        for chunk in chunks:
            file.write(chunk)
        file.flush()
        os.fsync(file.fileno())
        return file.tell()


def _sync_directory(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
