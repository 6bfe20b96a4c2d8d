"""A Spark session: one that exists already, that of `spark-submit`, or one of our own.

Imports pyspark.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import sys
import tempfile
import threading
import time
import warnings
import zipfile
from collections.abc import Iterator
from pathlib import Path

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkConf, SparkContext

import cpreplicate
from cpreplicate.errors import CpreplicateError
from cpreplicate.protocol.users import has_passwd_entry
from cpreplicate.runners import startup_times
from cpreplicate.runners.options import DEFAULT_MASTER, ExecutionOptions

TRIES = 4
# what py4j raises when Spark gave a job up, or when its JVM is gone
LOST = (
    Py4JError,
    ConnectionError,
)
PORT = "spark.cpreplicate.port"  # where tasks reach the driver; any free one unless it is given
# The JVM starts, deals batches out and ends: what it gains from its best compiler and collectors it
# has spent on them before.
_STARTS_QUICKLY = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"
_LOCAL = re.compile(r"local(\[.*\])?")
_QUIET = """rootLogger.level = off
"""
_ALWAYS_PRINTED = re.compile(
    r"Using incubator modules|log4j profile|(Setting|To adjust|default) .*log(ging)? level|WARN"
    r" NativeCodeLoader"
    r"|WARN Utils: (Your hostname|Set SPARK_LOCAL_IP)|^Picked up \w+|^\s+at "
)
_SETTLED = (
    0.5  # seconds without another executor after which those that are there are taken for all
)
_PATIENCE = 10.0  # seconds until the first one is there
_POOLS = """<?xml version="1.0"?>
<allocations>{}
</allocations>
"""
_POOL = """
  <pool name="{name}"><schedulingMode>FIFO</schedulingMode><weight>{weight}</weight></pool>"""


def refuse_without_java() -> None:
    """Raise `CpreplicateError` where Spark cannot start."""
    if shutil.which("java") is None and not os.environ.get("JAVA_HOME"):
        raise CpreplicateError(
            "Spark needs Java 17 or later and none was found; install it, or use --runner inline"
        )


def is_elsewhere(execution: ExecutionOptions) -> bool:
    """Whether executors are on machines that do not notice at once when this process ends."""
    return not _master(execution).startswith("local")


@contextlib.contextmanager
def session(execution: ExecutionOptions, pools: int = 0) -> Iterator[SparkContext]:
    """A context that knows this package; one of our own ends with the block, another one stays as
    it is.

    `pools` is how many levels of importance jobs are to have, `level-0` being the most important.
    """
    existing = _existing()
    with contextlib.ExitStack() as resources:
        directory = Path(
            resources.enter_context(tempfile.TemporaryDirectory(prefix="cpreplicate-"))
        )
        context = existing or resources.enter_context(_own(execution, directory, pools))
        context.addPyFile(_shipped(directory))
        yield context


def slots(context: SparkContext, execution: ExecutionOptions) -> int:
    """How many tasks run at once: as asked for, or as executors are there once no more of them
    come.
    """
    if execution.parallelism is None and not _LOCAL.fullmatch(str(context.master)):
        _wait_for_executors(context)
    return execution.parallelism or int(context.defaultParallelism)


def tries(context: SparkContext) -> int:
    """How often Spark runs a task: in local mode once, unless the master says otherwise."""
    if not _LOCAL.fullmatch(str(context.master)):
        return int(context.getConf().get("spark.task.maxFailures") or TRIES)
    retries = re.fullmatch(r"local\[[^,]+,\s*(\d+)\]", str(context.master))
    return int(retries[1]) if retries else 1


@contextlib.contextmanager
def _own(execution: ExecutionOptions, directory: Path, pools: int) -> Iterator[SparkContext]:
    if not _is_submitted() and not has_passwd_entry():
        raise CpreplicateError(
            f"Spark cannot start: user id {os.geteuid()} has no passwd entry, which Hadoop's login"
            " in its JVM needs. Add an entry at the container's start, as the images of Spark do,"
            " or use --runner inline. Nothing was copied"
        )
    conf, began = _conf(execution, directory, pools), time.monotonic()
    if execution.spark_master() is not None or not _is_submitted():
        # else the workers take whatever `python3` is
        os.environ["PYSPARK_PYTHON"] = _python(execution)
    with _java_stderr_aside(directory), _own_interrupt():
        context = _started(conf)
    startup_times.record(str(context.master), time.monotonic() - began)
    try:
        yield context
    finally:
        _stop(context)


def _master(execution: ExecutionOptions) -> str:
    """The master as far as it is known before there is a session; empty where others name it."""
    return execution.spark_master() or ("" if _is_submitted() or _existing() else DEFAULT_MASTER)


def _existing() -> SparkContext | None:
    return SparkContext._active_spark_context


def _is_submitted() -> bool:
    """Whether this process is the Python side of `spark-submit`, whose words win."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _python(execution: ExecutionOptions) -> str:
    """The Python of executors; ours, unless another was given for machines that do not have it."""
    given = execution.property("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON")
    return (
        given if given is not None and not _LOCAL.fullmatch(_master(execution)) else sys.executable
    )


