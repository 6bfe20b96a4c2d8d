"""Which points in time a retention keeps."""

import math
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpreplicate.core.plan import Committed, dropped
from cpreplicate.core.retention import Retention, Stated, StatedBy, policy_of
from tests.support.points import DAY, HOUR, of_restic

MINUTE = 60
RETENTIONS = st.builds(
    Retention,
    last=st.integers(0, 4),
    within=st.sampled_from([0, 5 * MINUTE, HOUR, 5 * HOUR, 2 * DAY]),
    hourly=st.integers(0, 6),
    daily=st.integers(0, 4),
)
GAPS = st.sampled_from([1, 10 * MINUTE, HOUR, 3 * HOUR, 20 * HOUR, 3 * DAY])
TIMES = st.lists(GAPS, min_size=1, max_size=30).map(lambda gaps: [*accumulate(gaps)])
NOW = 50 * DAY
# clocks that go back, stand still and are ahead, and points without a time
DISORDER = st.lists(
    st.one_of(
        st.none(),
        st.sampled_from([0, HOUR, NOW - HOUR, NOW, NOW + 1, NOW + 2 * DAY, 9 * NOW]),
        st.integers(0, 2 * NOW),
    ),
    max_size=30,
)
UNDATED = st.lists(st.booleans(), min_size=30, max_size=30)


def kept(retention, times):
    """The times, given oldest first, of the points that are kept."""
    newest_first = times[::-1]
    return {newest_first[position] for position in retention.kept(newest_first)}


def at(*clock):
    """Times of one day, of hours and minutes."""
    return [
        int(hours) * HOUR + int(minutes) * MINUTE
        for hours, minutes in (each.split(":") for each in clock)
    ]


def test_of_each_of_the_last_hours_that_have_a_point_the_last_point_is_kept():
    times = at("1:10", "1:50", "2:20", "7:05", "7:55")
    assert kept(Retention(hourly=2), times) == {*at("2:20", "7:55")}
    assert kept(Retention(hourly=3), times) == {*at("1:50", "2:20", "7:55")}


