"""What runners promise, by every runner that there is."""

import gc
import re
import shutil
import subprocess
import sys
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from pathlib import Path
from types import SimpleNamespace

import pytest

from cpreplicate.errors import CpreplicateError
from cpreplicate.runners import Copy, Delete, ExecutionOptions, Read, Wanted, dropping, inline
from cpreplicate.runners.inline import InlineRunner
from cpreplicate.runners.options import COPIES_IN_DRIVER
from cpreplicate.runners.spark import executors
from cpreplicate.runners.spark.runner import SparkRunner
from cpreplicate.storage import Side, Sides, checksum
from cpreplicate.storage.wrappers.limits import new_limits
from tests.support.waiting import PATIENCE, wait_until

pytestmark = pytest.mark.xdist_group("spark")

FILES = 40


def failures(outcomes):
    return {outcome.target: outcome.error for outcome in outcomes if outcome.error is not None}


def test_spark_tries_a_failed_batch_again(copies, tmp_path):
    blocked = tmp_path / "target" / "3"
    tries = 100_000  # more than Spark can make until the directory is gone
    with SparkRunner(Sides(), ExecutionOptions(master=f"local[2,{tries}]")) as runner:
        runner.run(copies[:1])
        (blocked / "in the way").mkdir(parents=True)
        timer = threading.Timer(1.0, lambda: shutil.rmtree(blocked))
        timer.start()
        outcomes = runner.run(copies)
        timer.join()
    assert failures(outcomes) == {}
    assert {outcome.target: outcome.bytes for outcome in outcomes} == {
        copy.target: copy.extent for copy in copies
    }


@pytest.fixture
def copies(tmp_path):
    (tmp_path / "source").mkdir()
    for number in range(FILES):
        (tmp_path / "source" / f"{number}").write_bytes(b"x" * number * 1000)
    root = f"file:{tmp_path}"
    return [
        Copy(f"{root}/source/{number}", f"{root}/target/{number}", number * 1000)
        for number in range(FILES)
    ]


@pytest.fixture(scope="class", params=["inline", "local[2,3]"])
def runner(request):
    """Ends with the class that uses it: one process has one Spark context at a time."""
    made = (
        InlineRunner(Sides(), ExecutionOptions(parallelism=4))
        if request.param == "inline"
        else SparkRunner(Sides(), ExecutionOptions(master=request.param))
    )
    with made as runner:
        yield runner


class TestEveryRunner:
    def test_every_file_is_copied_read_and_deleted_and_reported_as_a_row(self, runner, copies):
        copied = {outcome.target: outcome for outcome in runner.run(copies)}
        assert failures(copied.values()) == {}
        assert {target: row.bytes for target, row in copied.items()} == {
            copy.target: copy.extent for copy in copies
        }
        read = runner.run([Read(copy.target, copy.extent) for copy in copies])
        assert {row.target: row.crc32c for row in read} == {
            target: row.crc32c for target, row in copied.items()
        }
        assert copied[copies[7].target].crc32c == checksum(copies[7].source, Side()).crc32c
        deleted = runner.run([Delete(copy.target) for copy in copies])
        assert failures(deleted) == {}
        assert len(runner.run([Delete(copy.target) for copy in copies])) == FILES

    def test_one_file_that_fails_is_reported_and_the_others_are_copied(
        self, runner, copies, tmp_path
    ):
        (tmp_path / "target" / "3" / "in the way").mkdir(parents=True)
        outcomes = runner.run(copies)
        assert list(failures(outcomes)) == [copies[3].target]
        assert "irectory" in failures(outcomes)[copies[3].target]
        assert len(list((tmp_path / "target").iterdir())) == FILES

    def test_a_file_missing_at_the_source_is_reported_as_missing(self, runner, copies, tmp_path):
        (tmp_path / "source" / "5").unlink()
        missing = [outcome.target for outcome in runner.run(copies) if outcome.missing]
        assert missing == [copies[5].target]

    def test_a_copy_that_is_not_wanted_any_more_is_not_made_and_is_no_failure(self, runner, copies):
        wanted = Wanted()
        wanted.drop([copy.target for copy in copies[:10]])
        with dropping(wanted):
            outcomes = runner.run(copies)
        dropped = {outcome.target for outcome in outcomes if outcome.dropped}
        assert dropped == {copy.target for copy in copies[:10]}
        assert failures(outcomes).keys() == dropped
        assert not any(Path(target.removeprefix("file:")).exists() for target in dropped)
        assert len(outcomes) == FILES


