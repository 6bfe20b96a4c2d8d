"""`hdfs:` and `viewfs:` through hdfs-native: no JVM, and many files in flight from one process.

Its fsspec class is not used. It cuts paths at `?` and `#`, and it publishes a partial file when an
exception leaves a `with` block. The environment (HADOOP_CONF_DIR) is not consulted: everything
needed to reach a cluster is in its options.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar, cast

from cpreplicate.core import uri as uris
from cpreplicate.core.sizes import counted
from cpreplicate.errors import UsageError
from cpreplicate.storage.backends.hdfs.common import (
    HdfsClientStorage,
    Usage,
    path_of,
    uses_kerberos,
    written_as,
)
from cpreplicate.storage.backends.hdfs.damage import Arrivals
from cpreplicate.storage.backends.native.connections import break_connections
from cpreplicate.storage.backends.native.errors import ErrorsAt, NativeErrors
from cpreplicate.storage.backends.native.tokens import named_as_in_tokens
from cpreplicate.storage.base import (
    CHUNK,
    TEMPORARY,
    Content,
    NoAnswer,
    Streamed,
    WriteSettings,
    refuse_unusable,
)
from cpreplicate.storage.keytab import Keytab
from cpreplicate.storage.statuses import Attributes, FileStatus, Listing, new_listing
from cpreplicate.storage.streams.positioned import PositionedReader
from cpreplicate.storage.waiting.closing import close_promptly
from cpreplicate.storage.waiting.deadlines import DEFAULT, Deadline
from cpreplicate.storage.waiting.work_slots import waiting

if TYPE_CHECKING:
    from hdfs_native import Client, FileReader, FileWriter

T = TypeVar("T")
# a directory must be named, else hdfs-native reads that of the environment
_NO_CONFIGURATION = "/nonexistent"
_NOWHERE = f"{TEMPORARY}not-mounted"
# few tries: `Retrying` tries again, and knows when a whole cluster is down
_PATIENCE = {
    "dfs.client.failover.max.attempts": "3",
    "dfs.client.failover.sleep.base.millis": "100",
    "dfs.client.failover.sleep.max.millis": "500",
}
# Bytes of a file for which Hadoop's client is started, if it is not: that takes about two seconds,
# and the trial of `concat` another one
_WORTH_A_JVM = 1 << 30
_LISTED = 500  # children of a directory between two looks at the clock: half a page of HDFS


class HdfsStorage(HdfsClientStorage):
    """One nameservice, NameNode or viewfs mount table.

    A file is durable when the DataNodes have acknowledged it, and renames are atomic by
    `ClientProtocol.rename2`. With OVERWRITE it replaces a file in one step, and without it fails if
    a file is there. The old `rename` would move into a directory of that name.
    """

    # closing a small file sleeps (HDFS's `complete` answers "not yet"), so throughput needs many
    # files in flight
    streams = 64
    closers = 64
    closes_slowly = True
    _was_broken = False  # the connection to a NameNode, and nothing was asked since

    def __init__(
        self,
        filesystem: str,
        options: Mapping[str, str],
        write: WriteSettings,
        deadline: float = DEFAULT,
        namenodes: Sequence[str] = (),
        keytab: Keytab | None = None,
        mounts: Sequence[str] = (),
        hadoop: Callable[[], HdfsClientStorage] | None = None,
    ) -> None:
        """`deadline` is in seconds; `namenodes` are addresses as `host:port`, if they are known.

        `mounts` are the directories of a view that has nothing beside them. `hadoop` returns the
        same filesystem by Hadoop's client.
        """
        self._filesystem = filesystem
        self._options, self.written = options, written_as(write, options)
        self.replication = self.written.expected_replication
        self._arrivals = Arrivals(self)
        self._errors = NativeErrors(options, namenodes, self._arrivals)
        self._mounts = mounts
        self._hadoop = hadoop
        self._client = _client(filesystem, _with_fallback(filesystem, options, mounts), keytab)
        named = " and ".join(namenodes) or f"of {filesystem}"
        self._namenodes = namenodes
        self._namenode = Deadline(deadline, filesystem, f"the NameNode {named}", self._break)
        self._datanodes = Deadline(deadline, filesystem, "a DataNode or the NameNode")
        # a NameNode that counts files is not a silent one
        self._counting = Deadline(deadline, filesystem, f"the NameNode {named}")

    def carry_out(self, verb: str, uri: str, call: Callable[[], T]) -> T:  # noqa: ARG002  # of the interface
        return self._namenode.run(lambda: self._with_the_active_one(uri, call))

    def _break(self) -> None:
        self._was_broken = True
        break_connections(self._namenodes)

    def _with_the_active_one(self, uri: str, call: Callable[[], T]) -> T:
        """Make a call. After a silence, let hdfs-native turn to the NameNode that answers before.

        It does so for a question whose connection breaks, and not for a change.
        """
        if self._was_broken and len(self._namenodes) > 1:
            try:
                self._namenode.call(self._client.get_file_info, path_of(uri))
            except NoAnswer:  # another call asks
                raise
            except (OSError, RuntimeError):  # an answer, too
                pass
            self._was_broken = False
        return call()

    def open(self, uri: str) -> BinaryIO:
        return cast(BinaryIO, _Stream(self._packets_of(uri)))

    def _packets_of(self, uri: str) -> _Packets:
        with self._errors.at(uri):
            file = self._namenode.call(self._client.read, path_of(uri))
            return _Packets(file, self._errors.at(uri), self._datanodes, self._arrivals)

    def open_extent(self, uri: str, extent: int) -> BinaryIO:
        """Open a file, by Hadoop's client if it is open and has less in its complete blocks.

        hdfs-native does not read the last block of a file that its writer has open.
        """
        packets = self._packets_of(uri)
        if packets.length() >= extent or self._hadoop is None:
            return cast(BinaryIO, _Stream(packets))
        if not self._may_be_open(uri):
            return self.open(uri)  # again: it may have been closed just now
        try:
            return self._hadoop().open(uri)
        except UsageError as error:
            raise UsageError(
                f"{uri} has {counted(packets.length(), 'byte')} in complete blocks, and the"
                f" checkpoint needs {extent}. Its writer has it open: Hadoop's client reads what"
                " is flushed of the last block, and so does WebHDFS, but hdfs-native does not."
                " Install Java 17 or later and pyspark, here and on each executor, or name the"
                f" SOURCE by webhdfs:, with --remap {self._filesystem}=webhdfs://NAMENODE:9870"
            ) from error

    def _may_be_open(self, uri: str) -> bool:
        """Return whether a writer may have a file open.

        A block counts for the space consumed as a full one until it is complete.
        """
        with self._errors.at(uri):
            status = self._namenode.call(self._client.get_file_info, path_of(uri))
            summary = self._namenode.call(self._client.get_content_summary, path_of(uri))
        replication = status.replication or 0  # which erasure coding has not
        return not replication or bool(summary.space_consumed != status.length * replication)

    def stat(self, uri: str) -> FileStatus | None:
        try:
            with self._errors.at(uri):
                return _status(uri, self._namenode.call(self._client.get_file_info, path_of(uri)))
        except (FileNotFoundError, NotADirectoryError):
            return None

    def list(self, uri: str) -> list[FileStatus]:
        return [
            _status(uris.join(uri, uris.name(status.path)), status)
            for status in self._statuses(uri)
        ]

    def listing(self, uri: str) -> Listing:
        listed = new_listing(uri)
        for status in self._statuses(uri):
            name = uris.name(status.path)
            if status.isdir:
                listed.others.append(_status(uris.join(uri, name), status))
            else:
                listed.add(name, status.length, status.modification_time / 1000)
        return listed

    def _statuses(self, uri: str) -> Sequence[Any]:
        try:
            with self._errors.at(uri):
                statuses = self._namenode.call(self._listed, path_of(uri))
        except FileNotFoundError:
            return []
        if len(statuses) == 1 and not statuses[0].isdir and statuses[0].path == path_of(uri):
            raise NotADirectoryError(errno.ENOTDIR, "is a file", uri)
        return statuses

    def _listed(self, path: str) -> Sequence[Any]:
        """Return the children of a directory. A large one takes many calls, one a page."""
        statuses = []
        for status in self._client.list_status(path):
            statuses.append(status)
            if len(statuses) % _LISTED == 0:
                self._namenode.progress()
        return statuses

    def write_new(self, uri: str, content: Content) -> int:
        from hdfs_native import WriteOptions

        self._refuse_unmounted(uri)
        options = WriteOptions(
            replication=self.written.replication,
            block_size=self.written.block_size,
            permission=self.written.permission,
            create_parent=True,
        )
        length, chunks = 0, content()  # first: a source that is not there costs no call here
        errors, began = self._errors.at(uri), time.monotonic()
        with errors:
            writer = self._namenode.call(self._client.create, path_of(uri), options)
        round_trip = time.monotonic() - began
        for chunk in chunks:  # outside: an error of the source must not name this file
            with errors:
                length += self._datanodes.call(writer.write, chunk)
        waiting()  # for the NameNode to know of the last block
        with errors:
            self._datanodes.call(self._close, writer, path_of(uri), length, round_trip)
        return length

    def _close(self, writer: FileWriter, path: str, length: int, round_trip: float) -> None:
        close_promptly(writer.close, lambda: self._is_closed(path, length), round_trip)

    def _is_closed(self, path: str, length: int) -> bool:
        """Close a file if all its blocks are complete, and return whether it is closed.

        hdfs-native sleeps 500 ms when the NameNode answers `complete` with "not yet", although the
        DataNode reports the last block some milliseconds later. From then on, the block is
        COMPLETE, the locations of the file's blocks reach to its end (those of an open file end
        before the first block that is not), and `recoverLease` only has to close the file. With a
        block that is not COMPLETE it would begin a recovery, so it is never called before. A later
        `complete` of hdfs-native finds the file closed.
        """
        try:
            is_complete = len(self._client.read(path)) == length
            return is_complete and self._client.recover_lease(path)
        except (OSError, RuntimeError):  # the close itself reports what is wrong
            return False

    def _refuse_unmounted(self, uri: str) -> None:
        """Raise `OSError` for a place in a view to which no link leads: there is no filesystem."""
        path = path_of(uri)
        if self._mounts and not any(uris.below(path, mount) for mount in self._mounts):
            raise OSError(errno.EROFS, "no link of the mount table of viewfs leads there", uri)

    def rename(self, uri: str, new_uri: str, replace: bool) -> bool:
        refuse_unusable(new_uri)
        self._refuse_unmounted(new_uri)
        try:
            with self._errors.at(new_uri):
                self._namenode.change(self._client.rename, path_of(uri), path_of(new_uri), replace)
        except FileNotFoundError:
            return False
        return True

    def begin_join(self, uri: str, length: int) -> str | None:
        """Begin a file for which the start of Hadoop's client is worth it: hdfs-native has no
        `concat`.
        """
        return super().begin_join(uri, length) if length >= _WORTH_A_JVM else None

    def concat(self, uri: str, others: Sequence[str]) -> None:
        if self._hadoop is None:
            raise NotImplementedError
        self._hadoop().concat(uri, others)

    def set_attributes(self, uri: str, attributes: Attributes) -> None:
        with self._errors.at(uri):
            if attributes.permission is not None:
                self._namenode.change(
                    self._client.set_permission, path_of(uri), attributes.permission
                )
            milliseconds = int(attributes.modified * 1000)
            self._namenode.change(self._client.set_times, path_of(uri), milliseconds, milliseconds)

    def delete_path(self, uri: str) -> bool:
        with self._errors.at(uri):
            return self._namenode.change(self._client.delete, path_of(uri), False)

    def trash_minutes(self, uri: str) -> float | None:  # noqa: ARG002  # hdfs-native does not ask
        minutes = self._options.get("fs.trash.interval")
        return float(minutes) if minutes else None

    def usage(self, uri: str) -> Usage:
        with self._errors.at(uri):
            summary = self._counting.call(self._client.get_content_summary, path_of(uri))
        names = summary.file_count + summary.directory_count
        return Usage(summary.quota, names, summary.space_quota, summary.space_consumed)


class _Stream(Streamed):
    """A file in packets of 64 KiB.

    The next packet is under way while one is written. Larger pieces would wait for it.
    """

    def __init__(self, packets: _Packets) -> None:
        super().__init__(PositionedReader(packets.read_at, packets.length), CHUNK)
        self._packets = packets

    def pieces(self) -> Iterator[bytes]:
        return self._packets.pieces()


class _Packets:
    """What DataNodes send of a file: through one connection a block, another one after a seek."""

    def __init__(
        self, file: FileReader, errors: ErrorsAt, deadline: Deadline, arrivals: Arrivals
    ) -> None:
        self._file, self._errors, self._deadline = file, errors, deadline
        self._arrivals = arrivals
        self._position = 0  # of the next byte that arrives
        self._packets: Iterator[bytes] | None = None
        self._rest = memoryview(b"")

    def length(self) -> int:
        """Return the length of the file."""
        return len(self._file)

    def pieces(self) -> Iterator[bytes]:
        """Yield the packets as they arrive."""
        with self._errors:
            while packet := self._next_packet():
                yield packet

    def read_at(self, position: int, buffer: memoryview) -> int:
        """Read bytes at a position into a buffer; return how many."""
        if position != self._position - len(self._rest):
            self._position, self._packets, self._rest = position, None, memoryview(b"")
        if not self._rest:
            with self._errors:
                self._rest = memoryview(self._next_packet())
        count = min(len(buffer), len(self._rest))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count

    def _next_packet(self) -> bytes:
        if self._position >= len(self._file):
            return b""
        if self._packets is None:
            left = len(self._file) - self._position
            self._packets = iter(self._file.read_range_stream(self._position, left))
        packet: bytes = self._deadline.call(next, self._packets, b"")
        self._arrivals.note()
        self._position += len(packet)
        return packet


def _client(filesystem: str, options: Mapping[str, str], keytab: Keytab | None) -> Client:
    """Return a client of hdfs-native. Raises `UsageError` if it cannot be configured."""
    try:
        from hdfs_native import Client
    except ImportError as error:
        raise UsageError(
            f"{filesystem}: the Python package hdfs-native cannot be imported ({error}). It is a"
            " dependency of cpreplicate: install it with `pip install hdfs-native`, here and on"
            " every executor"
        ) from error
    # the user of the run, not that of the executor; hdfs-native has no other setting for it
    if "hadoop.user.name" in options:
        os.environ["HADOOP_USER_NAME"] = options["hadoop.user.name"]
    try:
        return Client(
            named_as_in_tokens(filesystem) if uses_kerberos(options) else filesystem,
            _PATIENCE | dict(options),
            config_dir=_NO_CONFIGURATION,
            kerberos_principal=None if keytab is None else keytab.principal,
            kerberos_keytab=None if keytab is None else keytab.path,
        )
    except (RuntimeError, ValueError, OSError) as error:
        raise UsageError(
            f"{filesystem}: {error}. Name the directory of its hdfs-site.xml with --source-conf or"
            " --target-conf, or a NameNode with its port. A mount table of viewfs with"
            " linkMergeSlash or regular expressions needs --hdfs-client hadoop"
        ) from error


def _with_fallback(
    filesystem: str, options: Mapping[str, str], mounts: Sequence[str]
) -> Mapping[str, str]:
    """Return options by which hdfs-native takes a view without a fallback, which it demands.

    What no link leads to is then looked for where nothing is.
    """
    if not mounts:
        return options
    prefix = f"fs.viewfs.mounttable.{filesystem.partition('://')[2]}.link"
    target = options[f"{prefix}.{mounts[0]}"].rstrip("/")
    return {**options, f"{prefix}Fallback": f"{target}/{_NOWHERE}"}


def _status(uri: str, status: Any) -> FileStatus:
    modified, permission = status.modification_time / 1000, status.permission & 0o7777
    return FileStatus(uri, uris.name(uri), status.length, status.isdir, modified, permission)
