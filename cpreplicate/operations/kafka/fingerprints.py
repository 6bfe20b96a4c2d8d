"""Fingerprints of positions: taken at the Kafka that a job reads, and looked for at another one.

Only digests of records are kept. Nothing is written to a Kafka.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from cpreplicate.core.positions.fingerprints import (
    Fingerprint,
    FoundRecords,
    Seen,
    Verdict,
    Window,
    fingerprint_of,
    verdict,
)
from cpreplicate.core.positions.model import Position, Positions
from cpreplicate.core.positions.offsets import Partition
from cpreplicate.core.positions.ranges import Ranges, Span, checkable
from cpreplicate.core.sizes import counted
from cpreplicate.operations.kafka.evidence import Kafka

LOOKING = 30.0  # seconds in which the records of all partitions are looked for
# Offsets that are read before a position: behind the last record there may be markers of
# transactions, compacted records, and records like it.
_BACK = (2, 16, 256, 4096)
_BESIDE = 500  # offsets on both sides of one where times prove nothing
_PAST = 1_000  # records behind the last one of a time, before none of that time is expected
_MOST = (200, 2_000, 20_000, 100_000)  # records in which one is looked for
NOT_READ = "its records could not be read in time, or not by this user"
_DELETED = "the records before it are deleted"
_EMPTY = "the partition holds no record"
_FAR = "no record that differs is among the 4096 offsets before it"
_UNDATED = "its record has no time"

T = TypeVar("T")


@dataclass(frozen=True)
class Taken:
    """The fingerprints of a checkpoint's positions, and how many positions have none, by reason."""

    fingerprints: tuple[Fingerprint, ...] = ()
    without: Mapping[str, int] = field(default_factory=dict)

    @property
    def lacking(self) -> int:
        """How many positions have none."""
        return sum(self.without.values())


@dataclass(frozen=True)
class Fingerprinted:
    """How many positions of a checkpoint have a fingerprint, and how many have none, by reason.

    `error` is why none could be read or kept.
    """

    kept: int = 0
    without: Mapping[str, int] | None = None
    error: str | None = None

    @property
    def warnings(self) -> tuple[str, ...]:
        """What an operator can correct: a Kafka that does not answer, or refuses."""
        if self.error is not None:
            return (f"no fingerprint was kept with the checkpoint: {self.error}",)
        unread = (self.without or {}).get(NOT_READ)
        return (
            ()
            if not unread
            else (
                f"{counted(unread, 'position has', 'positions have')} no fingerprint: {NOT_READ}",
            )
        )

    @property
    def lacking(self) -> int | None:
        """How many positions have none, None if that is not known."""
        return None if self.error is not None else sum((self.without or {}).values())


def take(kafka: Kafka, held: Positions, within: float) -> Taken:
    """Return the fingerprints of positions at the Kafka that they are of, within some seconds.

    Markers are no positions. Raises `Transient` and `Refused` if the Kafka does not answer.
    """
    until = time.monotonic() + within
    asked = {
        ((each.topic, each.partition), each.offset)
        for each in checkable(held, kafka.servers)
        if each.offset is not None
    }
    if not asked:
        return Taken()
    ranges = kafka.ranges(sorted({place for place, _ in asked}), kafka.topics())
    found: list[Fingerprint] = []
    without: Counter[str] = Counter()
    for layer in _layers(sorted(asked), lambda each: each[0]):
        own = {place: offset for place, offset in layer if place in ranges}
        without["the partition is not there"] += len(layer) - len(own)
        for one in _before(kafka, own, ranges, until).values():
            if isinstance(one, str):
                without[one] += 1
            else:
                found.append(one)
    return Taken(tuple(found), {reason: count for reason, count in without.items() if count})


def _layers(items: Sequence[T], key: Callable[[T], object]) -> Iterator[list[T]]:
    """Yield items in lists, in each of which a key is once: two sources may read a partition."""
    seen: Counter[object] = Counter()
    layers: dict[int, list[T]] = {}
    for each in items:
        layers.setdefault(seen[key(each)], []).append(each)
        seen[key(each)] += 1
    yield from layers.values()


