"""Checkpoints that no storage dates, as of a backup that was unpacked without times."""

import json
import os

import pytest

from tests.support.commandline import run
from tests.support.jobs import JOB, write_checkpoint
from tests.support.replicas import FILES, NEXT

TEN = {"shared/h": 800, "chk-10/x": 5}


@pytest.fixture(params=[0, -1])
def undated(tmp_path, request):
    def undated():
        for place in (tmp_path / "dcA").rglob("*"):
            os.utime(place, (request.param, request.param))

    for number, files in ((2, NEXT), (9, NEXT), (10, TEN)):
        write_checkpoint(tmp_path / "dcA", number, files)
    undated()
    return tmp_path


def test_the_highest_number_is_the_newest_for_each_command(undated):
    source, root = undated / "dcA" / JOB, undated / "dcB"
    assert "chk-10" in run("diff", source, root).out
    assert "chk-10" in run("inspect", source).out
    assert run("doctor", source, root).code == 0
    assert run("sync", source, root, "--runner", "inline").code == 0
    assert run("sync", source, root, "--runner", "inline").code == 0
    assert (root / JOB / "chk-10" / "_metadata").exists()
    (row,) = json.loads(run("status", root, "--output", "json").out)["replicas"]
    assert (row["checkpoint"], row["source_checkpoint_id"]) == ("chk-10", 10)
    assert (row["lag_seconds"], row["ready"]) == (0, True)
    assert run("verify", root / JOB).code == 0
    (listed,) = json.loads(run("list", root, "--output", "json").out)["replicas"]
    assert [(each["checkpoint"], each["completed"]) for each in listed["points"]] == [
        ("chk-10", None)
    ]


def test_an_undated_replica_that_is_behind_has_no_age(undated):
    source, root = undated / "dcA" / JOB, undated / "dcB"
    run("sync", source, root, "--runner", "inline")
    os.utime(root / JOB / "chk-10" / "_metadata", (0, 0))
    write_checkpoint(undated / "dcA", 11, FILES)
    os.utime(undated / "dcA" / JOB / "chk-11" / "_metadata", (0, 0))
    (row,) = json.loads(run("status", root, "--output", "json").out)["replicas"]
    assert (row["source_checkpoint_id"], row["age_seconds"], row["lag_seconds"]) == (11, None, None)
    assert run("status", root).code == 0
    assert run("promote", root / JOB).code == 0
