"""Estimates of what a run takes, and what runs show for later estimates."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpreplicate.core.cost_model import (
    Bounds,
    CallCosts,
    Learned,
    Rates,
    Took,
    Work,
    calls,
    is_limited,
    learned,
    learned_share,
    samples,
    seconds,
)

RATES = Rates(2.0, 2.5, files=200, packed=1000, bytes=200e6, deletes=2000, wait=0.5)
DEFAULT = Learned(RATES)
NONE = Bounds()
HDFS = CallCosts(fixed=50, file=4.8, pack=5, delete=1, directory=2, journal=6, second=0.25)

counts = st.integers(0, 10**7)
sizes = st.integers(0, 10**14)
works = st.builds(
    Work,
    files=counts,
    bytes=sizes,
    packed=counts,
    packed_bytes=sizes,
    deletes=counts,
    read=counts,
    read_bytes=sizes,
    directories=counts,
    within=counts,
    within_bytes=sizes,
).map(lambda work: work._replace(within=min(work.within, work.files + work.packed)))
rate = st.floats(1e-3, 1e12)
knowns = st.builds(
    Learned,
    st.builds(Rates, rate, rate, rate, rate, rate, rate, st.floats(0, 10), rate),
    st.frozensets(st.sampled_from(["fixed", "files", "bytes", "packed", "deletes"])),
)
limits = st.none() | st.floats(1, 1e12)
bounds = st.builds(Bounds, limits, limits, st.integers(0, 1), st.integers(0, 4), st.booleans())


# a file that is copied within the target costs less than another one
@given(works, knowns, bounds, st.sampled_from(sorted({*Work._fields} - {"within"})))
def test_more_work_never_takes_less_time_or_fewer_calls(work, known, bound, name):
    # the first packed file turns a run into one with packs, whose fixed part is another one
    work = work._replace(packed=max(work.packed, 1))
    more = work._replace(**{name: 2 * getattr(work, name) + 1})
    less_time, more_time = seconds(work, known, bound), seconds(more, known, bound)
    assert all(a <= b for a, b in zip(less_time, more_time, strict=True))
    assert calls(work, HDFS, 1.0) <= calls(more, HDFS, 1.0)


@given(works, knowns, bounds)
def test_the_expected_time_lies_in_the_range(work, known, bound):
    result = seconds(work, known, bound, start=1.0)
    assert 1.0 <= result.low <= result.expected <= result.high


@given(works, knowns, st.floats(1, 1e9), st.floats(1, 1e9))
def test_no_estimate_exceeds_a_limit(work, known, bandwidth, operations):
    low = seconds(work, known, Bounds(bandwidth, operations, read=1, put=4)).low
    assert low * bandwidth >= (work.bytes + work.packed_bytes + work.within_bytes) * (1 - 1e-9)
    puts = 4 * (work.files + work.packs) + work.deletes
    assert low * operations >= puts * (1 - 1e-9)
    assert low * operations >= (work.files + work.packed - work.within) * (1 - 1e-9)


def test_what_is_copied_within_the_target_does_not_cross_the_line():
    line = Learned(RATES._replace(bytes=1e6), frozenset({"bytes"}))
    crossing = Work(files=100, bytes=10**9)
    within = Work(files=100, within=100, within_bytes=10**9)
    assert seconds(crossing, line, NONE).expected > 1000
    assert seconds(within, line, NONE).expected < 20
    assert calls(within, CallCosts(fixed=6, file=1, within=-1), 1.0) == 6


def test_source_and_target_on_one_cluster_share_its_limit():
    work, bound = Work(files=1000), Bounds(operations=100, read=1, put=4)
    apart = seconds(work, DEFAULT, bound).expected
    together = seconds(work, DEFAULT, bound._replace(is_one_cluster=True)).expected
    assert together - apart == pytest.approx(10)


@given(counts.filter(bool), sizes)
def test_packs_never_cost_more_calls_than_files_of_their_own(count, size):
    size = min(size, count << 20)  # only files below 1 MiB are packed
    plain, packed = Work(files=count, bytes=size), Work(packed=count, packed_bytes=size)
    rounding = 1
    assert calls(packed, HDFS, 1.0) <= calls(plain, HDFS, 1.0) + rounding


def test_a_default_rate_makes_the_range_wider():
    work = Work(files=2000)
    by_default = seconds(work, DEFAULT, NONE)
    by_earlier_runs = seconds(work, Learned(RATES, frozenset({"files", "fixed"})), NONE)
    assert by_default.expected == by_earlier_runs.expected == pytest.approx(12)
    assert (by_default.low, by_default.high) == pytest.approx((4, 36))
    assert (by_earlier_runs.low, by_earlier_runs.high) == pytest.approx((8, 18))
    assert learned_share(work, DEFAULT) == 0
    assert learned_share(work, Learned(RATES, frozenset({"files"}))) == pytest.approx(10 / 12)


def test_one_bad_night_does_not_decide():
    known = learned(RATES, {"files": (400, 410, 3, 390, 405)})
    assert known.rates.files == 400
    assert known.rates.bytes == RATES.bytes
    assert known.names == {"files"}


@given(
    st.integers(2000, 10**6),
    st.floats(10, 10**5),
    st.floats(0, 5),
    st.sampled_from(["files", "packed"]),
)
def test_the_next_run_of_the_same_work_is_estimated_as_the_last_one_was(count, rate, fixed, name):
    work = Work(**{name: count})
    copies = RATES.wait + count / rate
    took = Took(whole=fixed + copies, copies=copies, deletes=0)
    shown = {sample: (value,) for sample, value in samples(work, took, DEFAULT)}
    expected = seconds(work, learned(RATES, shown), NONE).expected
    assert expected == pytest.approx(took.whole, rel=1e-6)


def test_a_run_shows_only_rates_that_decided_how_long_it_took():
    few = dict(samples(Work(files=5, bytes=1000), Took(3, 0.6, 0), DEFAULT))
    assert few.keys() == {"fixed"}
    large = dict(samples(Work(files=20, bytes=1 << 30), Took(12, 10, 0), DEFAULT))
    assert large.keys() == {"bytes", "fixed"}
    small = dict(samples(Work(files=2000, bytes=2000 << 16, deletes=500), Took(9, 6, 1), DEFAULT))
    assert small.keys() == {"files", "deletes", "fixed"}
    assert small["deletes"] == 500


def test_a_run_that_a_limit_slowed_down_is_recognized():
    work, took = Work(files=20, bytes=10**9), Took(102, 100, 0)
    assert is_limited(work, Bounds(bandwidth=1e7), took)
    assert not is_limited(work, Bounds(bandwidth=1e9), took)
    assert not is_limited(work, NONE, took)
