"""Storage of `hdfs:` and `viewfs:` URIs through Apache Hadoop's own client, in a separate JVM.

`--hdfs-client hadoop` selects it. It works where hdfs-native fails: with DataNodes that died, in
encryption zones, and with whatever else a cluster requires of its clients. The environment
(HADOOP_CONF_DIR) is not consulted.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import io
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO, cast

from cpreplicate.core import uri as uris
from cpreplicate.storage.backends.hdfs.common import HdfsClientStorage, Usage, written_as
from cpreplicate.storage.backends.hdfs.damage import Arrivals
from cpreplicate.storage.backends.hdfs.errors import Unread
from cpreplicate.storage.backends.hdfs.kerberos_errors import hint_about
from cpreplicate.storage.backends.jvm import client as jvm_client
from cpreplicate.storage.backends.jvm import launcher as jvm_launcher
from cpreplicate.storage.backends.jvm.client import Exchange, Jvm
from cpreplicate.storage.backends.jvm.cluster import Cluster, reached
from cpreplicate.storage.backends.jvm.errors import raised_for
from cpreplicate.storage.base import (
    Content,
    NoAnswer,
    NotAuthenticated,
    Transient,
    WriteSettings,
    refuse_unusable,
)
from cpreplicate.storage.keytab import Keytab
from cpreplicate.storage.statuses import Attributes, FileStatus, Space
from cpreplicate.storage.streams.positioned import PositionedReader
from cpreplicate.storage.waiting.bounds import answered, limit
from cpreplicate.storage.waiting.deadlines import DEFAULT

_FS = "org.apache.hadoop.fs"
_OPTIONS = {
    # 400 otherwise; see `streams`
    "dfs.client.block.write.locateFollowingBlock.initial.delay.ms": "10",
    "dfs.client.block.write.locateFollowingBlock.retries": "11",  # each twice as long: 20 s in all
    # 2 MiB a file; 80 otherwise, and many files share the heap
    "dfs.client.write.max-packets-in-flight": "32",
    "ipc.client.connect.timeout": "5000",
    "ipc.client.connect.max.retries": "3",
    "ipc.client.connect.max.retries.on.sasl": "1",  # what a KDC answers does not pass in seconds
    "hadoop.kerberos.min.seconds.before.relogin": "5",
    "ipc.client.connect.max.retries.on.timeouts": "2",
    "dfs.client.failover.max.attempts": "8",
    "dfs.client.failover.sleep.max.millis": "2000",
    "fs.viewfs.mount.links.as.symlinks": "false",  # but as the directories that they are
    "fs.automatic.close": "false",  # else the JVM, when it ends, waits for a NameNode that is down
}
# Seconds after its own timeout in which the client reports it, or turns to the other NameNode.
_MARGIN = 5.0


class HadoopStorage(HdfsClientStorage):
    """One nameservice, NameNode or viewfs mount table.

    A file is durable once its replicas have acknowledged it, and appears atomically by `rename2`.
    `DistributedFileSystem.rename(Path, Path, Options.Rename...)` is that call; the other `rename`
    moves into a directory.
    """

    # closing a small file sleeps (HDFS's `complete` answers "not yet"), so throughput is files in
    # flight
    streams = 64

    def __init__(
        self,
        filesystem: str,
        options: Mapping[str, str],
        write: WriteSettings,
        deadline: float = DEFAULT,
        keytab: Keytab | None = None,
    ) -> None:
        """`deadline` is in seconds."""
        self._filesystem = filesystem
        self._deadline, self._keytab = deadline, keytab
        self._options = {**_OPTIONS, **_timeouts(deadline), **options}
        self._write = write
        self.written = written_as(write, options)
        self.replication = self.written.expected_replication
        self.arrivals = Arrivals(self)
        self._lock = threading.Lock()
        self._cluster: Cluster | None = None
        # what would fail at every call is raised now
        with contextlib.suppress(Transient), self.translated_errors(filesystem):
            pass

    def open(self, uri: str) -> BinaryIO:
        stream = _Stream(self, uri)
        reader = PositionedReader(stream.read_at, stream.length, stream.close)
        return cast(BinaryIO, io.BufferedReader(reader, Exchange.size))

    def stat(self, uri: str) -> FileStatus | None:
        try:
            with self.translated_errors(uri) as cluster:
                return cluster.status(uri).of(uri)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def list(self, uri: str) -> list[FileStatus]:
        try:
            # the client's own timeouts hold for each page of a large directory
            with self.translated_errors(uri) as cluster, jvm_client.answering(None):
                statuses = cluster.statuses(uri)
        except FileNotFoundError:
            return []
        if (
            len(statuses) == 1
            and not statuses[0].is_directory
            and uris.local_path(statuses[0].path) == uris.local_path(uri)
        ):
            raise NotADirectoryError(errno.ENOTDIR, "is a file", uri)
        return [status.of(uris.join(uri, uris.name(status.path))) for status in statuses]

    def write_new(self, uri: str, content: Content) -> int:
        length = 0
        with self._created(uri) as (cluster, out):
            for chunk in content():  # outside: an error of the source must not name this file
                with self.translated_errors(uri):
                    _write(cluster.jvm, out, memoryview(chunk))
                length += len(chunk)
        return length

    def rename(self, uri: str, new_uri: str, replace: bool) -> bool:
        try:
            with self.translated_errors(new_uri) as cluster:
                cluster.rename(uri, new_uri, replace)
        except FileNotFoundError:
            return False
        return True

    def concat(self, uri: str, others: Sequence[str]) -> None:
        with self.translated_errors(uri) as cluster:
            cluster.concat(uri, others)

    def set_attributes(self, uri: str, attributes: Attributes) -> None:
        milliseconds = int(attributes.modified * 1000)
        with self.translated_errors(uri) as cluster:
            path = cluster.path(uri)
            if attributes.permission is not None:
                permission = cluster.jvm.new(
                    f"{_FS}.permission.FsPermission", f"{attributes.permission:o}"
                )
                cluster.call("setPermission", path, permission)
            cluster.call("setTimes", path, milliseconds, milliseconds)

    def delete_path(self, uri: str) -> bool:
        with self.translated_errors(uri) as cluster:
            return bool(cluster.call("delete", cluster.path(uri), False))

    def _is_damaged(self, uri: str) -> bool:
        """Return whether a file that no DataNode returned is damaged."""
        with contextlib.suppress(OSError), self.translated_errors(uri) as cluster:
            return self.arrivals.prove_damage(uri, cluster.datanodes(uri))
        return False

    def trash_minutes(self, uri: str) -> float | None:
        with self.translated_errors(uri) as cluster:
            defaults = cluster.call("getServerDefaults", cluster.path(uri))
            return float(cluster.jvm.call(defaults, "getTrashInterval"))

    def space(self, uri: str, briefly: bool) -> Sequence[Space]:
        with self.translated_errors(uri) as cluster:
            status = cluster.call("getStatus", cluster.path(uri))
            remaining = int(cluster.jvm.call(status, "getRemaining"))
        return [
            *super().space(uri, briefly),
            Space("the cluster", remaining // self.replication, None),
        ]

    def usage(self, uri: str) -> Usage:
        with self.translated_errors(uri) as cluster:
            usage = cluster.call("getQuotaUsage", cluster.path(uri))
            getters = ("getQuota", "getFileAndDirectoryCount", "getSpaceQuota", "getSpaceConsumed")
            return Usage(*(int(cluster.jvm.call(usage, getter)) for getter in getters))

    @contextlib.contextmanager
    def _created(self, uri: str) -> Iterator[tuple[Cluster, Any]]:
        """Provide an `FSDataOutputStream`.

        The file is complete when the block has ended without an exception.
        """
        with self.translated_errors(uri) as cluster:
            out = cluster.create(uri, self._write)
        try:
            yield cluster, out
            with self.translated_errors(uri):
                cluster.jvm.call(out, "close")
        except BaseException:
            cluster.close_quietly(out)  # otherwise the client keeps renewing its lease
            raise

    @contextlib.contextmanager
    def translated_errors(self, uri: str) -> Iterator[Cluster]:
        """Provide the cluster, and translate exceptions of Java into those of `Storage`."""
        refuse_unusable(uri)
        jvm = jvm_launcher.jvm()
        try:
            with jvm_client.answering(limit(self._deadline) + _MARGIN):
                yield self._reached(jvm)
            answered()
        except jvm_client.Thrown as error:
            raised = raised_for(jvm, error.java_exception, uri)
            hint = hint_about(str(raised.strerror), self._options)
            if hint:
                raised = type(raised)(raised.errno, f"{raised.strerror}{hint}", uri)
            if isinstance(raised, Unread):
                raised.is_damaged = functools.partial(self._is_damaged, uri)
            if isinstance(raised, NotAuthenticated):
                self._cluster = None  # its user may be one without a ticket
            raise raised from None
        except jvm_client.SilentJvm as error:
            raise NoAnswer(
                errno.ETIMEDOUT, f"Hadoop's client {error}; a server may be silent", uri
            ) from None
        except jvm_client.Gone as error:
            jvm_launcher.drop_lost(jvm)
            raise Transient(errno.EIO, "the JVM of Hadoop's client is gone", uri) from error

    def _reached(self, jvm: Jvm) -> Cluster:
        cluster = self._cluster
        if cluster is not None and cluster.jvm is jvm:
            return cluster
        with self._lock:
            if self._cluster is None or self._cluster.jvm is not jvm:
                self._cluster = reached(jvm, self._filesystem, self._options, self._keytab)
            return self._cluster


class _Stream:
    """An `FSDataInputStream`, which is moved to a position only when bytes are read there."""

    def __init__(self, storage: HadoopStorage, uri: str) -> None:
        self._storage, self._uri = storage, uri
        self._moved_to = 0
        self._end: int | None = None  # once it was reached
        with storage.translated_errors(uri) as cluster:
            self._cluster = cluster
            self._stream = cluster.call("open", cluster.path(uri))

    def read_at(self, position: int, buffer: memoryview) -> int:
        """Read bytes at a position into a buffer; return how many."""
        if position == self._end:
            return 0
        with self._storage.translated_errors(self._uri):
            count = self._read(position, buffer)
        self._storage.arrivals.note()
        self._moved_to = position + count
        if count < min(len(buffer), Exchange.size):
            self._end = self._moved_to
        return count

    def length(self) -> int:
        """Return the length of the file, with what a writer has flushed that has it open."""
        with self._storage.translated_errors(self._uri) as cluster:
            return int(cluster.jvm.call(self._stream, "getVisibleLength"))

    def close(self) -> None:
        """Close the stream."""
        self._cluster.close_quietly(self._stream)

    def _read(self, position: int, buffer: memoryview) -> int:
        jvm = self._cluster.jvm
        if position != self._moved_to:
            if position >= self.length():
                return 0
            jvm.call(self._stream, "seek", position)
        with jvm.exchange() as exchange:
            return exchange.read(self._stream, buffer)


def _timeouts(deadline: float) -> dict[str, str]:
    """Return the timeouts of the client for a deadline of each call in seconds."""
    milliseconds = str(max(1, int(deadline * 1000)))
    return {"dfs.client.socket-timeout": milliseconds, "ipc.client.rpc-timeout.ms": milliseconds}


def _write(jvm: Jvm, out: Any, data: memoryview) -> None:
    for start in range(0, len(data), Exchange.size):
        with jvm.exchange() as exchange:
            exchange.write(data[start : start + Exchange.size], out)
