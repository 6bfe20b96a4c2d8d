"""The check that an executor runs the same versions as the driver.

Each Python worker makes it before its first batch.
"""

from __future__ import annotations

import functools
import gc
import platform
import socket
from collections.abc import Sequence
from typing import NamedTuple, NoReturn

from cpreplicate.storage import Sides
from cpreplicate.storage.clients import CLIENTS, installed
from cpreplicate.version import __version__


class Needs(NamedTuple):
    """The versions that the driver runs, as (name, version).

    They are those of Python, of cpreplicate and of the packages that batches need.
    """

    versions: tuple[tuple[str, str], ...]


class Differs(Exception):
    """Raised in a task that its executor must not run. It is one line.

    The executor has other versions or another time, or does not reach the driver of a run with
    limits.
    """


def needs(schemes: Sequence[str], sides: Sides) -> Needs:
    """Return what executors must have to read and write URIs of these schemes."""
    native = "native" in (sides.source.hdfs_client, sides.target.hdfs_client)
    clients = {CLIENTS[scheme] for scheme in schemes if scheme in CLIENTS}
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
    """Raise `Differs`, which names this host, if a version differs or a package is missing."""
    for name, version in wanted.versions:
        own = _own_version(name)
        if own != version:
            raise Differs(
                f"the executor on {socket.gethostname()} has {name} {own}, the driver {version};"
                " give executors the driver's packages with scripts/executor_archive.sh, see"
                " docs/clusters.md"
            )


def refuse_unlimited(driver: tuple[str, int]) -> NoReturn:
    """Raise `Differs`, because the driver is not reached, which holds the limits of the run.

    Each call of a storage would wait for it otherwise, for as long as `--retry-for`.
    """
    host, port = driver
    raise Differs(
        f"the executor on {socket.gethostname()} does not reach the driver at {host}:{port}, which"
        " holds the run's limits; open spark.cpreplicate.port for it, see docs/clusters.md"
    )


@functools.cache
def settle() -> None:
    """Exclude what a worker has imported from garbage collection, after its first task.

    PySpark's daemon collects after each task (`pyspark/daemon.py`), which takes 20 ms. Checking a
    job takes less.
    """
    gc.freeze()


def _own_version(name: str) -> str:
    """Return the version of Python, of cpreplicate or of a package on this host."""
    own = {"Python": _python(), "cpreplicate": __version__}
    return own[name] if name in own else _version(name)


def _python() -> str:
    return ".".join(platform.python_version_tuple()[:2])  # the form that PySpark compares


def _version(package: str) -> str:
    return installed(package) or "(none)"
