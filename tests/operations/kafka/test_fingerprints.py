"""A fingerprint proves its record and no other, whatever a mirror did."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cpreplicate.core.positions.fingerprints import Fingerprint, Verdict, digest_of
from cpreplicate.core.positions.model import Position, Positions
from cpreplicate.operations.kafka import fingerprints
from cpreplicate.operations.kafka.fingerprints import Taken, look, proofs, take
from tests.support.simulated_kafka import Log, Mirroring, Record, SimulatedKafka
from tests.support.waiting import PATIENCE

PLACE = ("orders", 0)
NOON = 1_700_000_000_000


def at(*offsets: int) -> Positions:
    return Positions(tuple(Position("source", *PLACE, offset) for offset in offsets))


def log(*records: tuple[int, int, int], begin: int | None = None, end: int | None = None) -> Log:
    """Return a log of records by their offset, their time after noon and their content."""
    made = tuple(Record(offset, NOON + time, content) for offset, time, content in records)
    first = made[0].offset if begin is None else begin
    return Log(made, first, made[-1].offset + 1 if end is None else end)


def taken(at_a: Log, *offsets: int) -> Taken:
    return take(SimulatedKafka({PLACE: at_a}), at(*offsets), PATIENCE)


def found(at_a: Log, offset: int, at_b: Log) -> Verdict:
    (one,) = taken(at_a, offset).fingerprints
    kafka = SimulatedKafka({PLACE: at_b})
    return look(kafka, [one], kafka.ranges([PLACE]))[one]


PLAIN = log((0, 0, 1), (1, 5, 2), (2, 9, 3), (3, 12, 4))


def test_the_same_record_at_the_same_offset_is_proven():
    assert found(PLAIN, 2, PLAIN) == Verdict("proven", 2)


def test_the_same_record_at_another_offset_is_translated():
    at_b = log((0, 5, 2), (1, 9, 3), (2, 12, 4))
    assert found(PLAIN, 3, at_b) == Verdict("translated", 2, is_other=True)


def test_a_record_that_is_not_there_yet_shows_how_far_the_mirror_is_behind():
    verdict = found(PLAIN, 4, log((0, 0, 1), (1, 5, 2)))
    assert (verdict.kind, verdict.position, verdict.late) == ("behind", None, 0.007)


def test_another_record_at_the_same_offset_is_named_also_if_the_right_one_is_missing():
    at_b = log((0, 0, 7), (1, 3, 8), (2, 20, 9))
    verdict = found(PLAIN, 2, at_b)
    assert (verdict.kind, verdict.position, verdict.is_other) == ("unproven", None, True)
    assert "younger records are there" in (verdict.reason or "")


def test_a_record_that_was_compacted_at_b_is_not_proven_and_no_other_record_is_named():
    verdict = found(PLAIN, 2, log((0, 0, 1), (2, 9, 3), (3, 12, 4)))
    assert (verdict.kind, verdict.is_other) == ("unproven", False)


def test_the_last_record_that_compaction_left_before_a_position_is_taken():
    (one,) = taken(log((0, 0, 1), (3, 9, 3), (80, 30, 5)), 60).fingerprints
    assert (one.record.offset, one.before and one.before.offset) == (3, 0)
    assert found(log((0, 0, 1), (3, 9, 3)), 60, log((0, 0, 1), (1, 9, 3))).position == 2


def test_markers_of_transactions_before_a_position_are_passed_over():
    at_a = log((0, 0, 1), (1, 5, 2), (3, 9, 3), end=6)
    (one,) = taken(at_a, 5).fingerprints
    assert one.record.offset == 3
    assert found(at_a, 5, at_a) == Verdict("proven", 5)
    assert found(at_a, 5, log((10, 0, 1), (11, 5, 2), (12, 9, 3))).position == 13


def test_a_tombstone_is_no_empty_record_and_no_field_flows_into_another():
    contents = [
        (None, None, ()),
        (None, b"", ()),
        (b"", None, ()),
        (b"ab", b"c", ()),
        (b"a", b"bc", ()),
        (None, b"c", (("a", b"b"),)),
        (None, b"c", (("a", None),)),
        (None, b"c", (("a", b"b"), ("c", b"d"))),
        (None, b"c", (("c", b"d"), ("a", b"b"))),
    ]
    assert len({digest_of(*each) for each in contents}) == len(contents)


TWINS = log((0, 0, 1), (1, 5, 2), (2, 5, 2), (3, 5, 2), (4, 9, 3))


@pytest.mark.parametrize(("position", "there"), [(2, 12), (3, None), (4, None)])
def test_of_records_that_are_alike_only_the_first_is_found_at_another_offset(position, there):
    assert found(TWINS, position, TWINS) == Verdict("proven", position)
    shifted = log((10, 0, 1), (11, 5, 2), (12, 5, 2), (13, 5, 2), (14, 9, 3))
    assert found(TWINS, position, shifted).position == there
    by_one = log((1, 0, 1), (2, 5, 2), (3, 5, 2), (4, 5, 2), (5, 9, 3))
    assert found(TWINS, position, by_one).position in (None, position + 1)


def test_the_first_record_of_a_log_is_not_proven_where_one_like_it_is_there_again():
    at_a = log((5, 0, 1), (6, 5, 2))
    assert found(at_a, 6, at_a) == Verdict("proven", 6)
    assert found(at_a, 6, log((5, 0, 1), (6, 5, 2), (7, 0, 1))).kind == "unproven"


def test_the_same_content_at_another_time_is_another_record():
    heartbeats = log((0, 0, 7), (1, 5, 7), (2, 9, 7), (3, 12, 7))
    at_b = log((0, 5, 7), (1, 9, 7), (2, 12, 7))
    assert found(heartbeats, 3, at_b) == Verdict("translated", 2, is_other=True)


def test_records_that_are_alike_prove_nothing_where_the_mirror_begins_among_them():
    verdict = found(TWINS, 2, log((0, 5, 2), (1, 5, 2), (2, 9, 3)))
    assert (verdict.kind, verdict.position) == ("unproven", None)


def test_a_record_that_a_mirror_wrote_twice_is_not_proven():
    at_b = log((0, 5, 2), (1, 9, 3), (2, 5, 2), (3, 9, 3), (4, 12, 4))
    verdict = found(PLAIN, 3, at_b)
    assert (verdict.kind, verdict.position) == ("unproven", None)
    assert "2 records there have its time and content" in (verdict.reason or "")


def test_before_a_position_at_the_beginning_the_next_record_is_known_instead():
    (one,) = taken(PLAIN, 0).fingerprints
    assert one.is_next
    assert found(PLAIN, 0, PLAIN) == Verdict("proven", 0)
    assert found(PLAIN, 0, log((0, 5, 2), (1, 9, 3))).kind == "unproven"


def test_times_of_a_broker_prove_nothing_and_the_content_near_the_offset_is_named():
    dated = [replace(each, time=NOON + 99, is_of_broker=True) for each in PLAIN.records]
    same, shifted = Log(tuple(dated), 0, 4), Log(tuple(dated[1:]), 1, 4)
    moved = Log(tuple(replace(each, offset=each.offset - 1) for each in dated[1:]), 0, 3)
    assert "the record at the same offset has the same content" in str(found(PLAIN, 2, same))
    assert found(PLAIN, 3, shifted).is_other is False
    verdict = found(PLAIN, 3, moved)
    assert (verdict.kind, verdict.position) == ("unproven", None)
    assert "the record at 1 has the same content" in (verdict.reason or "")


@pytest.mark.parametrize("most", [(200, 2_000), (4,)])
def test_times_of_a_broker_at_the_end_prove_no_record_that_was_written_twice(monkeypatch, most):
    """Also not where the first records that are read do not reach it."""
    monkeypatch.setattr(fingerprints, "_MOST", most)
    others = [(offset, 10, 1_000 + offset) for offset in range(1_500)]
    others[100:102], others[1_400:1_402] = [
        [(first, 5, 2), (first + 1, 9, 3)] for first in (100, 1_400)
    ]
    late = Record(1_500, NOON + 99, 77, is_of_broker=True)
    verdict = found(PLAIN, 3, Log((*log(*others).records, late), 0, 1_501))
    assert (verdict.kind, verdict.position) == ("unproven", None)
    is_read = "2 records there have its time and content" in (verdict.reason or "")
    assert is_read == (most != (4,))


def test_a_mirror_that_copies_times_of_a_broker_is_proven():
    dated = tuple(replace(each, is_of_broker=True) for each in PLAIN.records)
    assert found(PLAIN, 2, Log(dated, 0, 4)) == Verdict("proven", 2)


def test_markers_have_no_fingerprint_and_deleted_or_empty_partitions_say_why():
    kafka = SimulatedKafka({PLACE: PLAIN.since(2), ("empty", 0): Log((), 7, 7)})
    held = Positions(
        (
            Position("source", *PLACE, marker="earliest"),
            Position("source", *PLACE, 1),
            Position("source", "empty", 0, 7),
            Position("source", "gone", 0, 7),
        )
    )
    assert take(kafka, held, PATIENCE) == Taken(
        (),
        {
            "the partition is not there": 1,
            "the records before it are deleted": 1,
            "the partition holds no record": 1,
        },
    )


def test_records_that_cannot_be_read_leave_the_others():
    kafka = SimulatedKafka({PLACE: PLAIN, ("slow", 0): PLAIN}, slow=frozenset({("slow", 0)}))
    held = Positions((Position("source", *PLACE, 2), Position("source", "slow", 0, 2)))
    result = take(kafka, held, PATIENCE)
    assert ([each.topic for each in result.fingerprints], result.lacking) == (["orders"], 1)


def test_one_fetch_is_enough_for_all_partitions_of_a_usual_checkpoint():
    kafka = SimulatedKafka({("orders", partition): PLAIN for partition in range(50)})
    held = Positions(tuple(Position("source", "orders", each, 3) for each in range(50)))
    assert len(take(kafka, held, PATIENCE).fingerprints) == 50
    assert kafka.fetches == 1


def test_two_sources_of_a_partition_have_a_fingerprint_each():
    both = taken(PLAIN, 2, 4).fingerprints
    assert [each.position for each in both] == [2, 4]
    kafka = SimulatedKafka({PLACE: PLAIN})
    verdicts = look(kafka, both, kafka.ranges([PLACE]))
    assert [verdicts[each].position for each in both] == [2, 4]


def test_a_position_before_which_nothing_was_is_right_where_the_log_begins_with_0():
    held, known = at(0), taken(PLAIN, 2).fingerprints
    for begin, kinds in ((0, ["proven"]), (1, [])):
        kafka = SimulatedKafka({PLACE: log((1, 0, 1), begin=begin)})
        shown = proofs(kafka, held, known, kafka.ranges([PLACE]))
        assert [each.kind for each in shown.values()] == kinds


def copies(fingerprint: Fingerprint, verdict: Verdict, at_b: Log) -> Record:
    """Return the record at B that a verdict is about."""
    assert verdict.position is not None
    if fingerprint.is_next:
        return next(each for each in at_b.records if each.offset >= verdict.position)
    if verdict.kind == "proven":
        return next(e for e in at_b.records if e.offset == fingerprint.record.offset)
    return at_b.before(verdict.position)[-1]


@pytest.mark.parametrize("seed", range(500))
def test_never_is_another_record_proven_than_the_one_before_the_position(seed):
    mirroring = Mirroring.of(seed)
    at_a = mirroring.source()
    at_b = mirroring.mirror(at_a)
    chance = mirroring.chance
    offsets = sorted({chance.randint(at_a.begin, at_a.end) for _ in range(4)})
    kept = at_a.since(chance.choice([at_a.begin, chance.randint(at_a.begin, at_a.end)]))
    kafka = SimulatedKafka({PLACE: at_b})
    known = taken(kept, *offsets).fingerprints
    verdicts = look(kafka, known, kafka.ranges([PLACE]))
    assert verdicts.keys() == set(known)
    for each, verdict in verdicts.items():
        if verdict.position is None:
            continue
        assert verdict.kind in ("proven", "translated")
        assert copies(each, verdict, at_b).source == each.record.offset
        left = [one.source for one in at_b.records if one.offset >= verdict.position]
        passed = [one.source for one in at_b.before(verdict.position)]
        lost = {one for one in passed if one is not None and one >= each.position}
        assert lost <= set(left), "a record that the job has not read is passed over"
        if not mirroring.is_repeated:
            assert not [one for one in left if one is not None and one < each.position]