@pytest.mark.parametrize("make", [InlineRunner, SparkRunner])
def test_a_copy_under_way_is_broken_off_once_it_is_not_wanted_and_others_go_on(tmp_path, make):
    wanted, slow = Wanted(), new_limits(None, 1 << 20)
    names = ["kept", "dropped"]
    for name in names:  # hours at this rate, if it is not dropped
        size = (64 << 30) if name == "dropped" else 100
        with (tmp_path / name).open("wb") as file:
            file.truncate(size)
    tasks = [Copy(f"file:{tmp_path}/{name}", f"file:{tmp_path}/dcB/{name}", 1) for name in names]
    side = Side(limits=slow)
    with make(Sides(side, side), ExecutionOptions(master="local[2]")) as runner, dropping(wanted):
        ended = in_thread(copy_context().run, runner.run, tasks)
        wait_until(lambda: list((tmp_path / "dcB").glob("*cpreplicate-tmp*")))
        wanted.drop([tasks[1].target])
        outcomes = {outcome.target: outcome for outcome in ended()}
    assert outcomes[tasks[0].target].error is None
    assert outcomes[tasks[1].target].dropped
    assert [path.name for path in (tmp_path / "dcB").iterdir()] == ["kept"]


def in_thread(call, *arguments):
    """Begin a call in a thread, and return what waits for its result."""
    pool = ThreadPoolExecutor(1)
    future = pool.submit(call, *arguments)
    pool.shutdown(wait=False)
    return future.result


def test_a_passing_fault_is_overcome_by_trying_again(copies, tmp_path, monkeypatch):
    """The file cannot be put while a directory is in its place, which goes before the next try."""
    blocked = tmp_path / "target" / "3"
    (blocked / "in the way").mkdir(parents=True)
    pauses = SimpleNamespace(sleep=lambda _seconds: shutil.rmtree(blocked))
    monkeypatch.setattr(inline, "time", pauses)
    with InlineRunner(Sides(), ExecutionOptions(parallelism=4)) as runner:
        assert failures(runner.run(copies)) == {}
    assert blocked.is_file()


def test_a_file_that_failed_at_each_try_is_counted_once_in_the_end(copies, tmp_path):
    (tmp_path / "target" / "3" / "in the way").mkdir(parents=True)
    shown = []
    with InlineRunner(
        Sides(), ExecutionOptions(show=lambda now, last: shown.append((now, last)))
    ) as runner:
        runner.run(copies)
    now, is_last = shown[-1]
    assert (is_last, now.files, now.failed, now.retried) == (True, FILES - 1, 1, 2)


@pytest.mark.rest
def test_what_is_more_important_is_given_the_next_slot(copies):
    """One slot, files of a quarter of a second each, and three of a job that begins later."""
    limits = new_limits(None, 80_000)
    sides = Sides(Side(limits=limits), Side(limits=limits))
    less, more = copies[20:37], copies[37:]
    with SparkRunner(
        sides, ExecutionOptions(master="local[1]", batch_files=1, parallelism=40), levels=2
    ) as runner:
        runner.run(copies[:1])
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(runner.run, less, 1)
            wait_until(lambda: any(there(copy) for copy in less))
            assert failures(runner.run(more, 0)) == {}
            assert failures(waiting.result()) == {}
    first, *_, last = sorted(map(appeared, more))
    meanwhile = [copy for copy in less if first < appeared(copy) < last]
    assert len(meanwhile) <= 4  # those whose tasks had been given out


