"""Sides: how the filesystems of the source and the target of a replication are reached.

A side travels with every batch. Two clusters may use one name for their nameservices. The side
determines what a URI means, never the environment. `STORAGES` has the storages of each scheme. A
client library is imported when its storage is first needed.
"""

from __future__ import annotations

import difflib
import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from cpreplicate.core import uri as uris
from cpreplicate.errors import UsageError
from cpreplicate.storage import option_names
from cpreplicate.storage.backends.local.local import LocalStorage
from cpreplicate.storage.backends.objects.clients import PROTOCOLS, account_of, own_options
from cpreplicate.storage.backends.objects.objects import ObjectStorage
from cpreplicate.storage.base import Storage, WriteSettings
from cpreplicate.storage.keytab import keytab_of
from cpreplicate.storage.option_names import HDFS_SCHEMES, WEBHDFS_SCHEMES
from cpreplicate.storage.waiting import deadlines
from cpreplicate.storage.wrappers.limits import Limited, Limits

if TYPE_CHECKING:
    from cpreplicate.storage.backends.jvm.hadoop import HadoopStorage

Options = tuple[tuple[str, str], ...]
HDFS_CLIENTS = ("native", "hadoop")
_HDFS_PORT = 8020


class Place(NamedTuple):
    """Where a URI is: the filesystem, by addresses instead of names, and the path there."""

    service: str
    path: str


