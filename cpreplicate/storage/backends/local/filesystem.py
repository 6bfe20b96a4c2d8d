"""What not every mounted filesystem has: hard links, and fsync of directories.

Buckets mounted by FUSE and shares of SMB often lack one or both.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import uuid
from collections.abc import Iterator

from cpreplicate.errors import is_full
from cpreplicate.storage.base import TEMPORARY

_NO_LINKS = frozenset(
    (
        errno.EPERM,
        errno.EACCES,
        errno.ENOSYS,
        errno.EOPNOTSUPP,
        errno.EINVAL,
        errno.EMLINK,
        errno.EIO,  # of rclone
    )
)
_NO_FLAG = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EIO)
_NO_FSYNC = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EBADF, errno.EPERM)
_AT_FDCWD, _RENAME_NOREPLACE = -100, 1


def occupy(path: str, length: int) -> None:
    """Make a file that occupies so many bytes of its filesystem, unless it is there.

    It need not outlive a power loss, but no filesystem must find that it compresses well.
    """
    if os.path.lexists(path):
        return
    try:
        with named(path), open(path, "xb") as file:
            file.write(os.urandom(length))
    except FileExistsError:
        pass
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(path)
        raise


def overwrite(path: str, data: bytes) -> None:
    """Replace the content of a file in its place, durably: a short one in the blocks that it has.

    Nobody else may read the file meanwhile.
    """
    with named(path), open(path, "r+b") as file:
        file.write(data)
        file.truncate(len(data))
        file.flush()
        os.fsync(file.fileno())


def rename_new(path: str, new_path: str) -> None:
    """Rename a file atomically. Raises `FileExistsError` if the new name is taken.

    link(2) fails if it is, which rename(2) does not. Without links, renameat2(2) does it, and so it
    does where there is no room for a link: tmpfs counts it as an inode.
    """
    try:
        os.link(path, new_path)
    except OSError as error:
        if is_full(error) and not _renameat2(path, new_path):
            return
        if error.errno not in _NO_LINKS:
            raise
        _rename_noreplace(path, new_path, error)
        return
    os.unlink(path)


def _rename_noreplace(path: str, new_path: str, reason: OSError) -> None:
    """Rename without replacing. `reason` is why there was no link."""
    number = _renameat2(path, new_path)
    if not number:
        return
    if number in _NO_FLAG:
        raise OSError(
            errno.ENOTSUP,
            f"the filesystem has no hard links ({reason.strerror}) and no rename that leaves what"
            " is there (renameat2), so no lease can be held on it. Give a TARGET_ROOT on another"
            " filesystem, or reach a bucket as s3:, gs: or abfs: instead of a mount",
            new_path,
        ) from reason
    raise OSError(number, os.strerror(number), new_path)


def _renameat2(path: str, new_path: str) -> int:
    """Return the number of the error of renameat2(2) with RENAME_NOREPLACE, 0 if there is none."""
    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if call is None:
        return errno.ENOSYS
    names = os.fsencode(path), os.fsencode(new_path)
    failed = call(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_NOREPLACE)
    return ctypes.get_errno() if failed else 0


@contextlib.contextmanager
def named(path: str) -> Iterator[None]:
    """Give the errors of the block a path: those of an open file have none."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:  # else its text would be lost
            error.filename = path
        raise


def sync_directory(path: str) -> None:
    """Make the names in a directory durable, where its filesystem has an fsync for that."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        with named(path):
            os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NO_FSYNC:
            raise
    finally:
        os.close(descriptor)


def lacking(directory: str) -> list[str]:
    """Return what the filesystem of a directory lacks, by a file that is removed again."""
    file = os.path.join(directory, f"{TEMPORARY}{uuid.uuid4().hex}")
    found = []
    try:
        with open(file, "xb"):
            pass
        try:
            os.link(file, f"{file}-link")
        except OSError:
            found.append("hard links")
        if not _has_fsync(directory):
            found.append("fsync of directories")
    finally:
        for each in (f"{file}-link", file):
            with contextlib.suppress(OSError):
                os.unlink(each)
    return found


def _has_fsync(directory: str) -> bool:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True
