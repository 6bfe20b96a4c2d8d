"""Positions translated by what MirrorMaker 2 records at the target. Pure.

Two compacted topics of its own hold it, in records of Kafka's protocol types (connect-mirror,
`OffsetSync` and connect-mirror-client, `Checkpoint`). An offset sync: this record of the source
stands at this offset of the target; one for each `offset.lag.max` records, after each gap, and at
each start. A checkpoint of a consumer group: the records from its position on stand at this offset
or behind it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from cpreplicate.core.positions.fields import Fields
from cpreplicate.core.positions.model import Unreadable
from cpreplicate.core.positions.offsets import Move, Partition
from cpreplicate.core.positions.ranges import Range, Ranges
from cpreplicate.core.sizes import counted
from cpreplicate.errors import Refused

_VERSION = 0  # of a `Checkpoint`
_NAMED = 3  # partitions in a message
_AT_SOURCE = (
    " Its offset syncs are at the source: offset-syncs.topic.location=target brings them here."
)
_OPPOSITE = (
    "its offset syncs may be those of a MirrorMaker in the opposite direction, whose source is"
    " --kafka: a topic there with the name at the former Kafka has all their offsets"
)
_ARE = ("position is", "positions are")


class Sync(NamedTuple):
    """An offset of the source, the one of the target, and when that was recorded, in seconds."""

    upstream: int
    downstream: int
    time: float


class Recorded:
    """What MirrorMaker recorded at a target of the partitions of some positions.

    `syncs` are by partition of the source, `groups` by partition of the target and consumer group,
    each in the order of its topic. Of the syncs only those are kept that decide about a position or
    count what is doubled: a topic of them may have 1 GB. `is_target`: its topic of checkpoints is
    there, which it writes to targets only. `has_syncs`: that of offset syncs is.
    """

    def __init__(
        self, moves: Sequence[Move], is_target: bool = False, has_syncs: bool = True
    ) -> None:
        self.is_target, self.has_syncs = is_target, has_syncs
        self.syncs: dict[Partition, list[Sync]] = {}
        self.groups: dict[Partition, dict[str, list[Sync]]] = {}
        self._targets = {move.partition for move in moves}
        self._bounds: dict[Partition, Range] = {}
        for topic, partition, offset in (move.position[1:4] for move in moves):
            if offset is not None:
                former = self._bounds.get((topic, partition), Range(offset, offset))
                bounds = Range(min(offset, former.begin), max(offset, former.end))
                self._bounds[topic, partition] = bounds

    def add_sync(self, key: bytes, value: bytes, time: float) -> None:
        """Add a record of `mm2-offset-syncs.ALIAS.internal`. Raises `Unreadable`."""
        names, numbers = Fields(key), Fields(value)
        partition = _text(names), names.i32()
        sync = Sync(numbers.i64(), numbers.i64(), time)
        names.end()
        numbers.end()
        if partition in self._bounds:
            _add(sync, self.syncs.setdefault(partition, []), self._bounds[partition])

    def add_checkpoint(self, key: bytes, value: bytes, time: float) -> None:
        """Add a record of `ALIAS.checkpoints.internal`. Raises `Unreadable`."""
        names, numbers = Fields(key), Fields(value)
        group, partition = _text(names), (_text(names), names.i32())
        version = numbers.i16()
        if version != _VERSION:
            raise Unreadable(f"version {version} of a checkpoint is not known, {_VERSION} is")
        sync = Sync(numbers.i64(), numbers.i64(), time)
        _text(numbers)  # metadata that the group committed
        names.end()
        numbers.end()
        if partition in self._targets:
            self.groups.setdefault(partition, {}).setdefault(group, []).append(sync)


def _add(sync: Sync, syncs: list[Sync], positions: Range) -> None:
    """Append a sync, and drop the last one if that neither is at a jump nor next to a position."""
    is_even = bool(syncs) and _follows(sync, syncs[-1])
    if len(syncs) > 1:
        is_even = is_even and _follows(syncs[-1], syncs[-2])
    is_above = len(syncs) > 1 and syncs[-2].upstream > positions.end
    if is_even and (sync.upstream <= positions.begin or is_above):
        syncs.pop()
    syncs.append(sync)


def _follows(sync: Sync, former: Sync) -> bool:
    """Return whether records were copied on from one sync to another, none of them again.

    Then each record of the target is a later one of the source.
    """
    grown = sync.downstream - former.downstream
    return 0 < grown <= sync.upstream - former.upstream


def _text(fields: Fields) -> str:
    """Read a `STRING` of Kafka's protocol: UTF-8 behind its 16-bit length."""
    try:
        return fields.take(fields.i16()).decode()
    except UnicodeDecodeError as error:
        raise Unreadable("a text is not UTF-8") from error


