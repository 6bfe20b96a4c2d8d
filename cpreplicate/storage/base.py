"""The storage seam: the few verbs that the commit protocol needs, each with its guarantee."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import BinaryIO, NamedTuple

TEMPORARY = ".cpreplicate-tmp-"


class FileStatus(NamedTuple):
    """What a storage knows of a file or directory; `length` in bytes, `modified` in seconds since the epoch."""

    uri: str
    name: str
    length: int
    is_directory: bool
    modified: float


class Storage(ABC):
    """One filesystem. Every failure but those named is an `OSError` that names the path.

    A place whose path no filesystem could hold (a NUL, a lone surrogate) is `Refused` by every verb.
    """

    @abstractmethod
    def open(self, uri: str) -> BinaryIO:
        """A seekable stream of the file. Raises `FileNotFoundError`; only regular files, which end, are opened."""

    @abstractmethod
    def stat(self, uri: str) -> FileStatus | None:
        """The status, or None if nothing is there."""

    @abstractmethod
    def list(self, uri: str) -> list[FileStatus]:
        """The direct children of a directory, none if it is not there. One call, however many children."""

    @abstractmethod
    def put(self, uri: str, chunks: Iterable[bytes], expect: Callable[[int], None] | None = None) -> int:
        """Write a file so that it appears whole and durable, or not at all; replaces one that is there. Returns its length.

        Directories on the way to it are made, as durably.

        `expect` may look at the length and raise, and `chunks` may raise: then nothing appears.
        """

    @abstractmethod
    def create_exclusive(self, uri: str, data: bytes) -> bool:
        """Create a file with these bytes unless one is there; False if it is. Never seen half-written."""

    @abstractmethod
    def move(self, uri: str, new_uri: str) -> bool:
        """Rename atomically; False if it was not there, so that of several contenders only one succeeds."""

    @abstractmethod
    def delete(self, uri: str, durable: bool = False) -> bool:
        """Delete one file, never a directory; False if it was not there. `durable`: before anything that is done later."""

    @abstractmethod
    def rmdir(self, uri: str) -> bool:
        """Delete an empty directory; False if it was not there or not empty."""
