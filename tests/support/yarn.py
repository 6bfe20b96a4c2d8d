"""A real YARN on loopback, a ResourceManager and a NodeManager in one process: the Java side is
`tests/yarn`.
"""

from __future__ import annotations

import contextlib
import os
import queue
import shutil
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pyspark

from tests.support import building, hdfs
from tests.support.waiting import PATIENCE

PROJECT = Path(__file__).resolve().parents[1] / "yarn"
HADOOP = hdfs.PROJECT / "target" / "minicluster.jar"  # it holds YARN's servers too
JARS = Path(pyspark.__file__).parent / "jars"
QUICKLY = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

_BUILT = PROJECT / "build"
_ROOM = {
    "yarn.scheduler.minimum-allocation-mb": "64",
    "yarn.nodemanager.resource.memory-mb": "4096",
    "yarn.nodemanager.resource.cpu-vcores": "4",
    "yarn.nodemanager.vmem-check-enabled": "false",
    "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": "99.9",
}


def build() -> None:
    """Have the jars of the servers."""
    hdfs.build()
    with building.alone():
        if not (_BUILT / "complete").exists():
            _maven()
            (_BUILT / "complete").touch()


@contextlib.contextmanager
def cluster(
    directory: Path, settings: Mapping[str, str] | None = None, classes: Sequence[Path] = ()
) -> Iterator[int]:
    """Run a YARN while the block does: the configuration of its clients is in `directory/conf`.

    Yields the id of its process, which ends when this one is gone, too. `settings` are of the
    servers, which also find what is in `classes`.
    """
    build()
    classpath = ":".join([f"{_BUILT}/*", str(HADOOP), *map(str, classes), f"{JARS}/*"])
    words = [f"{key}={value}" for key, value in {**_ROOM, **(settings or {})}.items()]
    command = ["java", "-Xmx512m", *QUICKLY.split(), "-cp", classpath]
    with (directory / "stderr").open("wb") as log:
        process = subprocess.Popen(
            [*command, str(PROJECT / "MiniYarn.java"), str(directory), *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            cwd=directory,
            text=True,
            env={**os.environ, "JAVA_HOME": _java_home()},
        )
    answers: queue.Queue[str] = queue.Queue()
    stdout = process.stdout
    assert stdout is not None
    reader = threading.Thread(target=lambda: answers.put(stdout.readline()), daemon=True)
    with process:
        try:
            reader.start()
            if answers.get(timeout=PATIENCE) != "ready\n":
                raise RuntimeError((directory / "stderr").read_text()[-4000:])
            yield process.pid
        finally:
            process.kill()  # containers end with their driver


def _java_home() -> str:
    """Return the JAVA_HOME of containers."""
    java = shutil.which("java")
    assert java is not None
    return str(Path(java).resolve().parent.parent)


def _maven() -> None:
    """Offline where everything is cached; else with the network."""
    for offline in (["--offline"], []):
        done = subprocess.run(
            ["mvn", "-q", "-B", *offline, "process-resources"],
            cwd=PROJECT,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        if done.returncode == 0:
            return
    raise RuntimeError(done.stdout[-4000:] + done.stderr[-4000:])