class Translation(NamedTuple):
    """Positions with the offsets of the target, and what an operator has to know of them."""

    moves: tuple[Move, ...]
    warnings: tuple[str, ...] = ()


class _Place(NamedTuple):
    """Where a job goes on in a partition of the target.

    `doubled` is at most how many records are read again that the job has read, None if that is not
    known. `repeated` are those that the mirror itself holds twice behind this offset. `lost` is 0
    if the mirror has each record from the position on, None if that is not known.
    """

    offset: int
    doubled: int | None
    repeated: int = 0
    lost: int | None = 0


class _Unknown(Exception):
    """A position that cannot be translated; the message says why."""


def translate(
    moves: Sequence[Move], recorded: Recorded, ranges: Ranges, completed: float | None
) -> Translation:
    """Return the positions as offsets of the target: no record that it holds is skipped.

    `moves` have the names of the target's topics. `ranges` are those of their partitions, and of
    those with the names of the source, where the target has topics of these, too. `completed` is
    when the checkpoint was completed, in seconds since the epoch; a date that was cut to a whole
    second is on the safe side, since what may be younger than the checkpoint translates nothing.
    Markers stay. Raises `Refused`, which names the partitions whose position cannot be translated.
    """
    places: dict[int, _Place] = {}
    unknown: list[str] = []
    for index, move in enumerate(moves):
        if move.position.offset is None:
            continue
        try:
            places[index] = _place(move, move.position.offset, recorded, ranges, completed)
        except _Unknown as error:
            unknown.append(f"{move.topic} partition {move.position.partition} ({error})")
    if unknown:
        some, more = ", ".join(unknown[:_NAMED]), len(unknown) - _NAMED
        raise Refused(
            f"MirrorMaker's topics do not translate {len(unknown)} of the positions: {some}"
            f"{f' and {more} more' if more > 0 else ''}. Nothing was written."
            f"{'' if recorded.has_syncs else _AT_SOURCE} Wait for MirrorMaker, or give offsets by a"
            " CSV file"
        )
    moved = [_moved(move, places.get(index)) for index, move in enumerate(moves)]
    return Translation(tuple(moved), tuple(_warnings(moves, places)))


def _moved(move: Move, place: _Place | None) -> Move:
    """Return a move with its new offset."""
    if place is None:
        return move
    counted = move._replace(lost=place.lost, doubled=place.doubled)
    is_same = place.offset == move.position.offset
    return counted if is_same else counted._replace(offset=place.offset)


def _warnings(moves: Sequence[Move], places: Mapping[int, _Place]) -> Iterator[str]:
    """Yield what is not in the counts of the positions."""
    uncounted = [moves[index] for index, place in places.items() if place.doubled is None]
    if uncounted:
        yield (
            f"{counted(len(uncounted), *_ARE)} translated by checkpoints of consumer groups, which"
            f" do not show how many records are doubled: {_some(uncounted)}."
            " `offset-syncs.topic.location=target` of MirrorMaker brings its offset syncs here"
        )
    beginning = [moves[index] for index, place in places.items() if place.lost is None]
    if beginning:
        yield (
            f"{counted(len(beginning), *_ARE)} below the first offset sync: the job begins at the"
            " first record of the copy, and it is not known whether records before it were copied:"
            f" {_some(beginning)}"
        )
    repeating = [moves[index] for index, place in places.items() if place.repeated]
    if repeating:
        count = sum(place.repeated for place in places.values())
        yield (
            f"MirrorMaker was restarted, and wrote at least {count} records a second time that the"
            f" job reads twice: {_some(repeating)}"
        )


