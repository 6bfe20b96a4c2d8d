"""Rates of earlier runs, as they are kept on this host."""

import json
import threading

import pytest

from cpreplicate.runners import rates
from cpreplicate.runners.rates import Recorded

A, B = "hdfs://dcA:8020/flink/job", "hdfs://dcB/flink/replicas/job"


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "cpreplicate" / "rates.json"


def test_rates_hold_for_the_filesystems_of_a_pair_and_for_a_kind_of_runner():
    rates.record(A, B, "inline", [("files", 200.0), ("fixed", 2.0)])
    rates.record("hdfs://dcA:8020/other", B, "inline", [("files", 300.0)])
    samples = {"files": (200.0, 300.0), "fixed": (2.0,)}
    assert rates.recorded(A, B, "inline") == Recorded(2, samples)
    assert rates.recorded(A, B, "spark local") == Recorded()
    assert rates.recorded(B, A, "inline") == Recorded()


def test_the_last_few_values_of_a_rate_are_kept():
    for number in range(1, 20):
        rates.record(A, B, "inline", [("files", float(number))])
    runs, samples = rates.recorded(A, B, "inline")
    assert runs == 19
    assert samples["files"] == tuple(map(float, range(20 - rates.KEPT, 20)))


def test_no_name_of_a_user_and_no_path_is_written_to_the_cache(cache):
    rates.record("sftp://user:secret@host:22/path", B, "inline", [("files", 1.0)])
    assert "sftp://host:22 hdfs://dcB" in cache.read_text()
    assert not any(word in cache.read_text() for word in ("user", "secret", "path", "flink"))


def test_the_pairs_that_were_used_longest_ago_are_dropped():
    for number in range(rates.PAIRS + 5):
        rates.record(f"hdfs://a{number}/x", B, "inline", [("files", 1.0)])
        rates.record("hdfs://a0/x", B, "inline", [("files", 1.0)])
    assert rates.recorded("hdfs://a0/x", B, "inline").runs > 1
    assert rates.recorded("hdfs://a1/x", B, "inline") == Recorded()
    assert rates.recorded(f"hdfs://a{rates.PAIRS + 4}/x", B, "inline").runs == 1


def record_of(samples, runs=1):
    pairs = {"hdfs://dcA:8020 hdfs://dcB": {"inline": {"runs": runs, "samples": samples}}}
    return {"version": 1, "pairs": pairs}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[" * 100_000,
        b"[]",
        b'{"version": 1, "pairs": []}',
        b'{"version": 1, "pairs": {"hdfs://dcA:8020 hdfs://dcB": 3}}',
        b'{"version": 1, "pairs": {"hdfs://dcA:8020 hdfs://dcB": {"inline": []}}}',
        json.dumps({**record_of({"files": [1.0]}), "version": 2}).encode(),
    ],
)
@pytest.mark.usefixtures("no_collection")
def test_a_cache_that_is_damaged_or_of_another_version_counts_as_none(cache, content):
    cache.parent.mkdir()
    cache.write_bytes(content)
    assert rates.recorded(A, B, "inline") == Recorded()
    rates.record(A, B, "inline", [("files", 5.0)])
    assert rates.recorded(A, B, "inline") == Recorded(1, {"files": (5.0,)})


def test_values_that_are_no_rates_are_left_out(cache):
    cache.parent.mkdir()
    wrong: list[object] = [0.0, -1.0, float("nan"), float("inf"), None, "7", True, [], 10**400]
    samples = {"files": [*wrong, 7.5], "fixed": [0.0, -1.0], "wait": [9.0], "colour": [1.0]}
    cache.write_text(json.dumps(record_of(samples, runs="many")))
    assert rates.recorded(A, B, "inline") == Recorded(1, {"files": (7.5,), "fixed": (0.0,)})


def test_a_cache_that_cannot_be_written_fails_nothing(cache):
    cache.parent.write_text("a file where the directory would be")
    rates.record(A, B, "inline", [("files", 5.0)])
    assert rates.recorded(A, B, "inline") == Recorded()


def test_writers_at_the_same_time_leave_a_whole_file_and_no_other(cache):
    def write(number):
        for _ in range(30):
            rates.record(f"hdfs://a{number}/x", B, "inline", [("files", 1.0)])
            json.loads(cache.read_text())

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert json.loads(cache.read_text())["version"] == 1
    assert list(cache.parent.iterdir()) == [cache]
