"""What MirrorMaker 2 recorded translates positions: no record is skipped, and doubled are as many
as are counted.
"""

from __future__ import annotations

import struct
from random import Random

import pytest

from cpreplicate.core.positions.mirror_maker import Recorded, Sync, Translation, translate
from cpreplicate.core.positions.model import Position, Unreadable
from cpreplicate.core.positions.offsets import Move
from cpreplicate.core.positions.ranges import Range
from cpreplicate.errors import Refused

COMPLETED = 1000.0  # when the checkpoint was completed
OLD, YOUNG = 900.0, 1100.0  # before and after it
SOURCE, TARGET = ("orders", 0), ("A.orders", 0)


def text(value: str) -> bytes:
    """A `STRING` of Kafka's protocol."""
    data = value.encode()
    return struct.pack(">h", len(data)) + data


def key(topic: str = "orders", partition: int = 0, group: str | None = None) -> bytes:
    head = b"" if group is None else text(group)
    return head + text(topic) + struct.pack(">i", partition)


def move(offset: int | None, new: str = "A.orders") -> Move:
    return Move(
        Position("op", "orders", 0, offset, None if offset is not None else "earliest"), new
    )


def recorded(
    position: int, *syncs: tuple[float, ...], new: str = "A.orders", **options
) -> Recorded:
    """What is recorded for a position: each sync is (upstream, downstream[, time])."""
    found = Recorded([move(position, new)], **options)
    for upstream, downstream, *time in syncs:
        found.add_sync(key(), struct.pack(">qq", upstream, downstream), *(time or [OLD]))
    return found


def translated(
    position: int,
    *syncs: tuple[float, ...],
    there: Range | None = None,
    own: Range | None = None,
    new: str = "A.orders",
    **options,
) -> Translation:
    """The translation of a position. `own` are the offsets of `orders` at the target."""
    ranges = {} if own is None else {SOURCE: own}
    ranges[new, 0] = there or Range(0, 10_000)
    found = recorded(position, *syncs, new=new, **options)
    return translate([move(position, new)], found, ranges, COMPLETED)


def place(translation: Translation) -> tuple[int | None, int | None, int | None]:
    (moved,) = translation.moves
    offset = moved.position.offset if moved.offset is None else moved.offset
    return offset, moved.doubled, moved.lost


def test_records_of_offset_syncs_are_read_as_mirrormaker_writes_them():
    # connect-mirror 4.1.2, OffsetSync: key and value of topic "orders", partition 2, 4711 == 11
    name = bytes.fromhex("00066f726465727300000002")
    numbers = bytes.fromhex("0000000000001267000000000000000b")
    found = Recorded([Move(Position("op", "orders", 2, 5000), "A.orders")])
    found.add_sync(name, numbers, 7.0)
    assert found.syncs == {("orders", 2): [(4711, 11, 7.0)]}
    for wrong in (name[:-1], name + b"\0", b"\xff\xff" + name):
        with pytest.raises(Unreadable):
            found.add_sync(wrong, numbers, 7.0)
    with pytest.raises(Unreadable):
        found.add_sync(name, numbers + b"\0", 7.0)


def test_records_of_checkpoints_are_read_as_mirrormaker_writes_them():
    found = Recorded([move(5000)])
    value = bytes.fromhex("00000000000000001267000000000000000b0000")
    found.add_checkpoint(key("A.orders", 0, "flünk"), value, 7.0)
    assert found.groups == {TARGET: {"flünk": [(4711, 11, 7.0)]}}
    with pytest.raises(Unreadable, match="version 1"):
        found.add_checkpoint(key("A.orders", 0, "x"), b"\0\1" + value[2:], 7.0)


@pytest.mark.parametrize(
    ("position", "expected"),
    [
        (50, (10, 0, 0)),  # that of a sync is exact
        (51, (11, 0, 0)),  # the next record stands behind it
        (99, (11, 48, 0)),
        (100, (60, 0, 0)),
        (250, (62, 148, 0)),  # no sync is newer
    ],
)
def test_the_newest_sync_at_or_below_a_position_translates_it(position, expected):
    assert place(translated(position, (50, 10), (100, 60), (101, 61))) == expected


def test_a_marker_stays_and_so_does_an_offset_that_is_the_same():
    result = translate([move(None), move(7)], recorded(7, (7, 7)), {TARGET: Range(0, 9)}, None)
    assert [each.offset for each in result.moves] == [None, None]
    assert [each.doubled for each in result.moves] == [None, 0]


