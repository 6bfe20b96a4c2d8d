"""Whose session of Spark a run uses, and what it leaves of it."""

import json
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pyspark
import pytest
from pyspark import SparkConf, SparkContext

from cpreplicate.cli.files.config import spark_properties
from cpreplicate.errors import UsageError
from cpreplicate.runners import Copy, ExecutionOptions
from cpreplicate.runners.spark.executors import Differs
from cpreplicate.runners.spark.runner import SparkRunner
from cpreplicate.runners.spark.session import (
    fault_settings,
    is_elsewhere,
    not_started,
    refuse_unrunnable,
    session,
    slots,
)
from cpreplicate.storage import Sides
from tests.support.jobs import JOB, write_checkpoint
from tests.support.waiting import PATIENCE

pytestmark = pytest.mark.xdist_group("spark")


@pytest.fixture(autouse=True)
def _python(monkeypatch):
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)


def test_an_existing_session_is_used_and_stays(tmp_path):
    (tmp_path / "a").write_bytes(b"12345")
    conf = (
        SparkConf().setMaster("local[1]").setAppName("of the user").set("spark.ui.enabled", "false")
    )
    conf.set("spark.driver.host", "127.0.0.1").set("spark.driver.bindAddress", "127.0.0.1").set(
        "spark.log.level", "OFF"
    )
    context = SparkContext(conf=conf)
    try:
        with SparkRunner(Sides(), ExecutionOptions(master="spark://elsewhere:7077")) as runner:
            [outcome] = runner.run([Copy(f"file:{tmp_path}/a", f"file:{tmp_path}/b", 5)])
        assert outcome.error is None
        assert context.parallelize([1, 2]).sum() == 3
        assert context.appName == "of the user"
    finally:
        context.stop()


@pytest.mark.parametrize(
    ("of_session", "given", "expected"),
    [
        ("spark://h:7077", "local[2]", True),
        ("local[2]", "spark://h:7077", False),
        (None, "yarn", True),
    ],
)
def test_whether_executors_are_elsewhere_is_that_of_an_existing_session(
    monkeypatch, of_session, given, expected
):
    context = None if of_session is None else SimpleNamespace(master=of_session)
    monkeypatch.setattr(SparkContext, "_active_spark_context", context)
    assert is_elsewhere(ExecutionOptions(runner="spark", master=given)) is expected


def test_runs_of_several_threads_share_one_session_that_ends_with_the_last_of_them(tmp_path):
    """As threads of a program that call the API, and the jobs of a switch."""
    for number in range(3):
        (tmp_path / f"a{number}").write_bytes(b"12345")
    together = threading.Barrier(3)

    def run(number):
        copy = Copy(f"file:{tmp_path}/a{number}", f"file:{tmp_path}/b{number}", 5)
        with SparkRunner(Sides(), ExecutionOptions(master="local[2]")) as runner:
            together.wait(PATIENCE)
            [outcome] = runner.run([copy])
            application = SparkContext._active_spark_context.applicationId
            together.wait(PATIENCE)
        return outcome.error, application

    with ThreadPoolExecutor(3) as pool:
        done = list(pool.map(run, range(3)))
    assert [error for error, _ in done] == [None] * 3
    assert len({application for _, application in done}) == 1
    assert SparkContext._active_spark_context is None


@pytest.mark.rest
def test_under_spark_submit_its_words_hold(tmp_path):
    checkpoint = write_checkpoint(tmp_path / "dcA", 1, {"shared/a": 100, "shared/b": 9})
    script = tmp_path / "main.py"
    script.write_text("from cpreplicate.cli import main\nmain()\n")
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    local = [
        "--master",
        "local[2]",
        "--conf",
        "spark.driver.host=127.0.0.1",
        "--conf",
        "spark.ui.enabled=false",
    ]
    words = [
        "sync",
        str(checkpoint),
        str(tmp_path / "dcB"),
        "--runner",
        "spark",
        "--output",
        "json",
    ]
    done = subprocess.run(
        [submit, *local, script, *words],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout.splitlines()[-1])  # spark-submit mixes stderr into it
    assert (report["runner"], report["committed"]) == ("spark", True)
    assert (tmp_path / "dcB" / JOB / "chk-1" / "_metadata").exists()


def test_properties_reach_the_session_and_the_later_ones_win(tmp_path):
    file = tmp_path / "spark.conf"
    file.write_text(
        "# of the platform\nspark.task.maxFailures  "
        " 7\nspark.app.name=nightly\n\nspark.locality.wait: 1s\n"
    )
    given = (*spark_properties(str(file)), ("spark.app.name", "tonight"))
    with session(ExecutionOptions(master="local[1]", conf=given)) as (context, _):
        assert context.appName == "tonight"
        assert context.getConf().get("spark.task.maxFailures") == "7"
        assert context.getConf().get("spark.locality.wait") == "1s"
        assert context.getConf().get("spark.speculation") == "false"


