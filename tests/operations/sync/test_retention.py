"""Points in time that a replica keeps, by when they were completed at the source."""

import json
import os

import pytest

from cpreplicate.core.packs import PackOptions
from cpreplicate.core.retention import Retention
from cpreplicate.operations.sync import sync
from cpreplicate.operations.sync.diff import diff
from cpreplicate.operations.sync.request import SyncRequest
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

    def request(keep, **options):
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
    assert diff(request(Retention(within=1.5 * HOUR))).plan.dropped == ("chk-1",)
    run(request(Retention(hourly=2)))
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
    run(complete(tmp_path, 4, 0.5)(HOURLY))
    assert held(replica) == ["chk-1", "chk-2", "chk-4"]
    run(complete(tmp_path, 5, 1.5)(HOURLY))
    assert held(replica) == ["chk-2", "chk-4", "chk-5"]
