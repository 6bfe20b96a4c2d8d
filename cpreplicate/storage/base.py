"""The storage seam: the few verbs that the commit protocol needs, each with its guarantee."""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import BinaryIO, NamedTuple, TypeAlias, TypeVar

from cpreplicate.errors import Refused

T = TypeVar("T")
TEMPORARY = ".cpreplicate-tmp-"
CHUNK = 4 << 20  # bytes; single reads over 8 MiB cost memory and gain nothing on HDFS

Content: TypeAlias = Callable[[], Iterable[bytes]]
"""The bytes of a file, from their beginning each time it is called: a put that failed can be tried again."""


class Streamed(io.BufferedReader):
    """A stream that has its bytes in pieces of its own, such as the packets of HDFS, which are best
    passed on as they come.
    """

    @abstractmethod
    def pieces(self) -> Iterator[bytes]:
        """All bytes from the position where the stream is, which must not have been read from
        before.
        """


class Transient(OSError):
    """A failure that may pass by itself: a lost connection, a node that died, a server that is busy
    or starting.

    A run that ends by one has the exit code for a storage that could not be reached.
    """

    exit_code = 7


class Unreachable(Transient):
    """A `Transient` failure that lasted longer than `--retry-for`. Nobody tries again at once."""

    def __str__(self) -> str:
        return f"{self.filename}: {self.strerror}"


class SourceMissing(FileNotFoundError):
    """The file to be copied does not exist. No failure at the target raises this."""


class Attributes(NamedTuple):
    """What `--preserve` carries over: permission bits, or None where the storage has none, and
    seconds since the epoch.
    """

    permission: int | None
    modified: float


class FileStatus(NamedTuple):
    """What a storage knows of a file or directory; `length` in bytes, `modified` in seconds since
    the epoch.

    Of a symbolic link it tells what the link leads to.
    """

    uri: str
    name: str
    length: int
    is_directory: bool
    modified: float
    permission: int | None = None
    is_link: bool = False

    @property
    def attributes(self) -> Attributes:
        """What another file can be given of it."""
        return Attributes(self.permission, self.modified)


class Storage(ABC):
    """One filesystem. Every failure but those named is an `OSError` that names the path;
    `Transient` if it may pass.

    A place whose path no filesystem could hold (a NUL, a lone surrogate) is `Refused` by every
    verb.
    """

    streams = 8  # small files that are worth having in flight at once from one process
    copies_its_own = False  # whether `copy_from` works between two storages of this class
    has_directories = True  # whether a directory may be there with nothing in it
    put_calls = 1  # metadata operations that a `put` costs; every other verb counts as one

    @property
    def unwrapped(self) -> Storage:
        """The storage itself, without what limits, retries or traces it."""
        return self

    # what wraps a storage looks at them
    def around(
        self,
        verb: str,  # noqa: ARG002  # for wrappers
        uri: str,  # noqa: ARG002  # for wrappers
        call: Callable[[], T],
    ) -> T:
        """Carry out a call as one verb at a place."""
        return call()

    @abstractmethod
    def open(self, uri: str) -> BinaryIO:
        """A seekable stream of the file.

        Raises `FileNotFoundError`; only regular files, which end, are opened.
        """

    @abstractmethod
    def stat(self, uri: str) -> FileStatus | None:
        """The status, or None if nothing is there."""

    @abstractmethod
    def list(self, uri: str) -> list[FileStatus]:
        """The direct children of a directory, none if it is not there.

        One call (a page), however many children.
        """

    @abstractmethod
    def put(
        self,
        uri: str,
        content: Content,
        expect: Callable[[int], None] | None = None,
        attributes: Attributes | None = None,
        replace: bool = True,
    ) -> int:
        """Write a file so that it appears whole and durable, or not at all. Returns its length.

        It replaces a file that is there, or, if not to `replace`, raises `FileExistsError`.
        Directories on the way to it are made, as durably. `expect` may look at the length and
        raise, and `content` may raise: then nothing appears. `attributes` are set before the file
        appears, where the storage has them.
        """

    @abstractmethod
    def create_exclusive(self, uri: str, data: bytes) -> bool:
        """Create a file with these bytes unless one is there; False if it is.

        Never seen half-written.
        """

    @abstractmethod
    def take_over(self, uri: str, seen: bytes, data: bytes) -> bool:
        """Replace a file that still holds `seen`; False if it does not, or is gone.

        Of several contenders one succeeds.
        """

    @abstractmethod
    def move(self, uri: str, new_uri: str) -> bool:
        """Give a file another name in a directory that is there; False if it is gone.

        Raises `FileExistsError`.
        """

    @abstractmethod
    def delete(self, uri: str, durable: bool = False) -> bool:
        """Delete one file, never what a directory holds; False if it was not there.

        `durable`: before all that follows.
        """

    @abstractmethod
    def rmdir(self, uri: str) -> bool:
        """Delete an empty directory; False if it was not there or not empty."""

    def real(self, uri: str) -> str:
        """The place without the symbolic links on the way to it, where the filesystem has any."""
        return uri

    def file_id(self, uri: str) -> object | None:  # noqa: ARG002  # most storages have none
        """What is the same for two names of one file or directory, and for nothing else.

        None where that is not known.
        """
        return None

    def known_crc32c(self, uri: str) -> int | None:  # noqa: ARG002  # most storages keep none
        """The CRC32C of the whole file where the storage tells it without the file being read, else
        None.
        """
        return None

    def copy_from(
        self, source: Storage, source_uri: str, uri: str, check: Callable[[int], None]
    ) -> tuple[int, int]:
        """Copy from another storage of this class by its own means: (bytes, CRC32C).

        The guarantees are those of `put`.
        """
        raise NotImplementedError


def refuse_unusable(uri: str) -> None:
    """Raise `Refused` for a place that no filesystem could hold."""
    try:
        unusable = b"\0" in uri.encode()
    except UnicodeEncodeError:
        unusable = True
    if unusable:
        raise Refused(f"{uri!r} names no file that a filesystem could hold")
