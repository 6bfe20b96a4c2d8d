"""A side: how the filesystems of one side of a replication are reached. It travels with every
batch.

Two clusters may call their nameservice by one name: what a URI means is told by its side, never by
the environment.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from cpreplicate.core import uri as places
from cpreplicate.errors import UsageError
from cpreplicate.storage.backends.local import LocalStorage
from cpreplicate.storage.base import Storage
from cpreplicate.storage.settings import WriteSettings
from cpreplicate.storage.wrappers.limits import Limited, Limits

Options = tuple[tuple[str, str], ...]
HDFS_CLIENTS = ("native", "hadoop")
_HDFS = ("hdfs", "viewfs")
_HDFS_PORT = 8020
_SERVED = "file, hdfs, viewfs, webhdfs, swebhdfs, s3 (s3a, s3n, s3p), gs, abfs, oss"
_overrides: dict[str, Storage] = {}


@dataclass(frozen=True)
class Side:
    """One side.

    `options` are (prefix of places, its options), a later one winning; the empty prefix means all.
    """

    options: tuple[tuple[str, Options], ...] = ()
    hdfs_client: str = "native"
    write: WriteSettings = field(default=WriteSettings())
    retry_for: float = 60.0
    limits: Limits = field(default=Limits())

    def storage(self, uri: str) -> Storage:
        """The storage that holds a place.

        Raises `UsageError` for a scheme not served or a cluster not known.
        """
        scheme = uri.partition(":")[0]
        if scheme in _overrides:
            return _overrides[scheme]
        return _storage(places.filesystem(uri), self)

    def options_for(self, filesystem: str) -> dict[str, str]:
        """The options that hold for a filesystem such as `hdfs://dcA`."""
        found: dict[str, str] = {}
        for prefix, options in self.options:
            if filesystem == prefix or filesystem.startswith(
                prefix if prefix.endswith(":") or not prefix else prefix + "/"
            ):
                found.update(options)
        return found

    def identity(self, uri: str) -> str:
        """What tells two filesystems apart although their sides may spell them alike: addresses
        instead of names.
        """
        filesystem = places.filesystem(uri)
        scheme, _, authority = filesystem.partition("://")
        options = self.options_for(filesystem)
        if scheme in _HDFS:
            return f"{scheme}://{_addresses(authority, options)}"
        if scheme in ("s3", "s3a", "s3n", "s3p"):
            return f"s3://{authority} at {_endpoint(options)}"
        return filesystem

    def behind_view(self, uri: str) -> str:
        """The place that a mount table of viewfs has for a place.

        The place itself where no link leads anywhere.
        """
        scheme, _, authority = places.filesystem(uri).partition("://")
        prefix, path = f"fs.viewfs.mounttable.{authority}.link.", places.local_path(uri)
        options = self.options_for(places.filesystem(uri)) if scheme == "viewfs" else {}
        links = {
            name.removeprefix(prefix): target
            for name, target in options.items()
            if name.startswith(prefix)
        }
        mounts = [
            mount for mount in links if path == mount or places.below(path, mount) is not None
        ]
        mount = max(mounts, key=len, default=None)
        return uri if mount is None else links[mount].rstrip("/") + path[len(mount.rstrip("/")) :]


class Sides(NamedTuple):
    """Both sides; `preserve` carries permission bits and times of files over."""

    source: Side = Side()
    target: Side = Side()
    preserve: bool = False


def _addresses(authority: str, options: Mapping[str, str]) -> str:
    nodes = options.get(f"dfs.ha.namenodes.{authority}")
    if nodes is None:
        return authority if ":" in authority else f"{authority}:{_HDFS_PORT}"
    keys = [f"dfs.namenode.rpc-address.{authority}.{node.strip()}" for node in nodes.split(",")]
    return ",".join(sorted(options.get(key, key) for key in keys))


def _endpoint(options: Mapping[str, str]) -> str | None:
    """The endpoint of S3 in one spelling; None for the default one."""
    given = (options.get("endpoint_url") or options.get("fs.s3a.endpoint") or "").rstrip("/")
    return f"https://{given}" if given and "://" not in given else given or None


@functools.cache
def _storage(filesystem: str, side: Side) -> Storage:
    """One a process; its client is made when it is first needed, after any fork."""
    storage = _client(filesystem, side)
    if not filesystem.startswith("file:"):
        from cpreplicate.storage.wrappers.retry import Retrying

        limited = (
            Limited(storage, side.limits, side.identity(filesystem))
            if side.limits.calls is not None
            else storage
        )
        return Retrying(limited, side.retry_for)
    return storage


def _client(filesystem: str, side: Side) -> Storage:
    scheme = filesystem.partition(":")[0]
    options = side.options_for(filesystem)
    if scheme == "file":
        return LocalStorage()
    if scheme in _HDFS:
        return _hdfs(_with_authority(filesystem, options), options, side)
    if scheme in ("webhdfs", "swebhdfs"):
        from cpreplicate.storage.backends.webhdfs import WebHdfsStorage

        return WebHdfsStorage(filesystem, options, side.write)
    from cpreplicate.storage.backends.objects import PROTOCOLS, ObjectStorage

    if scheme not in PROTOCOLS:
        raise UsageError(f"{filesystem}: no storage for the scheme {scheme}:; served are {_SERVED}")
    return ObjectStorage(filesystem, options)


def _hdfs(filesystem: str, options: Mapping[str, str], side: Side) -> Storage:
    if side.hdfs_client == "hadoop":
        from cpreplicate.storage.backends.hadoop import HadoopStorage

        return HadoopStorage(filesystem, options, side.write)
    from cpreplicate.storage.backends.hdfs import HdfsStorage

    return HdfsStorage(filesystem, options, side.write)


def _with_authority(filesystem: str, options: Mapping[str, str]) -> str:
    """`hdfs:` alone means the default filesystem of the configuration that was given for it, if
    that is one of HDFS.
    """
    if "://" in filesystem:
        return filesystem
    default = options.get("fs.defaultFS", "")
    if not default.startswith(filesystem + "//"):
        raise UsageError(f"{filesystem}/… names no cluster; write {filesystem}//nameservice/…")
    return places.filesystem(default)