@pytest.mark.parametrize(
    ("position", "there", "syncs", "reason"),
    [
        (49, Range(0, 90), [(50, 0)], "no record below it .* the first is 50"),
        (50, Range(0, 90), [], "recorded nothing of it"),
        (50, Range(0, 9), [(50, 10)], "10, and it ends at 9: it was created anew"),
        (50, Range(11, 90), [(50, 10)], "10, and it begins at 11: .* deleted"),
        (50, None, [(50, 10)], "not at --kafka"),
    ],
)
def test_what_cannot_be_translated_is_an_obstacle(position, there, syncs, reason):
    ranges = {} if there is None else {TARGET: there}
    with pytest.raises(Refused, match=f"orders partition 0 .*{reason}"):
        translate([move(position)], recorded(position, *syncs), ranges, COMPLETED)


def test_a_partition_of_which_the_mirror_has_nothing_begins_at_its_start():
    assert place(translated(0, there=Range(0, 0))) == (0, 0, 0)
    assert place(translated(40, there=Range(0, 0))) == (0, 40, 0)


def test_below_the_first_sync_the_copy_is_read_whole_if_it_has_the_position():
    # of a burst, MirrorMaker records only the last sync: 100 records from 200 on, or from before
    result = translated(230, (300, 100))
    assert place(result) == (0, 100, None)
    assert "whether records before it were copied" in result.warnings[0]
    for position, there in ((199, Range(0, 900)), (230, Range(1, 900))):
        with pytest.raises(Refused, match="no record below it"):
            translated(position, (300, 100), there=there)


def test_after_a_topic_was_created_anew_at_the_target_only_its_own_syncs_count():
    syncs = [(0, 0), (100, 100), (200, 0), (300, 100)]
    assert place(translated(250, *syncs)) == (1, 49, 0)
    with pytest.raises(Refused, match="no record below it"):
        translated(150, *syncs)


def test_of_a_restart_before_the_checkpoint_the_records_of_the_second_time_are_read():
    syncs = [(0, 0), (200, 200), (150, 251), (250, 351)]
    assert place(translated(180, *syncs)) == (252, 29, 0)
    result = translated(120, *syncs)
    # 0 to 199 from the first sync: 1 to 119
    assert place(result) == (1, 119, 0)
    assert "wrote at least 101 records a second time" in result.warnings[0]


def test_a_restart_that_has_not_copied_as_far_again_translates_nothing_yet():
    syncs = [(0, 0), (100, 100), (60, 180), (90, 210)]  # up to 179, then again
    assert place(translated(95, *syncs, there=Range(0, 240))) == (1, 94 + 35, 0)
    assert place(translated(95, *syncs, there=Range(0, 300))) == (211, 4, 0)


def test_where_the_source_goes_back_after_the_checkpoint_the_syncs_before_it_count():
    # a restart: 150 to 199 are in the mirror twice; a topic that was created anew looks the same
    syncs = [(0, 0), (200, 200), (150, 251, YOUNG), (350, 451, YOUNG)]
    assert place(translated(210, *syncs)) == (201, 9 + 60, 0)
    created = [(0, 0), (200, 200), (0, 230, YOUNG), (300, 530, YOUNG)]
    offset, doubled, _ = place(translated(210, *created))
    assert (offset, doubled) == (201, 9 + 210)


def test_where_the_source_goes_back_in_the_second_of_a_cut_date_the_syncs_before_it_count():
    """S3 dates a checkpoint by whole seconds: the job may have read nothing of the new topic."""
    assert COMPLETED % 1 == 0
    soon = COMPLETED + 0.5
    created = [(0, 0), (200, 200), (0, 230, soon), (300, 530, soon)]
    assert place(translated(210, *created))[0] == 201


def test_syncs_that_may_be_those_of_the_opposite_direction_translate_nothing():
    syncs = [(0, 0), (100, 100)]
    with pytest.raises(Refused, match="opposite direction"):
        translated(50, *syncs, own=Range(0, 101))
    assert place(translated(50, *syncs, own=Range(0, 100))) == (1, 49, 0)
    with pytest.raises(Refused, match="opposite direction"):
        translated(50, *syncs, new="orders")
    assert place(translated(50, *syncs, new="orders", is_target=True)) == (1, 49, 0)


