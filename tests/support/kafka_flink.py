"""Runs a real Flink job between topics of Kafka: the Java side is `tests/kafka/job`.

It knows the number of the next record of each partition, counts what is lost and doubled, and
writes exactly once. Each run has a JVM of its own, which is killed when its test ends.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from tests.support import building
from tests.support.waiting import PATIENCE

PROJECT = Path(__file__).resolve().parent.parent / "kafka" / "job"
CONNECTORS = {"3": "1.20.5 and 3.4.0", "4": "2.0.1 and 4.0.1", "5": "2.2.1 and 5.0.0"}
_OPENED = ("lang", "util", "util.concurrent", "nio", "net")
JVM = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
JVM += [f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in _OPENED]


@dataclass(frozen=True)
class Ended:
    """How a run ended: why it failed, and what it had counted by partition.

    `counts`: the number of the next record, how many were lost and doubled. `first` has the number
    of the first record that the run read. `checkpoint` is the one at which it was halted, as
    `haltAfter` asks for.
    """

    failure: str | None = None
    counts: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    first: dict[str, int] = field(default_factory=dict)
    checkpoint: int | None = None

    @property
    def lost(self) -> int:
        return sum(lost for _, lost, _ in self.counts.values())

    @property
    def doubled(self) -> int:
        return sum(doubled for _, _, doubled in self.counts.values())


class KafkaJob:
    """The job with one connector, and the Flink that it is for."""

    def __init__(self, connector: str) -> None:
        self.connector = connector
        self._target = PROJECT / f"target-{connector}"
        self._build()

    def run(self, **arguments: object) -> Ended:
        """Run the job until every partition is read to `until`, it fails or is halted."""
        (ended,) = self._run(arguments)
        return ended

    def restore_each(self, starts: Sequence[str], **arguments: object) -> list[Ended]:
        """Run the job from each of these checkpoints, one after the other in one process."""
        return list(self._run({**arguments, "from": ",".join(starts)}))

    def _run(self, arguments: Mapping[str, object]) -> Iterator[Ended]:
        words = [f"{name}={value}" for name, value in arguments.items() if value is not None]
        for event in self._events("KafkaJob", words):
            if event["event"] == "halted":
                yield Ended(checkpoint=event["checkpoint"])
                continue
            each = event["counts"].items()
            counts = {name: (next_, lost, doubled) for name, (next_, lost, doubled, _) in each}
            yield Ended(event["failure"], counts, {name: first for name, (*_, first) in each})

    def transactions(self, servers: str) -> list[dict[str, Any]]:
        """Return the transactions that a broker knows: Java's client only can list them."""
        return self._events("Transactions", [servers])

    def _events(self, program: str, words: Sequence[str]) -> list[dict[str, Any]]:
        classes = f"{self._target}/classes:{(self._target / 'classpath').read_text()}"
        command = ["java", *JVM, "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"]
        done = subprocess.run(
            [*command, "-cp", classes, f"cpreplicate.{program}", *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        events = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        assert events, done.stderr[-4000:]
        return events

    def _build(self) -> None:
        """Compile the job, unless that was done since its sources last changed."""
        sources = sorted([PROJECT / "pom.xml", *PROJECT.glob("src/**/*.java")])
        wanted = "\n".join(file.read_text() for file in sources)
        stamp = self._target / "stamp"
        with building.alone():
            if stamp.exists() and stamp.read_text() == wanted:
                return
            maven = ["mvn", "-q", "-B", "-f", str(PROJECT / "pom.xml"), f"-P{self.connector}"]
            goals = ["clean", "compile", "dependency:build-classpath"]
            done = subprocess.run(
                [*maven, *goals, f"-Dmdep.outputFile={self._target / 'classpath'}"],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=PATIENCE,
            )
            assert done.returncode == 0, done.stdout[-4000:]
            stamp.write_text(wanted)


def write_numbers(
    servers: str, topic: str, partitions: Iterable[int], numbers: range, name: str
) -> None:
    """Append the records that the job counts to some partitions of a topic.

    `name` is that of the topic where the records come from. They are in order also where a batch
    is sent once more, which only an idempotent producer promises.
    """
    settings = {"bootstrap.servers": servers, "log_level": 0, "linger.ms": 20}
    producer = Producer({**settings, "enable.idempotence": True})
    for number in numbers:
        for partition in partitions:
            producer.produce(topic, f"{name}|{partition}|{number}", partition=partition)
        producer.poll(0)
    assert producer.flush(PATIENCE) == 0