@pytest.mark.rest
def test_an_executor_that_differs_is_reported_as_the_reason_of_each_file_in_one_line(
    tmp_path, monkeypatch
):
    (tmp_path / "a").write_bytes(b"12345")
    real = sys.modules["cpreplicate.runners.spark.executors"].needs
    monkeypatch.setattr(
        "cpreplicate.runners.spark.executors.needs",
        lambda *words: real(*words)._replace(versions=(("pyarrow", "1"),)),
    )
    with SparkRunner(Sides(), ExecutionOptions(master="local[1,2]")) as runner:
        [outcome] = runner.run([Copy(f"file:{tmp_path}/a", f"file:{tmp_path}/b", 5)])
    assert outcome.error.startswith("the executor on ")
    assert "has pyarrow" in outcome.error
    assert "\n" not in outcome.error
    assert Differs.__name__ not in outcome.error
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize(
    ("settings", "is_excluding"),
    [
        ({}, True),
        ({"spark.task.maxFailures": "3"}, True),
        ({"spark.task.maxFailures": "2"}, False),
        ({"spark.task.maxFailures": "1"}, False),
        (
            {
                "spark.task.maxFailures": "2",
                "spark.excludeOnFailure.task.maxTaskAttemptsPerNode": "1",
            },
            True,
        ),
        ({"spark.excludeOnFailure.task.maxTaskAttemptsPerNode": "4"}, False),
        ({"spark.task.maxFailures": "often"}, False),
    ],
)
def test_machines_are_excluded_only_where_spark_tries_a_task_often_enough(settings, is_excluding):
    """Spark runs no job with exclusion and too few tries."""
    given = ExecutionOptions(master="spark://elsewhere:7077", conf=tuple(settings.items()))
    assert ("spark.excludeOnFailure.enabled" in dict(fault_settings(given))) == is_excluding


def test_settings_with_which_spark_runs_no_job_are_refused_with_their_names(tmp_path):
    """Spark itself logs the reason, and reports each job as cancelled."""
    conf = (("spark.task.maxFailures", "1"), ("spark.excludeOnFailure.enabled", "true"))
    copy = Copy(f"file:{tmp_path}/a", f"file:{tmp_path}/b", 5)
    options = ExecutionOptions(master="local[1]", conf=conf)
    with SparkRunner(Sides(), options) as runner, pytest.raises(UsageError) as raised:
        runner.run([copy])
    assert str(raised.value).startswith(
        "Spark runs no job with spark.excludeOnFailure.enabled=true unless spark.task.maxFailures"
        " (1) is above spark.excludeOnFailure.task.maxTaskAttemptsPerNode (2)."
    )


@pytest.mark.parametrize(
    ("memory", "cores", "is_enough"),
    [
        ("1536m", 1, False),
        ("1536", 1, False),
        ("2g", 1, True),
        ("2g", 2, False),
        ("4096mb", 2, True),
    ],
)
def test_python_with_too_little_address_space_is_refused_with_what_it_needs(
    memory, cores, is_enough
):
    """It could start no thread, and ended in a traceback of a task."""
    conf = {"spark.executor.pyspark.memory": memory, "spark.executor.cores": str(cores)}
    if is_enough:
        refuse_unrunnable(conf.get)
        return
    with pytest.raises(UsageError, match=f"pyspark.memory={2 * cores}g"):
        refuse_unrunnable(conf.get)


@pytest.mark.parametrize(
    ("conf", "expected"),
    [
        ({"spark.dynamicAllocation.maxExecutors": "20", "spark.executor.cores": "4"}, 80),
        ({"spark.dynamicAllocation.maxExecutors": "20"}, 20),
        (
            {
                "spark.dynamicAllocation.maxExecutors": "20",
                "spark.executor.cores": "4",
                "spark.task.cpus": "2",
            },
            40,
        ),
        ({}, 100),
    ],
)
def test_dynamic_allocation_has_the_slots_that_it_may_grow_to(conf, expected):
    """Its executors come when there are tasks: none is waited for."""
    conf = {"spark.dynamicAllocation.enabled": "true", **conf}
    context = SimpleNamespace(master="yarn", getConf=lambda: conf, defaultParallelism=2)
    assert slots(context, ExecutionOptions()) == expected
    assert slots(context, ExecutionOptions(parallelism=7)) == 7


def test_a_master_that_does_not_answer_the_registration_is_of_another_release():
    """The message was recorded from Spark 4.3 at a master of 3.5.9."""
    error = Exception(
        "An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.\n: java."
        'lang.NullPointerException: Cannot invoke "org.apache.spark.SparkEnv.driverTmpDir()"'
        ' because the return value of "org.apache.spark.SparkEnv$.get()" is null\n\tat x'
    )
    elsewhere = not_started(error, ExecutionOptions(master="spark://m:7077"))
    assert f"another release of Spark than {pyspark.__version__}" in str(elsewhere)
    assert "Spark ended while it started" in str(
        not_started(error, ExecutionOptions(master="yarn"))
    )
