"""Hadoop's DistCp as a command: its jars from Maven Central, its maps as threads of one JVM, or as
containers of a YARN.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.support import yarn

_PROJECT = Path(__file__).resolve().parent
_JARS, _CLASSES = _PROJECT / "build" / "jars", _PROJECT / "build" / "classes"
_SERVICE = _PROJECT / "build" / "service"
_SECONDS = 600
_LOG4J = """log4j.rootLogger=WARN, err
log4j.appender.err=org.apache.log4j.ConsoleAppender
log4j.appender.err.target=System.err
log4j.appender.err.layout=org.apache.log4j.SimpleLayout
"""
QUICK_CLOSE = "dfs.client.block.write.locateFollowingBlock.initial.delay.ms=10"  # instead of 400


def build() -> None:
    """Have the jars, offline where Maven has them cached, else with the network; and our class."""
    try:
        _run("mvn", "-q", "-B", "--offline", "process-resources")
    except RuntimeError:
        _run("mvn", "-q", "-B", "process-resources")
    _run("javac", "-d", str(_CLASSES), "-cp", f"{_JARS}/*", "ManyMaps.java")


def _run(*command: str) -> None:
    done = subprocess.run(
        command,
        cwd=_PROJECT,
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}:\n{done.stdout[-4000:]}{done.stderr[-4000:]}")


def command(
    source: str, target: str, scratch: Path, maps: int, settings: tuple[str, ...] = ()
) -> list[str]:
    """`distcp -update SOURCE TARGET` with so many maps, all at the same time."""
    scratch.mkdir(parents=True, exist_ok=True)
    (scratch / "log4j.properties").write_text(_LOG4J)
    given = [
        f"hadoop.tmp.dir={scratch}",
        "mapreduce.framework.name=local",
        f"mapreduce.local.map.tasks.maximum={maps}",
        "distcp.uniformsize.strategy.impl=ManyMaps",
        f"many.maps={maps}",
        # else the client's own default, 3, holds, and the clusters have two DataNodes
        "dfs.replication=1",
        *settings,
    ]
    options = [f"-D{setting}" for setting in given]
    classpath = f"{scratch}:{_CLASSES}:{_JARS}/*"
    return [
        "java",
        "-cp",
        classpath,
        "org.apache.hadoop.tools.DistCp",
        *options,
        "-update",
        source,
        target,
    ]


def build_service() -> Path:
    """Have the auxiliary service of a NodeManager that DistCp's maps ask for; return its folder."""
    servers = f"{yarn.HADOOP}:{yarn.JARS}/*"
    _SERVICE.mkdir(parents=True, exist_ok=True)
    _run("javac", "-d", str(_SERVICE), "-cp", servers, "NoShuffle.java")
    return _SERVICE


def command_on_yarn(
    source: str, target: str, scratch: Path, maps: int, conf: Path, settings: tuple[str, ...] = ()
) -> list[str]:
    """`distcp -m MAPS -update SOURCE TARGET` as a job of the YARN whose configuration is `conf`."""
    scratch.mkdir(parents=True, exist_ok=True)
    (scratch / "log4j.properties").write_text(_LOG4J)
    given = [
        "mapreduce.framework.name=yarn",
        f"mapreduce.application.classpath={_JARS}/*",
        f"yarn.application.classpath={_JARS}/*",
        *("yarn.app.mapreduce.am.resource.mb=768", "yarn.app.mapreduce.am.command-opts=-Xmx512m"),
        *("mapreduce.map.memory.mb=600", "mapreduce.map.java.opts=-Xmx400m"),
        f"hadoop.tmp.dir={scratch}",
        "dfs.replication=1",
        *settings,
    ]
    options = [f"-D{setting}" for setting in given]
    start = ["java", "-cp", f"{scratch}:{conf}:{_JARS}/*", "org.apache.hadoop.tools.DistCp"]
    return [*start, *options, "-m", str(maps), "-update", source, target]