def _before(
    kafka: Kafka, offsets: Mapping[Partition, int], ranges: Ranges, until: float
) -> dict[Partition, Fingerprint | str]:
    """Return the fingerprint of an offset in each partition, or why there is none."""
    done: dict[Partition, Fingerprint | str] = {}
    for place, offset in offsets.items():
        if offset < ranges[place].begin:
            done[place] = _DELETED
        elif ranges[place].begin == ranges[place].end:
            done[place] = _EMPTY
    for back in _BACK:
        left = [place for place in offsets if place not in done]
        spans = {each: _span(offsets[each], back, ranges[each].begin) for each in left}
        read = _read(kafka, spans, until)
        for place in left:
            if place not in read:
                done[place] = NOT_READ
                continue
            is_from_begin = spans[place].first <= ranges[place].begin
            found = fingerprint_of(place, offsets[place], read[place], is_from_begin)
            if found is not None:
                done[place] = found if found.record.time >= 0 else _UNDATED
            elif is_from_begin:
                done[place] = _EMPTY
    return {place: done.get(place, _FAR) for place in offsets}


def _span(offset: int, back: int, begin: int) -> Span:
    """Return what is read before an offset; where nothing is before it, the first record there."""
    if offset <= begin:
        return Span(offset, offset + _BACK[-1], most=1)
    return Span(max(begin, offset - back), offset)


def _read(
    kafka: Kafka, spans: Mapping[Partition, Span], until: float
) -> Mapping[Partition, Sequence[Seen]]:
    left = until - time.monotonic()
    return kafka.records(spans, left) if spans and left > 0 else {}


def look(
    kafka: Kafka, wanted: Iterable[Fingerprint], ranges: Ranges, within: float = LOOKING
) -> dict[Fingerprint, Verdict]:
    """Return of each fingerprint whether a Kafka with these ranges has its record, and where.

    Partitions that do not exist there are left out.
    """
    until = time.monotonic() + within
    there = [each for each in dict.fromkeys(wanted) if each.place in ranges]
    found: dict[Fingerprint, Verdict] = {}
    for layer in _layers(there, lambda each: each.place):
        found |= _Looking(kafka, {each.place: each for each in layer}, ranges, until).verdicts()
    return found


