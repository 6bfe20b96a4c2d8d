"""A Kafka in memory that is read as a real one, and mirrors of it, from a seed.

A log has gaps, where markers of transactions and compacted records are. Each record of a mirror
knows of which record it is the copy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random

from cpreplicate.core.positions.fingerprints import Seen, digest_of
from cpreplicate.core.positions.offsets import Partition
from cpreplicate.core.positions.ranges import Range, Ranges, Span, Stamp
from cpreplicate.core.positions.topics import Topics


@dataclass(frozen=True)
class Record:
    """A record of a log; `source` is the offset of the record of which it is a copy."""

    offset: int
    time: int
    content: int
    source: int | None = None
    is_of_broker: bool = False

    def seen(self) -> Seen:
        digest = digest_of(None, str(self.content).encode(), ())
        return Seen(self.offset, self.time, self.is_of_broker, digest)


@dataclass(frozen=True)
class Log:
    """A partition: its records in order, its first offset, and that behind its last one."""

    records: tuple[Record, ...]
    begin: int
    end: int

    def since(self, offset: int) -> Log:
        """Return the log after its records before an offset were deleted."""
        kept = tuple(each for each in self.records if each.offset >= offset)
        return Log(kept, max(self.begin, offset), max(self.end, offset))

    def before(self, offset: int) -> tuple[Record, ...]:
        return tuple(each for each in self.records if each.offset < offset)


@dataclass
class SimulatedKafka:
    """A Kafka with these logs. Records that are `slow` are not read in time."""

    logs: Mapping[Partition, Log] = field(default_factory=dict)
    servers: str = "kafka:9092"
    slow: frozenset[Partition] = frozenset()
    fetches: int = 0

    def topics(self) -> Topics:
        found: dict[str, set[int]] = {}
        for topic, partition in self.logs:
            found.setdefault(topic, set()).add(partition)
        return found

    def ranges(self, partitions: Sequence[Partition], topics: Topics | None = None) -> Ranges:
        assert topics is None or topics == self.topics()
        found = {each: self.logs[each] for each in partitions if each in self.logs}
        return {each: Range(log.begin, log.end) for each, log in found.items()}

    def denied(self, topics: Sequence[str]) -> frozenset[str]:
        return frozenset(topics).intersection(())

    def first_at(self, times: Mapping[Partition, int]) -> Mapping[Partition, int]:
        firsts = {
            place: next((each.offset for each in self.logs[place].records if each.time >= time), -1)
            for place, time in times.items()
        }
        return {place: offset for place, offset in firsts.items() if offset >= 0}

    def since(self, time: float, partitions: Sequence[Partition]) -> Mapping[Partition, int]:
        return self.first_at(dict.fromkeys(partitions, round(time * 1000)))

    def records(
        self, spans: Mapping[Partition, Span], within: float
    ) -> Mapping[Partition, Sequence[Seen]]:
        assert within > 0
        self.fetches += 1
        found = {}
        for place, span in spans.items():
            log = self.logs[place]
            assert log.begin <= span.first, "a real client would go elsewhere"
            if place not in self.slow:
                records = (each for each in log.records if span.first <= each.offset < span.last)
                found[place] = tuple(each.seen() for each in records)[: span.most]
        return found

    def stamps(self, offsets: Mapping[Partition, int]) -> Mapping[Partition, Stamp]:
        found = {}
        for place, offset in offsets.items():
            one = next((each for each in self.logs[place].records if each.offset >= offset), None)
            if one is not None:
                found[place] = Stamp(one.time / 1000, one.is_of_broker)
        return found

    def stable_ends(self, partitions: Sequence[Partition]) -> Mapping[Partition, int]:
        return {each: self.logs[each].end for each in partitions}

    def transaction_limit(self) -> float | None:
        return None


@dataclass
class Mirroring:
    """A log at A and its mirror at B, which began, trails, and repeats itself as a seed has it."""

    chance: Random
    is_compacted: bool = False
    keeps_offsets: bool = False
    is_dated_by_broker: bool = False
    is_repeated: bool = False

    @classmethod
    def of(cls, seed: int) -> Mirroring:
        chance = Random(seed)
        return cls(
            chance,
            is_compacted=chance.random() < 0.2,
            keeps_offsets=chance.random() < 0.3,
            is_dated_by_broker=chance.random() < 0.15,
        )

    def source(self) -> Log:
        """Return the log at A. Its first record is not repeated: nothing distinguishes them."""
        chance, records = self.chance, list[Record]()
        offset, time, is_copy = chance.choice([0, 0, 700]), 1_700_000_000_000, False
        begin = offset
        for number in range(chance.randint(0, 60)):
            time += chance.choice([0, 0, 0, 1, 5, 40, -3])
            new, former = Record(offset, time, number), records[-1:]
            if records and records[-1].time < time and chance.random() < 0.3:
                new = replace(new, content=chance.choice(records).content)  # at another time
            is_same = not self.is_compacted and not is_copy and len(records) > 2
            copied = chance.choice([None, None, None, 1, 1, 2]) if is_same else None
            if copied is not None:
                former = records[-copied:][:1]
                new = replace(former[0], offset=offset)
                time = new.time
            # the same two records never follow each other again
            is_copy = copied == 2
            records.append(new)
            offset += chance.choice([1, 1, 1, 1, 2, 3]) if chance.random() < 0.6 else 1
        if self.is_compacted:
            records = [each for each in records if chance.random() < 0.7]
        end = offset + chance.choice([0, 0, 1])
        return Log(tuple(records), begin, end)

    def mirror(self, log: Log) -> Log:
        """Return the log at B."""
        chance = self.chance
        held = log.since(chance.choice([log.begin, log.begin, chance.randint(log.begin, log.end)]))
        copied = held.records[: chance.choice([len(held.records), chance.randint(0, 60)])]
        if self.keeps_offsets:
            last = copied[-1].offset + 1 if copied else held.begin
            end = held.end if len(copied) == len(held.records) else last
            kept = tuple(replace(each, source=each.offset) for each in copied)
            found = Log(kept, held.begin, max(held.begin, end))
        else:
            found = self._written_anew(copied)
        if self.is_compacted:
            newest = {each.source: each for each in found.records}  # of copies, the last one stays
            some = (
                each for each in found.records if each.source is None or each is newest[each.source]
            )
            found = replace(found, records=tuple(each for each in some if chance.random() < 0.8))
        if chance.random() < 0.3:
            found = found.since(chance.randint(found.begin, found.end))
        if self.is_dated_by_broker:
            late = 1_700_000_900_000
            dated = (
                replace(each, time=late + each.offset, is_of_broker=True) for each in found.records
            )
            found = replace(found, records=tuple(dated))
        return found

    def _written_anew(self, copied: Sequence[Record]) -> Log:
        """Return a log with offsets of its own, in which a restart wrote some records twice."""
        chance, written, offset, at = self.chance, list[Record](), 0, 0
        while at < len(copied):
            written.append(replace(copied[at], offset=offset, source=copied[at].offset))
            offset += 2 if chance.random() < 0.1 else 1
            at += 1
            back = max(0, at - chance.randint(1, 5))
            if chance.random() < 0.03 and not self._is_among_alike(copied, back):
                self.is_repeated = True
                at = back
            elif chance.random() < 0.03:
                time = written[-1].time
                written.append(Record(offset, time, 10_000 + offset))  # of a producer at B
                offset += 1
        return Log(tuple(written), 0, offset)

    @staticmethod
    def _is_among_alike(copied: Sequence[Record], at: int) -> bool:
        """Return whether a mirror that goes on there repeats a part of records that are alike.

        What it writes then is what it would write of more such records: nothing distinguishes them.
        """
        return at > 0 and copied[at - 1].content == copied[at].content
