"""A timetable has one rate for each second of a week."""

from hypothesis import given
from hypothesis import strategies as st

from cpreplicate.core.timetable import DAY, WEEK, Change, Timetable, constant, daily

SECONDS = st.integers(0, WEEK - 1)
RATES = st.one_of(st.none(), st.floats(1, 1e12))
TABLES = st.lists(st.builds(Change, SECONDS, RATES), min_size=1, unique_by=lambda each: each.second)


def test_a_constant_rate_holds_at_any_time():
    assert {constant(5.0).at(second) for second in (0, DAY, WEEK - 1)} == {5.0}
    assert constant(None).highest is None


def test_the_last_change_of_a_day_holds_over_midnight():
    eight, twenty = daily(8 * 3600, 1.0), daily(20 * 3600, None)
    table = Timetable(tuple(sorted([*eight, *twenty])))
    assert table.at(0) is None
    assert table.at(8 * 3600 - 1) is None
    assert table.at(8 * 3600) == 1.0
    assert table.at(3 * DAY + 20 * 3600) is None
    assert table.highest == 1.0


@given(TABLES, st.integers(0, 3 * WEEK))
def test_at_each_second_the_nearest_change_before_it_holds(changes, second):
    table = Timetable(tuple(sorted(changes)))
    before = max(changes, key=lambda each: -((second - each.second) % WEEK))
    assert table.at(second) == before.rate
