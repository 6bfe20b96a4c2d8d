"""Storage of `hdfs:` and `viewfs:` URIs through Apache Hadoop's own client, in a separate JVM.

`--hdfs-client hadoop` selects it. It works where hdfs-native fails: with DataNodes that died, in
encryption zones, and with whatever else a cluster requires of its clients. From one cluster to
another, no byte passes through Python. The environment (HADOOP_CONF_DIR) is not consulted.
"""

from __future__ import annotations

import contextlib
import errno
import io
import itertools
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO, NamedTuple, cast

from cpreplicate.core import uri as uris
from cpreplicate.errors import UsageError
from cpreplicate.storage.backends import jvm_client, jvm_launcher
from cpreplicate.storage.backends.hdfs_common import HdfsClientStorage, Usage, replication_of
from cpreplicate.storage.backends.hdfs_errors import translated
from cpreplicate.storage.backends.jvm_client import Exchange, Jvm
from cpreplicate.storage.base import (
    Attributes,
    Content,
    FileStatus,
    NoAnswer,
    SourceMissing,
    Space,
    Storage,
    Transient,
    refuse_unusable,
)
from cpreplicate.storage.deadlines import DEFAULT, answered, limit
from cpreplicate.storage.settings import WriteSettings

_FS = "org.apache.hadoop.fs"
_WRITABLE = "org.apache.hadoop.io.Writable"
_DEFAULTS = ("core-default.xml", "hdfs-default.xml")
_OPTIONS = {
    # 400 otherwise; see `streams`
    "dfs.client.block.write.locateFollowingBlock.initial.delay.ms": "10",
    "dfs.client.block.write.locateFollowingBlock.retries": "11",  # each twice as long: 20 s in all
    "dfs.checksum.combine.mode": "COMPOSITE_CRC",
    # 2 MiB a file; 80 otherwise, and many files share the heap
    "dfs.client.write.max-packets-in-flight": "32",
    "ipc.client.connect.timeout": "5000",
    "ipc.client.connect.max.retries": "3",
    "ipc.client.connect.max.retries.on.timeouts": "2",
    "dfs.client.failover.max.attempts": "8",
    "dfs.client.failover.sleep.max.millis": "2000",
    "fs.viewfs.mount.links.as.symlinks": "false",  # but as the directories that they are
    "fs.automatic.close": "false",  # else the JVM, when it ends, waits for a NameNode that is down
}
# Seconds after its own timeout in which the client reports it, or turns to the other NameNode.
_MARGIN = 5.0
_DIRECTORY = 1  # FileStatusProto.FileType.FT_DIR
_THROWN = re.compile(r"([\w.$]+)(?:\(([\w.$]+)\))?(?:: (.*))?", re.DOTALL)
_WRAPPERS = (
    "UndeclaredThrowableException",
    "InvocationTargetException",
    "ExecutionException",
    "RuntimeException",
)
_ADVICE = "; For more details see:"  # in Hadoop's wiki
_SECURITY = ("SaslException", "GSSException", "KerberosAuthException", "LoginException")
_UNAUTHENTICATED = ("Client cannot authenticate", "GSS initiate failed")