def _conf(execution: ExecutionOptions, directory: Path, pools: int) -> SparkConf:
    """Ours, then what was given.

    Under `spark-submit` only what was given, and what it knows by itself.
    """
    conf = SparkConf()
    if not _is_submitted():
        conf.setMaster(execution.spark_master() or DEFAULT_MASTER).setAll(_quiet(directory))
        if not is_elsewhere(execution):
            conf.set("spark.driver.host", "127.0.0.1").set("spark.driver.bindAddress", "127.0.0.1")
        else:
            conf.setAll(_FAULTS)
    if pools:
        conf.set("spark.scheduler.mode", "FAIR").set(
            "spark.scheduler.allocation.file", _pools(directory, pools)
        )
    conf.setAppName("cpreplicate").setAll(list(execution.conf))
    return conf.setMaster(execution.master) if execution.master else conf


_FAULTS = [
    ("spark.task.maxFailures", str(TRIES)),
    # a machine that fails each batch quickly would get most of them
    (
        "spark.excludeOnFailure.enabled",
        "true",
    ),
    ("spark.excludeOnFailure.timeout", "10m"),
    # then each batch is tried once more anywhere
    (
        "spark.scheduler.excludeOnFailure.unschedulableTaskSetTimeout",
        "5s",
    ),
]


def _quiet(directory: Path) -> list[tuple[str, str]]:
    logging = directory / "log4j2.properties"
    logging.write_text(_QUIET)
    return [
        (
            "spark.driver.extraJavaOptions",
            f"-Dlog4j2.configurationFile={logging.as_uri()} {_STARTS_QUICKLY}",
        ),
        ("spark.log.level", "OFF"),
        ("spark.ui.enabled", "false"),
        ("spark.ui.showConsoleProgress", "false"),
        # a slow copy is not made faster by another one; --conf turns it on
        (
            "spark.speculation",
            "false",
        ),
    ]


def _pools(directory: Path, pools: int) -> str:
    """Pools of which an earlier one gets nearly all slots that it has tasks for."""
    file = directory / "pools.xml"
    levels = [
        _POOL.format(name=f"level-{at}", weight=10 ** min(9, pools - at)) for at in range(pools)
    ]
    file.write_text(_POOLS.format("".join(levels)))
    return file.as_uri()


def _started(conf: SparkConf) -> SparkContext:
    try:
        return SparkContext(conf=conf)
    except BaseException as error:
        # asks the JVM
        reason = error.java_exception.getMessage() if isinstance(error, Py4JJavaError) else None
        _forget_jvm()  # it may run already, for a session that will not come
        if reason is None:
            raise
        raise RuntimeError(reason) from None


def _wait_for_executors(context: SparkContext) -> None:
    """They register one after the other; batches are to be cut for all of them."""
    scheduler, began = context._jsc.sc(), time.monotonic()
    seen, since = 0, began
    while True:
        # the driver is one of them
        now, count = (
            time.monotonic(),
            int(scheduler.getExecutorMemoryStatus().size()) - 1,
        )
        if count > seen:
            seen, since = count, now
        if (seen and now - since > _SETTLED) or now - began > _PATIENCE:
            return
        time.sleep(0.05)


@contextlib.contextmanager
def _own_interrupt() -> Iterator[None]:
    """Keep this process's handling of Ctrl-C: pyspark's calls the JVM from within the handler,
    which fails amid a call.
    """
    handler = signal.getsignal(signal.SIGINT)
    yield
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, handler)


def _stop(context: SparkContext) -> None:
    """Stop Spark, also where its JVM is gone, so that this process can start another session."""
    with warnings.catch_warnings():
        # how pyspark tells, at times, that its JVM is gone
        warnings.simplefilter("error", RuntimeWarning)
        try:
            context.stop()
        except (*LOST, RuntimeWarning):
            context.stop()  # the first call ended at the JVM; the second tidies up on Python's side
            _forget_jvm()


def _forget_jvm() -> None:
    """Reap the JVM that is gone; else the next session would call it."""
    process = getattr(SparkContext._gateway, "proc", None)
    SparkContext._gateway = SparkContext._jvm = None
    if process is not None:
        process.kill()
        with contextlib.suppress(OSError):  # the pipe is broken
            process.stdin.close()
        process.wait()


def _shipped(directory: Path) -> str:
    """This package as a zip for the executors, which then need not have it installed."""
    package = Path(cpreplicate.__file__).parent
    archive = directory / "cpreplicate.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as zipped:
        for file in sorted(package.rglob("*.py")):
            zipped.write(file, Path(package.name) / file.relative_to(package))
    return str(archive)


def _java_output(stderr: Path) -> str:
    """Return what a JVM that did not start printed, or where else the reason may be found."""
    lines = [
        line
        for line in stderr.read_bytes().decode(errors="replace").splitlines()
        if not _ALWAYS_PRINTED.search(line)
    ]
    output = " ".join(" ".join(lines).split())
    if output:
        return f"It printed: {output[-2000:]}"
    return (
        "If it waited for executors, the logs of the cluster's workers, or of its pods, show why"
        " none came; --conf spark.log.level=INFO shows more here. Nothing was copied"
    )


@contextlib.contextmanager
def _java_stderr_aside(directory: Path) -> Iterator[None]:
    """Keep what the JVM says at its start (incubator modules, native libraries) from the operator,
    unless it fails.
    """
    sys.stderr.flush()
    kept = os.dup(2)
    with open(directory / "stderr", "w+b") as aside:
        os.dup2(aside.fileno(), 2)
        try:
            yield
        except Exception as error:
            raise CpreplicateError(
                f"Spark did not start: {str(error).rstrip('.')}. {_java_output(Path(aside.name))}"
            ) from error
        finally:
            os.dup2(kept, 2)
            os.close(kept)