def test_a_function_is_not_called_by_an_executor_that_differs_which_is_reported_in_one_line(
    monkeypatch,
):
    monkeypatch.setattr(executors, "needs", lambda *_: executors.Needs((("cpreplicate", "0.0.1"),)))
    with (
        SparkRunner(Sides(), ExecutionOptions(master="local[1]")) as runner,
        pytest.raises(
            CpreplicateError,
            match=r"^the executor on \S+ has cpreplicate \S+, the driver 0\.0\.1; [^\n]+$",
        ),
    ):
        runner.map(str, [1])


def appeared(copy):
    """Return when a file got its name."""
    return Path(copy.target.removeprefix("file:")).stat().st_ctime_ns


def there(copy):
    return Path(copy.target.removeprefix("file:")).exists()


def test_little_to_do_imports_no_pyspark():
    code = (
        "import sys; from cpreplicate.runners import ExecutionOptions, choose_runner;"
        " from cpreplicate.storage import Sides;"
        " choose_runner(ExecutionOptions(), 1, 1, Sides()); print('pyspark' in sys.modules)"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout
        == "False\n"
    )


def test_missing_java_is_reported_before_anything_is_done(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(CpreplicateError, match="Java 17"):
        SparkRunner(Sides())


@pytest.mark.rest
def test_spark_prints_nothing_of_its_own(copies):
    code = (
        "from cpreplicate.runners.spark.runner import SparkRunner; from cpreplicate.runners import"
        " Copy, ExecutionOptions\nfrom cpreplicate.storage import Sides\nwith SparkRunner(Sides(),"
        f" ExecutionOptions(master='local[2]')) as r:\n    r.run([Copy({copies[1].source!r},"
        f" {copies[1].target!r}, 1)])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")


def test_a_master_that_cannot_be_reached_is_one_clear_error(copies):
    refusal = refusal_of("nonsense://x", copies)
    assert "Spark did not start" in refusal
    # by a JVM that runs, or by one that starts
    assert re.search("Could not parse Master URL|Master must either be", refusal)
    assert not set("\n\t") & set(refusal), "a stack trace, or what every JVM prints at its start"
    with warnings.catch_warnings():
        # pyspark leaves the pipe of a JVM open that ended at its start
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


def refusal_of(master, copies):
    alone = ((COPIES_IN_DRIVER, "false"),)  # else the driver would be done by then
    with (
        pytest.raises(CpreplicateError) as raised,
        SparkRunner(Sides(), ExecutionOptions(master=master, conf=alone)) as runner,
    ):
        runner.run(copies)
    return str(raised.value)


class TestEach:
    """What a function returns for each item, as it becomes known."""

    def test_what_is_late_holds_up_no_other(self):
        late = threading.Event()

        def read(number):
            if number == 0:
                late.wait()
            return number

        each = iter(InlineRunner(Sides()).each(read, range(5), ["hdfs://a/b"]))
        # on a busy machine others of them are late, too
        assert sorted(next(each) for _ in range(4)) == [1, 2, 3, 4]
        late.set()
        assert list(each) == [0]

    @pytest.mark.parametrize("places", [["file:/a"], ["hdfs://a/b"]])
    def test_all_of_it_is_in_the_order_of_the_items(self, places, monkeypatch):
        monkeypatch.setattr(inline, "LATE", PATIENCE)
        each = InlineRunner(Sides()).each(str, range(100), places)
        assert next(iter(each)) == "0"
        assert each.complete() == list(map(str, range(100)))

    def test_local_files_are_read_in_the_calling_thread_until_one_would_wait(self):
        threads = []

        def here(number):
            if number == 2:
                raise inline.Waits
            return number

        def elsewhere(number):
            threads.append(threading.current_thread())
            return number

        each = InlineRunner(Sides()).each(elsewhere, range(4), ["file:/a"], here)
        assert each.complete() == [0, 1, 2, 3]
        assert len(threads) == 2
        assert threading.main_thread() not in threads