@dataclass(frozen=True)
class Side:
    """One side.

    `options` are (prefix of URIs, options for it), of which a later one wins. The empty prefix
    means all URIs. `retry_for` is in seconds, and so is `patience`, which no deadline exceeds.
    `unsafe_lease`: replicas are changed also where a service does not honour the conditions of
    puts.
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

    def storage(self, uri: str, inside: str = "") -> Storage:
        """Return the storage that holds a URI; see `Storage.inside` for a directory of it.

        Raises `UsageError` for a scheme that no storage has, and for options that do not suffice,
        such as for a cluster that is not known.
        """
        filesystem = uris.filesystem(uri)
        scheme = filesystem.partition(":")[0]
        if scheme not in STORAGES:
            similar = difflib.get_close_matches(scheme, STORAGES, 1)
            hint = f"Did you mean {similar[0]}:? " if similar else ""
            place = f"{filesystem}: " if "//" in filesystem else ""
            raise UsageError(
                f"{place}the scheme {scheme}: is not supported. {hint}Supported schemes are"
                f" {', '.join(STORAGES)}"
            )
        storage = STORAGES[scheme](filesystem, self)
        return storage.inside(inside) if inside else storage

    def asks_ahead(self, uri: str) -> bool:
        """Return whether the storage that holds a URI is far away: see `Storage.answers_ahead`."""
        return self.storage(uri).answers_ahead

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

    def place(self, uri: str) -> Place:
        """Return where a URI is: the same for two names of one place, on whichever sides.

        It differs for two places even if their sides use one name for both.
        """
        behind = self.behind_view(uri)
        service = self._service(uris.filesystem(behind), uris.filesystem(uri))
        return Place(service, uris.local_path(behind))

    def _service(self, filesystem: str, given: str) -> str:
        """Return a filesystem with addresses, the endpoint or the account, instead of names.

        It was `given` by this name, perhaps of a view.
        """
        scheme, _, authority = filesystem.partition("://")
        if scheme == "viewfs":  # what no link leads away from
            servers = sorted(self.namenodes(filesystem))
            return f"{filesystem} of {','.join(servers)}" if servers else filesystem
        if scheme == "hdfs" and authority:
            return f"hdfs://{_addresses(authority, self._options_behind(filesystem, given))}"
        protocol = PROTOCOLS.get(scheme)
        if protocol is None:
            return filesystem
        bucket, options = authority.partition("@")[0], self.options_for(filesystem)
        if protocol == "abfs":
            return f"abfs://{bucket} at {account_of(authority, options)}"
        return f"{protocol}://{bucket} at {_endpoint(own_options(protocol, options, authority))}"

    def _options_behind(self, filesystem: str, given: str) -> dict[str, str]:
        """Return the options by which a cluster is reached, behind a view by those of the view."""
        return {**self.options_for(filesystem), **self.options_for(given)}

    def namenodes(self, uri: str) -> tuple[str, ...]:
        """Return the addresses, as `host:port`, of the NameNodes behind a URI of HDFS.

        There is none for other storages, and for a name whose addresses are not configured. A view
        itself has those of all its mounts.
        """
        uri = self._of_default_cluster(uri)
        whole = uris.filesystem(uri)
        mounted = self._mounted(whole) if uri == whole else ()
        behind = mounted or [self.behind_view(uri)]
        addresses = [address for each in behind for address in self._servers(each, whole)]
        return tuple(dict.fromkeys(addresses))

    def _servers(self, uri: str, given: str) -> Iterator[str]:
        filesystem = uris.filesystem(uri)
        scheme, _, authority = filesystem.partition("://")
        if scheme == "hdfs":
            options = self._options_behind(filesystem, given)
            for address in _addresses(authority, options).split(","):
                if ":" in address:
                    yield address

    def behind_view(self, uri: str) -> str:
        """Return the URI that the mount table of viewfs has for a URI.

        It is the URI itself where no link leads anywhere. `hdfs:/…` is that of the default cluster.
        """
        uri = self._of_default_cluster(uri)
        filesystem, path = uris.filesystem(uri), uris.local_path(uri)
        links = self._links(filesystem)
        mounts = [mount for mount in links if path == mount or uris.below(path, mount) is not None]
        if not mounts:
            return uri
        mount = max(mounts, key=len)
        target = links[mount].rstrip("/") + path[len(mount.rstrip("/")) :]
        return self._of_default_cluster(target)

    def _of_default_cluster(self, uri: str) -> str:
        """Return a URI with the cluster that `hdfs:/…` means, if one is configured."""
        filesystem = uris.filesystem(uri)
        if not filesystem.startswith(tuple(f"{scheme}:" for scheme in HDFS_SCHEMES)):
            return uri
        cluster = _cluster(filesystem, self.options_for(filesystem)) or filesystem
        return cluster + uris.local_path(uri)

    def _links(self, filesystem: str) -> dict[str, str]:
        """Return the links of a view that lead to one directory, by their paths.

        The fallback is one of its root, unless expressions may lead elsewhere.
        """
        kinds = self._mount_table(filesystem)
        links = {
            name.partition(".")[2].rstrip("/") or "/": target
            for name, target in kinds.items()
            if name.startswith(".")
        }
        if not any(name.startswith("Regex") for name in kinds):
            for name, target in kinds.items():
                if name.startswith(("Fallback", "MergeSlash")):
                    links.setdefault("/", target)
        return links

    def _mounted(self, filesystem: str) -> list[str]:
        """Return the targets of all links of a view, of whatever kind."""
        return [
            target
            for targets in self._mount_table(filesystem).values()
            for target in targets.split(",")
        ]

    def _mount_table(self, filesystem: str) -> dict[str, str]:
        """Return the properties of the links of a view: kind and path, behind `link`, to target."""
        scheme, _, authority = filesystem.partition("://")
        prefix = f"fs.viewfs.mounttable.{authority}.link"
        return {
            name.removeprefix(prefix): target
            for name, target in self.options_for(filesystem).items()
            if scheme == "viewfs" and name.startswith(prefix)
        }


class Sides(NamedTuple):
    """Both sides. `preserve`: copies get the permission bits and times of their sources."""

    source: Side = Side()
    target: Side = Side()
    preserve: bool = False

    def overlap(self, source: str, target: str) -> bool:
        """Return whether two directories, one a side, are the same, or one is in the other."""
        one, two = self.source.place(source), self.target.place(target)
        path, other = (f"{each.path.rstrip('/')}/" for each in (one, two))
        is_nested = path.startswith(other) or other.startswith(path)
        return one.service == two.service and is_nested


@functools.cache
def _local(filesystem: str, side: Side) -> Storage:
    _options(filesystem, side)  # it has none, and refuses those of another storage
    return LocalStorage()


@functools.cache
def _hdfs(filesystem: str, side: Side) -> Storage:
    options = _options(filesystem, side)
    cluster = _with_authority(filesystem, options)
    keytab = keytab_of(filesystem, options, side.principal, side.keytab)
    deadline = side.deadline(filesystem)

    @functools.cache
    def hadoop() -> HadoopStorage:
        from cpreplicate.storage.backends.jvm.hadoop import HadoopStorage

        return HadoopStorage(cluster, options, side.write, deadline, keytab)

    if side.hdfs_client == "hadoop":
        return _remote(hadoop(), filesystem, side)
    from cpreplicate.storage.backends.native.hdfs import HdfsStorage

    name = _without_port(cluster, options)
    mounts = _mounts_without_fallback(name, options)
    nodes = side.namenodes(name)
    native = HdfsStorage(name, options, side.write, deadline, nodes, keytab, mounts, hadoop)
    return _remote(native, filesystem, side)


@functools.cache
def _webhdfs(filesystem: str, side: Side) -> Storage:
    from cpreplicate.storage.backends.web.webhdfs import WebHdfsStorage

    if side.keytab is not None:
        raise UsageError(
            f"{filesystem}: --source-keytab and --target-keytab are for hdfs: and viewfs:. Name the"
            " cluster by one of them, or set KRB5_CLIENT_KTNAME"
        )
    options, deadline = _options(filesystem, side), side.deadline(filesystem)
    return _remote(WebHdfsStorage(filesystem, options, side.write, deadline), filesystem, side)


@functools.cache
def _objects(filesystem: str, side: Side) -> Storage:
    options, deadline = _options(filesystem, side), side.deadline(filesystem)
    return _remote(
        ObjectStorage(filesystem, options, deadline, side.unsafe_lease), filesystem, side
    )


STORAGES: dict[str, Callable[[str, Side], Storage]] = {
    "file": _local,
    **dict.fromkeys(HDFS_SCHEMES, _hdfs),
    **dict.fromkeys(WEBHDFS_SCHEMES, _webhdfs),
    **dict.fromkeys(PROTOCOLS, _objects),
}
"""What makes the storage of a filesystem, such as `hdfs://dcA`, for a side, by its scheme.

