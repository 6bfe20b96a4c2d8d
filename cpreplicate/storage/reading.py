"""What can be done with a storage without changing anything there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, BinaryIO, Protocol, TypeVar

from cpreplicate.storage.base import ANSWER_COUNTS, Storage
from cpreplicate.storage.statuses import FileStatus, Listing, Space

T = TypeVar("T")


class Reading(Protocol):
    """The verbs of `Storage` that change nothing: see there.

    What has only this neither writes nor deletes, which the type checker proves.
    """

    has_directories: bool
    needs_conditions: bool
    keeps_uploads: bool
    unusable: str | None
    counts_for_space: bool
    listed_a_call: int
    lists_less: bool
    answers_ahead: bool

    def ask(
        self, verb: str, *arguments: Any, seconds: float = ANSWER_COUNTS, times: int = 1
    ) -> None: ...

    def answer(self, verb: str, *arguments: Any) -> Any: ...

    def as_one(self, verb: str, uri: str, calls: Callable[[Storage], T]) -> T: ...

    def open(self, uri: str) -> BinaryIO: ...

    def read(self, uri: str, offset: int = 0, count: int | None = None) -> bytes: ...

    def stat(self, uri: str) -> FileStatus | None: ...

    def list(self, uri: str) -> list[FileStatus]: ...

    def listing(self, uri: str) -> Listing: ...

    def files_named(
        self, uri: str, prefix: str, name: str, most: int
    ) -> Mapping[str, FileStatus] | None: ...

    def real(self, uri: str) -> str: ...

    def file_id(self, uri: str) -> object | None: ...

    def are_in_one_mount(self, uri: str, other: str) -> bool: ...

    def mounts_below(self, uri: str) -> Sequence[str]: ...

    def space(self, uri: str, briefly: bool) -> Sequence[Space]: ...


def is_stored(uri: str, storage: Reading) -> bool:
    """Return whether something is stored under a URI itself.

    An object store is asked by one request, which leaves out what is below: the status costs two
    where nothing is there. S3 may refuse that request for what is not there.
    """
    if not storage.has_directories:
        try:
            storage.read(uri, 0, 1)
        except (FileNotFoundError, IsADirectoryError):
            return False
        except PermissionError:
            pass
        else:
            return True
    return storage.stat(uri) is not None


def is_file(uri: str, storage: Reading) -> bool:
    """Return whether a file is at a URI; False where the user may not look.

    A listing of it is empty on an object store, and an error elsewhere.
    """
    with suppress(PermissionError):
        status = storage.stat(uri) if is_stored(uri, storage) else None
        return status is not None and not status.is_directory
    return False
