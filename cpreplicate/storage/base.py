"""The interface of all storages: the verbs of the commit protocol, each with its guarantee."""

from __future__ import annotations

import errno
import io
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO, NamedTuple, TypeAlias, TypeVar

from cpreplicate.errors import Refused
from cpreplicate.storage.statuses import Attributes, FileStatus, Listing, Space, new_listing

T = TypeVar("T")
TEMPORARY = ".cpreplicate-tmp-"
# Bytes: the ranges that are joined begin at multiples of it. That is the usual block of HDFS, and a
# multiple of the parts of an upload to S3.
RANGE = 128 << 20
ANSWER_COUNTS = 5.0  # seconds for which what is asked ahead counts, unless another time is given
CHUNK = 4 << 20  # bytes; single reads over 8 MiB cost memory and gain nothing on HDFS


def room_of(uri: str) -> str:
    """Return the URI of the file that occupies room for another one: see `Storage.keep_room`."""
    return f"{uri}-room"


Content: TypeAlias = Callable[[], Iterable[bytes]]
"""Yield the bytes of a file from the first, so that a put that failed can be tried again."""


class WriteSettings(NamedTuple):
    """Settings for files of HDFS. None is the default of the cluster; `block_size` is in bytes."""

    replication: int | None = None
    block_size: int | None = None


class Streamed(io.BufferedReader):
    """A stream with pieces of its own (packets of HDFS), best passed on as they arrive."""

    @abstractmethod
    def pieces(self) -> Iterator[bytes]:
        """Yield all bytes from the position of the stream; nothing may have been read before."""


_CHUNK = 8 << 20  # bytes of a read: a stream may set aside what is asked for


def read_up_to(stream: BinaryIO, count: int | None = None) -> bytes:
    """Return `count` bytes of a stream, or all that are left. A stream may return few at a time."""
    if count is None:
        return stream.read()
    pieces, left = io.BytesIO(), count  # which is not copied at the end, as joined pieces are
    while left > 0 and (piece := stream.read(min(left, _CHUNK))):
        pieces.write(piece)
        left -= len(piece)
    return pieces.getvalue()


class Transient(OSError):
    """A failure that may pass by itself.

    Examples are a lost connection, a node that died, and a server that is busy or starting. A run
    that ends with one has the exit code of a storage that could not be reached.
    """

    exit_code = 7

    def lasting(self, reason: str, uri: str) -> OSError:
        """Return what is raised once the failure has lasted too long, by the reason given."""
        return Unreachable(self.errno or errno.EIO, reason, self.filename or uri)


class NoAnswer(Transient):
    """A call was not answered before its deadline."""


class _WithPath(OSError):
    """A failure whose text begins with its path, and has no number."""

    def __str__(self) -> str:
        return f"{self.filename}: {self.strerror}"


class Unreachable(_WithPath, Transient):
    """A `Transient` failure that outlasted `--retry-for`. It is not tried again at once."""


class NotAuthenticated(_WithPath, PermissionError):
    """A storage, or Kerberos, does not accept the credentials, or there are none.

    It is not tried again at once, because a person has to change something, or to get a ticket. A
    run that ends with one has the exit code of a storage that could not be reached.
    """

    exit_code = 7


class DamagedFile(OSError):
    """A storage has a file and cannot return its content, and no other try helps.

    Such as a block of HDFS of which each DataNode has a damaged replica, or none: every read fails,
    and wrong bytes never come.
    """

    exit_code = 4

    def __str__(self) -> str:
        return f"{self.filename}: {self.strerror}"


class SourceMissing(FileNotFoundError):
    """The file to be copied does not exist. No failure at the target raises this."""


class NoBucket(_WithPath, FileNotFoundError):
    """The bucket or container of a URI does not exist."""

    exit_code = 10


