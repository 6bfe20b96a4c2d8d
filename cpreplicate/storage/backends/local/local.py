"""Storage of `file:` URIs, on `os` directly.

fsspec's local filesystem has no fsync, no exclusive create and no atomic rename that replaces.
Importing it takes a quarter of the time that a run with nothing to do may take.
"""

from __future__ import annotations

import contextlib
import copy
import errno
import fcntl
import io
import os
import stat as modes
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, BinaryIO

from cpreplicate.core import uri as uris
from cpreplicate.core.sizes import counted
from cpreplicate.errors import Refused, TargetGone, UsageError, is_full
from cpreplicate.storage.backends.local import filesystem, mounts
from cpreplicate.storage.backends.local.filesystem import named, sync_directory
from cpreplicate.storage.backends.rename_commit import (
    RenamingStorage,
    blaming,
    temporary_name,
)
from cpreplicate.storage.base import Content, room_of
from cpreplicate.storage.statuses import Attributes, FileStatus, Listing, Space, new_listing

_LOCK_SECONDS = 1.0  # a take-over takes milliseconds, unless its process stands still
_PIECE = 64 << 10  # bytes: Python allocates as many for each read, and most files are smaller
_LOCK_PAUSE = 0.02  # seconds between two tries


class LocalStorage(RenamingStorage):
    """Local and mounted directories.

    Durable by fsync of file and directory, if the filesystem has one of directories; atomic by
    rename(2), and link(2) or renameat2(2). With `within`, no
    directory is made but below that one.
    """

    joins = True
    listed_a_call = 2  # each file that is listed is asked for its length

    def __init__(self, within: str | None = None) -> None:
        self._within = within

    def inside(self, directory: str) -> LocalStorage:
        self._left  # noqa: B018  # one for both
        other = copy.copy(self)
        other._within = _path(directory)
        return other

    def open(self, uri: str) -> BinaryIO:
        return io.BufferedReader(_File(_path(uri), opener=_open_regular))

    def read(self, uri: str, offset: int = 0, count: int | None = None) -> bytes:
        """Read a short file without a stream: most of a replica have some hundred bytes."""
        wanted = _PIECE if count is None else min(count, _PIECE)
        start = self._start(uri, offset, wanted)
        return start if len(start) < wanted or wanted == count else super().read(uri, offset, count)

    def _start(self, uri: str, offset: int, count: int) -> bytes:
        """Return so many bytes from an offset on, or fewer where the file ends before."""
        path = _path(uri)
        descriptor = _open_regular(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            if offset:
                os.lseek(descriptor, offset, os.SEEK_SET)
            return _read(descriptor, count)
        except OSError as error:  # as `named`, without a generator for each file
            error.filename = path
            raise
        finally:
            os.close(descriptor)

    def stat(self, uri: str) -> FileStatus | None:
        path = _path(uri)
        try:
            return _status(uri, uris.name(uri), os.stat(path), os.path.islink(path))
        except (FileNotFoundError, NotADirectoryError):
            return None

    def list(self, uri: str) -> list[FileStatus]:
        try:
            with os.scandir(_path(uri)) as entries:
                return list(_children(uri, entries))
        except FileNotFoundError:
            return []

    def listing(self, uri: str) -> Listing:
        listed = new_listing(uri)
        names, lengths, modified = listed.names, listed.lengths, listed.modified
        others = []
        with contextlib.suppress(FileNotFoundError), os.scandir(_path(uri)) as entries:
            for entry in entries:
                if not entry.is_file(follow_symlinks=False):
                    others.append(entry)
                    continue
                try:
                    status = entry.stat(follow_symlinks=False)
                except FileNotFoundError:  # deleted after the listing
                    continue
                names.append(entry.name)  # inline: there may be a million
                lengths.append(status.st_size)
                modified.append(status.st_mtime)
        listed.others.extend(_children(uri, others))
        return listed

    def write_new(self, uri: str, content: Content) -> int:
        path = _path(uri)
        chunks = content()
        _make_directory(os.path.dirname(path), self._within)
        with named(path), open(path, "xb", _PIECE) as file:
            for chunk in chunks:
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())
            return file.tell()

    def begin_join(self, uri: str, length: int) -> str | None:  # noqa: ARG002  # no room is kept
        joint = temporary_name(uri)
        self.write_new(joint, lambda: [])
        return joint

    def write_range(
        self, uri: str, joint: str, offset: int, content: Content, expect: Callable[[int], None]
    ) -> str:
        """Write into the unfinished file, which is not made anew if another run has removed it.

        A process that lives on may still have it open when it has its name: see docs/adr/0019.
        """
        path, length, chunks = _path(joint), 0, content()
        with blaming(uri, joint), named(path), open(path, "r+b", 0) as file:
            file.seek(offset)
            for chunk in chunks:
                file.write(chunk)
                length += len(chunk)
            expect(length)
            os.fsync(file.fileno())
        return ""

    def join(
        self,
        uri: str,
        joint: str,
        receipts: Sequence[str],  # noqa: ARG002  # all ranges are in one file
        length: int,
        attributes: Attributes | None = None,
    ) -> None:
        path = _path(joint)
        with blaming(uri, joint), named(path):
            with open(path, "rb") as file:  # for which a client of NFS asks the server anew
                written = os.fstat(file.fileno()).st_size
            if written != length:
                raise OSError(errno.EIO, f"it has {written} of {counted(length, 'byte')}", path)
            if attributes is not None:
                self.set_attributes(joint, attributes)
        self._let_appear(joint, uri)

    def give_up_join(self, uri: str, joint: str) -> None:  # noqa: ARG002  # it has a name
        self.delete(joint)

    def rename(self, uri: str, new_uri: str, replace: bool) -> bool:
        path, new_path = _path(uri), _path(new_uri)
        try:
            if replace:
                os.replace(path, new_path)
            else:
                filesystem.rename_new(path, new_path)
        except FileNotFoundError:
            return False
        sync_directory(os.path.dirname(new_path))
        if replace and os.path.dirname(path) != os.path.dirname(new_path):
            sync_directory(os.path.dirname(path))  # a withdrawal
        return True

    def create_exclusive(self, uri: str, data: bytes) -> bool:
        try:
            return super().create_exclusive(uri, data)
        except OSError as error:
            if not is_full(error):
                raise
            return self._fill(uri, uri, data, error, replace=False)

    def keep_room(self, uri: str, length: int) -> bool:
        filesystem.occupy(_path(room_of(uri)), length)
        return True

    def delete_into_room(self, uri: str) -> bool:
        room = _path(room_of(uri))
        if os.path.lexists(room):
            return self.delete(uri)
        try:
            os.rename(_path(uri), room)
        except FileNotFoundError:
            return False
        return True

    def fill_room(self, kept_for: str, uri: str, data: bytes) -> None:
        self._fill(kept_for, uri, data, None, replace=True)

    def _fill(
        self, kept_for: str, uri: str, data: bytes, error: OSError | None, replace: bool
    ) -> bool:
        """Write a file into the room that was kept: no block and no inode is allocated.

        Returns False if there is a file, unless `replace`. Raises the error if there is no room.
        """
        room = _path(room_of(kept_for))
        with self.temporary(uri) as temporary:
            try:
                os.rename(room, _path(temporary))  # one of several contenders gets it
            except FileNotFoundError as no_room:
                raise (error or no_room) from None
            filesystem.overwrite(_path(temporary), data)
            try:
                return self.rename(temporary, uri, replace)
            except FileExistsError:
                os.rename(_path(temporary), room)
                return False

    def take_over(self, uri: str, seen: bytes, data: bytes) -> bool:
        """Replace the file under flock(2) on its directory, which ends with the process.

        A process may die between link(2) and unlink(2), so these do not suffice. Returns False if
        another process holds the lock for long: it stands still, and no signal ends such a wait.
        """
        with (
            contextlib.suppress(FileNotFoundError),
            _locked(os.path.dirname(_path(uri))) as is_locked,
        ):
            if not is_locked:
                return False
            with self.open(uri) as stream:
                as_seen = stream.read(len(seen) + 1) == seen
            if as_seen:
                self._replace(uri, data)
            return as_seen
        return False

    def _replace(self, uri: str, data: bytes) -> None:
        try:
            self.put(uri, lambda: [data])
        except OSError as error:
            if not is_full(error):
                raise
            self._fill(uri, uri, data, error, replace=True)

    def set_attributes(self, uri: str, attributes: Attributes) -> None:
        path = _path(uri)
        if attributes.permission is not None:
            os.chmod(path, attributes.permission)
        os.utime(path, (attributes.modified, attributes.modified))

    def delete(self, uri: str, durable: bool = False) -> bool:
        try:
            os.unlink(_path(uri))
        except FileNotFoundError:
            return False
        if durable:
            sync_directory(os.path.dirname(_path(uri)))
        return True

    def real(self, uri: str) -> str:
        return uris.filesystem(uri) + os.path.realpath(_path(uri))

    def file_id(self, uri: str) -> object | None:
        """Return device and inode, which are the same for all links and for a bind mount."""
        try:
            status = os.stat(_path(uri))
        except OSError:
            return None
        return status.st_dev, status.st_ino

    def are_in_one_mount(self, uri: str, other: str) -> bool:
        return mounts.are_in_one_mount(os.path.realpath(_path(uri)), os.path.realpath(_path(other)))

    def mounts_below(self, uri: str) -> Sequence[str]:
        directory = os.path.realpath(_path(uri))
        return [os.path.relpath(point, directory) for point in mounts.points_below(directory)]

    def space(self, uri: str, briefly: bool) -> Sequence[Space]:  # noqa: ARG002  # one call
        path = _path(uri)
        while not os.path.lexists(path):
            path = os.path.dirname(path)
        status = os.statvfs(path)
        if not status.f_blocks:  # of a service that is mounted, and has no size
            return []
        # some filesystems, such as btrfs, count no files
        files = status.f_favail if status.f_files else None
        return [Space("the filesystem", status.f_bavail * status.f_frsize, files)]

    def lacking(self, uri: str) -> Sequence[str]:
        """Return what the filesystem of a directory lacks, by a file that is removed again."""
        return filesystem.lacking(_path(uri))

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
    is_plain = uri.startswith("file:/") and not uri.startswith("//", 5)
    path = uri[5:] if is_plain else uris.local_path(uri)
    if path.startswith("/") and path.isascii() and "\0" not in path:
        return path
    try:
        unusable = b"\0" in os.fsencode(path) or not path.startswith("/")
    except UnicodeEncodeError:
        unusable = True
    if unusable:
        raise Refused(f"{uri!r} names no file that a filesystem could hold")
    return path


