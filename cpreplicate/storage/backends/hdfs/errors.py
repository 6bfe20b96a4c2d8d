"""Translate the exceptions of HDFS, whichever client received them.

They are distinguished by the Java class that the NameNode names.
"""

from __future__ import annotations

import errno
from collections.abc import Callable

from cpreplicate.core import uri as uris
from cpreplicate.storage.backends.hdfs.kerberos_errors import raised_for_kerberos
from cpreplicate.storage.base import DamagedFile, NoAnswer, NotAuthenticated, Transient


class Unread(Transient):
    """No DataNode returned a block of a file.

    That passes if DataNodes start again, or blocks are moved. Once it has lasted, `is_damaged` is
    asked. The client sets it.
    """

    is_damaged: Callable[[], bool] = staticmethod(lambda: False)

    def lasting(self, reason: str, uri: str) -> OSError:
        if self.is_damaged():
            return _damaged(self.filename or uri)
        return super().lasting(reason, uri)


class WrongChecksum(Transient):
    """What DataNodes returned of a file has other checksums than they keep of it."""

    def lasting(self, reason: str, uri: str) -> OSError:  # noqa: ARG002  # it is of each try
        return _damaged(self.filename or uri)


def _damaged(place: str) -> DamagedFile:
    return DamagedFile(
        errno.EIO,
        "it is damaged or lost: no DataNode returns a whole replica of one of its blocks."
        f" `hdfs fsck {uris.local_path(place)} -files -blocks -locations` shows which",
        place,
    )


_KINDS: dict[str, tuple[type[OSError], int]] = {
    "FileNotFoundException": (FileNotFoundError, errno.ENOENT),
    "FileAlreadyExistsException": (FileExistsError, errno.EEXIST),
    "AlreadyBeingCreatedException": (FileExistsError, errno.EEXIST),
    "AccessControlException": (PermissionError, errno.EACCES),
    "AuthorizationException": (PermissionError, errno.EACCES),
    "SecretManager$InvalidToken": (NotAuthenticated, errno.EACCES),
    "ParentNotDirectoryException": (NotADirectoryError, errno.ENOTDIR),
    "PathIsNotEmptyDirectoryException": (OSError, errno.ENOTEMPTY),
    "DSQuotaExceededException": (OSError, errno.EDQUOT),
    "NSQuotaExceededException": (OSError, errno.EDQUOT),
    "QuotaByStorageTypeExceededException": (OSError, errno.EDQUOT),
    "InvalidPathException": (OSError, errno.EINVAL),
    "HadoopIllegalArgumentException": (OSError, errno.EINVAL),
    "IllegalArgumentException": (OSError, errno.EINVAL),
    "UnsupportedOperationException": (OSError, errno.ENOTSUP),
    "NotInMountpointException": (OSError, errno.ENOTSUP),
    "UnknownCryptoProtocolVersionException": (OSError, errno.ENOTSUP),
    "BlockMissingException": (Unread, errno.EIO),
    "ChecksumException": (WrongChecksum, errno.EIO),
    "SocketTimeoutException": (NoAnswer, errno.ETIMEDOUT),
}
_HINTS = {
    "SafeModeException": (
        "the NameNode is in safe mode; wait until it leaves it, or see `hdfs dfsadmin -safemode"
        " get`"
    ),
    "StandbyException": "no NameNode of the nameservice is active",
    "RetriableException": (
        "the NameNode is there and takes no calls now: too many wait, or it is starting"
    ),
    "AccessControlException": "permission denied",
    "SecretManager$InvalidToken": (
        "the delegation token is not valid. Fetch new tokens into HADOOP_TOKEN_FILE_LOCATION, or"
        " unset that to use the ticket"
    ),
    "UnknownCryptoProtocolVersionException": (
        "the directory is in an encryption zone, in which hdfs-native cannot write. Use"
        " --hdfs-client hadoop"
    ),
    "DSQuotaExceededException": "the space quota is used up",
    "NSQuotaExceededException": "the quota of names is used up",
}
_KERBEROS = (
    "SIMPLE authentication is not enabled",
    "Server asks us to fall back to SIMPLE auth",
    "Failed to obtain user group information",  # of WebHDFS
    "is not allowed to impersonate",
    "No rules applied to",
)
_DIRECTORY = (
    "is a directory",
    "destination is directory",
    "is not a file",
    "must both be directories",
    "both should be",
)
_NO_DIRECTORY = "(is not a directory)"  # a file is above; the NameNode names it missing rights


def translated(java_class: str, message: str, uri: str) -> OSError:
    """Return the `OSError` for an exception of HDFS about a path.

    It is `Transient` if another try can help.
    """
    name = java_class.rpartition(".")[2]
    if any(sign in message for sign in _KERBEROS):
        return raised_for_kerberos(_line(message), uri)
    text = f"{_HINTS[name]}: {_line(message)}" if name in _HINTS else _line(message)
    if any(sign in message for sign in _DIRECTORY):
        return IsADirectoryError(errno.EISDIR, f"is a directory: {text}", uri)
    if _NO_DIRECTORY in message:
        return NotADirectoryError(errno.ENOTDIR, "a file is above it", uri)
    kind, number = _KINDS.get(name, (Transient, errno.EIO))
    return kind(number, text or name, uri)


def _line(message: str) -> str:
    """Return the message of a NameNode without the stack trace that follows it."""
    first = message.replace("\\n", "\n").strip().partition("\n")[0].strip()
    return first.replace('\\"', '"')[:400]
