"""Fingerprints: by which record a position is known, and whether another Kafka has that record.

A fingerprint has the offset, the time and a digest of the last record before a position. At another
Kafka the record is proven if one place there holds it behind the same record as before. Pure.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from cpreplicate.core.positions.model import Position
from cpreplicate.core.positions.offsets import Choice, Move, Partition
from cpreplicate.core.sizes import counted
from cpreplicate.errors import Refused

_NONE, _SOME = b"\0", b"\1"
_NAMED = 3  # partitions in a message
NO_FINGERPRINT = "no fingerprint was kept of it"


class Seen(NamedTuple):
    """A record as it was read. Its `time` is in milliseconds since the epoch.

    `is_of_broker`: the broker set the time when it wrote the record. `digest` is of its content.
    """

    offset: int
    time: int
    is_of_broker: bool
    digest: str

    def is_like(self, other: Seen) -> bool:
        """Return whether time and content are the same."""
        return (self.time, self.digest) == (other.time, other.digest)

    def has_content_of(self, other: Seen) -> bool:
        """Return whether the content is the same, and the time unless a broker has set it."""
        return self.digest == other.digest and (self.is_of_broker or self.time == other.time)


class Fingerprint(NamedTuple):
    """By which record a position of a partition is known.

    `record` is the last one before the position, or where nothing is before it the first one there.
    `before` is the nearest earlier record that differs from it, None if there was none, and
    `repeated` counts the records from behind that one to `record`: all are alike.
    """

    topic: str
    partition: int
    position: int
    record: Seen
    before: Seen | None = None
    repeated: int = 1

    @property
    def place(self) -> Partition:
        """Its partition."""
        return self.topic, self.partition

    @property
    def is_next(self) -> bool:
        """Whether the record is the next one to read, and not the last one that was read."""
        return self.record.offset >= self.position

    def moved(self, topic: str, position: int) -> Fingerprint:
        """Return the fingerprint of the same record where it is at another Kafka."""
        record = self.record._replace(offset=position if self.is_next else position - 1)
        return self._replace(topic=topic, position=position, record=record)


class Window(NamedTuple):
    """Consecutive records of a partition at another Kafka, in which a record is looked for.

    `is_from_begin`: nothing is there before them. `is_whole`: the record is not behind them, as far
    as times are in order.
    """

    records: Sequence[Seen] = ()
    is_from_begin: bool = False
    is_whole: bool = True

    def holds(self, record: Seen) -> bool:
        """Return whether a record with the same time and content is among them."""
        return any(each.is_like(record) for each in self.records)


class FoundRecords(NamedTuple):
    """What another Kafka holds of a partition.

    `same` is the record at the offset of the fingerprint, `newest` the last one of the partition,
    and `window` has those since the time of the record.
    """

    same: Seen | None
    newest: Seen | None
    window: Window


class Verdict(NamedTuple):
    """Whether another Kafka has the record of a fingerprint.

    `proven`: at the same offset. `translated`: at another one. `behind`: it is not there yet. Else
    it is `unproven`. `position` is the next record to read there, None if that is not known.
    `is_other`: the position of the checkpoint is behind another record there. `reason` is why
    nothing is proven. `late` is by how many seconds the newest record there is older.
    """

    kind: Literal["proven", "translated", "behind", "unproven"]
    position: int | None = None
    is_other: bool = False
    reason: str | None = None
    late: float | None = None


def digest_of(
    key: bytes | None, value: bytes | None, headers: Iterable[tuple[str, bytes | None]]
) -> str:
    """Return the SHA-256 of a record's content. Lengths are in it: no field flows into another."""
    pieces = list(_pieces(key, value, list(headers)))
    return hashlib.sha256(b"".join(pieces)).hexdigest()


def _pieces(
    key: bytes | None, value: bytes | None, headers: Sequence[tuple[str, bytes | None]]
) -> Iterator[bytes]:
    for field in (key, value):
        yield from _field(field)
    yield struct.pack(">q", len(headers))
    for name, content in headers:
        yield from _field(name.encode("utf-8", "surrogateescape"))
        yield from _field(content)


def _field(content: bytes | None) -> Iterator[bytes]:
    if content is None:
        yield _NONE
    else:
        yield _SOME + struct.pack(">q", len(content))
        yield content


def fingerprint_of(
    place: Partition, position: int, found: Sequence[Seen], is_from_begin: bool
) -> Fingerprint | None:
    """Return the fingerprint of a position by the records that were read around it.

    `is_from_begin`: no record is before them. Returns None if they do not suffice: the record, or
    the one before it that differs, is farther away.
    """
    earlier = [each for each in found if each.offset < position]
    if not earlier:
        later = [each for each in found if each.offset >= position]
        return Fingerprint(*place, position, later[0]) if is_from_begin and later else None
    record = earlier[-1]
    for count, each in enumerate(reversed(earlier)):
        if not each.is_like(record):
            return Fingerprint(*place, position, record, each, count)
    return Fingerprint(*place, position, record, None, len(earlier)) if is_from_begin else None


def verdict(fingerprint: Fingerprint, seen: FoundRecords) -> Verdict:
    """Return whether what was read at another Kafka proves where the record is there.

    Never is another record taken for it, as long as no two different runs of records have the same
    times and content and follow the same record.
    """
    record, same = fingerprint.record, seen.same
    places = list(_places(fingerprint, seen.window))
    at_same = [each for each in places if each.offset == record.offset]
    if at_same:
        return _at_same(fingerprint, seen.window)
    is_other = same is not None and not same.has_content_of(record)
    if len(places) == 1 and seen.window.is_whole:
        position = places[0].offset + (0 if fingerprint.is_next else 1)
        return Verdict("translated", position, is_other=True)
    if len(places) > 1:
        return Verdict("unproven", None, is_other, _of_several(len(places)))
    return _not_found(fingerprint, seen, is_other)


