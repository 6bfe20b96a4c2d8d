"""Sides: how the filesystems of the source and the target of a replication are reached.

A side travels with every batch. Two clusters may use one name for their nameservices. The side
determines what a URI means, never the environment. `register` is the extension point for another
service: it gives a scheme its storages.
"""

from __future__ import annotations

import difflib
import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from cpreplicate.core import uri as uris
from cpreplicate.errors import UsageError
from cpreplicate.storage import deadlines, option_names
from cpreplicate.storage.base import Storage
from cpreplicate.storage.settings import WriteSettings
from cpreplicate.storage.wrappers.limits import Limits

Options = tuple[tuple[str, str], ...]
HDFS_CLIENTS = ("native", "hadoop")
HDFS_SCHEMES = ("hdfs", "viewfs")
_HDFS_PORT = 8020


@dataclass(frozen=True)
class Side:
    """One side.

    `options` are (prefix of URIs, options for it), of which a later one wins. The empty prefix
    means all URIs. `retry_for` is in seconds, and so is `patience`, which no deadline exceeds.
    `unsafe_lease`: replicas are changed also where a service ignores the conditions of puts.
    `principal` and `keytab`, a path on each host, are the user of its secure HDFS clusters. Without
    them it is that of the environment's ticket or tokens.
    """

    options: tuple[tuple[str, Options], ...] = ()
    hdfs_client: str = "native"
    write: WriteSettings = field(default=WriteSettings())
    retry_for: float = 60.0
    limits: Limits = field(default=Limits())
    patience: float | None = None
    unsafe_lease: bool = False
    principal: str | None = None
    keytab: str | None = None

    def storage(self, uri: str) -> Storage:
        """Return the storage that holds a URI.

        Raises `UsageError` for a scheme without a factory, and what the factory raises, such as for
        a cluster that is not known.
        """
        filesystem = uris.filesystem(uri)
        scheme = filesystem.partition(":")[0]
        if scheme not in SCHEMES:
            similar = difflib.get_close_matches(scheme, SCHEMES, 1)
            hint = f"Did you mean {similar[0]}:? " if similar else ""
            raise UsageError(
                f"{filesystem}: the scheme {scheme}: is not supported. {hint}Supported schemes are"
                f" {', '.join(SCHEMES)}"
            )
        return SCHEMES[scheme].storage(filesystem, self)

    def options_for(self, filesystem: str) -> dict[str, str]:
        """Return the options of the client of a filesystem such as `hdfs://dcA`."""
        merged = self._options_for(filesystem)
        merged.pop(deadlines.OPTION, None)
        return merged

    def deadline(self, filesystem: str) -> float:
        """Return the seconds that a call to a filesystem may take. Raises `UsageError`."""
        seconds = deadlines.deadline_of(self._options_for(filesystem).get(deadlines.OPTION))
        return seconds if self.patience is None else min(seconds, self.patience)

    def _options_for(self, filesystem: str) -> dict[str, str]:
        merged: dict[str, str] = {}
        for prefix, options in self.options:
            directory = prefix if prefix.endswith(":") or not prefix else prefix + "/"
            if filesystem == prefix or filesystem.startswith(directory):
                merged.update(options)
        return merged

    def identity(self, uri: str) -> str:
        """Return a text that differs for two filesystems even if their sides use one name for both.

        It has addresses instead of names.
        """
        filesystem = uris.filesystem(uri)
        scheme, _, authority = filesystem.partition("://")
        options = self.options_for(filesystem)
        if scheme in HDFS_SCHEMES:
            return f"{scheme}://{_addresses(authority, options)}"
        if scheme in ("s3", "s3a", "s3n", "s3p"):
            return f"s3://{authority} at {_endpoint(options)}"
        return filesystem

    def namenodes(self, uri: str) -> tuple[str, ...]:
        """Return the addresses, as `host:port`, of the NameNodes behind a URI of HDFS.

        There is none for other storages, and for a name whose addresses are not configured. A view
        itself has those of all its mounts.
        """
        behind = self.behind_view(uri)
        whole = uris.filesystem(uri)
        mounted = self._mounted(whole) if uri == whole else []
        addresses = [address for each in mounted or [behind] for address in self._servers(each)]
        return tuple(dict.fromkeys(addresses))

    def _servers(self, uri: str) -> Iterator[str]:
        filesystem = uris.filesystem(uri)
        scheme, _, authority = filesystem.partition("://")
        if scheme == "hdfs":
            for address in _addresses(authority, self.options_for(filesystem)).split(","):
                if ":" in address:
                    yield address

    def _mounted(self, filesystem: str) -> list[str]:
        """Return the targets of all links of a view, its fallback included."""
        scheme, _, authority = filesystem.partition("://")
        if scheme != "viewfs":
            return []
        prefix = f"fs.viewfs.mounttable.{authority}.link"
        options = self.options_for(filesystem).items()
        return [target for name, target in options if name.startswith(prefix)]

    def behind_view(self, uri: str) -> str:
        """Return the URI that the mount table of viewfs has for a URI.

        It is the URI itself where no link leads anywhere.
        """
        filesystem, path = uris.filesystem(uri), uris.local_path(uri)
        scheme, _, authority = filesystem.partition("://")
        if scheme != "viewfs":
            return uri
        prefix = f"fs.viewfs.mounttable.{authority}.link."
        links = {
            name.removeprefix(prefix): target
            for name, target in self.options_for(filesystem).items()
            if name.startswith(prefix)
        }
        mounts = [mount for mount in links if path == mount or uris.below(path, mount) is not None]
        if not mounts:
            return uri
        mount = max(mounts, key=len)
        return links[mount].rstrip("/") + path[len(mount.rstrip("/")) :]


