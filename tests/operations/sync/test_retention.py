"""Points in time that a replica keeps, by when they were completed at the source."""

import json
import os

import pytest

from cpreplicate.core.packs import PackOptions
from cpreplicate.core.plan import Cap
from cpreplicate.core.retention import Retention, StatedBy
from cpreplicate.errors import KeepsLess, NotNewer, Refused, SourceBroken, TooManyDeletes
from cpreplicate.operations.handover import promote
from cpreplicate.operations.sync import sync
from cpreplicate.operations.sync.diff import check, diff
from cpreplicate.operations.sync.report import Report
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.operations.upkeep import relocate, sweep
from cpreplicate.runners import ExecutionOptions
from tests.support import checker
from tests.support.jobs import JOB, write_checkpoint

HOUR = 3600
BEGAN = 20_000 * 24 * HOUR  # midnight of a day
HOURLY = Retention(hourly=3)


@pytest.fixture
def replica(tmp_path):
    return tmp_path / "dcB" / JOB


def complete(tmp_path, number, hours):
    """Have the job complete a checkpoint so many hours after it began. Return what syncs it."""
    files = {f"shared/{n}": 40 for n in range(number, number + 5)} | {f"chk-{number}/x": 10}
    directory = write_checkpoint(tmp_path / "dcA", number, files)
    os.utime(directory / "_metadata", (BEGAN + hours * HOUR,) * 2)

    def request(keep=None, **options):
        return SyncRequest(
            f"file:{directory}",
            f"file:{tmp_path}/dcB",
            keep=keep,
            execution=ExecutionOptions(runner="inline"),
            **options,
        )

    return request


def run(request):
    return sync.sync(request, lambda _line: None)


def held(replica):
    return sorted(each.parent.name for each in replica.glob("chk-*/_metadata"))


@pytest.mark.parametrize("pack", ["off", "on"])
def test_the_last_checkpoint_of_each_hour_is_kept_whole(tmp_path, replica, pack):
    for number, hours in enumerate((0.1, 0.9, 1.2, 1.8, 9.3), start=1):
        report = run(complete(tmp_path, number, hours)(HOURLY, packing=PackOptions(pack, 1000)))
        assert report.committed
    assert held(replica) == ["chk-2", "chk-4", "chk-5"]
    assert checker.faults(replica) == []


def test_a_retention_is_applied_without_a_new_checkpoint_and_then_nothing_is_left_to_do(
    tmp_path, replica
):
    for number, hours in enumerate((0.1, 1.1, 2.1), start=1):
        request = complete(tmp_path, number, hours)
        run(request(HOURLY))
    assert diff(request(HOURLY)).plan.empty
    less = request(Retention(within=1.5 * HOUR), keep_less=True)
    assert diff(less).plan.dropped == ("chk-1",)
    run(request(Retention(hourly=2), keep_less=True))
    assert held(replica) == ["chk-2", "chk-3"]
    assert diff(request(Retention(hourly=2))).plan.empty


def test_a_checkpoint_whose_time_version_0_2_0_did_not_record_is_kept_as_an_hour_of_its_own(
    tmp_path, replica
):
    for number in (1, 2, 3):
        run(complete(tmp_path, number, number / 10)(9))
    for number in (1, 2):
        record = replica / ".cpreplicate" / f"chk-{number}.json"
        fields = json.loads(record.read_text())
        del fields["completed"]
        record.write_text(json.dumps(fields))
    run(complete(tmp_path, 4, 0.5)(HOURLY, keep_less=True))
    assert held(replica) == ["chk-1", "chk-2", "chk-4"]
    run(complete(tmp_path, 5, 1.5)(HOURLY))
    assert held(replica) == ["chk-2", "chk-4", "chk-5"]


DAILY = Retention(daily=30)
DAYS = 24
FLEET = StatedBy("cpreplicate fleet", "flink", "a", "/etc/fleet.toml")


def daily(tmp_path, count=7, by=FLEET):
    """A replica with a point of each of the last days, which the file of a fleet keeps."""
    for number in range(1, count + 1):
        request = complete(tmp_path, number, number * DAYS)
        run(request(DAILY, stated_by=by))
    return request


def planned(refused):
    assert isinstance(refused.report, Report)
    return refused.report.plan


def names(numbers):
    return [f"chk-{number}" for number in numbers]


def contents(replica):
    """All files of a replica, with what they hold."""
    return {path: path.read_bytes() for path in replica.rglob("*") if path.is_file()}


def test_a_run_that_states_no_policy_keeps_by_the_recorded_one(tmp_path, replica):
    request = daily(tmp_path)
    before = contents(replica)
    assert run(request()).plan.empty
    assert contents(replica) == before
    later = complete(tmp_path, 8, 8 * DAYS)
    assert diff(later()).plan.dropped == ()
    assert run(later()).committed
    assert held(replica) == names(range(1, 9))


