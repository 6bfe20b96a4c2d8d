"""Questions that only `doctor` asks, to which not every storage has an answer.

Each is one call that changes nothing, which a wrapper tries again as `stat`.
"""

from __future__ import annotations

from collections.abc import Sequence

from cpreplicate.storage.backends.hdfs.common import HdfsClientStorage
from cpreplicate.storage.backends.local.local import LocalStorage
from cpreplicate.storage.backends.objects.objects import ObjectStorage
from cpreplicate.storage.base import Storage
from cpreplicate.storage.statuses import DeletePolicy


def reach(storage: Storage, uri: str) -> None:
    """Ask the service about a URI; nothing need be there.

    Raises `FileNotFoundError` if the bucket of the URI does not exist.
    """

    def ask(plain: Storage) -> None:
        plain.reach(uri) if isinstance(plain, ObjectStorage) else plain.stat(uri)

    storage.as_one("stat", uri, ask)


def settings(storage: Storage) -> str:
    """Return the options that decide how files are stored, as a message has them. No call."""
    plain = storage.unwrapped
    if isinstance(plain, HdfsClientStorage):
        return f"new files have {plain.written}"
    return plain.settings if isinstance(plain, ObjectStorage) else ""


def lacking(storage: Storage, directory: str) -> Sequence[str]:
    """Return what the filesystem of a directory lacks, by a file that is removed again."""
    plain = storage.unwrapped
    return plain.lacking(directory) if isinstance(plain, LocalStorage) else ()


def service_time(storage: Storage, uri: str) -> float | None:
    """Return the time of the service in seconds since the epoch, None if it does not show it."""

    def ask(plain: Storage) -> float | None:
        return plain.service_time(uri) if isinstance(plain, ObjectStorage) else None

    return storage.as_one("stat", uri, ask)


def delete_policies(storage: Storage, uri: str) -> Sequence[DeletePolicy] | None:
    """Return what becomes of files that are deleted below a URI, None if it is not known."""

    def ask(plain: Storage) -> Sequence[DeletePolicy] | None:
        if isinstance(plain, (HdfsClientStorage, ObjectStorage)):
            return plain.delete_policies(uri)
        return () if isinstance(plain, LocalStorage) else None

    return storage.as_one("stat", uri, ask)