class HadoopStorage(HdfsClientStorage):
    """One nameservice, NameNode or viewfs mount table.

    A file is durable once its replicas have acknowledged it, and appears atomically by `rename2`.
    `DistributedFileSystem.rename(Path, Path, Options.Rename...)` is that call; the other `rename`
    moves into a directory.
    """

    # closing a small file sleeps (HDFS's `complete` answers "not yet"), so throughput is files in
    # flight
    streams = 64
    copies_its_own = True

    def __init__(
        self,
        filesystem: str,
        options: Mapping[str, str],
        write: WriteSettings,
        deadline: float = DEFAULT,
    ) -> None:
        """`deadline` is in seconds."""
        self._filesystem = filesystem
        self._deadline = deadline
        self._options = {**_OPTIONS, **_timeouts(deadline), **options}
        self._write = write
        self.replication = replication_of(write, options)
        self._lock = threading.Lock()
        self._cluster: _Cluster | None = None
        # what would fail at every call is raised now
        with (
            contextlib.suppress(Transient),
            self.translated_errors(filesystem),
        ):
            pass

    def open(self, uri: str) -> BinaryIO:
        return cast(BinaryIO, io.BufferedReader(_Reader(self, uri), Exchange.size))

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

    def known_crc32c(self, uri: str) -> int | None:
        """Return the CRC32C composed of the checksums that the DataNodes keep, or None.

        It is a `CompositeCrcFileChecksum`. The bytes are not read.
        """
        with self.translated_errors(uri) as cluster:
            with jvm_client.answering(None):  # the client's own timeouts hold for each block
                checksum = cluster.call("getFileChecksum", cluster.path(uri))
            if checksum is None:
                return None
            if cluster.jvm.call(checksum, "getAlgorithmName") != "COMPOSITE-CRC32C":
                return None
            return int.from_bytes(cluster.jvm.call(checksum, "getBytes"), "big")

    def trash_minutes(self, uri: str) -> float | None:
        with self.translated_errors(uri) as cluster:
            defaults = cluster.call("getServerDefaults", cluster.path(uri))
            return float(cluster.jvm.call(defaults, "getTrashInterval"))

    def space(self, uri: str) -> Sequence[Space]:
        with self.translated_errors(uri) as cluster:
            status = cluster.call("getStatus", cluster.path(uri))
            remaining = int(cluster.jvm.call(status, "getRemaining"))
        return [*super().space(uri), Space("the cluster", remaining // self.replication, None)]

    def usage(self, uri: str) -> Usage:
        with self.translated_errors(uri) as cluster:
            usage = cluster.call("getQuotaUsage", cluster.path(uri))
            getters = ("getQuota", "getFileAndDirectoryCount", "getSpaceQuota", "getSpaceConsumed")
            return Usage(*(int(cluster.jvm.call(usage, getter)) for getter in getters))

    def copy_from(
        self, source: Storage, source_uri: str, uri: str, check: Callable[[int], None]
    ) -> tuple[int, int]:
        """Copy a file within the JVM, even from a cluster with another configuration."""
        assert isinstance(source, HadoopStorage), source
        with self.temporary(uri) as temporary:
            length, crc = self._streamed(source, source_uri, temporary)
            check(length)
            if not self.rename(temporary, uri, replace=True):
                raise FileNotFoundError(
                    f"{temporary} went before it could be renamed; did a sweep run beside this run?"
                )
        return length, crc

    def _streamed(self, source: HadoopStorage, source_uri: str, uri: str) -> tuple[int, int]:
        with (
            source.opened(source_uri) as stream,
            self._created(uri) as (cluster, out),
            self.translated_errors(uri),
        ):
            jvm = cluster.jvm
            crc = jvm.new("java.util.zip.CRC32C")
            checked = jvm.new("java.util.zip.CheckedInputStream", stream, crc)
            with jvm_client.answering(None):  # the client's own timeouts hold for each packet
                jvm.copy(checked, out)
            return jvm.call(out, "getPos"), jvm.call(crc, "getValue")

    @contextlib.contextmanager
    def opened(self, uri: str) -> Iterator[Any]:
        """Provide the `FSDataInputStream` of a file, or raise `SourceMissing` if it is gone."""
        try:
            with self.translated_errors(uri) as cluster:
                stream = cluster.call("open", cluster.path(uri))
        except FileNotFoundError as error:
            raise SourceMissing(f"{uri} is not there") from error
        try:
            yield stream
        finally:
            cluster.close_quietly(stream)

    @contextlib.contextmanager
    def _created(self, uri: str) -> Iterator[tuple[_Cluster, Any]]:
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
    def translated_errors(self, uri: str) -> Iterator[_Cluster]:
        """Provide the cluster, and translate exceptions of Java into those of `Storage`."""
        refuse_unusable(uri)
        jvm = jvm_launcher.jvm()
        try:
            with jvm_client.answering(limit(self._deadline) + _MARGIN):
                yield self._reached(jvm)
            answered()
        except jvm_client.Thrown as error:
            raise _translated(jvm, error.java_exception, uri) from None
        except jvm_client.Silent as error:
            raise NoAnswer(
                errno.ETIMEDOUT, f"Hadoop's client {error}; a server may be silent", uri
            ) from None
        except jvm_client.Gone as error:
            jvm_launcher.forget(jvm)
            raise Transient(errno.EIO, "the JVM of Hadoop's client is gone", uri) from error

    def _reached(self, jvm: Jvm) -> _Cluster:
        cluster = self._cluster
        if cluster is not None and cluster.jvm is jvm:
            return cluster
        with self._lock:
            if self._cluster is None or self._cluster.jvm is not jvm:
                self._cluster = _reached(jvm, self._filesystem, self._options)
            return self._cluster


class _JavaStatus(NamedTuple):
    """A `FileStatus` of Java. Its path includes the filesystem that the file lies on."""

    path: str
    length: int
    is_directory: bool
    modified: float
    permission: int

    def of(self, uri: str) -> FileStatus:
        """Return the status under the URI that was asked for."""
        return FileStatus(
            uri, uris.name(uri), self.length, self.is_directory, self.modified, self.permission
        )


class _Cluster:
    """A `FileSystem` in the JVM that nothing else uses, and what its calls need."""

    def __init__(self, jvm: Jvm, filesystem: str, options: Mapping[str, str]) -> None:
        self.jvm = jvm
        self._options = options
        self._scheme, _, self._authority = filesystem.partition("://")
        self._files = _file_system(jvm, filesystem, options)
        self._permission = jvm.static(f"{_FS}.permission.FsPermission", "getFileDefault")
        self._renames = {replace: _rename_options(jvm, replace) for replace in (True, False)}
        self._defaults: tuple[int, int] | None = None
        self._mounts = (
            _mounts(jvm, self._files, filesystem, options) if self._scheme == "viewfs" else {}
        )
        self._mounted: dict[str, _Cluster] = {}

    def call(self, method: str, *arguments: object) -> Any:
        """Call a method of the `FileSystem` and return its result."""
        return self.jvm.call(self._files, method, *arguments)

    def path(self, uri: str) -> Any:
        """Return a `Path`, made of three parts.

        A single string would be parsed again, and a colon in it would end a scheme.
        """
        return self.jvm.new(f"{_FS}.Path", self._scheme, self._authority, uris.local_path(uri))

    def create(self, uri: str, write: WriteSettings) -> Any:
        """Create a file and its directories, and return its stream."""
        path = self.path(uri)
        replication, block_size = self._defaults or self._new_file_defaults(path, write)
        return self.call(
            "create", path, self._permission, False, 4096, replication, block_size, None
        )

    def rename(self, uri: str, new_uri: str, replace: bool) -> None:
        """Rename a file by `rename2`.

        In a view, call that of the mounted filesystem: `ViewFileSystem` inherits a rename of
        several steps.
        """
        if self._scheme != "viewfs":
            self.call("rename", self.path(uri), self.path(new_uri), self._renames[replace])
            return
        mount = max(
            (path for path in self._mounts if uris.within(uri, path)), key=len, default=None
        )
        if mount is None:
            raise OSError(
                errno.ENOTSUP,
                "no link of the mount table leads there, so nothing can be renamed in one step",
                uri,
            )
        target = self._mounts[mount]
        self._mounted_at(target).rename(
            target + uri[len(mount) :], target + new_uri[len(mount) :], replace
        )

    def status(self, uri: str) -> _JavaStatus:
        """Return the status of a file or directory."""
        array = self.jvm.array(_WRITABLE, 1)
        array[0] = self.call("getFileStatus", self.path(uri))
        return self._carried_over(array, 1)[0]

    def statuses(self, uri: str) -> list[_JavaStatus]:
        """Return the statuses of the children of a directory, or that of a file itself."""
        listing = self.call("listStatus", self.path(uri))
        count = len(listing)
        array = self.jvm.array(_WRITABLE, count)
        # py4j accepts an array only for a parameter of its class
        self.jvm.static("java.lang.System", "arraycopy", listing, 0, array, 0, count)
        return self._carried_over(array, count)

    def _carried_over(self, array: Any, count: int) -> list[_JavaStatus]:
        """Return the statuses in an array by one call that transfers them as bytes.

        `toByteArray` returns its whole buffer, which is longer than they are.
        """
        data = memoryview(
            self.jvm.static("org.apache.hadoop.io.WritableUtils", "toByteArray", array)
        )
        return list(itertools.islice(_statuses(data), count))

    def close_quietly(self, closeable: Any) -> None:
        """Close a stream that may be broken, and ignore errors."""
        with contextlib.suppress(jvm_client.Failed):
            self.jvm.call(closeable, "close")

    def _new_file_defaults(self, path: Any, write: WriteSettings) -> tuple[int, int]:
        """Return replication and block size: as given, else as configured, else the cluster's own.

        A client asks the cluster once.
        """
        defaults = (
            write.replication
            or self._default("dfs.replication", "getDefaultReplication", "getReplication", path),
            write.block_size
            or self._default("dfs.blocksize", "getDefaultBlockSize", "getBlockSize", path),
        )
        if self._scheme != "viewfs":
            self._defaults = defaults
        return defaults

    def _default(self, option: str, configured: str, served: str, path: Any) -> int:
        if option in self._options:
            return int(self.call(configured, path))
        return int(self.jvm.call(self.call("getServerDefaults", path), served))

    def _mounted_at(self, target: str) -> _Cluster:
        filesystem = uris.filesystem(target)
        if filesystem not in self._mounted:
            self._mounted[filesystem] = _Cluster(self.jvm, filesystem, self._options)
        return self._mounted[filesystem]


class _Reader(io.RawIOBase):
    """An `FSDataInputStream`, which is moved to the position only when bytes are asked for."""

    def __init__(self, storage: HadoopStorage, uri: str) -> None:
        self._storage, self._uri = storage, uri
        self._position = self._moved_to = 0
        self._end: int | None = None  # once it was reached
        with storage.translated_errors(uri) as cluster:
            self._cluster = cluster
            self._stream = cluster.call("open", cluster.path(uri))

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        bases = {
            io.SEEK_SET: lambda: 0,
            io.SEEK_CUR: lambda: self._position,
            io.SEEK_END: self._length,
        }
        self._position = bases[whence]() + offset
        return self._position

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        if self._position == self._end or not view:
            return 0
        with self._storage.translated_errors(self._uri):
            count = self._next(view)
        self._position = self._moved_to = self._position + count
        if count < min(len(view), Exchange.size):
            self._end = self._position
        return count

    def readall(self) -> bytes:
        # the inherited method reads 8 KiB at a time
        return b"".join(iter(lambda: self.read(Exchange.size) or b"", b""))

    def close(self) -> None:
        if not self.closed and hasattr(self, "_stream"):
            self._cluster.close_quietly(self._stream)
        super().close()

    def _next(self, buffer: memoryview) -> int:
        jvm = self._cluster.jvm
        if self._position != self._moved_to:
            if self._position >= self._length():
                return 0
            jvm.call(self._stream, "seek", self._position)
        with jvm.exchange() as exchange:
            return exchange.read(self._stream, buffer)

    def _length(self) -> int:
        with self._storage.translated_errors(self._uri) as cluster:
            return cluster.status(self._uri).length


def _timeouts(deadline: float) -> dict[str, str]:
    """Return the timeouts of the client for a deadline of each call in seconds."""
    milliseconds = str(max(1, int(deadline * 1000)))
    return {"dfs.client.socket-timeout": milliseconds, "ipc.client.rpc-timeout.ms": milliseconds}


def _write(jvm: Jvm, out: Any, data: memoryview) -> None:
    for start in range(0, len(data), Exchange.size):
        with jvm.exchange() as exchange:
            exchange.write(data[start : start + Exchange.size], out)


def _reached(jvm: Jvm, filesystem: str, options: Mapping[str, str]) -> _Cluster:
    try:
        return _Cluster(jvm, filesystem, options)
    except jvm_client.Thrown as error:
        thrown = ": ".join(_thrown(jvm, error.java_exception))
        # an authority with a port names a host, not a nameservice
        if "UnknownHostException" in thrown and ":" in uris.name(filesystem):
            raise Transient(
                errno.EIO, f"the host name cannot be resolved: {thrown}", filesystem
            ) from None
        raise UsageError(
            f"{filesystem}: {thrown}; name the directory of its hdfs-site.xml with"
            " --source-conf or --target-conf, or a NameNode with its port"
        ) from None


def _file_system(jvm: Jvm, filesystem: str, options: Mapping[str, str]) -> Any:
    """Return a new `FileSystem`.

    `FileSystem.get` would return an existing one of the same name, and two clusters may have one
    name.
    """
    # without core-site.xml and hdfs-site.xml
    conf = jvm.new("org.apache.hadoop.conf.Configuration", False)
    for resource in _DEFAULTS:
        jvm.call(conf, "addResource", resource)
    for key, value in options.items():
        jvm.call(conf, "set", key, value)
    uri = jvm.static("java.net.URI", "create", filesystem)
    if options.get("hadoop.security.authentication", "simple") != "simple":
        # holds for the whole JVM
        jvm.static("org.apache.hadoop.security.UserGroupInformation", "setConfiguration", conf)
    elif "hadoop.user.name" in options:
        return jvm.static(
            f"{_FS}.FileSystem", "newInstance", uri, conf, options["hadoop.user.name"]
        )
    return jvm.static(f"{_FS}.FileSystem", "newInstance", uri, conf)


def _rename_options(jvm: Jvm, replace: bool) -> Any:
    options = jvm.array(f"{_FS}.Options$Rename", 1)
    options[0] = jvm.static(f"{_FS}.Options$Rename", "valueOf", "OVERWRITE" if replace else "NONE")
    return options


def _mounts(jvm: Jvm, view: Any, filesystem: str, options: Mapping[str, str]) -> dict[str, str]:
    """Return the mounts of a `ViewFileSystem`: the URI of each, and the mounted URI."""
    table = f"fs.viewfs.mounttable.{filesystem.partition('://')[2]}"
    root = options.get(f"{table}.linkMergeSlash") or options.get(f"{table}.linkFallback")
    mounts = {filesystem: root.rstrip("/")} if root else {}
    for mount in jvm.call(view, "getMountPoints"):
        path = jvm.call(jvm.call(jvm.call(mount, "getMountedOnPath"), "toUri"), "getPath")
        targets = jvm.call(mount, "getTargetFileSystemPaths")
        if len(targets) == 1:
            mounts[filesystem + path.rstrip("/")] = targets[0].rstrip("/")
    return mounts


def _statuses(data: memoryview) -> Iterator[_JavaStatus]:
    """Yield the statuses that `FileStatus.write` wrote.

    Each is a length in four bytes and an `FSProtos.FileStatusProto`.
    """
    start = 0
    while start < len(data):
        length = int.from_bytes(data[start : start + 4], "big")
        fields = _fields(data[start + 4 : start + 4 + length])
        permission = _fields(fields[4])[1] & 0o7777
        yield _JavaStatus(
            str(fields[2], "utf-8"),
            fields.get(3, 0),
            fields[1] == _DIRECTORY,
            fields.get(7, 0) / 1000,
            permission,
        )
        start += 4 + length


def _fields(data: memoryview) -> dict[int, Any]:
    """Return the fields of a protobuf message by number: integers, or bytes.

    Of a repeated field, the last value counts.
    """
    fields: dict[int, Any] = {}
    position = 0
    while position < len(data):
        key, position = _varint(data, position)
        value, position = _varint(data, position)
        if key & 7 == 2:  # bytes, and `value` is their length
            fields[key >> 3] = data[position : position + value]
            position += value
        else:
            fields[key >> 3] = value
    return fields


def _varint(data: memoryview, position: int) -> tuple[int, int]:
    """Return the integer at a position, and the position after it."""
    value = shift = 0
    while data[position] > 0x7F:
        value |= (data[position] & 0x7F) << shift
        position, shift = position + 1, shift + 7
    return value | data[position] << shift, position + 1


def _translated(jvm: Jvm, thrown: Any, uri: str) -> OSError:
    try:
        name, message = _thrown(jvm, thrown)
    except jvm_client.Failed:
        return Transient(errno.EIO, "Hadoop's client failed, and its JVM is gone", uri)
    if name.endswith(_SECURITY) or any(sign in message for sign in _UNAUTHENTICATED):
        return PermissionError(errno.EACCES, f"{message[:300]}; see docs/kerberos.md", uri)
    return translated(name, message, uri)


def _thrown(jvm: Jvm, thrown: Any) -> tuple[str, str]:
    """Return the class and the message of an exception, by one call of `Throwable.toString`.

    Of a `RemoteException`, return those that the NameNode sent.
    """
    match = _THROWN.fullmatch(jvm.call(thrown, "toString"))
    if match is None:
        return "java.io.IOException", "failed without a message"
    cause = jvm.call(thrown, "getCause") if match[1].endswith(_WRAPPERS) else None
    return (
        _thrown(jvm, cause)
        if cause is not None
        else (match[2] or match[1], (match[3] or "").partition(_ADVICE)[0])
    )
