"""Whether an executor runs what the driver runs.

Asked in each Python worker before its first batch.
"""

from __future__ import annotations

import functools
import gc
import platform
import socket
from collections.abc import Sequence
from importlib import metadata
from typing import NamedTuple

from cpreplicate import __version__
from cpreplicate.storage import Sides
from cpreplicate.storage.backends import objects

_CLIENTS = {
    **dict.fromkeys(("hdfs", "viewfs"), "hdfs-native"),
    **dict.fromkeys(("webhdfs", "swebhdfs"), "requests"),
    **{scheme: objects.PACKAGES[protocol] for scheme, protocol in objects.PROTOCOLS.items()},
}


class Needs(NamedTuple):
    """What the driver runs: (name, version) of Python, of cpreplicate and of the packages that
    batches need.
    """

    versions: tuple[tuple[str, str], ...]


class Differs(Exception):
    """Raised in a task: its executor does not run what the driver runs.

    One line, for the operator.
    """


def needs(schemes: Sequence[str], sides: Sides) -> Needs:
    """What executors are to have, for places of these schemes."""
    native = "native" in (sides.source.hdfs_client, sides.target.hdfs_client)
    clients = {_CLIENTS[scheme] for scheme in schemes if scheme in _CLIENTS}
    packages = [
        "pyarrow",
        "google-crc32c",
        *sorted(clients - (set() if native else {"hdfs-native"})),
    ]
    return Needs(
        (
            ("Python", _python()),
            ("cpreplicate", __version__),
            *((name, _version(name)) for name in packages),
        )
    )


@functools.cache
def check(wanted: Needs) -> None:
    """Raise `Differs`, naming this host, if it has another version of anything, or lacks it."""
    for name, version in wanted.versions:
        own = (
            _python()
            if name == "Python"
            else __version__
            if name == "cpreplicate"
            else _version(name)
        )
        if own != version:
            raise Differs(
                f"the executor on {socket.gethostname()} has {name} {own}, the driver {version};"
                " give executors the driver's packages with scripts/executor_archive.sh, see"
                " docs/clusters.md"
            )


@functools.cache
def settle() -> None:
    """After a worker's first task: spare what it has imported from the collection that PySpark's
    daemon makes after each task.

    That takes 20 ms, more than a look at a job (`pyspark/daemon.py`).
    """
    gc.freeze()


def _python() -> str:
    return ".".join(platform.python_version_tuple()[:2])  # as PySpark wants it


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "(none)"
