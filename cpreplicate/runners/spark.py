"""A PySpark job over executors: one task a batch, results as rows. The only module that imports pyspark."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import sys
import tempfile
import threading
import warnings
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import RDD, SparkConf, SparkContext, TaskContext

import cpreplicate
from cpreplicate.errors import CpreplicateError
from cpreplicate.runners.work import Action, Outcome, batches, perform
from cpreplicate.storage import Sites
from cpreplicate.storage.limits import served

DEFAULT_MASTER = "local[*,4]"  # local[*] never retries a task; the second number is how often a task may be tried
_TRIES = 4
_LOST = (Py4JError, ConnectionError)  # what py4j raises when Spark gave a job up, or when its JVM is gone
_LOCAL = re.compile(r"local(\[.*\])?")
_QUIET = """rootLogger.level = off
"""


class BatchFailed(Exception):
    """Raised in a task so that Spark tries its batch again, on another executor if it can."""


class SparkRunner:
    """Executes batches as Spark tasks. The session starts with the first `run` and stops with the context."""

    name = "spark"

    def __init__(
        self, sites: Sites, master: str | None = None, parallelism: int | None = None, reason: str = "asked for"
    ) -> None:
        if shutil.which("java") is None and not os.environ.get("JAVA_HOME"):
            raise CpreplicateError("Spark needs Java 17 or later and none was found; install it, or use --runner inline")
        self.reason = reason
        self._sites = sites
        self._master = master or DEFAULT_MASTER
        self.is_elsewhere = not self._master.startswith("local")
        self._parallelism = parallelism
        self._resources = contextlib.ExitStack()
        self._context: SparkContext | None = None

    def run(self, actions: Sequence[Action]) -> list[Outcome]:
        """Execute all. A file that failed fails its batch, which Spark tries again; the last try tells errors as rows.

        Where Spark itself gives up, as when workers die at every try, each action is told as failed: it may have been done.
        """
        if self._context is None:
            self._context = self._start()
        packed = batches(actions, self._parallelism or self._context.defaultParallelism)
        last = _tries(self._master) - 1
        rows = self._context.parallelize(packed, len(packed)).mapPartitions(_Task(self._sites, last))
        try:
            return self._collected(self._context, rows)
        except _LOST as error:
            if "PythonException" in str(error) and BatchFailed.__name__ not in str(error):
                raise  # a mistake in this program, not a failure of the machines
            return _given_up(actions, error)

    @staticmethod
    def _collected(context: SparkContext, rows: RDD[Outcome]) -> list[Outcome]:
        """Wait in this thread while another talks to the JVM: a signal must not arrive in the middle of a py4j call."""
        with ThreadPoolExecutor(1, thread_name_prefix="spark") as pool:
            collecting = pool.submit(rows.collect)
            try:
                return list(collecting.result())
            except BaseException:
                with contextlib.suppress(*_LOST):
                    context.cancelAllJobs()
                raise

    def __enter__(self) -> SparkRunner:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._resources.close()
        self._context = None

    def _start(self) -> SparkContext:
        directory = self._resources.enter_context(tempfile.TemporaryDirectory(prefix="cpreplicate-"))
        os.environ["PYSPARK_PYTHON"] = sys.executable  # else the workers take whatever `python3` is
        with _java_stderr_aside(Path(directory)), _own_interrupt():
            context = _started(_conf(self._master, Path(directory)))
        self._resources.callback(_stop, context)
        context.addPyFile(_shipped(Path(directory)))
        self._sites = self._resources.enter_context(_served(self._sites, str(context.getConf().get("spark.driver.host"))))
        return context


def _started(conf: SparkConf) -> SparkContext:
    if SparkContext._active_spark_context is not None:  # whose JVM is not ours to end
        raise RuntimeError("this process has a Spark session already")
    try:
        return SparkContext(conf=conf)
    except BaseException as error:
        reason = error.java_exception.getMessage() if isinstance(error, Py4JJavaError) else None  # asks the JVM
        _forget_jvm()  # it may run already, for a session that will not come
        if reason is None:
            raise
        raise RuntimeError(reason) from None


@contextlib.contextmanager
def _served(sites: Sites, host: str) -> Iterator[Sites]:
    """The sites as executors are to see them: they ask the driver how fast they may go."""
    with served(sites.target.limits, host) as limits:
        yield sites._replace(source=replace(sites.source, limits=limits), target=replace(sites.target, limits=limits))


@contextlib.contextmanager
def _own_interrupt() -> Iterator[None]:
    """Keep this process's handling of Ctrl-C: pyspark's calls the JVM from within the handler, which fails amid a call."""
    handler = signal.getsignal(signal.SIGINT)
    yield
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, handler)


def _stop(context: SparkContext) -> None:
    """Stop Spark, also where its JVM is gone, so that this process can start another session."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)  # how pyspark tells, at times, that its JVM is gone
        try:
            context.stop()
        except (*_LOST, RuntimeWarning):
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