def test_a_replica_without_a_record_keeps_the_newest_if_no_policy_is_stated(tmp_path, replica):
    request = daily(tmp_path)
    (replica / ".cpreplicate" / "retention.json").unlink()  # as of an earlier release
    report = run(request())
    assert report.plan.dropped == tuple(names(range(1, 7)))
    assert held(replica) == ["chk-7"]
    assert not (replica / ".cpreplicate" / "retention.json").exists()


@pytest.mark.parametrize("keep", [1, 5, Retention(), Retention(6, within=9 * HOUR, hourly=2)])
@pytest.mark.parametrize("is_newer", [False, True])
def test_to_keep_less_is_refused_before_the_first_write_and_names_what_would_go(
    tmp_path, replica, keep, is_newer
):
    request = daily(tmp_path)
    request = complete(tmp_path, 8, 8 * DAYS) if is_newer else request
    before = contents(replica)
    for refused in (run, diff, check):
        with pytest.raises(KeepsLess) as raised:
            refused(request(keep))
        message, plan = str(raised.value), planned(raised.value)
        assert f"{Retention.of(keep)} keeps less" in message
        assert (
            "--keep-daily 30, stated by /etc/fleet.toml, read by `cpreplicate fleet` on a at 20"
            in message
        )
        assert "--keep-less" in message
        assert "Leave out the --keep options" in message
        assert plan.dropped
        for withdrawal in plan.withdrawals:
            assert f"{withdrawal.checkpoint} (completed 2024-10-" in message
    assert contents(replica) == before


def test_less_is_refused_also_before_there_is_a_point_that_goes(tmp_path, replica):
    request = daily(tmp_path, count=1)
    with pytest.raises(KeepsLess, match="No checkpoint goes yet"):
        run(request(Retention()))
    assert held(replica) == ["chk-1"]


def test_keep_less_withdraws_and_records_the_new_policy(tmp_path, replica):
    request = daily(tmp_path)
    assert diff(request(2, keep_less=True)).plan.dropped == tuple(names(range(1, 6)))
    run(request(2, keep_less=True))
    assert held(replica) == names([6, 7])
    assert run(request()).plan.empty
    run(complete(tmp_path, 8, 8 * DAYS)())
    assert held(replica) == names([7, 8])


def test_the_same_file_may_state_less_and_another_host_may_not(tmp_path, replica):
    request = daily(tmp_path)
    with pytest.raises(KeepsLess):
        run(request(2, stated_by=FLEET._replace(host="b")))
    run(request(2, stated_by=FLEET._replace(user="root")))
    assert held(replica) == names([6, 7])


def test_more_is_kept_at_once_and_recorded_by_a_run_with_nothing_to_copy(tmp_path, replica):
    request = daily(tmp_path)
    both = Retention(9, daily=30)
    report = run(request(both))
    assert (report.plan.empty, report.committed) == (True, False)
    assert run(request()).plan.policy.recorded.retention == both
    with pytest.raises(KeepsLess):  # the file did not state that
        run(request(DAILY, stated_by=FLEET))
    assert held(replica) == names(range(1, 8))


def test_a_policy_that_changes_and_changes_back_keeps_what_was_left(tmp_path, replica):
    request = daily(tmp_path)
    run(request(3, stated_by=FLEET))
    run(request(DAILY, stated_by=FLEET))  # less of --keep, by the same file
    assert held(replica) == names([5, 6, 7])
    for number in (8, 9):
        run(complete(tmp_path, number, number * DAYS)())
    assert held(replica) == names([5, 6, 7, 8, 9])


def test_what_is_recorded_already_is_nothing_to_do(tmp_path, replica):
    request = daily(tmp_path)
    before = contents(replica)
    for by in (FLEET, FLEET._replace(path="/other.toml"), FLEET._replace(path=None)):
        assert run(request(DAILY, stated_by=by)).plan.empty
    assert contents(replica) == before


def test_a_damaged_record_ends_a_sync_until_a_policy_is_stated_with_keep_less(tmp_path, replica):
    request = daily(tmp_path)
    record = replica / ".cpreplicate" / "retention.json"
    record.write_bytes(b"{")
    before = contents(replica)
    for refused in (run, diff, check):
        for words in ({}, {"keep": DAILY}, {"keep_less": True}):
            with pytest.raises(Refused, match=r"retention.json is damaged"):
                refused(request(**words))
    assert contents(replica) == before
    run(request(DAILY, keep_less=True))
    assert held(replica) == names(range(1, 8))
    assert run(request()).plan.empty


