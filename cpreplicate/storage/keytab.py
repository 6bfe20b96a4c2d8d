"""Keytabs: the key of a Kerberos principal, one a side, as the operator names it.

A side carries the path and the principal, never the key. An executor reads a file of its own.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from cpreplicate.errors import UsageError
from cpreplicate.storage.base import NotAuthenticated

_VERSION = b"\x05\x02"


class Keytab(NamedTuple):
    """A principal, and the file that has its key."""

    principal: str
    path: str

    def of_this_host(self, filesystem: str) -> Keytab:
        """Return the whole name of the principal, and where its keytab is on this host.

        Without a file at its path, one of its name in the working directory is taken: that is where
        Spark puts what `--files` ships to an executor. Raises `NotAuthenticated` if there is none,
        or if it has no key for the principal.
        """
        path = self._existing(filesystem)
        try:
            known = list(dict.fromkeys(_principals(path.read_bytes())))
        except OSError as error:
            raise _unusable(f"the keytab {path}: {error.strerror}", filesystem) from error
        except (struct.error, ValueError):
            raise _unusable(f"{path} is not a keytab", filesystem) from None
        fitting = [each for each in known if each.partition("@")[0] == self.principal]
        if self.principal in known or fitting:
            return Keytab(self.principal if self.principal in known else fitting[0], str(path))
        raise _unusable(
            f"the keytab {path} has no key for {self.principal}, but for"
            f" {', '.join(known) or 'nobody'}. Correct the principal or the keytab",
            filesystem,
        )

    def _existing(self, filesystem: str) -> Path:
        path = Path(self.path)
        for each in (path, Path(path.name)):
            if each.exists():
                return each.absolute()
        raise _unusable(
            f"the keytab {self.path} is not on this host, and none of its name is in the working"
            " directory. Put it there on every host, or ship it with `--conf spark.files`",
            filesystem,
        )


def keytab_of(
    filesystem: str, options: Mapping[str, str], principal: str | None, path: str | None
) -> Keytab | None:
    """Return the keytab of a filesystem of HDFS on this host, None if its side has none.

    Raises `UsageError` if its configuration does not ask for Kerberos, and what `of_this_host`
    raises.
    """
    if principal is None or path is None:
        return None
    if options.get("hadoop.security.authentication") != "kerberos":
        raise UsageError(
            f"{filesystem}: a keytab is given, but hadoop.security.authentication is not kerberos"
            " in the configuration of this side. Name the directory of its core-site.xml with"
            " --source-conf or --target-conf"
        )
    return Keytab(principal, path).of_this_host(filesystem)


def _unusable(reason: str, filesystem: str) -> NotAuthenticated:
    return NotAuthenticated(errno.EACCES, reason, filesystem)


def _principals(data: bytes) -> Iterator[str]:
    """Yield the principals of the entries of a keytab. Raises `ValueError` and `struct.error`."""
    if data[:2] != _VERSION:
        raise ValueError("not a keytab")
    position = 2
    while position < len(data):
        (length,) = struct.unpack_from(">i", data, position)
        position += 4
        if length > 0:  # a hole has a negative one
            yield _principal(data[position : position + length])
        position += abs(length)


def _principal(entry: bytes) -> str:
    (count,) = struct.unpack_from(">H", entry)
    position, texts = 2, []
    for _ in range(count + 1):  # the realm comes first
        (length,) = struct.unpack_from(">H", entry, position)
        position += 2
        texts.append(entry[position : position + length].decode())
        position += length
    return f"{'/'.join(texts[1:])}@{texts[0]}"