@dataclass(frozen=True)
class _Looking:
    """Looks for one record in each partition."""

    kafka: Kafka
    wanted: Mapping[Partition, Fingerprint]
    ranges: Ranges
    until: float

    def verdicts(self) -> dict[Fingerprint, Verdict]:
        """Return whether each record is there."""
        newest, same = self._newest(), self._same()
        windows = self._windows(same)
        found = dict.fromkeys(self.wanted.values(), Verdict("unproven", reason=NOT_READ))
        for place, window in windows.items():
            if place in newest:
                each = self.wanted[place]
                found[each] = verdict(each, FoundRecords(same.get(place), newest[place], window))
        dated = {
            place: last
            for place, last in newest.items()
            if last is not None and last.is_of_broker
            if found[self.wanted[place]].kind == "unproven"
            if not windows.get(place, Window()).holds(self.wanted[place].record)
        }
        return found | self._with_broker_times(dated, same)

    def _newest(self) -> dict[Partition, Seen | None]:
        """Return the last record of each partition that may be read, None if it has none."""
        found: dict[Partition, Seen | None] = {}
        for back in _BACK:
            left = [place for place in self.wanted if place not in found]
            spans = {
                place: Span(max(begin, end - back), end)
                for place in left
                for begin, end in (self.ranges[place],)
            }
            for place, records in _read(self.kafka, spans, self.until).items():
                if records or spans[place].first == self.ranges[place].begin:
                    found[place] = records[-1] if records else None
        return found

    def _same(self) -> dict[Partition, Seen]:
        """Return the record at the same offset, where there is one."""
        spans = {
            place: Span(offset, offset + 1)
            for place, each in self.wanted.items()
            for offset in (each.record.offset,)
            if self.ranges[place].begin <= offset < self.ranges[place].end
        }
        found = _read(self.kafka, spans, self.until)
        return {place: records[0] for place, records in found.items() if records}

    def _windows(self, same: Mapping[Partition, Seen]) -> dict[Partition, Window]:
        """Return the records since the time of each one, until none of that time is expected.

        Some records before them are read, too: what a record follows is compared. Where the same
        offset proves it, a few are enough.
        """
        times = {place: each.record.time for place, each in self.wanted.items()}
        firsts = self.kafka.first_at(times)
        done = {place: Window() for place in self.wanted if place not in firsts}
        left = set(firsts)
        for most in _MOST:
            spans = {place: self._since(place, firsts[place], most) for place in left}
            for place, records in _read(self.kafka, spans, self.until).items():
                is_whole = len(records) < most or not self._is_near_end(place, records)
                is_from_begin = spans[place].first == self.ranges[place].begin
                window = done[place] = Window(records, is_from_begin, is_whole)
                known = verdict(self.wanted[place], FoundRecords(same.get(place), None, window))
                if is_whole or known.kind == "proven":
                    left.discard(place)
        return done

    def _since(self, place: Partition, first: int, most: int) -> Span:
        begin, end = self.ranges[place]
        return Span(max(begin, first - _BACK[1]), end, most)

    def _is_near_end(self, place: Partition, records: Sequence[Seen]) -> bool:
        """Return whether a record of the time in question is among the last ones."""
        asked = self.wanted[place].record.time
        return len(records) < _PAST or any(each.time == asked for each in records[-_PAST:])

    def _with_broker_times(
        self, dated: Mapping[Partition, Seen], same: Mapping[Partition, Seen]
    ) -> dict[Fingerprint, Verdict]:
        """Return why nothing is proven where the times of records are the broker's.

        `dated` are the newest records of these partitions. The reason names where the content is
        near the same offset. So few records never prove anything: it may be elsewhere, too.
        """
        found, spans = dict[Fingerprint, Verdict](), dict[Partition, Span]()
        for place in dated:
            offset, (begin, end) = self.wanted[place].record.offset, self.ranges[place]
            middle = min(offset, end)
            spans[place] = Span(max(begin, middle - _BESIDE), min(end, middle + _BESIDE))
        for place, records in _read(self.kafka, spans, self.until).items():
            each, window = self.wanted[place], Window(records)
            near = verdict(each, FoundRecords(same.get(place), dated[place], window))
            if near.kind == "unproven":
                found[each] = near
        return found


def proofs(
    kafka: Kafka,
    held: Positions,
    fingerprints: Sequence[Fingerprint],
    ranges: Ranges,
    names: Mapping[str, str] | None = None,
) -> dict[Position, Verdict]:
    """Return what is known by fingerprints of the positions of a checkpoint at another Kafka.

    `names` are new names of topics there. A position 0 before which nothing was is right in a
    partition that begins with 0.
    """
    renames = names or {}
    by_place = {(each.topic, each.partition, each.position): each for each in fingerprints}
    asked: dict[Position, Fingerprint] = {}
    found: dict[Position, Verdict] = {}
    for position in checkable(held, kafka.servers):
        if position.offset is None:
            continue
        topic = renames.get(position.topic, position.topic)
        one = by_place.get((position.topic, position.partition, position.offset))
        range_ = ranges.get((topic, position.partition))
        if one is not None:
            asked[position] = one._replace(topic=topic)
        elif fingerprints and position.offset == 0 and range_ is not None and range_.begin == 0:
            found[position] = Verdict("proven", 0)
    verdicts = look(kafka, asked.values(), ranges)
    return found | {
        position: verdicts[each] for position, each in asked.items() if each in verdicts
    }
