"""The storages that cpreplicate comes with, registered by their schemes.

A client library is imported when its storage is first needed.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

from cpreplicate.core import uri as uris
from cpreplicate.errors import UsageError
from cpreplicate.storage.backends.local import LocalStorage
from cpreplicate.storage.backends.object_clients import OPTIONS, PROTOCOLS, constructor_options
from cpreplicate.storage.backends.objects import ObjectStorage
from cpreplicate.storage.base import Storage
from cpreplicate.storage.keytab import keytab_of
from cpreplicate.storage.option_names import declare
from cpreplicate.storage.sides import HDFS_SCHEMES, Side, register
from cpreplicate.storage.wrappers.limits import Limited


def remote(storage: Storage, filesystem: str, side: Side) -> Storage:
    """Wrap the storage of a service so that it keeps to the side's limits and retries."""
    from cpreplicate.storage.wrappers.retry import Retrying  # a local run does not need it

    if side.limits.calls is not None:
        storage = Limited(storage, side.limits, side.identity(filesystem))
    return Retrying(storage, side.retry_for)


def _local(_filesystem: str, _options: Mapping[str, str], _side: Side) -> Storage:
    return LocalStorage()


def _hdfs(filesystem: str, options: Mapping[str, str], side: Side) -> Storage:
    cluster = _with_authority(filesystem, options)
    keytab = keytab_of(filesystem, options, side.principal, side.keytab)
    if side.hdfs_client == "hadoop":
        from cpreplicate.storage.backends.hadoop import HadoopStorage

        client = HadoopStorage(cluster, options, side.write, side.deadline(filesystem), keytab)
        return remote(client, filesystem, side)
    from cpreplicate.storage.backends.hdfs import HdfsStorage

    deadline, namenodes = side.deadline(filesystem), side.namenodes(cluster)
    native = HdfsStorage(cluster, options, side.write, deadline, namenodes, keytab)
    return remote(native, filesystem, side)


def _webhdfs(filesystem: str, options: Mapping[str, str], side: Side) -> Storage:
    from cpreplicate.storage.backends.webhdfs import WebHdfsStorage

    if side.keytab is not None:
        raise UsageError(
            f"{filesystem}: --source-keytab and --target-keytab are for hdfs: and viewfs:. Name the"
            " cluster by one of them, or set KRB5_CLIENT_KTNAME"
        )
    deadline = side.deadline(filesystem)
    return remote(WebHdfsStorage(filesystem, options, side.write, deadline), filesystem, side)


def _objects(filesystem: str, options: Mapping[str, str], side: Side) -> Storage:
    return remote(ObjectStorage(filesystem, options, side.deadline(filesystem)), filesystem, side)


def _with_authority(filesystem: str, options: Mapping[str, str]) -> str:
    """Return the cluster that a filesystem means.

    `hdfs:` alone means the default filesystem of the configuration that was given for it, if that
    is one of HDFS.
    """
    if "://" in filesystem:
        return filesystem
    default = options.get("fs.defaultFS", "")
    if not default.startswith(filesystem + "//"):
        raise UsageError(f"{filesystem}/… names no cluster. Write {filesystem}//nameservice/…")
    return uris.filesystem(default)


register("file", _local)
declare("file", ())
for _scheme in HDFS_SCHEMES:
    register(_scheme, _hdfs)
    declare(_scheme, ())
for _scheme in ("webhdfs", "swebhdfs"):
    register(_scheme, _webhdfs)
    declare(_scheme, ("user", "password", "token", "proxy_to", "session_cert"))
for _scheme, _protocol in PROTOCOLS.items():
    register(_scheme, _objects)
    declare(_scheme, OPTIONS[_protocol], functools.partial(constructor_options, _protocol))
