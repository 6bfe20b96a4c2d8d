"""What a Kafka shows of whether its offsets mean the records that a checkpoint means.

By the clock: a record that is younger than a checkpoint was not read by its job. Where one stands
below a position, offsets do not mean the same records, or producers went on there.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from cpreplicate.core.positions.fingerprints import Seen
from cpreplicate.core.positions.model import PendingTransaction, Position, Positions
from cpreplicate.core.positions.offsets import Partition
from cpreplicate.core.positions.ranges import (
    Ranges,
    Span,
    Stamp,
    checkable,
    nearest_records,
    partitions_of,
    skipping,
    younger_from,
)
from cpreplicate.core.positions.topics import Topics, twins
from cpreplicate.core.sizes import counted

_SHOWN = 3  # partitions or transactions of a warning
_USUAL_LIMIT = 900.0  # seconds: what Kafka has for `transaction.max.timeout.ms` by itself


class Kafka(Protocol):
    """A cluster that can be asked, as `KafkaCluster`."""

    @property
    def servers(self) -> str:
        """Its bootstrap servers."""

    def topics(self) -> Topics:
        """Return the partitions of each topic."""

    def denied(self, topics: Sequence[str]) -> Collection[str]:
        """Return those of some topics that the user may not describe."""

    def ranges(self, partitions: Sequence[Partition], topics: Topics) -> Ranges:
        """Return the offsets of those of these partitions that exist."""

    def since(self, time: float, partitions: Sequence[Partition]) -> Mapping[Partition, int]:
        """Return the offset of the first record with this time or later, where there is one."""

    def stamps(self, offsets: Mapping[Partition, int]) -> Mapping[Partition, Stamp]:
        """Return the time of the record at an offset of each partition, where it may be read."""

    def first_at(self, times: Mapping[Partition, int]) -> Mapping[Partition, int]:
        """Return the offset of the first record with a time in milliseconds or later."""

    def records(
        self, spans: Mapping[Partition, Span], within: float
    ) -> Mapping[Partition, Sequence[Seen]]:
        """Return the records in a span of each partition that may be read, within some seconds."""

    def log(self, topic: str) -> Iterator[tuple[bytes, bytes, float]]:
        """Yield key, value and time of the records in the first partition of a topic."""

    def stable_ends(self, partitions: Sequence[Partition]) -> Mapping[Partition, int]:
        """Return up to where no transaction is open."""

    def transaction_limit(self) -> float | None:
        """Return how long a transaction may be open, in seconds, None if that may not be read."""


@dataclass(frozen=True)
class Evidence:
    """What is known of a checkpoint's positions at a Kafka.

    `later` is the first record younger than the checkpoint in partitions where that proves a
    position wrong. `warnings` are what is known and proves nothing. `stamps` are those of the
    records before its positions.
    """

    later: Mapping[Partition, int] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    stamps: Mapping[Partition, Stamp] = field(default_factory=dict)


class Later(NamedTuple):
    """The first record younger than a checkpoint, of partitions that have one below an offset.

    `unproven` are those in which that proves nothing: times are the broker's or may not be read, or
    no record there is older, so that the mirror seems not to keep times.
    """

    proven: Mapping[Partition, int]
    unproven: tuple[Partition, ...]


def clock(
    kafka: Kafka, completed: float, offsets: Mapping[Partition, int], ranges: Ranges
) -> Later:
    """Return where records younger than a checkpoint stand below some offsets.

    `completed` is its date. Where that may be cut to a whole second, records of that second count
    as older ones.
    """
    found = kafka.since(younger_from(completed), sorted(offsets))
    below = {each: first for each, first in found.items() if first < offsets[each]}
    stamps = kafka.stamps(below) if below else {}
    proven = {
        each: first
        for each, first in below.items()
        if each in stamps and not stamps[each].is_of_broker and first > ranges[each].begin
    }
    return Later(proven, tuple(sorted(below.keys() - proven.keys())))


def evidence(
    kafka: Kafka,
    held: Sequence[Positions],
    completed: float | None,
    ranges: Ranges,
    topics: Topics,
) -> Evidence:
    """Return what a Kafka, which is not the former one, shows of a checkpoint.

    `held` are its positions, under their names and under new ones.
    """
    servers = kafka.servers
    positions = [*dict.fromkeys(each for one in held for each in checkable(one, servers))]
    asked = nearest_records(positions, ranges)
    stamps = kafka.stamps(asked) if asked else {}
    warnings = [
        *_of_bounds(positions, ranges),
        *_of_open(kafka, positions, ranges),
        *_of_twins(held[0], topics),
    ]
    if completed is None:
        warnings.append("it is not known when the checkpoint was completed: no time was compared")
        return Evidence({}, tuple(warnings), stamps)
    later = clock(kafka, completed, skipping(positions, ranges), ranges)
    warnings += of_times(later.unproven, servers)
    warnings += _of_others(kafka, held, completed, topics)
    return Evidence(later.proven, tuple(warnings), stamps)


def _of_bounds(positions: Sequence[Position], ranges: Ranges) -> Iterator[str]:
    for each in positions:
        found = ranges.get((each.topic, each.partition))
        if found is not None and each.stop is not None and each.stop > found.end:
            yield (
                f"{each.topic} partition {each.partition} is read up to {each.stop} and ends at"
                f" {found.end}: the job does not end before that is there"
            )


def _of_open(kafka: Kafka, positions: Sequence[Position], ranges: Ranges) -> Iterator[str]:
    """Yield in which partitions a transaction is open."""
    asked = sorted({(each.topic, each.partition) for each in positions}.intersection(ranges))
    stable = kafka.stable_ends(asked) if asked else {}
    held = [each for each in asked if stable.get(each, ranges[each].end) < ranges[each].end]
    if held:
        counts = (
            f"{named(each)} stops at {stable[each]} of {ranges[each].end}" for each in held[:_SHOWN]
        )
        yield (
            f"a transaction is open in {counted(len(held), 'partition')}: a job that reads"
            f" committed records stands still there until it ends: {_some(counts, len(held))}"
        )


def _of_twins(held: Positions, topics: Topics) -> Iterator[str]:
    for topic, others in twins(held, topics).items():
        yield (
            f"{topic} is there, and so is {', '.join(others)}: if that is the mirror, {topic} holds"
            f" other records, and the job needs `cpreplicate rebase --rename-topic"
            f" {topic}={others[0]}`"
        )


def of_times(unproven: Sequence[Partition], servers: str) -> Iterator[str]:
    """Yield of which topics the times of records prove nothing."""
    for topic in sorted({topic for topic, _ in unproven}):
        yield (
            f"records of {topic} at {servers} are younger than the checkpoint and stand below its"
            " positions. Their times are those at which they were written there (LogAppendTime, or"
            " a mirror that does not keep times), or may not be read: it cannot be proven whether"
            " its offsets mean the same records"
        )


def _of_others(
    kafka: Kafka, held: Sequence[Positions], completed: float, topics: Topics
) -> Iterator[str]:
    """Yield which partitions there the checkpoint does not know, and what they hold."""
    unknown = {topic: found for one in held for topic, found in unheld(one, topics).items()}
    every = sorted((topic, each) for topic, found in unknown.items() for each in found)
    ranges = kafka.ranges(every, topics) if every else {}
    later = kafka.since(younger_from(completed), sorted(ranges)) if ranges else {}
    for topic, found in unknown.items():
        own = [ranges[topic, each] for each in found if (topic, each) in ranges]
        records = sum(each.end - each.begin for each in own)
        older = sum(
            later.get((topic, each), ranges[topic, each].end) - ranges[topic, each].begin
            for each in found
            if (topic, each) in ranges
        )
        if records:
            yield (
                f"{topic} has {counted(len(found), 'partition')} at {kafka.servers} that the"
                f" checkpoint does not hold, with {counted(records, 'record')}, {older} of them"
                " older than it: the job reads them from where its initializer begins. If the"
                " mirror distributes records by itself, those that it holds have other records,"
                " too"
            )


def unheld(held: Positions, topics: Topics) -> dict[str, list[int]]:
    """Return the partitions of each topic that a checkpoint does not hold.

    A bounded source drops the partitions that it has read: its topics are left out.
    """
    known: dict[str, set[int]] = {}
    for topic, partition in partitions_of(held):
        known.setdefault(topic, set()).add(partition)
    for each in held.positions:
        if each.stop is not None or each.stop_marker is not None:
            known.pop(each.topic, None)
    found = {topic: sorted(set(topics.get(topic, ())) - own) for topic, own in known.items()}
    return {topic: others for topic, others in sorted(found.items()) if others}


def of_pending(
    kafka: Kafka, pending: Sequence[PendingTransaction], age: float | None
) -> Iterator[str]:
    """Yield what may have become of pending transactions at the Kafka that knows them.

    `age` is that of the checkpoint, in seconds.
    """
    if not pending:
        return
    limit, servers = kafka.transaction_limit(), kafka.servers
    longest = f"{limit or _USUAL_LIMIT:.0f} s{'' if limit else ', if it has the usual limit'}"
    if age is not None and age <= (limit or _USUAL_LIMIT):
        return
    old = "of an unknown age" if age is None else f"{age:.0f} s old"
    yield (
        f"{counted(len(pending), 'pending transaction is', 'pending transactions are')} {old}, and"
        f" {servers} aborts one after at most {longest}: the output of those that were not"
        " committed is missing. If the job ran on after this checkpoint, they were committed, and"
        " what it wrote since is doubled"
    )
    commands = (
        f"kafka-transactions.sh --bootstrap-server {servers} describe --transactional-id"
        f" {shlex.quote(each.transactional_id)}"
        for each in pending[:_SHOWN]
    )
    yield f"the state of these transactions is shown by: {_some(commands, len(pending), '; ')}"


def named(each: Partition) -> str:
    return f"{each[0]} partition {each[1]}"


def _some(texts: Iterator[str], count: int, between: str = ", ") -> str:
    more = f" and {count - _SHOWN} more" if count > _SHOWN else ""
    return f"{between.join(texts)}{more}"


def left_out(
    kafka: Kafka, completed: float, offsets: Mapping[Partition, int]
) -> tuple[list[str], tuple[Partition, ...]]:
    """Return as texts how many younger records some offsets leave out, and what is not provable."""
    ranges = kafka.ranges(sorted(offsets), kafka.topics())
    ends = {each: min(offsets[each], found.end) for each, found in ranges.items()}
    later = clock(kafka, completed, ends, ranges)
    texts = (
        f"{named(each)} ({counted(ends[each] - first, 'record')} from {first} on)"
        for each, first in sorted(later.proven.items())
    )
    return list(texts), later.unproven
