"""What `diff` estimates, before and after runs between the same sites."""

import itertools

import pytest

from cpreplicate.core.packs import PackOptions
from cpreplicate.operations.sync.diff import diff
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.operations.sync.sync import sync
from cpreplicate.runners import ExecutionOptions, rates
from cpreplicate.runners.inline import InlineRunner
from cpreplicate.runners.timed import TimedRunner
from cpreplicate.storage import Side, Sides
from cpreplicate.storage.wrappers.limits import new_limits
from tests.support.jobs import JOB, write_checkpoint

PACKED, UNPACKED = PackOptions("on", 1 << 20), PackOptions("off", 1 << 20)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "cpreplicate" / "rates.json"


@pytest.fixture
def request_for(tmp_path):
    write_checkpoint(tmp_path / "dcA", 1, {f"shared/{number}": 10 for number in range(300)})

    def request(target="dcB", **options):
        return SyncRequest(
            f"file:{tmp_path}/dcA/{JOB}",
            f"file:{tmp_path}/{target}",
            execution=ExecutionOptions(runner="inline"),
            **options,
        )

    return request


def silent(_line):
    pass


def limited(calls=None, bandwidth=None):
    side = Side(limits=new_limits(calls, bandwidth))
    return Sides(side, side)


def test_the_first_estimate_is_of_default_rates_and_the_next_of_the_run(request_for):
    first = diff(request_for()).estimates
    assert (first.runner, first.runs, first.planned.is_learned) == ("inline", 0, False)
    took = sync(request_for(), silent).seconds
    second = diff(request_for("dcC")).estimates
    assert (second.runs, second.planned.is_learned) == (1, True)
    assert took < second.planned.seconds < 2 * took + 0.5  # with the start of the command


def test_a_run_with_nothing_to_do_is_neither_estimated_nor_recorded(request_for):
    sync(request_for(), silent)
    sync(request_for(), silent)
    assert diff(request_for()).estimates is None
    assert diff(request_for("dcC")).estimates.runs == 1


def test_both_ways_are_estimated_whichever_is_planned(request_for):
    off, on = (diff(request_for(packing=each)).estimates for each in (UNPACKED, PACKED))
    assert (off.is_packed, on.is_packed) == (False, True)
    assert (off.planned, off.alternative) == (off.unpacked, off.packed)
    assert (on.planned, on.alternative) == (on.packed, on.unpacked)
    assert on.unpacked == off.unpacked
    assert on.packed == off.packed
    assert off.packed.seconds < off.unpacked.seconds


def test_where_nothing_may_be_packed_there_is_no_estimate_with_packs(request_for):
    assert diff(request_for(packing=PackOptions("off", 5))).estimates.packed is None
    assert diff(request_for(sides=Sides(preserve=True))).estimates.packed is None


def test_sites_without_a_namenode_have_no_calls(request_for):
    estimate = diff(request_for()).estimates.planned
    assert (estimate.source_calls, estimate.target_calls) == (None, None)


def test_no_estimate_is_below_the_bandwidth(request_for):
    estimate = diff(request_for(sides=limited(bandwidth=30))).estimates.planned
    assert estimate.low >= 3000 / 30


def test_a_limit_on_calls_does_not_hold_for_local_files(request_for):
    free = diff(request_for()).estimates
    assert diff(request_for(sides=limited(calls=1))).estimates == free


def test_a_run_that_the_bandwidth_slowed_down_teaches_nothing(request_for, cache, monkeypatch):
    # the copies take 0.6 s, of which the bandwidth needs 0.5, however busy the machine is
    ticks = itertools.count(step=0.6)
    monkeypatch.setattr(TimedRunner.__init__, "__defaults__", (lambda: next(ticks),))
    sync(request_for(sides=limited(bandwidth=6000)), silent)
    assert not cache.exists()


def test_jobs_that_share_a_runner_teach_nothing(request_for, cache):
    sync(request_for(), silent, InlineRunner(Sides()))
    assert not cache.exists()


def test_files_whose_content_is_compared_take_time_too(request_for, tmp_path):
    sync(request_for(), silent)
    sizes = {f"shared/{number}": 10 for number in range(301)}
    write_checkpoint(tmp_path / "dcA", 2, sizes)
    plain, compared = diff(request_for()), diff(request_for(check_content=True))
    assert len(plain.plan.keeps) == 300
    assert compared.estimates.planned.seconds > plain.estimates.planned.seconds


def test_a_cache_that_cannot_be_written_does_not_fail_a_run(request_for, cache):
    cache.parent.parent.write_text("no directory")
    assert sync(request_for(), silent).committed


def test_rates_are_kept_by_site_and_runner(request_for):
    sync(request_for(), silent)
    assert rates.recorded("file:/any", "file:/where", "inline").runs == 1
    assert rates.recorded("file:/any", "hdfs://b/where", "inline").runs == 0