def test_days_are_those_of_utc():
    before, after = DAY - 1, DAY
    assert kept(Retention(daily=9), [DAY // 2, before, after]) == {DAY // 2, before, after}
    assert kept(Retention(daily=2), [DAY // 2, before, after]) == {before, after}


def test_while_there_are_fewer_hours_than_asked_for_the_oldest_point_is_kept_too():
    assert kept(Retention(hourly=3), at("1:10", "1:30", "1:50", "2:20")) == {
        *at("1:10", "1:50", "2:20")
    }


def test_an_idle_job_keeps_its_points_since_time_is_counted_from_the_newest():
    times = at("1:00", "2:00", "3:00")
    assert kept(Retention(within=90 * MINUTE), times) == {*at("2:00", "3:00")}
    assert kept(Retention(within=HOUR), times) == {*at("3:00")}


def test_a_newest_point_of_a_clock_that_is_ahead_drops_no_other():
    newest_first = at("8:00", "3:00", "2:30", "1:00")
    (now,) = at("3:10")
    assert Retention(within=HOUR).kept(newest_first, now) == {0, 1, 2}
    assert Retention(within=HOUR).kept(newest_first[:1], now) == {0}
    assert Retention(within=HOUR).kept([None, None], now) == {0, 1}  # as recent


def test_the_newest_point_is_kept_by_a_retention_that_asks_for_none():
    assert kept(Retention(last=0), at("1:00", "2:00")) == {*at("2:00")}
    assert Retention().kept([]) == frozenset()
    assert Retention(last=0, within=HOUR, hourly=1).kept([None]) == {0}


def test_a_point_of_an_unknown_time_is_not_dropped_for_one_that_may_be_of_another_day():
    newest_first = [*at("9:30"), None, None, *at("9:10")]
    assert Retention(daily=1).kept(newest_first) == {0}
    assert Retention(daily=3).kept(newest_first) == {0, 1, 2}
    assert Retention(within=HOUR).kept(newest_first) == {0, 1, 2, 3}
    assert Retention(within=10 * MINUTE).kept(newest_first) == {0, 1, 2}


@given(TIMES, RETENTIONS)
def test_what_is_kept_is_what_restic_keeps(times, retention):
    assert kept(retention, times) == of_restic(retention, times)


@given(TIMES, RETENTIONS, UNDATED)
def test_a_point_is_kept_if_any_of_the_rules_keeps_it(times, retention, undated):
    points = [
        None if is_undated else time for time, is_undated in zip(times[::-1], undated, strict=False)
    ]
    rules = [
        Retention(last=retention.last),
        Retention(within=retention.within),
        Retention(hourly=retention.hourly),
        Retention(daily=retention.daily),
    ]
    assert retention.kept(points) == frozenset().union(*(rule.kept(points) for rule in rules))


@given(TIMES, RETENTIONS, RETENTIONS, UNDATED)
def test_a_retention_that_asks_for_more_never_keeps_fewer(times, one, other, undated):
    points = [
        None if is_undated else time for time, is_undated in zip(times[::-1], undated, strict=False)
    ]
    more = Retention(
        max(one.last, other.last),
        max(one.within, other.within),
        max(one.hourly, other.hourly),
        max(one.daily, other.daily),
    )
    assert one.kept(points) <= more.kept(points)


@given(TIMES, RETENTIONS)
def test_applied_after_each_new_point_it_keeps_what_it_keeps_of_all_points_at_once(
    times, retention
):
    """A point that was dropped early would not have been kept later. This holds while times grow
    with the points, and the retention stays the same.
    """
    held: list[int] = []
    for time in times:
        held = sorted(kept(retention, [*held, time]))
    assert held == sorted(kept(retention, times))


@given(TIMES, RETENTIONS, UNDATED)
def test_applied_a_second_time_it_drops_nothing(times, retention, undated):
    points = [
        None if is_undated else time for time, is_undated in zip(times[::-1], undated, strict=False)
    ]
    left = [points[position] for position in sorted(retention.kept(points))]
    assert len(retention.kept(left)) == len(left)


def test_checkpoints_are_dropped_by_the_times_that_are_recorded_of_them():
    held = [
        Committed(f"chk-{number}", number, {}, completed=time)
        for number, time in zip((5, 4, 3, 2), at("9:40", "9:20", "8:50", "8:40"), strict=True)
    ]
    (now,) = at("10:00")
    assert _dropped(held, Retention(hourly=3), now) == ["chk-2", "chk-4"]
    assert _dropped(held, Retention(last=3), now) == ["chk-2", "chk-3"]
    assert _dropped(held, 3, now) == ["chk-2", "chk-3"]
    assert _dropped(held, Retention(within=HOUR), now) == ["chk-2", "chk-3"]


def test_a_retention_keeps_no_checkpoint_of_a_higher_number():
    held = [Committed(f"chk-{number}", number, {}, completed=0.0) for number in (7, 8, 9)]
    assert _dropped(held, Retention(within=DAY, hourly=9), HOUR) == ["chk-9", "chk-8", "chk-7"]


def test_the_checkpoint_that_is_published_again_is_counted_once():
    held = [
        Committed(f"chk-{number}", number, {}, completed=float(number * HOUR))
        for number in (6, 5, 4)
    ]
    assert _dropped(held, Retention(hourly=3), 6.0 * HOUR) == []
    assert _dropped(held, Retention(hourly=2), 6.0 * HOUR) == ["chk-4"]


def _dropped(held, keep, now):
    return [each.name for each in dropped(held, "chk-6", 6, keep, now)]


@given(DISORDER, RETENTIONS)
def test_whatever_the_clocks_were_the_newest_is_kept_and_a_second_time_nothing_is_dropped(
    points, retention
):
    """Points in any order of time, equal ones, some in the future, some without one."""
    positions = sorted(retention.kept(points, NOW))
    assert positions[:1] == [0][: len(points)]
    left = [points[position] for position in positions]
    assert len(retention.kept(left, NOW)) == len(left)


@given(DISORDER, RETENTIONS, RETENTIONS)
def test_whatever_the_clocks_were_more_never_keeps_fewer(points, one, other):
    if not one.is_less_than(other):
        assert other.kept(points, NOW) <= one.kept(points, NOW)


@given(DISORDER, st.integers(1, 30), st.integers(0, 30), st.integers(0, 30))
def test_whatever_the_clocks_were_no_more_hours_and_days_are_kept_than_asked_for(
    points, last, hourly, daily
):
    kept = Retention(last, hourly=hourly, daily=daily).kept(points, NOW)
    assert len(kept) <= last + hourly + daily


@given(DISORDER, RETENTIONS, st.integers(0, 40))
def test_an_idle_job_keeps_its_points_however_long_it_stands_still(points, retention, days):
    dated = [None if time is None else min(time, NOW) for time in points]
    later = NOW + days * DAY
    assert retention.kept(dated, later) == retention.kept(dated, NOW)


def test_points_in_the_future_cost_one_hour_each_and_no_point_within_a_time():
    ahead = [9 * NOW, 9 * NOW]  # the same hour
    behind = [NOW, NOW - HOUR, NOW - 2 * HOUR]
    assert Retention(hourly=3).kept([*ahead, *behind], NOW) == {0, 2, 3}
    assert Retention(within=2 * HOUR).kept([*ahead, *behind], NOW) == {0, 1, 2, 3}


def test_of_points_of_the_same_second_the_last_is_that_of_its_hour_and_within_keeps_all():
    assert Retention(hourly=2).kept([NOW, NOW, NOW]) == {0, 2}  # and the oldest: one hour is free
    assert Retention(hourly=1).kept([NOW, NOW, NOW]) == {0}
    assert Retention(within=1).kept([NOW, NOW, NOW]) == {0, 1, 2}


FILE = StatedBy("cpreplicate fleet", "flink", "a", "/etc/fleet.toml")
TYPED = StatedBy("cpreplicate sync", "alice", "a")


@pytest.mark.parametrize(
    ("stated", "recorded", "is_less"),
    [
        (Retention(5), Retention(daily=30), True),
        (Retention(daily=30), Retention(5), True),
        (Retention(5, daily=30), Retention(daily=30), False),
        (Retention(within=HOUR), Retention(within=2 * HOUR), True),
        (Retention(0), Retention(1), False),
        (Retention(2, hourly=24), Retention(3, hourly=48), True),
        (Retention(daily=30), Retention(daily=30), False),
    ],
)
def test_less_of_one_rule_is_less_whatever_the_others_keep(stated, recorded, is_less):
    policy = policy_of(Stated(stated, TYPED), Stated(recorded, FILE))
    assert policy.is_less is is_less


@pytest.mark.parametrize(
    ("by", "former", "is_less"),
    [
        (FILE, FILE, False),
        (FILE, FILE._replace(user="root"), False),
        (FILE, FILE._replace(host="b"), True),
        (FILE, FILE._replace(path="/etc/other.toml"), True),
        (FILE, FILE._replace(command="cpreplicate watch"), True),
        (FILE, TYPED, True),
        (TYPED, FILE, True),
        (TYPED, TYPED, True),
    ],
)
def test_only_the_same_file_for_the_same_command_on_the_same_host_may_state_less(
    by, former, is_less
):
    policy = policy_of(Stated(Retention(), by), Stated(Retention(7), former))
    assert policy.is_less is is_less
    assert policy.is_to_be_recorded
    assert policy.retention == Retention()


def test_a_run_that_states_nothing_uses_what_is_recorded_and_else_keeps_the_newest():
    recorded = Stated(Retention(daily=30), FILE)
    assert policy_of(None, recorded).retention == Retention(daily=30)
    assert not policy_of(None, recorded).is_to_be_recorded
    assert policy_of(None, None).retention == Retention()
    assert not policy_of(None, None).is_to_be_recorded


def test_what_is_recorded_is_not_recorded_again_but_a_file_takes_over_what_a_command_stated():
    weekly = Retention(daily=7)
    assert not policy_of(Stated(weekly, TYPED), Stated(weekly, FILE)).is_to_be_recorded
    assert not policy_of(Stated(weekly, FILE), Stated(weekly, FILE)).is_to_be_recorded
    other = FILE._replace(path="/other.toml")
    assert not policy_of(Stated(weekly, other), Stated(weekly, FILE)).is_to_be_recorded
    taken_over = policy_of(Stated(weekly, FILE), Stated(weekly, TYPED))
    assert taken_over.is_to_be_recorded
    assert not taken_over.is_less


@pytest.mark.parametrize(
    ("retention", "options", "short"),
    [
        (Retention(), "--keep 1", "last 1"),
        (Retention(0), "--keep 1", "last 1"),
        (Retention(daily=30), "--keep-daily 30", "daily 30"),
        (
            Retention(3, 36 * HOUR, 24, 7),
            "--keep 3 --keep-within 36h --keep-hourly 24 --keep-daily 7",
            "last 3, within 36h, hourly 24, daily 7",
        ),
        (Retention(within=30 * DAY), "--keep-within 30d", "within 30d"),
        (Retention(within=0.5), "--keep-within 0.5s", "within 0.5s"),
        (Retention(within=math.pi * 1e6), f"--keep-within {math.pi * 1e6}s", None),
    ],
)
def test_a_policy_is_named_by_the_options_that_state_it(retention, options, short):
    assert str(retention) == options
    assert short is None or retention.short == short