class _File(io.FileIO):
    """A file that is read, whose errors have its path."""

    def readinto(self, buffer: Any) -> int:
        with named(str(self.name)):
            return super().readinto(buffer)

    def readall(self) -> bytes:
        with named(str(self.name)):
            return super().readall()


def _read(descriptor: int, count: int) -> bytes:
    """Return `count` bytes of an open file from its position on, or fewer where it ends before."""
    data = os.read(descriptor, count)
    while 0 < len(data) < count and (more := os.read(descriptor, count - len(data))):
        data += more
    return data


def _open_regular(path: str, flags: int) -> int:
    """Open a regular file, whatever a `_metadata` names.

    A pipe would block forever, and a device may have no end.
    """
    descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)
    mode = os.fstat(descriptor).st_mode
    if modes.S_ISREG(mode) or modes.S_ISDIR(mode):
        return descriptor  # open() itself raises for a directory
    os.close(descriptor)
    raise OSError(errno.EINVAL, "not a regular file", path)


def _make_directory(path: str, within: str | None) -> None:
    """Create a directory and its parents, those below `within` if that is given.

    Each new name is durable, too: otherwise a power loss could lose the directory with its files.
    Raises `TargetGone` if `within` is missing, and `UsageError` where no directory can be, as below
    `/proc`.
    """
    missing = []
    while not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path)
    if within is not None and within in missing:
        raise TargetGone(
            f"file:{within} is gone: it was unmounted, moved or removed during the run. Nothing was"
            " made in its place. Mount it again, and run again"
        )
    for directory in reversed(missing):
        _make_one(directory)


