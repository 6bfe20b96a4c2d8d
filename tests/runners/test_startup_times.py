"""Startup times of Spark that are kept on this host."""

import json

import pytest

from cpreplicate.runners import startup_times


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "cpreplicate" / "spark-start.json"


def test_each_master_has_its_own_time_and_a_damaged_note_of_them_counts_as_none(cache):
    startup_times.record("yarn", 20.0)
    startup_times.record("local[2]", 5.0)
    assert startup_times.seconds("local[*,4]") == (5.0, True)
    assert json.loads(cache.read_text()) == {"yarn": 20.0, "local": 5.0}
    cache.write_text("[1")
    assert startup_times.seconds("local[2]") == (startup_times.DEFAULT_SECONDS, False)


@pytest.mark.parametrize("master", ["yarn", "spark://driver:7077", "local[2]"])
def test_a_wait_for_a_full_cluster_is_not_taken_for_a_start_for_ever(master):
    """With that, `auto` would start no session again, and not learn that there are free slots."""
    start, _ = startup_times.seconds(master)
    startup_times.record(master, 540.0)  # as earlier versions did, too
    recorded, _ = startup_times.seconds(master)
    assert recorded == pytest.approx(3 * start)
