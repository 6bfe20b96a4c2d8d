"""A cluster of HDFS, or a view of several, as Hadoop's own client in the JVM knows it."""

from __future__ import annotations

import contextlib
import errno
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from cpreplicate.core import uri as uris
from cpreplicate.errors import UsageError
from cpreplicate.storage.backends.hdfs.damage import Node, node_of
from cpreplicate.storage.backends.jvm import client as jvm_client
from cpreplicate.storage.backends.jvm.client import Jvm
from cpreplicate.storage.backends.jvm.errors import is_of_kerberos, thrown
from cpreplicate.storage.backends.jvm.login import Login, log_in_again_if_needed
from cpreplicate.storage.backends.jvm.statuses import JavaStatus, statuses
from cpreplicate.storage.base import Transient, WriteSettings
from cpreplicate.storage.keytab import Keytab

_FS = "org.apache.hadoop.fs"
_WRITABLE = "org.apache.hadoop.io.Writable"
_DEFAULTS = ("core-default.xml", "hdfs-default.xml")


class Cluster:
    """A `FileSystem` in the JVM that nothing else uses, and what its calls need."""

    def __init__(
        self, jvm: Jvm, filesystem: str, options: Mapping[str, str], keytab: Keytab | None = None
    ) -> None:
        self.jvm = jvm
        self._options, self._keytab = options, keytab
        self._scheme, _, self._authority = filesystem.partition("://")
        self._login, self._files = _file_system(jvm, filesystem, options, keytab)
        self._permission = jvm.static(f"{_FS}.permission.FsPermission", "getFileDefault")
        self._renames = {replace: _rename_options(jvm, replace) for replace in (True, False)}
        self._defaults: tuple[int, int] | None = None
        self._mounts = (
            _mounts(jvm, self._files, filesystem, options) if self._scheme == "viewfs" else {}
        )
        self._mounted: dict[str, Cluster] = {}

    def call(self, method: str, *arguments: object) -> Any:
        """Call a method of the `FileSystem` and return its result."""
        if self._login is not None:
            self._login.renew()
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
        mount = self._mount_of(uri)
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

    def concat(self, uri: str, others: Sequence[str]) -> None:
        """Append files to another one, which a view itself does not."""
        if self._scheme == "viewfs":
            mount = self._mount_of(uri)
            if mount is None:
                raise OSError(errno.ENOTSUP, "no link of the mount table leads there", uri)
            target = self._mounts[mount]
            moved = [target + each[len(mount) :] for each in (uri, *others)]
            self._mounted_at(target).concat(moved[0], moved[1:])
            return
        paths = self.jvm.array(f"{_FS}.Path", len(others))
        for index, other in enumerate(others):
            paths[index] = self.path(other)
        self.call("concat", self.path(uri), paths)

    def _mount_of(self, uri: str) -> str | None:
        mounts = (path for path in self._mounts if uris.within(uri, path))
        return max(mounts, key=len, default=None)

    def datanodes(self, uri: str) -> list[Node]:
        """Return the DataNodes that have blocks of a file."""
        length = self.status(uri).length
        blocks = self.call("getFileBlockLocations", self.path(uri), 0, length)
        return [node_of(name) for block in blocks for name in self.jvm.call(block, "getNames")]

    def status(self, uri: str) -> JavaStatus:
        """Return the status of a file or directory."""
        array = self.jvm.array(_WRITABLE, 1)
        array[0] = self.call("getFileStatus", self.path(uri))
        return self._carried_over(array, 1)[0]

    def statuses(self, uri: str) -> list[JavaStatus]:
        """Return the statuses of the children of a directory, or that of a file itself."""
        listing = self.call("listStatus", self.path(uri))
        count = len(listing)
        array = self.jvm.array(_WRITABLE, count)
        # py4j accepts an array only for a parameter of its class
        self.jvm.static("java.lang.System", "arraycopy", listing, 0, array, 0, count)
        return self._carried_over(array, count)

    def _carried_over(self, array: Any, count: int) -> list[JavaStatus]:
        """Return the statuses in an array by one call that transfers them as bytes.

        `toByteArray` returns its whole buffer, which is longer than they are.
        """
        data = memoryview(
            self.jvm.static("org.apache.hadoop.io.WritableUtils", "toByteArray", array)
        )
        return list(itertools.islice(statuses(data), count))

    def close_quietly(self, closeable: Any) -> None:
        """Close a stream that may be broken, and ignore errors; do not wait for long."""
        quietly = contextlib.suppress(jvm_client.Failed)
        with quietly, jvm_client.answering(jvm_client.QUIET_SECONDS):
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

    def _default(self, option: str, client_getter: str, server_getter: str, path: Any) -> int:
        """Return what the client answers if `option` is configured, else what the NameNode does.

        Unconfigured, the client would answer with the default of Hadoop.
        """
        if option in self._options:
            return int(self.call(client_getter, path))
        return int(self.jvm.call(self.call("getServerDefaults", path), server_getter))

    def _mounted_at(self, target: str) -> Cluster:
        filesystem = uris.filesystem(target)
        if filesystem not in self._mounted:
            self._mounted[filesystem] = Cluster(self.jvm, filesystem, self._options, self._keytab)
        return self._mounted[filesystem]


def reached(
    jvm: Jvm, filesystem: str, options: Mapping[str, str], keytab: Keytab | None
) -> Cluster:
    """Return a cluster. Raises `UsageError` if it cannot be reached as it is configured."""
    try:
        return Cluster(jvm, filesystem, options, keytab)
    except jvm_client.Thrown as error:
        if is_of_kerberos(*thrown(jvm, error.java_exception)):
            raise
        reason = ": ".join(thrown(jvm, error.java_exception))
        # an authority with a port names a host, not a nameservice
        if "UnknownHostException" in reason and ":" in uris.name(filesystem):
            raise Transient(
                errno.EIO, f"the host name cannot be resolved: {reason}", filesystem
            ) from None
        raise UsageError(
            f"{filesystem}: {reason}; name the directory of its hdfs-site.xml with"
            " --source-conf or --target-conf, or a NameNode with its port"
        ) from None


def _file_system(
    jvm: Jvm, filesystem: str, options: Mapping[str, str], keytab: Keytab | None
) -> tuple[Login | None, Any]:
    """Return a new `FileSystem`, and its login if it has one of its own.

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
        if keytab is not None:
            login = Login(jvm, keytab)
            return login, login.file_system(uri, conf)
        log_in_again_if_needed(jvm)
    elif "hadoop.user.name" in options:
        user = options["hadoop.user.name"]
        return None, jvm.static(f"{_FS}.FileSystem", "newInstance", uri, conf, user)
    return None, jvm.static(f"{_FS}.FileSystem", "newInstance", uri, conf)


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