def _given_up(actions: Sequence[Action], error: Exception) -> list[Outcome]:
    reason = re.search(r"Job aborted[^\n]*|[^\n]+", str(error))
    text = f"Spark gave up: {reason[0][:300] if reason else type(error).__name__}"
    return [Outcome(action.target, 0, None, 0.0, text) for action in actions]


class _Task:
    """One batch on an executor."""

    def __init__(self, sites: Sites, last_attempt: int) -> None:
        self._sites = sites
        self._last_attempt = last_attempt

    def __call__(self, partition: Iterable[tuple[Action, ...]]) -> Iterator[Outcome]:
        context = TaskContext.get()
        attempt = context.attemptNumber() if context is not None else 0
        for batch in partition:
            outcomes = perform(batch, self._sites, again=attempt > 0)
            failed = [outcome for outcome in outcomes if outcome.is_worth_a_try]
            if failed and attempt < self._last_attempt:
                raise BatchFailed(f"{len(failed)} of {len(batch)} files, first {failed[0].target}: {failed[0].error}")
            yield from outcomes


def _tries(master: str) -> int:
    """How often Spark runs a task: in local mode once, unless the master says otherwise."""
    if not _LOCAL.fullmatch(master):
        return _TRIES
    retries = re.fullmatch(r"local\[[^,]+,\s*(\d+)\]", master)
    return int(retries[1]) if retries else 1


def _conf(master: str, directory: Path) -> SparkConf:
    logging = directory / "log4j2.properties"
    logging.write_text(_QUIET)
    java = f"-Dlog4j2.configurationFile={logging.as_uri()}"
    conf = SparkConf().setMaster(master).setAppName("cpreplicate").setAll([
        ("spark.driver.extraJavaOptions", java),
        ("spark.log.level", "OFF"),
        ("spark.ui.enabled", "false"),
        ("spark.ui.showConsoleProgress", "false"),
        ("spark.task.maxFailures", str(_TRIES)),
    ])  # fmt: skip
    if master.startswith("local"):
        conf.set("spark.driver.host", "127.0.0.1").set("spark.driver.bindAddress", "127.0.0.1")
    return conf


def _shipped(directory: Path) -> str:
    """This package as a zip for the executors, which then need not have it installed."""
    package = Path(cpreplicate.__file__).parent
    archive = directory / "cpreplicate.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as zipped:
        for file in sorted(package.rglob("*.py")):
            zipped.write(file, Path(package.name) / file.relative_to(package))
    return str(archive)


@contextlib.contextmanager
def _java_stderr_aside(directory: Path) -> Iterator[None]:
    """Keep what the JVM says at its start (incubator modules, native libraries) from the operator, unless it fails."""
    sys.stderr.flush()
    kept = os.dup(2)
    with open(directory / "stderr", "w+b") as aside:
        os.dup2(aside.fileno(), 2)
        try:
            yield
        except Exception as error:
            said = Path(aside.name).read_bytes().decode(errors="replace").strip()
            raise CpreplicateError(f"Spark did not start: {error}. It said: {said[-2000:]}") from error
        finally:
            os.dup2(kept, 2)
            os.close(kept)