def _some(moves: Sequence[Move]) -> str:
    named = (f"{move.topic} partition {move.position.partition}" for move in moves[:_NAMED])
    more = len(moves) - _NAMED
    return f"{', '.join(named)}{f' and {more} more' if more > 0 else ''}"


def _place(
    move: Move, position: int, recorded: Recorded, ranges: Ranges, completed: float | None
) -> _Place:
    """Return where the records from a position on stand at the target. Raises `_Unknown`."""
    there = ranges.get(move.partition)
    if there is None:
        raise _Unknown("the partition is not at --kafka")
    source = move.position.topic, move.position.partition
    syncs = recorded.syncs.get(source, [])
    groups = recorded.groups.get(move.partition, {})
    if _may_be_opposite(move, syncs, ranges.get(source), recorded.is_target):
        if not groups:
            raise _Unknown(_OPPOSITE)
        syncs = []
    if not syncs and not groups:
        if there.end:
            raise _Unknown("MirrorMaker has recorded nothing of it")
        return _Place(0, position)  # what the mirror brings first stands there
    own = _of_this_topic(syncs)
    place = _by_syncs(position, own, there.end, completed)
    place = place or _by_groups(position, groups, completed) or _at_begin(position, own, there)
    if place is None:
        raise _Unknown(_before(position, [*syncs, *(s for each in groups.values() for s in each)]))
    return _existing(place, there)


def _before(position: int, syncs: Sequence[Sync]) -> str:
    first = min(each.upstream for each in syncs)
    return (
        f"{position}: no record below it is in MirrorMaker's topics, the first is {first}; it began"
        " there, was restarted or reset since, or the topic was compacted"
    )


def _existing(place: _Place, there: Range) -> _Place:
    """Return a place that is at the target. Raises `_Unknown` if it is not, or not any more."""
    if place.offset > there.end:
        raise _Unknown(
            f"{place.offset}, and it ends at {there.end}: it was created anew since MirrorMaker"
            " recorded that"
        )
    if place.offset < there.begin:
        raise _Unknown(
            f"{place.offset}, and it begins at {there.begin}: records that the job has to read may"
            " be deleted there"
        )
    return place


def _may_be_opposite(move: Move, syncs: Sequence[Sync], own: Range | None, is_target: bool) -> bool:
    """Return whether the syncs may be those of the opposite direction.

    A MirrorMaker that has the cluster for its source writes its syncs, by default, into a topic
    there of the same name: of the cluster's own topics, which then have all their offsets. Two
    MirrorMakers in both directions do not keep the names of topics, so that `own` is of the same
    topic only if there is one.
    """
    if own is None or not syncs or (is_target and move.topic == move.position.topic):
        return False
    return all(each.upstream < own.end for each in syncs)


def _of_this_topic(syncs: Sequence[Sync]) -> list[Sync]:
    """Return the syncs since the topic at the target was created.

    Offsets of the target that go back are those of another topic with its name, as MirrorMaker has
    it (`OffsetSyncWriter`, truncatedDownstreamTopic).
    """
    found: list[Sync] = []
    for sync in syncs:
        if found and sync.downstream == found[-1].downstream:
            found.pop()  # the same record
        if found and sync.downstream < found[-1].downstream:
            found.clear()
        found.append(sync)
    return found


def _by_syncs(
    position: int, syncs: Sequence[Sync], end: int, completed: float | None
) -> _Place | None:
    """Return the place by the newest sync at or below a position, None if there is none.

    `end` is that of the partition at the target.
    """
    usable = _usable(syncs, end, completed)
    newest = max((n for n in range(usable) if syncs[n].upstream <= position), default=None)
    if newest is None:
        return None
    sync = syncs[newest]
    step = int(sync.upstream < position)  # as `OffsetSyncStore.translateDownstream`
    behind = syncs[newest:]
    repeated = sum(
        max(0, _reached(one, other.downstream) - max(other.upstream, position) + 1)
        for one, other in pairwise(behind)
        if not _follows(other, one)
    )
    return _Place(sync.downstream + step, _doubled(position, behind) - step, repeated)


