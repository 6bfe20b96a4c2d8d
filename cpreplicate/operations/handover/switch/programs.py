"""The jar that a cluster runs for a job."""

from __future__ import annotations

import os
from pathlib import Path

from cpreplicate.core import uri
from cpreplicate.errors import NotThere, Refused
from cpreplicate.flink.control import FlinkControl, Jar
from cpreplicate.operations.handover.switch.request import Program

_SUFFIX = ".jar"  # other uploads are refused: `JarUploadHandler`


def is_local(program: Program) -> bool:
    """Return whether the jar is a file of this machine."""
    return program.jar is not None and os.sep in program.jar


def named_jar(program: Program, cluster: FlinkControl) -> str:
    """Return what is run: the path of a jar here, or the id of one that the cluster has.

    Raises `NotThere` if there is no such jar, or none that can be uploaded, and `Refused` if it is
    not clear which one is meant.
    """
    if is_local(program):
        path = str(program.jar)
        if not Path(path).is_file():
            raise NotThere(f"the jar {path} is not there. Give its path on this machine to --jar")
        if not path.endswith(_SUFFIX):
            raise NotThere(f"{path} is no jar for Flink: it takes files that end in {_SUFFIX}")
        if not os.access(path, os.R_OK):
            raise NotThere(f"the jar {path} cannot be read. Let this user read it")
        return path
    jars = cluster.jars()
    if program.jar is None:
        return _only(jars, cluster)
    wanted = [jar for jar in jars if program.jar in (jar.jar_id, jar.name)]
    if not wanted:
        raise NotThere(
            f"{cluster.url} has no jar {program.jar}. It has {_names(jars)}. For a file of this"
            " machine, give its path, such as ./job.jar"
        )
    return wanted[0].jar_id  # the newest of several of a name


def uploaded(jar: str, cluster: FlinkControl) -> str:
    """Return the id of a jar as of `named_jar`, which is uploaded if it is a file."""
    return cluster.upload(jar) if os.sep in jar else jar


def _only(jars: tuple[Jar, ...], cluster: FlinkControl) -> str:
    names = {jar.name for jar in jars}
    if len(names) == 1:
        return jars[0].jar_id
    what = "no jar" if not jars else f"several jars, {_names(jars)}"
    raise Refused(
        f"{cluster.url} has {what}: it is not clear which one is run. Nothing was done. Give --jar"
        " FILE, or the name of one of them"
    )


def _names(jars: tuple[Jar, ...]) -> str:
    return ", ".join(sorted({uri.name(jar.name) for jar in jars})) or "none"
