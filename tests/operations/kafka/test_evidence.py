"""What the times of records prove, by a date of the checkpoint that may be cut to a second."""

from __future__ import annotations

import pytest

from cpreplicate.core.positions.model import Position, Positions
from cpreplicate.operations.kafka.evidence import Evidence, evidence, left_out
from tests.support.simulated_kafka import Log, Record, SimulatedKafka

PLACE = ("orders", 0)
SECOND = 1_700_000_005  # in which the checkpoint was completed, and its barrier at .600
READ = 56  # records that the job has read: ten a second, up to .500
TEN_A_SECOND = tuple(Record(n, SECOND * 1000 + 100 * (n - 50), n) for n in range(80))


def kafka(*partitions: int, records: tuple[Record, ...] = TEN_A_SECOND) -> SimulatedKafka:
    log = Log(records, 0, len(records))
    return SimulatedKafka({(PLACE[0], each): log for each in (0, *partitions)})


def shown(at: SimulatedKafka, position: int, completed: float) -> Evidence:
    held = Positions((Position("source", *PLACE, position),))
    return evidence(at, [held, held], completed, at.ranges([PLACE]), at.topics())


@pytest.mark.parametrize("completed", [SECOND, SECOND + 0.9])
def test_what_was_read_in_the_second_of_a_cut_date_is_not_younger(completed):
    """A mirror with the offsets of the source proves the position right."""
    assert shown(kafka(), READ, completed).later == {}
    assert left_out(kafka(), completed, {PLACE: READ}) == ([], ())


def test_a_younger_record_below_a_position_is_found_by_a_cut_date_and_by_an_exact_one():
    assert shown(kafka(), 70, SECOND).later == {PLACE: 60}
    assert shown(kafka(), 70, SECOND + 0.65).later == {PLACE: 57}


def test_records_of_the_second_of_a_cut_date_count_as_older_in_partitions_that_are_not_held():
    (warning,) = shown(kafka(1), READ, SECOND).warnings
    assert "with 80 records, 60 of them older than it" in warning