class Storage(ABC):
    """One filesystem.

    Every failure, except those that a verb names, is an `OSError` with the path, and `Transient` if
    it may pass. Every verb raises `Refused` for a URI whose path no filesystem could hold (a NUL, a
    lone surrogate), or that contains what is `unusable`.
    """

    retries = False  # whether a verb is tried again after a failure that may pass
    closes_slowly = False  # whether the close of a file waits for more than its bytes
    closers = 0  # threads beside these `streams` that may wait for the close of a file
    streams = 8  # small files that are worth having in flight at once from one process
    copies_within = False  # whether the service itself copies a file within it: `copy_within`
    has_directories = True  # whether a directory may be there with nothing in it
    keeps_uploads = False  # whether a put that was killed stays, unseen, until it is aborted
    joins = False  # whether a file may be joined of ranges that several processes write
    counts_for_space = False  # whether `space` has the service count files
    needs_conditions = False  # whether the lease relies on conditions that a service may ignore
    answers_ahead = False  # whether `ask` begins anything: the storage is far away
    listed_a_call = 1_000  # files that are listed for the cost of a stat: HDFS, object stores
    lists_less = False  # whether a file that its writer has open may be longer than it lists
    # A text with a `?` that no path may contain: the client would take another path instead.
    unusable: str | None = None
    put_calls = 1  # metadata operations that a `put` costs; every other verb counts as one

    @property
    def unwrapped(self) -> Storage:
        """The storage itself, without its wrappers."""
        return self

    def inside(self, directory: str) -> Storage:  # noqa: ARG002  # most make no directories
        """Return this storage for files below a directory that it never makes.

        If the directory is gone, verbs that write raise `TargetGone`, where the storage can find
        that out: what is copied to a place that was unmounted must not fill the disk below it.
        """
        return self

    def carry_out(
        self,
        verb: str,  # noqa: ARG002  # for wrappers
        uri: str,  # noqa: ARG002  # for wrappers
        call: Callable[[], T],
    ) -> T:
        """Carry out a call as one verb on a URI; wrappers use both."""
        return call()

    def ask(  # noqa: B027  # most are not far away
        self, verb: str, *arguments: Any, seconds: float = ANSWER_COUNTS, times: int = 1
    ) -> None:
        """Begin a question, such as `list` of a URI, that is asked with the same arguments soon.

        The answer counts for some seconds from now on, and is given so many times. Only a wrapper
        of what is far away does so: see `wrappers.ahead`.
        """

    def answer(self, verb: str, *arguments: Any) -> Any:  # noqa: ARG002  # as above
        """Wait for the answer to what was asked, and return it; None without one.

        It is still there for who asks the question.
        """
        return None

    def as_one(self, verb: str, uri: str, calls: Callable[[Storage], T]) -> T:
        """Carry out several calls as one verb on a URI: wrappers try them again together.

        `calls` gets the storage without its wrappers.
        """
        return self.carry_out(verb, uri, lambda: calls(self.unwrapped))

    @abstractmethod
    def open(self, uri: str) -> BinaryIO:
        """Open a seekable stream of the file.

        Raises `FileNotFoundError`. Only regular files are opened, because others may have no end.
        """

    def open_extent(self, uri: str, extent: int) -> BinaryIO:  # noqa: ARG002  # of HDFS
        """Open a file as `open` does, of which at least the first `extent` bytes are needed.

        A file of HDFS may be longer than a listing has it: its writer has it open, and what it has
        flushed of the last block, only a DataNode knows. That is read too, then.
        """
        return self.open(uri)

    def read(self, uri: str, offset: int = 0, count: int | None = None) -> bytes:
        """Return the bytes of a file from an offset on: `count` of them, or all.

        There are fewer only if the file ends before. Raises `FileNotFoundError`. It is one call,
        which a wrapper tries again as a whole: what was read before a failure is not used.
        """
        with self.open(uri) as stream:
            if offset:
                stream.seek(offset)
            return read_up_to(stream, count)

    @abstractmethod
    def stat(self, uri: str) -> FileStatus | None:
        """Return the status of a URI, or None if nothing is there."""

    @abstractmethod
    def list(self, uri: str) -> list[FileStatus]:
        """List the direct children of a directory; there are none if it does not exist.

        It is one call (or one a page), however many children there are.
        """

    def listing(self, uri: str) -> Listing:
        """List the direct children of a directory as `list` does, in columns."""
        listed = new_listing(uri)
        for child in self.list(uri):
            if child.is_directory or child.is_link:
                listed.others.append(child)
            else:
                listed.add(child.name, child.length, child.modified, child.tag)
        return listed

    def files_named(
        self,
        uri: str,  # noqa: ARG002  # most list one directory at a time
        prefix: str,  # noqa: ARG002  # for those that override it
        name: str,  # noqa: ARG002  # for those that override it
        most: int,  # noqa: ARG002  # for those that override it
    ) -> Mapping[str, FileStatus] | None:
        """Return the files of this name in the directories of `uri` whose names have this prefix.

        They are by the name of their directory, each as `list` has it. It takes a call for each
        1,000 files that these directories hold, however many directories there are. None if that
        would be more than `most` calls, or the storage lists one directory at a time.
        """
        return None

    @abstractmethod
    def put(
        self,
        uri: str,
        content: Content,
        expect: Callable[[int], None] | None = None,
        attributes: Attributes | None = None,
        replace: bool = True,
    ) -> int:
        """Write a file so that it appears whole and durable, or not at all. Return its length.

        It replaces an existing file, or raises `FileExistsError` unless `replace`. Missing
        directories are made as durably. If `content` raises, or `expect`, which gets the length,
        nothing appears. `attributes` are set before the file appears, if the storage has them.
        """

    @abstractmethod
    def create_exclusive(self, uri: str, data: bytes) -> bool:
        """Create a file with these bytes; return False if one exists.

        Of several contenders one succeeds. No reader ever sees a partial file.
        """

    @abstractmethod
    def take_over(self, uri: str, seen: bytes, data: bytes) -> bool:
        """Replace a file that still holds `seen`; return False if it does not, or is gone.

        Of several contenders one succeeds.
        """

    def begin_join(self, uri: str, length: int) -> str | None:  # noqa: ARG002  # most cannot
        """Begin a file of about so many bytes, of ranges that processes on any host write.

        Returns what they need to know, the joint, or None if no file can be joined there. Nothing
        appears before `join`. What a run that died began is removed as other unfinished files are.
        """
        return None

    def write_range(
        self,
        uri: str,
        joint: str,
        offset: int,
        content: Content,
        expect: Callable[[int], None],
    ) -> str:
        """Write a range of a file durably; return a receipt for `join`.

        It begins at a multiple of `RANGE`, and so does the next one. `expect` gets its length, and
        may raise. A range may be written again, by a process that knows nothing of the first one;
        the bytes must be the same. Once the file is joined or given up, no write changes what is
        at its place to other bytes.
        """
        raise NotImplementedError

    def join(
        self,
        uri: str,
        joint: str,
        receipts: Sequence[str],
        length: int,
        attributes: Attributes | None = None,
    ) -> None:
        """Let a file appear as `put` does, of all its ranges in their order, `length` bytes."""
        raise NotImplementedError

    def give_up_join(self, uri: str, joint: str) -> None:  # noqa: B027  # most cannot join
        """Remove what was written of a file that is not to be joined."""

    def publish(
        self, uri: str, content: Content, check: Callable[[int], None], replace: bool
    ) -> int:
        """Write a file as `put` does, but not over what another run publishes after `check`.

        `check` gets the length, just before the file appears; the caller sees there that the lease
        is its own. If the caller is held up after that, and the file was replaced meanwhile, an
        error is raised, `FileExistsError` if `check` raises none. Where a put is a rename, a run
        that takes the lease over removes the temporary file, so the rename fails. Elsewhere the put
        is conditional.
        """
        return self.put(uri, content, check, None, replace)

    def withdraw(
        self,
        uri: str,
        aside: str,  # noqa: ARG002  # most have no rename
        check: Callable[[], None],
        keeps_aside: bool = False,  # noqa: ARG002  # for those that override it
    ) -> bool:
        """Remove a file durably, but not what another run publishes after `check`.

        Returns False if it was not there. A filesystem with rename moves it to `aside` first, a
        name of the caller's own: nothing is removed any more once another run has called
        `fence(aside)`. Elsewhere the delete is conditional. If that stops it, an error is raised:
        that of `check`, which is called again, if it raises one. `keeps_aside`: what is at `aside`
        stays, which the caller deletes.
        """
        check()
        return self.delete(uri, durable=True)

    def fence(self, aside: str) -> None:  # noqa: B027  # a storage without a fence does nothing
        """Let no `withdraw` with this name remove anything any more, where it renames."""

    def ignored_conditions(self, directory: str) -> Sequence[str]:  # noqa: ARG002  # most need none
        """Return the conditions that the service ignores, on which the verbs above rely.

        They are tried with a file in this directory, which is removed again.
        """
        return ()

    def keep_room(
        self,
        uri: str,  # noqa: ARG002  # most storages keep none
        length: int,  # noqa: ARG002  # for those that override it
    ) -> bool:
        """Occupy room for a small file, by the file `room_of(uri)` beside it.

        Where a filesystem is full, `create_exclusive` and `take_over` of the file use that up. No
        directory is made. Returns False, and does nothing, if the room of the storage is not that
        of one filesystem.
        """
        return False

    def fill_room(self, kept_for: str, uri: str, data: bytes) -> None:  # noqa: ARG002  # as above
        """Write a file as `put` does, into the room that was kept for a file in its directory.

        Nothing that a full filesystem lacks is allocated. Raises `FileNotFoundError` if no room is
        kept.
        """
        raise FileNotFoundError(errno.ENOENT, "no room is kept", room_of(kept_for))

    def delete_into_room(self, uri: str) -> bool:
        """Delete a file, and keep its room for the next one of its name: as of `keep_room`.

        No other program can take what the file occupied. Returns as `delete`.
        """
        return self.delete(uri)

    @abstractmethod
    def move(self, uri: str, new_uri: str) -> bool:
        """Rename a file into an existing directory; return False if the file is gone.

        Raises `FileExistsError`.
        """

    @abstractmethod
    def delete(self, uri: str, durable: bool = False) -> bool:
        """Delete one file, never a directory with files; return False if it was not there.

        If `durable`, the delete is durable before the call returns.
        """

    @abstractmethod
    def rmdir(self, uri: str) -> bool:
        """Delete an empty directory; return False if it was not there or not empty."""

    def rmdir_left(self, uri: str) -> bool:
        """Delete a directory as `rmdir` does, out of which the caller has just renamed a file.

        So that it is a directory need not be asked.
        """
        return self.rmdir(uri)

    def abort_uploads(
        self,
        directory: str,  # noqa: ARG002  # most storages keep none
        is_left: Callable[[str, float], bool],  # noqa: ARG002  # for those that override it
    ) -> Sequence[str]:
        """Abort the puts below a directory that were never completed and fit; return their URIs.

        `is_left` gets the URI and when it began, in seconds since the epoch, by the service.
        """
        return ()

    def real(self, uri: str) -> str:
        """Return the URI without symbolic links, if the filesystem has any."""
        return uri

    def file_id(self, uri: str) -> object | None:  # noqa: ARG002  # most storages have none
        """Return an id that only names of the same file or directory share, None if not known."""
        return None

    def are_in_one_mount(self, uri: str, other: str) -> bool:  # noqa: ARG002  # not known of most
        """Return whether no mount is between two directories, or below the first.

        Then a directory below the first has no second name above the other. False if not known.
        """
        return False

    def mounts_below(self, uri: str) -> Sequence[str]:  # noqa: ARG002  # not known of most
        """Return where something is mounted below a directory: paths relative to it."""
        return ()

    def space(self, uri: str, briefly: bool) -> Sequence[Space]:  # noqa: ARG002  # of services
        """Return what limits the files of a replica, which need not exist, as far as it is known.

        `briefly`: at most one call is made that has the service count files.
        """
        return ()

    def copy_within(self, uri: str, new_uri: str) -> int | None:
        """Let the service copy a file within it. Return the CRC32C of the copy if it computes one.

        Nothing passes through this process. The guarantees are those of `put`. Raises
        `SourceMissing`.
        """
        raise NotImplementedError


def refuse_unusable(uri: str) -> None:
    """Raise `Refused` for a URI that no filesystem could hold."""
    try:
        unusable = b"\0" in uri.encode()
    except UnicodeEncodeError:
        unusable = True
    if unusable:
        raise Refused(f"{uri!r} names no file that a filesystem could hold")
