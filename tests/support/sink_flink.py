"""Runs a real Flink job that writes part files: the Java side is `tests/sinks/job`.

It writes numbers, one a line, so that what is lost and doubled is read from its output. Each run
has a JVM of its own, which is killed when its test ends.
"""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.support import building
from tests.support.flink import hadoop_client
from tests.support.kafka_flink import JVM
from tests.support.waiting import PATIENCE

PROJECT = Path(__file__).resolve().parent.parent / "sinks" / "job"
_COPY = ("org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy", "-Dmdep.overWrite=false")
RELEASES = {"1.13": "1.13.6", "1.17": "1.17.2", "1": "1.20.5", "2": "2.3.0"}


class SinkJob:
    """The job, compiled for one Flink."""

    def __init__(self, version: str, has_s3: bool = False) -> None:
        self._target = PROJECT / f"target-{version}"
        self._version, self._has_s3 = version, has_s3
        self._build()

    def run(self, **arguments: object) -> dict[str, Any]:
        """Run the job to its last number, or until it fails or halts. Return its last event."""
        words = [f"{name.rstrip('_')}={value}" for name, value in arguments.items()]
        own = [self._target / "classes", (self._target / "classpath").read_text().strip()]
        # Flink's S3 has a Hadoop of its own
        filesystem = [self._s3()] if self._has_s3 else hadoop_client()
        classes = ":".join(map(str, [*own, *filesystem]))
        command = ["java", *JVM, "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"]
        done = subprocess.run(
            [*command, "-cp", classes, "cpreplicate.SinkJob", *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        events = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        assert events, done.stderr[-4000:]
        event: dict[str, Any] = events[-1]
        return event

    def _s3(self) -> Path:
        """Return the jar of Flink's S3, which is fetched once."""
        name = f"flink-s3-fs-hadoop-{RELEASES[self._version]}.jar"
        place = PROJECT / f"target-s3-{self._version}"
        with building.alone():
            if not (place / name).exists():
                artifact = f"org.apache.flink:flink-s3-fs-hadoop:{RELEASES[self._version]}"
                self._maven(*_COPY, f"-Dartifact={artifact}", f"-DoutputDirectory={place}")
        return place / name

    def _build(self) -> None:
        """Compile the job, unless that was done since its sources last changed."""
        sources = sorted([PROJECT / "pom.xml", *PROJECT.glob("src/**/*.java")])
        wanted = "\n".join(file.read_text() for file in sources)
        stamp = self._target / "stamp"
        with building.alone():
            if stamp.exists() and stamp.read_text() == wanted:
                return
            goals = ("clean", "compile", "dependency:build-classpath")
            self._maven(*goals, f"-Dmdep.outputFile={self._target / 'classpath'}")
            stamp.write_text(wanted)

    def _maven(self, *words: str) -> None:
        maven = ["mvn", "-q", "-B", "-f", str(PROJECT / "pom.xml"), f"-P{self._version}"]
        done = subprocess.run(
            [*maven, *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        assert done.returncode == 0, done.stdout[-4000:]


def is_committed(path: str) -> bool:
    """Return whether a part file is committed: a reader skips names with a dot."""
    return not path.rpartition("/")[2].startswith(".")


def numbers(files: Iterable[bytes]) -> Counter[int]:
    """Return how often each number is in the content of some files."""
    return Counter(int(line) for content in files for line in content.split())
