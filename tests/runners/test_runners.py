"""What runners promise, by every runner that there is."""

import gc
import shutil
import subprocess
import sys
import threading
import time
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpreplicate.errors import CpreplicateError
from cpreplicate.runners import Copy, Delete, Read, choose_runner
from cpreplicate.runners.inline import InlineRunner
from cpreplicate.runners.spark import SparkRunner
from cpreplicate.runners.work import batches, cost
from cpreplicate.storage import Site, Sites, checksum
from cpreplicate.storage.limits import new_limits

pytestmark = pytest.mark.xdist_group("spark")

FILES = 40


def failures(outcomes):
    return {outcome.target: outcome.error for outcome in outcomes if outcome.error is not None}


def test_spark_tries_a_failed_batch_again(copies, tmp_path):
    blocked = tmp_path / "target" / "3"
    with SparkRunner(Sites(), "local[2,40]") as runner:
        runner.run(copies[:1])
        (blocked / "in the way").mkdir(parents=True)
        timer = threading.Timer(1.0, lambda: shutil.rmtree(blocked))
        timer.start()
        outcomes = runner.run(copies)
        timer.join()
    assert failures(outcomes) == {}
    assert {outcome.target: outcome.bytes for outcome in outcomes} == {copy.target: copy.extent for copy in copies}


@pytest.fixture
def copies(tmp_path):
    (tmp_path / "source").mkdir()
    for number in range(FILES):
        (tmp_path / "source" / f"{number}").write_bytes(b"x" * number * 1000)
    root = f"file:{tmp_path}"
    return [Copy(f"{root}/source/{number}", f"{root}/target/{number}", number * 1000) for number in range(FILES)]


@pytest.fixture(scope="class", params=["inline", "local[2,3]", "local[2]", "local-cluster[2,1,1024]"])
def runner(request):
    """Ends with the class that uses it: one process has one Spark context at a time."""
    made = InlineRunner(Sites(), 4) if request.param == "inline" else SparkRunner(Sites(), request.param)
    with made as runner:
        yield runner


class TestEveryRunner:
    def test_every_file_is_copied_read_and_deleted_and_told_as_a_row(self, runner, copies):
        copied = {outcome.target: outcome for outcome in runner.run(copies)}
        assert failures(copied.values()) == {}
        assert {target: row.bytes for target, row in copied.items()} == {copy.target: copy.extent for copy in copies}
        read = runner.run([Read(copy.target, copy.extent) for copy in copies])
        assert {row.target: row.crc32c for row in read} == {target: row.crc32c for target, row in copied.items()}
        assert copied[copies[7].target].crc32c == checksum(copies[7].source, Site()).crc32c
        deleted = runner.run([Delete(copy.target) for copy in copies])
        assert failures(deleted) == {}
        assert len(runner.run([Delete(copy.target) for copy in copies])) == FILES

    def test_one_file_that_fails_is_told_and_the_others_are_copied(self, runner, copies, tmp_path):
        (tmp_path / "target" / "3" / "in the way").mkdir(parents=True)
        outcomes = runner.run(copies)
        assert list(failures(outcomes)) == [copies[3].target]
        assert "irectory" in failures(outcomes)[copies[3].target]
        assert len(list((tmp_path / "target").iterdir())) == FILES

    def test_a_file_missing_at_the_source_is_told_as_such(self, runner, copies, tmp_path):
        (tmp_path / "source" / "5").unlink()
        missing = [outcome.target for outcome in runner.run(copies) if outcome.missing]
        assert missing == [copies[5].target]


def test_a_passing_fault_is_overcome_by_trying_again(copies, tmp_path):
    """The file cannot be put while a directory is in its place, which goes a moment later."""
    blocked = tmp_path / "target" / "3"
    (blocked / "in the way").mkdir(parents=True)
    timer = threading.Timer(0.1, lambda: shutil.rmtree(blocked))
    timer.start()
    with InlineRunner(Sites(), 4) as runner:
        assert failures(runner.run(copies)) == {}
    timer.join()


@given(st.lists(st.integers(0, 1 << 34), max_size=300), st.integers(1, 32))
def test_batches_hold_every_action_once_balanced_and_largest_first(sizes, slots):
    actions = [Copy("s", f"t{number}", size) for number, size in enumerate(sizes)]
    packed = batches(actions, slots)
    assert sorted(action for batch in packed for action in batch) == sorted(actions)
    loads = [sum(map(cost, batch)) for batch in packed]
    assert loads == sorted(loads, reverse=True)
    assert all(packed)
    if actions:
        assert len(packed) == min(len(actions), 4 * slots)
        assert loads[0] - loads[-1] <= max(map(cost, actions))


def test_a_huge_file_is_a_batch_of_its_own():
    actions = [Copy("s", "huge", 1 << 40), *(Copy("s", f"t{n}", 1 << 20) for n in range(100))]
    assert batches(actions, slots=2)[0] == (actions[0],)


def test_a_great_many_files_make_more_batches():
    assert max(map(len, batches([Delete(f"t{n}") for n in range(50_000)], slots=1))) <= 2000


def test_auto_starts_no_spark_for_little_and_spark_for_more():
    little = choose_runner("auto", 10, 1 << 20, Sites(), None, None)
    assert little.name == "inline"
    assert "not worth" in little.reason
    assert choose_runner("auto", 10_000, 1 << 20, Sites(), None, None).name == "spark"
    assert choose_runner("auto", 10, 1 << 30, Sites(), None, None).name == "spark"


def test_little_to_do_imports_no_pyspark():
    code = (
        "import sys; from cpreplicate.runners import choose_runner as c; from cpreplicate.storage import Sites; "
        "c('auto', 1, 1, Sites(), None, None); print('pyspark' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_where_java_is_missing_the_error_says_so_before_anything_is_done(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(CpreplicateError, match="Java 17"):
        SparkRunner(Sites())


def test_spark_says_nothing_of_its_own(copies):
    code = (
        "from cpreplicate.runners.spark import SparkRunner; from cpreplicate.runners import Copy\n"
        "from cpreplicate.storage import Sites\n"
        f"with SparkRunner(Sites(), 'local[2]') as r: r.run([Copy({copies[1].source!r}, {copies[1].target!r}, 1)])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")


def test_a_master_that_cannot_be_reached_is_one_clear_error(copies):
    started = time.monotonic()
    assert "Spark did not start" in refusal_of("nonsense://x", copies)
    assert time.monotonic() - started < 60
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # pyspark leaves the pipe of a JVM open that ended at its start
        gc.collect()


def refusal_of(master, copies):
    with pytest.raises(CpreplicateError) as raised, SparkRunner(Sites(), master) as runner:
        runner.run(copies)
    return str(raised.value)


def test_the_bytes_of_all_executors_together_stay_below_their_limit(tmp_path):
    rate, size, files = 2_000_000, 50_000, 80
    source = tmp_path / "source"
    source.write_bytes(bytes(size))
    limits = new_limits(None, rate)
    sites = Sites(Site(limits=limits), Site(limits=limits))
    with SparkRunner(sites, "local[2]") as runner:
        runner.run([Copy(f"file:{source}", f"file:{tmp_path}/warm", size)])
        started = time.monotonic()
        outcomes = runner.run([Copy(f"file:{source}", f"file:{tmp_path}/{number}", size) for number in range(files)])
        took = time.monotonic() - started
    assert [outcome.error for outcome in outcomes] == [None] * files
    assert took >= 0.95 * (files * size / rate - 0.1)
