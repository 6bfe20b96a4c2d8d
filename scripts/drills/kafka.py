"""A job that reads and writes Kafka loses A; B's Kafka is a mirror that trails at random.

The mirror keeps offsets and names, or is a real MirrorMaker 2, which keeps neither: it began when
A's oldest records were deleted. The job starts at B by what `promote --kafka` prints, and the sum
of its records is counted.
"""

from __future__ import annotations

import json
import random
import re
import shlex
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from scripts.drills.sites import DrillFailed, Result, cpreplicate
from tests.support.kafka import Kafka
from tests.support.kafka_flink import CONNECTORS, Ended, KafkaJob, write_numbers
from tests.support.mirror_maker import MirrorMaker

_TOPICS = {"orders": 4, "payments": 2}
_RECORDS = 3_000  # in each partition
_REFUSED = 6
_OLD = 70  # records of each partition that A has deleted when MirrorMaker begins
_AT_ONCE = 50  # records of a partition: MirrorMaker records no offset sync of each 100 of a burst
_ALIAS = "A"
HEADINGS = ("drill", "mirror", "checkpoint", "read at A", "mirrored", "pending", "doubled", "lost")


class Row(NamedTuple):
    """One drill: `read` and `mirrored` records of all partitions, and what was doubled at B."""

    mirror: str
    checkpoint: str
    read: int
    mirrored: int
    pending: int
    doubled: int
    lost: int

    def cells(self, number: int) -> tuple[str, ...]:
        """Return the cells of the table."""
        return (str(number), *map(str, self))


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

    def run(self, number: int) -> list[Row]:
        """Lose A once with each kind of mirror.

        Raises `DrillFailed` if more or less is doubled than was reported, or any record is lost.
        """
        return [self._keeping(f"drill-{number}."), self._by_mirror_maker(f"moved-{number}.")]

    def _keeping(self, prefix: str) -> Row:
        """Lose A with a mirror that keeps offsets, and holds a random part of each topic."""
        mirrored = {topic: self._chance.randrange(_RECORDS) for topic in _TOPICS}
        for topic, partitions in _TOPICS.items():
            self._a.create(f"{prefix}{topic}", partitions=partitions)
            self._b.create(f"{prefix}{topic}", partitions=partitions)
            self._write(self._a, prefix, topic, range(_RECORDS))
            self._write(self._b, prefix, topic, range(mirrored[topic]))
        replica = self._lose_a(prefix)

        def catch_up() -> None:
            for topic, count in mirrored.items():
                self._write(self._b, prefix, topic, range(count, _RECORDS))

        count = sum(mirrored[topic] * partitions for topic, partitions in _TOPICS.items())
        return self._switch("keeps offsets", replica, prefix, count, catch_up)

    def _by_mirror_maker(self, prefix: str) -> Row:
        """Lose A with a MirrorMaker 2 that ended when it had copied a random part.

        A has deleted its oldest records, so that no offset at B is that of A.
        """
        part = self._chance.randrange(_AT_ONCE, _RECORDS)
        places = [(topic, each) for topic, count in _TOPICS.items() for each in range(count)]
        for topic, partitions in _TOPICS.items():
            self._a.create(f"{prefix}{topic}", dict.fromkeys(range(partitions), _OLD), partitions)
        for topic, each in places:
            self._a.delete_before(f"{prefix}{topic}", each, _OLD)
        directory = self._scratch / prefix
        directory.mkdir()
        copy = f"{_ALIAS}.{prefix}"
        mirror = MirrorMaker(self._a, self._b, directory, _ALIAS, f"{re.escape(prefix)}.*")

        def copied(numbers: range) -> None:
            for topic in _TOPICS:
                self._write(self._a, prefix, topic, numbers)
            mirror.wait_for({(f"{copy}{topic}", each): numbers.stop for topic, each in places})

        with mirror:
            for first in range(0, part, _AT_ONCE):
                copied(range(first, min(first + _AT_ONCE, part)))
            mirror.stop()
            for topic in _TOPICS:
                self._write(self._a, prefix, topic, range(part, _RECORDS))
            replica = self._lose_a(prefix)
            count = part * len(places)
            return self._switch("MirrorMaker 2", replica, copy, count, mirror.start, _OLD)

    def _lose_a(self, prefix: str) -> str:
        """Run the job at A until it dies at a random moment, and return its replica."""
        directory = self._scratch / f"{prefix}jobs"
        moment = self._chance.randrange(100, _RECORDS)
        halted = self._run(self._a, prefix, directory / "dcA", haltAfter=moment, perCheckpoint=300)
        if halted.checkpoint is None:
            raise DrillFailed(f"the job at A ended by itself: {halted.failure}")
        (source,) = (directory / "dcA").iterdir()
        place = (f"{source}/chk-{halted.checkpoint}", f"{directory}/dcB")
        cpreplicate(["sync", *place, "--runner", "inline"])
        return f"{directory}/dcB/{source.name}"

    def _switch(
        self,
        mirror: str,
        replica: str,
        prefix: str,
        mirrored: int,
        catch_up: Callable[[], None],
        before: int = 0,
    ) -> Row:
        """Start the job at B, where its topics have this prefix, and return what that doubled.

        `before` is the offset of the first record at A.
        """
        asked = ["promote", replica, "--kafka", self._b.servers]
        (checked,) = cpreplicate(asked, (_REFUSED,))["kafka"]["checked"]
        derived = self._rebased(checked["rebase"])
        promoted = cpreplicate([*asked, "--checkpoint", derived["derived"]])
        catch_up()
        start = promoted["restore"]["rest"]["savepointPath"]
        checkpoints = self._scratch / f"{prefix}checkpoints"
        ended = self._run(self._b, prefix, checkpoints, **{"from": start})
        doubled = derived["doubled"] or 0
        if (ended.failure, ended.lost, ended.doubled) != (None, 0, doubled):
            raise DrillFailed(
                f"{mirror}: {doubled} records were to be doubled, and none lost:"
                f" {json.dumps(ended.counts)}, {ended.failure}"
            )
        return Row(
            mirror=mirror,
            checkpoint=checked["checkpoint"],
            read=sum(each["offset"] - before for each in derived["positions"]),
            mirrored=mirrored,
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

    def _write(self, kafka: Kafka, prefix: str, topic: str, numbers: range) -> None:
        write_numbers(kafka.servers, f"{prefix}{topic}", range(_TOPICS[topic]), numbers, topic)