def _at_same(fingerprint: Fingerprint, window: Window) -> Verdict:
    """Return the verdict where the record is at the same offset.

    Between it and the position nothing was. If something is there, the mirror has only by chance
    the same offset.
    """
    record, position = fingerprint.record, fingerprint.position
    if fingerprint.is_next:
        is_between = any(position <= each.offset < record.offset for each in window.records)
        is_apart = is_between or not (window.is_from_begin or record.offset == position)
        right = record.offset
    else:
        is_apart = any(record.offset < each.offset < position for each in window.records)
        right = record.offset + 1
    return Verdict("translated", right, is_other=True) if is_apart else Verdict("proven", position)


def _of_several(count: int) -> str:
    return f"{count} records there have its time and content, and follow the same record"


def _places(fingerprint: Fingerprint, window: Window) -> Iterator[Seen]:
    """Yield the records that are the one of a fingerprint, by their time, content and place.

    Where nothing that differs was before it, only the same offset can be known, of the only ones.
    Of several that are alike before the position, each must have its offset: a mirror that was
    restarted among them may have written some twice.
    """
    record, before, count = fingerprint.record, fingerprint.before, fingerprint.repeated
    runs = list(_runs(record, window))
    if before is not None:
        for former, run in runs:
            if former is None or not former.is_like(before) or len(run) < count:
                continue
            if count == 1 or former.offset == before.offset:
                yield run[count - 1]
    elif len(runs) == 1 and len(runs[0][1]) == count and window.is_whole:
        yield from (each for each in runs[0][1][-1:] if each.offset == record.offset)


def _runs(record: Seen, window: Window) -> Iterator[tuple[Seen | None, list[Seen]]]:
    """Yield the runs of records that are like one, each with the record before it."""
    former: Seen | None = None
    run: list[Seen] = []
    for each in window.records:
        if each.is_like(record):
            run.append(each)
            continue
        if run:
            yield former, run
            run = []
        former = each
    if run:
        yield former, run


def _not_found(fingerprint: Fingerprint, seen: FoundRecords, is_other: bool) -> Verdict:
    record, newest = fingerprint.record, seen.newest
    if newest is None:
        return Verdict("behind", None, is_other, "no record is there")
    if seen.window.holds(record):
        return Verdict("unproven", None, is_other, _of_twins(fingerprint, seen.window))
    if newest.is_of_broker:
        return Verdict("unproven", None, is_other, _of_broker(fingerprint, seen))
    if newest.time < record.time:
        late = (record.time - newest.time) / 1000
        reason = f"the newest record there is {late:g} s older"
        return Verdict("behind", None, is_other, reason, late)
    if not seen.window.is_whole:
        count = len(seen.window.records)
        return Verdict(
            "unproven", None, is_other, f"it is not among the {count} records since its time"
        )
    return Verdict(
        "unproven",
        None,
        is_other,
        "younger records are there, and not this one: it was deleted or compacted, or the mirror"
        " left it out or changed it",
    )


def _of_twins(fingerprint: Fingerprint, window: Window) -> str:
    if fingerprint.before is None:
        return "a record like it is there, but nothing before it is known"
    if fingerprint.repeated > 1:
        return f"{fingerprint.repeated} records that are alike stand before the position"
    if not window.is_whole:
        return f"it may be repeated behind the {len(window.records)} records since its time"
    return "a record like it is there, but not behind the same record"


def _of_broker(fingerprint: Fingerprint, seen: FoundRecords) -> str:
    """Return why times of the broker prove nothing, and where the same content is."""
    times = "times there are those at which its broker wrote the records (LogAppendTime)"
    record, same = fingerprint.record, seen.same
    if same is not None and same.digest == record.digest:
        return f"{times}; the record at the same offset has the same content"
    found = [each.offset for each in seen.window.records if each.digest == record.digest]
    if len(found) == 1:
        return f"{times}; the record at {found[0]} has the same content"
    return f"{times}; {len(found) or 'no'} records near this offset have the same content"


def by_proofs(proofs: Mapping[Position, Verdict]) -> Choice:
    """Return the choice of the offsets at which the same records are, by what proves them.

    Markers stay. The choice raises `Refused` if a position is not proven: what is left would be of
    another Kafka.
    """

    def choose(moves: Sequence[Move]) -> Sequence[Move]:
        asked = [each for each in moves if each.position.offset is not None]
        absent = [each for each in asked if _position_of(each, proofs) is None]
        if absent:
            some = "; ".join(_why(each, proofs) for each in absent[:_NAMED])
            raise Refused(
                f"{len(absent)} of {counted(len(asked), 'position is', 'positions are')} not"
                f" proven: {some}. Nothing was written. If the mirror still runs, wait for it."
                " Else give offsets by a CSV file"
            )
        return [_translated(each, proofs) for each in moves]

    return choose


def _position_of(move: Move, proofs: Mapping[Position, Verdict]) -> int | None:
    found = proofs.get(move.position)
    return None if found is None else found.position


def _why(move: Move, proofs: Mapping[Position, Verdict]) -> str:
    found = proofs.get(move.position)
    reason = NO_FINGERPRINT if found is None else found.reason
    return f"{move.topic} partition {move.position.partition} ({reason})"


def _translated(move: Move, proofs: Mapping[Position, Verdict]) -> Move:
    new = _position_of(move, proofs)
    if new is None:
        return move
    counts = move._replace(lost=0, doubled=0)
    return counts if new == move.position.offset else counts._replace(offset=new)