def test_a_policy_is_recorded_by_the_first_sync_of_a_replica(tmp_path, replica):
    request = complete(tmp_path, 1, 1)
    run(request(DAILY))
    assert json.loads((replica / ".cpreplicate" / "retention.json").read_bytes())["daily"] == 30
    other = complete(tmp_path / "other", 1, 1)
    run(other())
    assert not (tmp_path / "other/dcB" / JOB / ".cpreplicate/retention.json").exists()


def test_a_run_that_takes_over_a_restarted_count_names_what_it_withdraws(tmp_path):
    daily(tmp_path, count=3)
    for number in (2, 3):
        (tmp_path / "dcA" / JOB / f"chk-{number}" / "_metadata").unlink()
    request = complete(tmp_path, 1, 4 * DAYS)
    report = run(request(allow_older=True))
    assert report.plan.dropped == ("chk-2", "chk-3")
    assert {each.action.reason for each in report.plan.withdrawals} == {
        "the job counts its checkpoints anew"
    }


@pytest.fixture
def restarted(tmp_path):
    """The replica holds chk-1 to chk-3; the job has come to another chk-3 in its next life."""
    daily(tmp_path, count=3)
    return of_next_life(tmp_path, 3)


def of_next_life(tmp_path, number):
    """Have a job that was started from scratch complete a checkpoint of a number again."""
    for each in (tmp_path / "dcA" / JOB).glob("chk-*/_metadata"):
        each.unlink()
    request = complete(tmp_path, number, (10 + number) * DAYS)
    metadata = tmp_path / "dcA" / JOB / f"chk-{number}" / "_metadata"
    write_checkpoint(tmp_path / "dcA", number, {f"chk-{number}/again": 20})
    os.utime(metadata, (BEGAN + (10 + number) * DAYS * HOUR,) * 2)
    return request


def test_a_point_is_not_replaced_unasked_by_one_of_the_next_life_with_its_number(
    replica, restarted
):
    before = contents(replica)
    for refused in (run, diff, check):
        with pytest.raises(
            NotNewer, match=r"holds another chk-3 than .* withdraws the former chk-"
        ):
            refused(restarted())
    assert contents(replica) == before


@pytest.mark.parametrize("pack", ["off", "on"])
def test_a_point_that_one_of_the_next_life_replaces_is_named_and_counted(
    tmp_path, replica, restarted, pack
):
    options = {"allow_older": True, "packing": PackOptions(pack, 1000)}
    with pytest.raises(TooManyDeletes, match=r"and 1 of 3 checkpoints of .* are chk-3 .completed"):
        run(restarted(max_delete=Cap(0), **options))
    assert check(restarted(**options)).withdrawals == diff(restarted(**options)).plan.withdrawals
    (withdrawn,) = run(restarted(**options)).plan.withdrawals
    assert withdrawn[:2] == ("chk-3", BEGAN + 3 * DAYS * HOUR)
    assert withdrawn.action.reason == "the job counts its checkpoints anew"
    assert held(replica) == ["chk-1", "chk-2", "chk-3"]
    assert checker.faults(replica) == []
    assert run(restarted()).plan.empty
    assert run(of_next_life(tmp_path, 4)()).plan.withdrawals == ()


def test_the_newest_of_a_former_life_that_the_policy_does_not_keep_goes_and_is_named(
    tmp_path, replica
):
    run(complete(tmp_path, 1, 1)())
    request = of_next_life(tmp_path, 1)
    with pytest.raises(TooManyDeletes, match=r"The checkpoints are chk-1 .completed"):
        run(request(max_delete=Cap(0)))
    assert [each.checkpoint for each in run(request()).plan.withdrawals] == ["chk-1"]
    assert checker.faults(replica) == []


def test_a_point_is_none_of_the_next_life_where_a_run_died_before_it_had_replaced_it(
    replica, restarted
):
    record = replica / ".cpreplicate" / "chk-3.json"
    fields = json.loads(record.read_text())
    fields["digests"].append([1, 1])
    fields["completed"] = diff(restarted(allow_older=True)).completed
    record.write_text(json.dumps(fields))
    more = Retention(5, daily=30)
    with pytest.raises(NotNewer):
        run(restarted(more))
    assert run(restarted(more, allow_older=True)).plan.withdrawals[0].checkpoint == "chk-3"


def test_an_older_number_that_the_next_life_replaces_is_named_with_those_above(tmp_path):
    daily(tmp_path, count=3)
    request = of_next_life(tmp_path, 2)
    with pytest.raises(NotNewer, match=r"the former chk-2 and the checkpoints .* numbers: chk-3$"):
        run(request())
    found = run(request(allow_older=True)).plan
    assert [each.checkpoint for each in found.withdrawals] == ["chk-2", "chk-3"]