Each makes one storage a process for a filesystem and a side.
"""


def _remote(storage: Storage, filesystem: str, side: Side) -> Storage:
    """Wrap the storage of a service so that it keeps to the side's limit on calls and retries.

    Questions can be asked of it ahead.
    """
    from cpreplicate.storage.wrappers.retry import Retrying  # a local run does not need it

    if side.limits.calls is not None:
        storage = Limited(storage, side.limits, side.place(filesystem).service)
    return Retrying(storage, side.retry_for)


def _options(filesystem: str, side: Side) -> dict[str, str]:
    general = {name for prefix, pairs in side.options if not prefix for name, _value in pairs}
    return option_names.accepted(filesystem, side.options_for(filesystem), general)


def _with_authority(filesystem: str, options: Mapping[str, str]) -> str:
    """Return the cluster that a filesystem means. Raises `UsageError` if it names none."""
    cluster = _cluster(filesystem, options)
    if cluster is None:
        raise UsageError(f"{filesystem}/… names no cluster. Write {filesystem}//nameservice/…")
    return cluster


def _cluster(filesystem: str, options: Mapping[str, str]) -> str | None:
    """Return the cluster that a filesystem of HDFS means, None for none.

    `hdfs:` alone means the default filesystem of the configuration that was given for it, if that
    is one of HDFS.
    """
    if "://" in filesystem:
        return filesystem
    default = options.get("fs.defaultFS") or options.get("fs.default.name", "")  # its old name
    return uris.filesystem(default) if default.startswith(filesystem + "//") else None


def _without_port(filesystem: str, options: Mapping[str, str]) -> str:
    """Return the name of a nameservice without a port, of which it has none.

    Hadoop leaves out the default one, and raises for any other.
    """
    host, _, port = filesystem.removeprefix("hdfs://").partition(":")
    if not port or f"dfs.ha.namenodes.{host}" not in options:
        return filesystem
    if port != str(_HDFS_PORT):
        raise UsageError(
            f"{filesystem}: {host} is a nameservice, which has no port. Write hdfs://{host}/…"
        )
    return f"hdfs://{host}"


def _mounts_without_fallback(filesystem: str, options: Mapping[str, str]) -> tuple[str, ...]:
    """Return the directories of a view that are all it has: there is nothing but its links."""
    scheme, _, authority = filesystem.partition("://")
    prefix = f"fs.viewfs.mounttable.{authority}.link"
    if scheme != "viewfs" or f"{prefix}Fallback" in options or f"{prefix}MergeSlash" in options:
        return ()
    links = (name for name in options if name.startswith(f"{prefix}."))
    return tuple(name.removeprefix(f"{prefix}.") for name in links)


def _addresses(authority: str, options: Mapping[str, str]) -> str:
    nodes = options.get(f"dfs.ha.namenodes.{authority.removesuffix(f':{_HDFS_PORT}')}")
    if nodes is None:
        return authority if ":" in authority else f"{authority}:{_HDFS_PORT}"
    authority = authority.removesuffix(f":{_HDFS_PORT}")
    keys = [f"dfs.namenode.rpc-address.{authority}.{node.strip()}" for node in nodes.split(",")]
    return ",".join(sorted(options.get(key, key) for key in keys))


def _endpoint(options: Mapping[str, str]) -> str | None:
    """Return the endpoint of an object store in one spelling, None for the default one."""
    endpoint = options.get("endpoint_url") or options.get("endpoint", "")
    return endpoint.rstrip("/") or None