def _at_begin(position: int, syncs: Sequence[Sync], there: Range) -> _Place | None:
    """Return the begin of a partition from which no record is deleted, None if that skips records.

    A MirrorMaker that copies faster than it records leaves out its first syncs. The first record of
    the partition is at or below this offset of the source, unless records were copied again before
    the first sync.
    """
    if there.begin or not syncs or position < syncs[0].upstream - syncs[0].downstream:
        return None
    doubled = _doubled(position, syncs) + min(position, syncs[0].downstream)
    return _Place(0, doubled, lost=None)


def _usable(syncs: Sequence[Sync], end: int, completed: float | None) -> int:
    """Return how many syncs from the first one on may translate a position.

    Where offsets go back, MirrorMaker was restarted and wrote records again, or the topic of the
    source was created anew. Since the checkpoint, only the syncs before that are of the records
    that its job has read for certain, which is right in both cases. And those of a restart may
    only if it has copied as far again as before.
    """
    starts = [n for n in range(1, len(syncs)) if not _follows(syncs[n], syncs[n - 1])]
    reached = [_reached(syncs[n - 1], syncs[n].downstream) for n in starts]
    reached += [_reached(syncs[-1], end)] if syncs else []
    ends = [*starts, len(syncs)]
    farthest = max(range(len(reached)), key=lambda n: (reached[n], n), default=0)
    after = [n for n in starts if completed is None or syncs[n].time > completed]
    return min([ends[farthest], *after[:1]])


def _reached(sync: Sync, end: int) -> int:
    """Return the last record that was copied behind a sync, up to an offset of the target.

    No offset of the source is left out there: behind a gap is a sync (`OffsetSyncWriter`).
    """
    return sync.upstream + end - sync.downstream - 1


def _doubled(position: int, syncs: Sequence[Sync]) -> int:
    """Return at most how many records from the first of some syncs on are before a position."""
    return sum(_below(position, *pair) for pair in zip(syncs, [*syncs[1:], None], strict=True))


def _below(position: int, sync: Sync, following: Sync | None) -> int:
    """Return at most how many records from a sync to the next one are before a position.

    Those are not counted that were copied again by a restart of which MirrorMaker left out the
    first sync, as it does while it copies faster than it records.
    """
    count = max(0, position - sync.upstream)
    return count if following is None else min(count, following.downstream - sync.downstream)


def _by_groups(
    position: int, groups: Mapping[str, Sequence[Sync]], completed: float | None
) -> _Place | None:
    """Return the place by the positions of consumer groups that are not behind one of a job.

    A group's offset at the target only grows, unless the topic there was created anew: then what
    any group has before that is of another one.
    """
    since = max((_created(each) for each in groups.values()), default=0)
    known = [
        sync.downstream
        for each in groups.values()
        for sync in each[: _before_group_rewind(each, completed)]
        if sync.upstream <= position and sync.time >= since
    ]
    return _Place(max(known), None) if known else None


def _created(syncs: Sequence[Sync]) -> float:
    """Return when the topic at the target was created anew, by the positions of a group."""
    return max(
        (
            other.time
            for one, other in pairwise(syncs)
            if other.downstream < one.downstream and other.upstream >= one.upstream
        ),
        default=0,
    )


def _before_group_rewind(syncs: Sequence[Sync], completed: float | None) -> int:
    """Return how many positions a group has before those of the source went back."""
    for number in range(1, len(syncs)):
        one, other = syncs[number - 1 : number + 1]
        is_rewind = other.upstream < one.upstream and other.downstream > one.downstream
        if is_rewind and (completed is None or other.time > completed):
            return number
    return len(syncs)
