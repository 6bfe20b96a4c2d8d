"""How far a replica is behind."""

import math

from cpreplicate.core.lag import Newest, checkpoints_behind, is_behind, lag_seconds, reported


def test_a_replica_with_the_newest_checkpoint_has_no_lag_however_old_it_is():
    assert lag_seconds(Newest(7, 100.0), Newest(7, 100.0), now=9000.0) == 0
    assert checkpoints_behind(Newest(7, 100.0), Newest(7, 100.0)) == 0


def test_the_lag_is_the_age_of_the_replica_while_the_source_has_a_newer_checkpoint():
    assert lag_seconds(Newest(9, 150.0), Newest(7, 100.0), now=160.0) == 60
    assert checkpoints_behind(Newest(9, 150.0), Newest(7, 100.0)) == 2


def test_a_number_that_is_used_a_second_time_is_another_checkpoint():
    assert lag_seconds(Newest(7, 500.0), Newest(7, 100.0), now=510.0) == 410
    assert checkpoints_behind(Newest(3, 500.0), Newest(7, 100.0)) == 1


def test_the_time_that_flink_reports_lies_before_that_of_the_file():
    assert lag_seconds(Newest(7, 99.2), Newest(7, 100.0), now=9000.0) == 0


def test_without_a_replica_the_lag_is_infinite_and_without_a_checkpoint_it_is_0():
    assert lag_seconds(Newest(1, 100.0), None, now=101.0) == math.inf
    assert lag_seconds(None, None, now=101.0) == 0


UNDATED = Newest(5, 0.0)


def test_of_a_checkpoint_that_is_not_dated_the_number_decides():
    assert not is_behind(Newest(5, 100.0), UNDATED)
    assert not is_behind(UNDATED, Newest(5, 100.0))
    assert is_behind(Newest(6, 0.0), Newest(5, 100.0))
    assert UNDATED.is_older(Newest(6, 0.0))
    assert not Newest(6, 100.0).is_older(UNDATED)


def test_times_of_two_clocks_are_not_compared():
    stored, acknowledged = Newest(7, 100.0), reported(7, 105.0)
    assert not is_behind(acknowledged, stored)
    assert not is_behind(stored, acknowledged)
    assert not stored.is_same(acknowledged)  # that is proved by its content
    both = stored._replace(acknowledged=105.0)
    assert both.is_same(acknowledged)
    assert both.is_same(stored)
    assert both.clocks_apart == 5.0
    assert is_behind(reported(7, 300.0), both)  # started from scratch
    assert is_behind(reported(8, 90.0), both)