def test_a_job_of_a_next_life_is_followed_from_the_first_number_that_is_not_held(
    tmp_path, replica, restarted
):
    for _ in range(2):
        with pytest.raises(NotNewer):
            run(restarted())
    run(of_next_life(tmp_path, 4)())
    assert held(replica) == ["chk-1", "chk-2", "chk-3", "chk-4"]


@pytest.mark.parametrize("pack", ["off", "on"])
@pytest.mark.parametrize("paths", ["relative", "absolute"])
def test_a_checkpoint_whose_source_was_dated_anew_is_the_one_that_is_held(tmp_path, pack, paths):
    if (pack, paths) == ("on", "relative"):
        pack = "auto"
    run(complete(tmp_path, 1, 1)(packing=PackOptions(pack, 1000), paths=paths))
    again = complete(tmp_path, 1, 5)
    assert run(again(packing=PackOptions(pack, 1000), paths=paths)).plan.empty
    other = {"relative": "absolute", "absolute": "relative"}[paths]
    if pack == "off":
        report = run(again(packing=PackOptions(pack, 1000), paths=other))
        assert report.committed
        assert report.plan.withdrawals == ()


def test_a_checkpoint_of_another_spelling_is_the_one_that_is_held_if_it_was_completed_then(
    tmp_path, replica
):
    request = complete(tmp_path, 1, 1)
    run(request())
    relocate.relocate(relocate.RelocateRequest(f"file:{replica}", "absolute"), lambda _line: None)
    record = replica / ".cpreplicate" / "chk-1.json"
    assert run(request()).plan.withdrawals == ()
    assert json.loads(record.read_text())["completed"] == BEGAN + HOUR


def inline(tmp_path, number):
    """Have a job of small state complete a checkpoint, which has no other file."""
    directory = write_checkpoint(tmp_path / "dcA", number, {})
    os.utime(directory / "_metadata", (BEGAN + number * DAYS * HOUR,) * 2)
    return lambda **options: SyncRequest(
        f"file:{directory}",
        f"file:{tmp_path}/dcB",
        execution=ExecutionOptions(runner="inline"),
        **options,
    )


@pytest.mark.parametrize(
    ("cap", "is_allowed"),
    [
        (Cap(0), False),
        (Cap(5), False),
        (Cap(6), True),
        (Cap(0.8, is_share=True), False),
        (Cap(0.9, is_share=True), True),
        (None, True),
    ],
)
def test_the_cap_of_deletes_counts_checkpoints_that_are_withdrawn(
    tmp_path, replica, cap, is_allowed
):
    for number in range(1, 8):
        run(inline(tmp_path, number)(keep=DAILY))
    request = inline(tmp_path, 7)(keep=1, keep_less=True, max_delete=cap)
    if is_allowed:
        assert diff(request).plan.dropped == tuple(names(range(1, 7)))
        run(request)
        assert held(replica) == ["chk-7"]
        return
    for refused in (run, diff):
        with pytest.raises(
            TooManyDeletes, match=r"0 of \d+ files and 6 of 7 checkpoints"
        ) as raised:
            refused(request)
        assert "chk-6 (completed 2024-10-" in str(raised.value)
    assert held(replica) == names(range(1, 8))


def test_a_failed_run_withdraws_nothing(tmp_path, replica):
    daily(tmp_path)
    request = complete(tmp_path, 8, 8 * DAYS)
    lost = tmp_path / "dcA" / JOB / "chk-8" / "x"
    lost.unlink()
    with pytest.raises(SourceBroken):
        run(request(1, keep_less=True))
    assert held(replica) == names(range(1, 8))


@pytest.mark.parametrize(
    "upkeep",
    [
        lambda replica: sweep.sweep(sweep.SweepRequest(f"file:{replica}"), silent),
        lambda replica: relocate.relocate(
            relocate.RelocateRequest(f"file:{replica}", "absolute"), silent
        ),
        lambda replica: relocate.relocate(
            relocate.RelocateRequest(f"file:{replica}", unpack=True), silent
        ),
        lambda replica: promote.promote(promote.PromoteRequest(f"file:{replica}"), silent),
    ],
    ids=["sweep", "relocate", "unpack", "promote"],
)
def test_upkeep_keeps_the_recorded_policy_and_the_points_as_they_are(tmp_path, replica, upkeep):
    daily(tmp_path, count=3)
    record = replica / ".cpreplicate" / "retention.json"
    before = record.read_bytes()
    upkeep(replica)
    assert record.read_bytes() == before
    assert held(replica) == names([1, 2, 3])


def silent(_line):
    """Report to nobody."""
