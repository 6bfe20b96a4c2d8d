"""Checks of each side: its client, its configuration, and whether it can be reached."""

from __future__ import annotations

import os
from pathlib import Path

from cpreplicate.core import uri
from cpreplicate.operations.doctor.case import CaseSide
from cpreplicate.operations.doctor.findings import Result, failure, warning
from cpreplicate.operations.doctor.kerberos import disagreement
from cpreplicate.operations.doctor.sockets import resolves, unanswered
from cpreplicate.storage import java, questions
from cpreplicate.storage.clients import CLIENTS, installed
from cpreplicate.storage.option_names import HDFS_SCHEMES
from cpreplicate.version import __version__

_USAGE = 2
_UNREACHABLE = 7
_NOT_THERE = 10
_HADOOP = "--hdfs-client hadoop"


def check_client(case_side: CaseSide) -> Result:
    """Check that the package which reaches a side is installed."""
    scheme = case_side.uri.partition(":")[0]
    if scheme in HDFS_SCHEMES and case_side.side.hdfs_client == "hadoop":
        return _hadoop()
    if scheme not in CLIENTS:
        return Result(f"cpreplicate {__version__} itself")
    package = CLIENTS[scheme]
    version = installed(package)
    if version is None:
        remedy = f"Install it here and on every executor: pip install {package}"
        return failure(f"the Python package {package} is not installed", remedy, _USAGE)
    return Result(f"{package} {version}")


def _hadoop() -> Result:
    path = java.executable()
    if path is None:
        remedy = f"Install Java {java.least()} or set JAVA_HOME, or use --hdfs-client native"
        return failure(f"{_HADOOP} needs Java, and none was found", remedy, _USAGE)
    from cpreplicate.storage.backends.jvm import launcher as jvm_launcher

    version = jvm_launcher.jvm().static("org.apache.hadoop.util.VersionInfo", "getVersion")
    reported = java.version(path)
    return Result(f"Hadoop {version} in a JVM of Java {reported[1] if reported else 'unknown'}")


def check_configuration(case_side: CaseSide) -> Result:
    """Check that the configuration of a side names where it is, and that the names resolve."""
    _ = case_side.storage  # raises `UsageError` if the configuration does not suffice
    unusable = _unusable_variable(case_side)
    if unusable is not None:
        return unusable
    addresses = case_side.side.namenodes(case_side.uri)
    unknown = [address for address in addresses if not resolves(address)]
    described = f"{_where(case_side, addresses)}{_origin(case_side)}"
    if not unknown:
        return disagreement(case_side, addresses) or Result(described)
    message = f"the host name of {', '.join(unknown)} cannot be resolved. {described}"
    remedy = "Correct the address in hdfs-site.xml, or the DNS of this machine"
    if len(unknown) < len(addresses):
        return warning(message, remedy)
    return failure(message, remedy, _UNREACHABLE)


def _unusable_variable(case_side: CaseSide) -> Result | None:
    directory = os.environ.get("HADOOP_CONF_DIR")
    is_hdfs = case_side.uri.partition(":")[0] in HDFS_SCHEMES
    if not is_hdfs or case_side.configured or not directory or Path(directory).is_dir():
        return None
    return warning(
        f"HADOOP_CONF_DIR is {directory}, which is not a directory, and was ignored",
        f"Correct it, or name the configuration with --{case_side.name}-conf",
    )


def _where(case_side: CaseSide, addresses: tuple[str, ...]) -> str:
    if addresses:
        place = f"{uri.filesystem(case_side.uri)} is {', '.join(addresses)}"
        is_written = case_side.name == "target"
        return f"{place}, {questions.settings(case_side.storage)}" if is_written else place
    if case_side.uri.startswith("file:"):
        return "files of this machine"
    place = case_side.side.place(case_side.uri).service.replace(
        " at None", ", the default endpoint"
    )
    settings = questions.settings(case_side.storage)
    return f"{place}, {settings}" if settings else place


def _origin(case_side: CaseSide) -> str:
    return f", by {', '.join(case_side.configured)}" if case_side.configured else ""


def check_reach(case_side: CaseSide) -> Result:
    """Check that the service of a side answers, and that a bucket exists."""
    addresses = case_side.side.namenodes(case_side.uri)
    try:
        questions.reach(case_side.storage, case_side.uri)
    except FileNotFoundError:
        remedy = "Create the bucket, or correct its name"
        return failure(f"{uri.filesystem(case_side.uri)} does not exist", remedy, _NOT_THERE)
    down = unanswered(addresses) if len(addresses) > 1 else []
    if down:
        return warning(
            f"a NameNode answers, but not {', '.join(down)}",
            "Start it, or open the port for this machine and the executors: after a failover no"
            " NameNode would be reached",
        )
    return Result(f"{uri.filesystem(case_side.uri)} answers")