class Groups:
    """What groups have at the target, as checkpoints record it."""

    def __init__(self, position: int) -> None:
        self.found, self.position = Recorded([move(position)]), position

    def add(self, upstream: int, downstream: int, time: float = OLD, group: str = "job") -> Groups:
        value = struct.pack(">hqq", 0, upstream, downstream) + text("")
        self.found.add_checkpoint(key("A.orders", 0, group), value, time)
        return self

    def place(self) -> tuple[int | None, int | None, int | None]:
        return place(
            translate([move(self.position)], self.found, {TARGET: Range(0, 999)}, COMPLETED)
        )


def test_without_syncs_a_group_that_is_not_ahead_translates_and_its_count_is_unknown():
    groups = Groups(100).add(90, 40).add(99, 48, group="other").add(120, 70)
    assert groups.place() == (48, None, 0)
    result = translate([move(100)], groups.found, {TARGET: Range(0, 999)}, COMPLETED)
    assert "do not show how many records are doubled" in result.warnings[0]
    with pytest.raises(Refused, match="the first is 120"):
        Groups(100).add(120, 70).place()


def test_groups_from_before_a_target_was_created_anew_do_not_count():
    # the first group read on only before
    stale = Groups(100).add(90, 490, 1, "stale")
    assert stale.add(80, 480, 2).add(85, 5, 3).place() == (5, None, 0)


def test_of_a_group_only_what_is_before_the_source_went_back_counts():
    assert Groups(100).add(90, 40).add(10, 60, YOUNG).place() == (40, None, 0)
    assert Groups(100).add(90, 40, OLD).add(50, 60, OLD).place() == (60, None, 0)


class Mirror:
    """A MirrorMaker, which is killed and restarted, and its topic, in a model."""

    def __init__(self, chance: Random) -> None:
        self.chance = chance
        self.gaps = {chance.randrange(2000) for _ in range(20)}  # transaction markers
        self.log: list[int] = []  # the offset at the source of each record
        self.syncs: list[tuple[int, int, float]] = []
        self.next = chance.choice([0, 0, chance.randrange(500)])
        self.is_burst = chance.random() < 0.3
        self.lag, self.now = chance.choice([1, 7, 100]), 0.0
        self.former, self.synced = -2, -1

    def copy(self, count: int) -> None:
        for _ in range(count):
            while self.next in self.gaps:
                self.next += 1
            offset, down = self.next, len(self.log)
            self.log.append(offset)
            if self.synced < 0 or down - self.synced - 1 >= self.lag or offset - self.former != 1:
                if not self.is_burst or self.chance.random() < 0.2:
                    self.syncs.append((offset, down, self.now))
                self.synced = down
            self.former, self.next = offset, offset + 1

    def restart(self) -> None:
        """Copy again what was not recorded as copied."""
        self.next = max(self.log[0], self.next - self.chance.choice([0, 0, 40]))
        self.former, self.synced = -2, -1


@pytest.mark.parametrize("seed", range(500))
def test_in_no_mirror_a_record_is_skipped_and_no_more_are_doubled_than_counted(seed):
    chance = Random(seed)
    mirror = Mirror(chance)
    first = mirror.next
    completed = chance.randrange(6)
    for now in range(6):
        mirror.now = now + 0.5
        mirror.copy(chance.randrange(200))
        if chance.random() < 0.4 and mirror.log:
            mirror.restart()
    position = chance.randrange(first, mirror.next + 50)
    found = recorded(position, *mirror.syncs)
    there = {TARGET: Range(0, len(mirror.log))}
    try:
        (moved,) = translate([move(position)], found, there, float(completed)).moves
    except Refused:
        assert mirror.is_burst
        return
    start = position if moved.offset is None else moved.offset
    behind = set(mirror.log[start:])
    assert {each for each in mirror.log if each >= position} <= behind
    doubled = sum(each < position for each in mirror.log[start:])
    assert mirror.is_burst or doubled <= moved.doubled


@pytest.mark.parametrize("seed", range(50))
def test_what_is_not_kept_of_a_long_topic_of_syncs_decides_nothing(seed):
    chance = Random(seed)
    mirror = Mirror(chance)
    for now in range(6):
        mirror.now = now + 0.5
        mirror.copy(chance.randrange(1, 300))
        mirror.restart()
    position = chance.randrange(mirror.log[0], mirror.next)
    few, there = recorded(position, *mirror.syncs), {TARGET: Range(0, len(mirror.log))}
    every = Recorded([move(position)])
    every.syncs[SOURCE] = [Sync(*each) for each in mirror.syncs]
    assert translate([move(position)], few, there, 3.0) == translate(
        [move(position)], every, there, 3.0
    )
    assert len(few.syncs[SOURCE]) < 40
