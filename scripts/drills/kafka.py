"""A job that reads and writes Kafka loses A; B's Kafka is a mirror that trails at random.

The job starts at B by what `promote --kafka` prints, and the sum of its records is counted.
"""

from __future__ import annotations

import json
import random
import shlex
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from scripts.drills.sites import DrillFailed, Result, cpreplicate
from tests.support.kafka import Kafka
from tests.support.kafka_flink import CONNECTORS, Ended, KafkaJob, write_numbers

_TOPICS = {"orders": 4, "payments": 2}
_RECORDS = 3_000  # in each partition
_REFUSED = 6
HEADINGS = ("drill", "checkpoint", "read at A", "mirrored", "pending", "doubled", "lost")


class Row(NamedTuple):
    """One drill: `read` and `mirrored` records of all partitions, and what was doubled at B."""

    checkpoint: str
    read: int
    mirrored: int
    pending: int
    doubled: int
    lost: int

    def cells(self, number: int) -> tuple[str, ...]:
        """Return the cells of the table."""
        return (str(number), self.checkpoint, *map(str, self[1:]))


class Drill:
    """Two Kafkas and a job. Each drill has topics and directories of its own."""

    def __init__(self, connector: str, scratch: Path, chance: random.Random) -> None:
        self.release = CONNECTORS[connector]
        self._job, self._scratch, self._chance = KafkaJob(connector), scratch, chance
        self._stack = ExitStack()

    def __enter__(self) -> Drill:
        self._a = self._stack.enter_context(Kafka())
        self._b = self._stack.enter_context(Kafka())
        for each in (self._a, self._b):
            each.create("out", partitions=2)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def run(self, number: int) -> Row:
        """Lose A once. Raises `DrillFailed` if more or less is doubled than was reported."""
        prefix, directory = f"drill-{number}.", self._scratch / str(number)
        for topic, partitions in _TOPICS.items():
            for each in (self._a, self._b):
                each.create(f"{prefix}{topic}", partitions=partitions)
            self._write(self._a, prefix, topic, partitions, range(_RECORDS))
        moment = self._chance.randrange(100, _RECORDS)
        halted = self._run(self._a, prefix, directory / "dcA", haltAfter=moment, perCheckpoint=300)
        if halted.checkpoint is None:
            raise DrillFailed(f"the job at A ended by itself: {halted.failure}")
        (source,) = (directory / "dcA").iterdir()
        place = (f"{source}/chk-{halted.checkpoint}", f"{directory}/dcB")
        cpreplicate(["sync", *place, "--runner", "inline"])
        mirrored = {topic: self._chance.randrange(_RECORDS) for topic in _TOPICS}
        for topic, partitions in _TOPICS.items():
            self._write(self._b, prefix, topic, partitions, range(mirrored[topic]))
        return self._switch(prefix, directory, f"{directory}/dcB/{source.name}", mirrored)

    def _switch(self, prefix: str, directory: Path, replica: str, mirrored: dict[str, int]) -> Row:
        asked = ["promote", replica, "--kafka", self._b.servers]
        (checked,) = cpreplicate(asked, (_REFUSED,))["kafka"]["checked"]
        derived = self._rebased(checked["rebase"])
        promoted = cpreplicate([*asked, "--checkpoint", derived["derived"]])
        for topic, partitions in _TOPICS.items():  # the mirror catches up
            rest = range(mirrored[topic], _RECORDS)
            self._write(self._b, prefix, topic, partitions, rest)
        start = promoted["restore"]["rest"]["savepointPath"]
        ended = self._run(self._b, prefix, directory / "checkpoints", **{"from": start})
        doubled = derived["doubled"] or 0
        if (ended.failure, ended.lost, ended.doubled) != (None, 0, doubled):
            raise DrillFailed(
                f"{doubled} records were to be doubled, and none lost: {json.dumps(ended.counts)},"
                f" {ended.failure}"
            )
        return Row(
            checkpoint=checked["checkpoint"],
            read=sum(each["offset"] or 0 for each in derived["positions"]),
            mirrored=sum(mirrored[topic] * count for topic, count in _TOPICS.items()),
            pending=len(derived["dropped"]),
            doubled=ended.doubled,
            lost=ended.lost,
        )

    def _rebased(self, command: str | None) -> Result:
        if command is None:
            raise DrillFailed("no rebase was printed for what is in the way")
        return cpreplicate(shlex.split(command)[1:])

    def _run(self, kafka: Kafka, prefix: str, checkpoints: Path, **arguments: object) -> Ended:
        return self._job.run(
            brokers=kafka.servers,
            topics=",".join(f"{prefix}{topic}" for topic in _TOPICS),
            checkpoints=f"file:{checkpoints}",
            names=sum(_TOPICS.values()),
            until=_RECORDS,
            **arguments,
        )

    def _write(
        self, kafka: Kafka, prefix: str, topic: str, partitions: int, numbers: range
    ) -> None:
        write_numbers(kafka.servers, f"{prefix}{topic}", range(partitions), numbers, topic)
