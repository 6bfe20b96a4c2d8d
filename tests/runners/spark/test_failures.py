"""Failures of Spark are recognised by their messages, which were recorded from Spark 4.1."""

import pytest

from cpreplicate.runners.spark import failures

CALL = "An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.\n"
FRAME = "\tat org.apache.spark.api.python.PythonRunner$$anon$5.read(PythonRunner.scala:1642)\n"


def of_a_worker(error: str) -> Exception:
    """Return the message for an exception that a Python worker raised."""
    return Exception(
        f"{CALL}: org.apache.spark.api.python.PythonException: [PYTHON_EXCEPTION] An exception was"
        " thrown from the Python worker: Traceback (most recent call last):\n"
        '  File "/opt/spark/python/lib/pyspark.zip/pyspark/worker.py", line 4327, in invoke_udf\n'
        f"    run_process()\n{error}\n SQLSTATE: 38000\n{FRAME}"
    )


DIFFERS = of_a_worker(
    "cpreplicate.runners.spark.executors.Differs: the executor on host1 has pyarrow 1, the driver"
    " 2; give executors the driver's packages with scripts/executor_archive.sh, see"
    " docs/clusters.md"
)
NO_MODULE = of_a_worker("ModuleNotFoundError: No module named 'no_such_package'")
OTHER_PYTHON = of_a_worker(
    "pyspark.errors.exceptions.base.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker"
    " has different version: 3.11 than that in driver: 3.9, PySpark cannot run with different minor"
    " versions.\nPlease check environment variables PYSPARK_PYTHON and PYSPARK_DRIVER_PYTHON are"
    " correctly set."
)
BATCH_FAILED = of_a_worker(
    "cpreplicate.runners.spark.failures.BatchFailed: 1 of 2 files, first hdfs://b/t: OSError:"
    " broken"
)
MISTAKE = of_a_worker("TypeError: 'int' object is not iterable")
CAUSED = of_a_worker(
    "KeyError: 'k'\n\nDuring handling of the above exception, another exception occurred:\n\n"
    'Traceback (most recent call last):\n  File "x.py", line 1, in f\n    raise\nOSError: broken'
)
LOST_TASK = Exception(
    f"{CALL}: org.apache.spark.SparkException: Job aborted due to stage failure: \nAborting TaskSet"
    " 1.0.\nMost recent failure:\nLost task 1.1 in stage 1.0 (TID 13) (host executor 3):"
    ' java.io.IOException: Cannot run program "./environment/bin/python"\n\tat x'
)
ABORTED = Exception(
    "x\n: org.apache.spark.SparkException: Job aborted due to stage failure: \nno executor"
    " came\n\tat y"
)
REFUSED = Exception(
    f"{CALL}: java.lang.IllegalArgumentException:"
    " spark.excludeOnFailure.task.maxTaskAttemptsPerNode ( = 2) was >= spark.task.maxFailures ( ="
    " 1 ). Though excludeOnFailure is enabled\n\tat x\n"
)
CANCELLED = Exception(
    f"{CALL}: org.apache.spark.SparkException: [SPARK_JOB_CANCELLED] Job 0 cancelled because killed"
    " via the Web UI SQLSTATE: XXKDA\n\tat y"
)
GONE = Exception("Answer from Java side is empty")
HINT = "; executors do not run what the driver runs, see docs/clusters.md"


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (
            DIFFERS,
            "the executor on host1 has pyarrow 1, the driver 2; give executors the driver's"
            " packages with scripts/executor_archive.sh, see docs/clusters.md",
        ),
        (NO_MODULE, f"ModuleNotFoundError: No module named 'no_such_package'{HINT}"),
        (
            OTHER_PYTHON,
            "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.11 than that in"
            f" driver: 3.9, PySpark cannot run with different minor versions.{HINT}",
        ),
    ],
)
def test_an_executor_that_differs_from_the_driver_is_recognised(error, line):
    assert failures.difference(error) == line
    assert failures.why_given_up(error) == line
    assert not failures.is_mistake(error)


@pytest.mark.parametrize("error", [BATCH_FAILED, MISTAKE, LOST_TASK, ABORTED, GONE, None])
def test_any_other_failure_is_no_difference_of_an_executor(error):
    assert failures.difference(error) is None


def test_an_unexpected_exception_of_a_worker_is_a_mistake_in_the_program():
    assert failures.is_mistake(MISTAKE)


def test_a_mistake_in_the_program_is_reported_with_the_exception_of_the_worker():
    assert str(failures.mistake(MISTAKE)) == (
        "PythonException in a task of Spark: TypeError: 'int' object is not iterable"
    )


def raised(line):
    """The error of a job whose worker raised an exception with this last line."""
    return Exception(str(MISTAKE).replace("TypeError: 'int' object is not iterable", line))


@pytest.mark.parametrize(
    "line",
    [
        "RuntimeError: can't start new thread",
        "MemoryError",
        "OSError: [Errno 28] No space left on device: '/var/spark/cpreplicate-1.zip'",
    ],
)
def test_what_an_executor_lacks_is_no_mistake_in_the_program(line):
    assert failures.is_mistake(raised("ValueError: of this program"))
    assert not failures.is_mistake(raised(line))
    assert failures.why_given_up(raised(line)).startswith(f"Spark gave up: {line}. An executor")


def test_what_a_storage_refused_is_no_lack_of_an_executor():
    error = raised("PermissionError: [Errno 13] Permission denied: 'hdfs://nn:8020/a'")
    assert not failures.is_mistake(error)
    assert failures.why_given_up(error).endswith("'hdfs://nn:8020/a'")


@pytest.mark.parametrize("error", [BATCH_FAILED, LOST_TASK, ABORTED, GONE])
def test_a_failure_of_files_or_machines_is_no_mistake_in_the_program(error):
    assert not failures.is_mistake(error)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (MISTAKE, "TypeError: 'int' object is not iterable"),
        (CAUSED, "OSError: broken"),
        (
            BATCH_FAILED,
            "cpreplicate.runners.spark.failures.BatchFailed: 1 of 2 files, first hdfs://b/t:"
            " OSError: broken",
        ),
        (LOST_TASK, 'java.io.IOException: Cannot run program "./environment/bin/python"'),
        (ABORTED, "no executor came"),
        (
            REFUSED,
            "java.lang.IllegalArgumentException:"
            " spark.excludeOnFailure.task.maxTaskAttemptsPerNode ( = 2) was >="
            " spark.task.maxFailures ( = 1 ). Though excludeOnFailure is enabled",
        ),
        (GONE, "Answer from Java side is empty"),
        (Exception(), "Exception"),
    ],
)
def test_the_reason_why_spark_gave_up_is_the_most_specific_line(error, reason):
    assert failures.reason(error) == reason
    assert failures.why_given_up(error) == f"Spark gave up: {reason}"


def test_a_job_that_somebody_cancelled_is_told_from_one_that_failed():
    assert failures.is_cancelled(CANCELLED)
    assert not any(map(failures.is_cancelled, (ABORTED, LOST_TASK, GONE, BATCH_FAILED)))
    assert failures.why_cancelled(CANCELLED).startswith(
        "a job of this run was cancelled in Spark, so it was not started again: "
    )


def test_the_end_of_the_session_is_not_taken_for_a_job_that_somebody_cancelled():
    ended = Exception(f"{CALL}: Job 3 cancelled because SparkContext was shut down\n\tat y")
    assert not failures.is_cancelled(ended)
    assert failures.why_given_up(ended).startswith("Spark gave up: ")
