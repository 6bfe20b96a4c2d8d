"""Runs a real MirrorMaker 2 between two brokers: its jars come from Maven, by `tests/kafka/mirror`.

It runs in dedicated mode, keeps its state in topics of the target, and is killed when the block
that started it ends.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from tests.support.kafka import JVM, PROJECT, Kafka, class_path
from tests.support.waiting import wait_until

TARGET = "B"
_SYNCS = "offset-syncs.topic"
_WORKERS = {
    # of the workers: all of them count as gone at once, and what was read is recorded often
    "offset.storage.partitions": 1,
    "offset.storage.replication.factor": 1,
    "status.storage.partitions": 1,
    "status.storage.replication.factor": 1,
    "config.storage.replication.factor": 1,
    "offset.flush.interval.ms": 500,
    "scheduled.rebalance.max.delay.ms": 0,
    "session.timeout.ms": 6000,
    "heartbeat.interval.ms": 500,
}
_FLOW = {
    "enabled": "true",
    "replication.factor": 1,
    f"{_SYNCS}.replication.factor": 1,
    f"{_SYNCS}.location": "target",
    "checkpoints.topic.replication.factor": 1,
    "emit.checkpoints.interval.seconds": 1,
    "refresh.topics.interval.seconds": 1,
    "refresh.groups.interval.seconds": 1,
    "heartbeats.topic.replication.factor": 1,
    "sync.topic.acls.enabled": "false",
    "sync.topic.configs.enabled": "false",
}


class MirrorMaker:
    """A MirrorMaker 2 that copies some topics from one broker to another.

    `alias` is that of the source; another one has a state of its own. `properties` are those of the
    replication, such as `offset.lag.max`, `workers` those of the target's workers.
    """

    def __init__(
        self,
        source: Kafka,
        target: Kafka,
        directory: Path,
        alias: str,
        topics: str,
        properties: Mapping[str, object] | None = None,
        workers: Mapping[str, object] | None = None,
    ) -> None:
        self.alias = alias
        self._source, self._target, self._directory = source, target, directory
        self._flow = {**_FLOW, "topics": topics, **(properties or {})}
        self._workers = {**_WORKERS, **(workers or {})}
        self._process: subprocess.Popen[bytes] | None = None
        self._starts = 0

    def __enter__(self) -> MirrorMaker:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        """Start it, from where it was."""
        file = self._directory / f"{self.alias}.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in self._all().items()))
        self._starts += 1
        jars = class_path(PROJECT / "mirror")
        command = ["java", *JVM, "-cp", jars, "org.apache.kafka.connect.mirror.MirrorMaker"]
        with self._log.open("wb") as out:
            # if this process is killed, it is, too
            self._process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *command, str(file)],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )

    def stop(self) -> None:
        """End it as its operator does: it records up to where it has copied."""
        assert self._process is not None
        self._process.terminate()
        wait_until(lambda: self._process is None or self._process.poll() is not None, "its end")

    def kill(self) -> None:
        """End it as a power failure does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def wait_for(self, ends: Mapping[tuple[str, int], int]) -> None:
        """Wait until partitions of the target hold so many records."""
        wait_until(lambda: self._is_at(ends), f"{self.alias} to be at {ends}", pause=0.2)

    def _is_at(self, ends: Mapping[tuple[str, int], int]) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self._log.read_text(errors="replace")[-4000:]
        found = ends_of(self._target, list(ends))
        return all(found.get(each, 0) >= end for each, end in ends.items())

    @property
    def _log(self) -> Path:
        return self._directory / f"{self.alias}-{self._starts}.log"

    def _all(self) -> dict[str, object]:
        return {
            "clusters": f"{self.alias},{TARGET}",
            f"{self.alias}.bootstrap.servers": self._source.servers,
            f"{TARGET}.bootstrap.servers": self._target.servers,
            **{f"{TARGET}.{name}": value for name, value in self._workers.items()},
            **{f"{self.alias}->{TARGET}.{name}": value for name, value in self._flow.items()},
            "emit.heartbeats.enabled": "false",
        }


def ends_of(kafka: Kafka, partitions: list[tuple[str, int]]) -> dict[tuple[str, int], int]:
    """Return the ends of those of some partitions that are there."""
    admin = AdminClient({"bootstrap.servers": kafka.servers, "log_level": 0})
    asked = {TopicPartition(*each): OffsetSpec.latest() for each in partitions}
    found = {}
    for each, future in admin.list_offsets(asked).items():
        try:
            found[each.topic, each.partition] = future.result().offset
        except KafkaException:
            continue
    return found
