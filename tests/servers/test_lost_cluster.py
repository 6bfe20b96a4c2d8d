"""A cluster of Spark that is gone ends a run in time: with exit 7, and without its lease."""

import contextlib

import pytest

from tests.support import checker
from tests.support.jobs import JOB, write_checkpoint
from tests.support.killing import started
from tests.support.standalone import EXECUTORS_ONLY, QUICKLY, StandaloneCluster
from tests.support.waiting import wait_until

pytestmark = pytest.mark.xdist_group("spark-cluster")

FILES = {f"shared/{number:04}": 20_000 + number for number in range(300)}
VERY_SLOWLY = ("--bandwidth", "100KB/s")  # a minute
SOON = ("--engine-timeout", "4s")
# On a busy machine the first executor comes later than that, or answers later.
TIMEOUTS = ("4s", "30s", "200s", "1200s")


@pytest.mark.rest
def test_a_master_that_is_lost_with_its_workers_ends_a_run_which_gives_its_lease_back(
    tmp_path, monkeypatch
):
    checkpoint, shared = write_checkpoint(tmp_path / "dcA", 1, FILES), copied(tmp_path)
    places = (checkpoint, tmp_path / "dcB")
    for timeout in TIMEOUTS:
        with started_cluster(tmp_path / f"standalone-{timeout}", monkeypatch) as cluster:
            words = ("--runner", "spark", "--master", cluster.master, *EXECUTORS_ONLY, *VERY_SLOWLY)
            with started("sync", *places, *words, "--engine-timeout", timeout) as sync:
                has_ended = ends_before_further_files(sync, shared)
                cluster.close()
                assert sync.ended() == 7, sync.messages()
                messages = sync.messages()
        if not has_ended and "has answered for as long as" in messages:
            break
    assert f"{cluster.master}: no executor of Spark has answered for as long as" in messages
    assert "Traceback" not in messages
    assert not (tmp_path / "dcB" / JOB / ".cpreplicate" / "lease").exists()
    assert not list((tmp_path / "dcB" / JOB).glob("chk-*/_metadata"))
    with started("sync", *places, "--runner", "inline") as again:
        assert again.ended() == 0, again.messages()
    assert checker.faults(tmp_path / "dcB" / JOB) == []


def test_a_master_that_never_answered_is_named_and_leaves_no_lease(tmp_path):
    checkpoint = write_checkpoint(tmp_path / "dcA", 1, FILES)
    words = ("--runner", "spark", "--master", "spark://127.0.0.1:1", *EXECUTORS_ONLY, *SOON)
    with started("sync", checkpoint, tmp_path / "dcB", *words) as sync:
        assert sync.ended() == 7, sync.messages()
        messages = sync.messages()
    assert "spark://127.0.0.1:1: no Spark master has answered for 4 s" in messages
    assert not (tmp_path / "dcB" / JOB / ".cpreplicate" / "lease").exists()


@contextlib.contextmanager
def started_cluster(directory, monkeypatch):
    with StandaloneCluster(directory) as cluster:
        for name, value in {**cluster.environment, **QUICKLY}.items():
            monkeypatch.setenv(name, value)
        yield cluster


def ends_before_further_files(sync, shared):
    before = len(whole(shared))
    wait_until(lambda: sync.code is not None or len(whole(shared)) > before + 5)
    return sync.code is not None


def copied(tmp_path):
    return tmp_path / "dcB" / JOB / "shared"


def whole(shared):
    """The files that are whole at the target."""
    return [each for each in shared.iterdir() if each.name[0] != "."] if shared.is_dir() else []