def _make_one(path: str) -> None:
    """Make a directory durably, unless it is there."""
    parent = os.path.dirname(path)
    try:
        os.mkdir(path)
    except FileExistsError:
        pass
    except FileNotFoundError as error:
        if not os.path.isdir(parent):
            raise  # another program removed it just now
        raise UsageError(
            f"file:{path} cannot be created: the filesystem of {parent} takes no directories."
            " Nothing was done. Give a path on another filesystem"
        ) from error
    sync_directory(parent)


def _status(uri: str, name: str, status: os.stat_result, is_link: bool) -> FileStatus:
    mode = status.st_mode
    return FileStatus(
        uri,
        name,
        status.st_size,
        modes.S_ISDIR(mode),
        status.st_mtime,
        modes.S_IMODE(mode),
        is_link,
    )


def _children(uri: str, entries: Iterable[os.DirEntry[str]]) -> Iterator[FileStatus]:
    for entry in entries:
        try:
            is_link = entry.is_symlink()
            leads_somewhere = not is_link or os.path.exists(entry.path)
            status = entry.stat(follow_symlinks=leads_somewhere)
        except FileNotFoundError:  # deleted after the listing
            continue
        yield _status(uris.join(uri, entry.name), entry.name, status, is_link)


@contextlib.contextmanager
def _locked(directory: str) -> Iterator[bool]:
    """Lock a directory while the block runs. Provides False if another process holds the lock."""
    descriptor = _Descriptor(directory)
    try:
        yield _is_locked(descriptor.number, time.monotonic() + _LOCK_SECONDS)
    finally:
        descriptor.close()


class _Descriptor:
    """An open directory. It is closed even if an exception comes just before `close`."""

    number = -1  # where it cannot be opened

    def __init__(self, path: str) -> None:
        self.number = os.open(path, os.O_RDONLY)

    def close(self) -> None:
        number, self.number = self.number, -1
        if number >= 0:
            os.close(number)

    __del__ = close


def _is_locked(descriptor: int, until: float) -> bool:
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                return False
            time.sleep(_LOCK_PAUSE)
        else:
            return True