class Sides(NamedTuple):
    """Both sides. `preserve`: copies get the permission bits and times of their sources."""

    source: Side = Side()
    target: Side = Side()
    preserve: bool = False


class Factory(Protocol):
    """Make the storage of one filesystem, such as `hdfs://dcA`, with the options that hold for it.

    The storage is used as it is: `builtin.remote` adds the rate limits and retries of a side. Raise
    `UsageError` if the options do not suffice.
    """

    def __call__(self, filesystem: str, options: Mapping[str, str], side: Side, /) -> Storage: ...


class _Scheme:
    """The factory of a scheme, and the storages that it made in this process."""

    def __init__(self, factory: Factory) -> None:
        self.factory = factory
        self.storage = functools.cache(self._create)

    def _create(self, filesystem: str, side: Side) -> Storage:
        return self.factory(filesystem, _accepted(filesystem, side), side)


SCHEMES: dict[str, _Scheme] = {}
"""The schemes that have a factory."""


def register(scheme: str, factory: Factory) -> Factory | None:
    """Use a factory for the storages of a scheme, and return the factory that it replaces, if any.

    It is called once a process for each filesystem and side. Executors need the registration too,
    so it belongs in a module that they import, such as `storage/builtin.py`.
    """
    replaced = SCHEMES.get(scheme)
    SCHEMES[scheme] = _Scheme(factory)
    return replaced.factory if replaced is not None else None


def _accepted(filesystem: str, side: Side) -> dict[str, str]:
    general = {name for prefix, pairs in side.options if not prefix for name, _value in pairs}
    return option_names.accepted(filesystem, side.options_for(filesystem), general)


def _addresses(authority: str, options: Mapping[str, str]) -> str:
    nodes = options.get(f"dfs.ha.namenodes.{authority}")
    if nodes is None:
        return authority if ":" in authority else f"{authority}:{_HDFS_PORT}"
    keys = [f"dfs.namenode.rpc-address.{authority}.{node.strip()}" for node in nodes.split(",")]
    return ",".join(sorted(options.get(key, key) for key in keys))


def _endpoint(options: Mapping[str, str]) -> str | None:
    """Return the endpoint of S3 in one spelling, None for the default one."""
    given = (options.get("endpoint_url") or options.get("fs.s3a.endpoint") or "").rstrip("/")
    return f"https://{given}" if given and "://" not in given else given or None
