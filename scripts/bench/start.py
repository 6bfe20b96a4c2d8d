"""The phases of a run on YARN, from the log of Spark's driver."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

# What the driver logs when a phase has ended, and what has happened by then.
_ENDS = [
    ("Python, the plan, the JVM", r"Running Spark version"),
    ("Spark's own start", r"Connecting to ResourceManager|Requesting a new application"),
    ("what is uploaded", r"Submitting application "),
    ("accepted", r"Submitted application "),
    ("the ApplicationMaster's start", r"ApplicationMaster registered as"),
    ("the first executor's start", r"Registered executor"),
    ("until the first task", r"Starting task "),
    ("the first task", r"Finished task "),
    ("the other tasks", r"Finished task "),
    ("the end of Spark", r"Successfully stopped SparkContext"),
]
_LOG4J = """rootLogger.level = info
rootLogger.appenderRef.file.ref = file
appender.file.type = File
appender.file.name = file
appender.file.fileName = {path}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{UNIX_MILLIS}} %m%n
"""


class Phase(NamedTuple):
    """What a phase is, and when it ended, in seconds from the start of the command."""

    name: str
    ended: float


def settings(log: Path) -> list[str]:
    """Return properties by which the driver of Spark logs there.

    They contain those by which cpreplicate starts a JVM quickly, which they override.
    """
    configuration = log.with_suffix(".properties")
    configuration.write_text(_LOG4J.format(path=log))
    java = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"
    return [
        f"spark.driver.extraJavaOptions=-Dlog4j2.configurationFile={configuration.as_uri()} {java}",
        "spark.log.level=INFO",
    ]


def phases(log: Path, began: float, seconds: float) -> list[Phase]:
    """Return the phases of a command that began then, as of `time.time`, and took so long.

    Those that it did not reach are left out.
    """
    found = [_line(line) for line in log.read_text().splitlines() if line[:13].isdecimal()]
    times: list[Phase] = []
    for name, pattern in _ENDS:
        hits = [at for at, text in found if re.search(pattern, text)]
        if hits:
            at = hits[-1] if name == "the other tasks" else hits[0]
            times.append(Phase(name, at - began))
    return [*times, Phase("the end of the command", seconds)]


def _line(line: str) -> tuple[float, str]:
    at, _, text = line.partition(" ")
    return int(at) / 1000, text


def table(columns: dict[str, list[Phase]]) -> str:
    """Return how many seconds each phase took, a column for each run."""
    names = [*(name for name, _ in _ENDS), "the end of the command"]
    head = ["phase, seconds", *columns]
    rows = [[name, *(_seconds(name, each) for each in columns.values())] for name in names]
    lines = ["| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *rows]]
    return "\n".join(lines)


def _seconds(name: str, run: list[Phase]) -> str:
    before = 0.0
    for phase in sorted(run, key=lambda each: each.ended):
        if phase.name == name:
            return f"{phase.ended - before:.1f}"
        before = phase.ended
    return ""
