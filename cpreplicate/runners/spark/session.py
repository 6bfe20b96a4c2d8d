"""The Spark session of a run: an existing one, that of `spark-submit`, or a new one.

Importing this module imports pyspark.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
import warnings
import zipfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import ClassVar, NamedTuple

import pyspark
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway

from cpreplicate import version
from cpreplicate.errors import CpreplicateError, UsageError
from cpreplicate.protocol.users import has_passwd_entry
from cpreplicate.runners import startup_times
from cpreplicate.runners.base import In, Out
from cpreplicate.runners.options import (
    DEFAULT_MASTER,
    DYNAMIC,
    EXECUTOR_CORES,
    EXECUTORS,
    MOST_EXECUTORS,
    TASK_CORES,
    ExecutionOptions,
    Properties,
    cores_of_task,
    is_submitted,
    is_true,
    tasks_of_executor,
    whole,
)
from cpreplicate.runners.spark import failures, own
from cpreplicate.runners.spark.carried import Carrier, packed, unpacked
from cpreplicate.runners.spark.engine import (
    FIRST_SECONDS,
    LOCAL,
    masters,
    some_executors,
    wait_for_master,
)
from cpreplicate.runners.tasks import EngineLost, RunnerStopped
from cpreplicate.storage.waiting import cancellation
from cpreplicate.storage.waiting.side_call import in_thread

TRIES = 4
# What py4j raises when Spark gave a job up, or when its JVM is gone. Once a program has made a
# SparkSession, pyspark raises its own exceptions in place of py4j's (`install_exception_handler`).
LOST = (Py4JError, PySparkException, ConnectionError)
PORT = "spark.cpreplicate.port"  # where tasks reach the driver; any free port by default
# The JVM starts, distributes batches and ends. Its best compiler and collectors would take longer
# to start than they save.
_STARTS_QUICKLY = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"
_QUIET = """rootLogger.level = off
"""
_ALWAYS_PRINTED = re.compile(
    r"Using incubator modules|log4j profile|(Setting|To adjust|default) .*log(ging)? level|WARN"
    r" NativeCodeLoader"
    r"|WARN Utils: (Your hostname|Set SPARK_LOCAL_IP)|^Picked up \w+|^\s+at "
)
# Seconds without another executor after which the present ones are considered all.
_SETTLED = 0.5
_LOOK = 0.05  # seconds between two looks at a context that starts
_PATIENCE = 10.0  # seconds to wait for the first executor
_OF_A_JOB = (
    "spark.jobGroup.id",
    "spark.job.description",
    "spark.job.interruptOnCancel",
    "spark.scheduler.pool",
)
_PYTHON_MEMORY = "spark.executor.pyspark.memory"
_LEAST_PYTHON_MEMORY = 2 << 30  # with 1.5 GiB no thread could be started (measured on file:)
_SPARK_SIZE = re.compile(r"(\d+)([kmgtp]?)b?")  # without a unit in MiB
_SHIFTS = {"k": 10, "m": 20, "g": 30, "t": 40, "p": 50}
_MANAGERS = ("yarn", "k8s://")
_TAGS = "spark.yarn.tags"
_SLOTS_WITHOUT_LIMIT = 100  # of dynamic allocation that may grow for ever
_STOP_SECONDS = 60.0  # for the end of a session; then its JVM is killed
_STOP_LOST_SECONDS = 4.0  # if its executors do not answer
_POOLS = """<?xml version="1.0"?>
<allocations>{}
</allocations>
"""
_POOL = """
  <pool name="{name}"><schedulingMode>FIFO</schedulingMode><weight>{weight}</weight></pool>"""


def refuse_without_java() -> None:
    """Raise `CpreplicateError` if there is no Java for Spark."""
    if shutil.which("java") is None and not os.environ.get("JAVA_HOME"):
        raise CpreplicateError(
            "Spark needs Java 17 or later (Spark 3.5: 8 or later) and none was found; install it,"
            " or use --runner inline"
        )


def is_elsewhere(execution: ExecutionOptions) -> bool:
    """Return whether executors run on other machines, which do not notice at once if this ends."""
    return not _master(execution).startswith("local")


class Session(NamedTuple):
    """A context whose executors can run what is of this package.

    `carrier` takes the package along with each function; None if the context was made for this run.
    """

    context: SparkContext
    carrier: Carrier | None

    @contextlib.contextmanager
    def local_properties_kept(self) -> Iterator[None]:
        """Leave the job group and the pool of this thread as they were.

        They may be those of the user's threads, too: see `PYSPARK_PIN_THREAD`.
        """
        names = _OF_A_JOB if self.carrier is not None else ()
        before = {name: self.context.getLocalProperty(name) for name in names}
        try:
            yield
        finally:
            with contextlib.suppress(*LOST):  # of a context that has ended
                for name, value in before.items():
                    self.context.setLocalProperty(name, value)  # type: ignore[arg-type]  # None, too

    def collected(
        self, function: Callable[[In], Out], items: Sequence[In], tasks: int
    ) -> list[Out]:
        """Return what a function returns for each item, in order, by this many tasks."""
        if self.carrier is None:
            return list(self.context.parallelize(items, tasks).map(function).collect())
        values = self.context.parallelize([packed(item) for item in items], tasks)
        return [unpacked(each) for each in values.map(self.carrier.carried(function)).collect()]


@contextlib.contextmanager
def session(
    execution: ExecutionOptions, pools: int = 0, is_lost: Callable[[], bool] = lambda: False
) -> Iterator[Session]:
    """Provide a session: an existing one, which stays as it was, or one that runs of this process
    start and share, which ends with the last of them.

    `pools` is the number of priority levels of jobs in a new one; `level-0` is the most important.
    `is_lost`: its executors do not answer.
    """
    context, is_new = own.of_user(), False
    with contextlib.ExitStack() as resources:
        if context is None:
            start = partial(_equipped, execution, pools)
            sharing = own.shared(_wanted(execution), start, is_lost, is_running)
            context, is_new = resources.enter_context(sharing)
        refuse_unrunnable(context.getConf().get)
        if is_new:
            yield Session(context, None)
            return
        with _directory() as directory:
            carrier = Carrier(context, _shipped(directory).read_bytes())
        resources.callback(_close, carrier)
        yield Session(context, carrier)


@contextlib.contextmanager
def _equipped(
    execution: ExecutionOptions, pools: int, is_lost: Callable[[], bool]
) -> Iterator[SparkContext]:
    """Start a context whose executors have this package, and stop it at the end."""
    with _directory() as directory, _new_context(execution, directory, pools, is_lost) as context:
        refuse_unrunnable(context.getConf().get)
        context.addPyFile(str(_shipped(directory)))
        yield context


@contextlib.contextmanager
def _directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="cpreplicate-") as directory:
        yield Path(directory)


def _close(carrier: Carrier) -> None:
    with contextlib.suppress(*LOST):  # of a context that has ended
        carrier.close()


def slots(context: SparkContext, execution: ExecutionOptions) -> int:
    """Return how many tasks run at once.

    It is the number that was given, that of the executors once no further ones register, or what
    dynamic allocation may grow to. Raises `UsageError` if no executor has the cores for a task.
    """
    master, conf = str(context.master), context.getConf().get
    if LOCAL.fullmatch(master):
        return execution.parallelism or int(context.defaultParallelism)
    if is_true(conf(DYNAMIC)):
        found = max(_most_slots(conf), int(context.defaultParallelism))
    elif not (found := _slots_asked_for(master, conf)):
        _wait_for_executors(context)
        _refuse_idle(context)
        found = max(1, int(context.defaultParallelism) // cores_of_task(conf))
    return execution.parallelism or found


def _slots_asked_for(master: str, conf: Properties) -> int:
    """Return how many tasks the executors run at once that YARN or Kubernetes was asked for.

    They come one by one, the last perhaps never: tasks that are there begin with the first one. 0
    if their number is not known, or if none could run a task.
    """
    if not master.startswith(_MANAGERS):
        return 0
    return whole(conf, EXECUTORS, 2) * tasks_of_executor(conf)


def _most_slots(conf: Properties) -> int:
    """Return how many tasks run at once when dynamic allocation has all executors that it may.

    Its executors come only when there are tasks to run, so none are waited for.
    """
    most = str(conf(MOST_EXECUTORS))
    if not most.isdecimal():
        return _SLOTS_WITHOUT_LIMIT
    return int(most) * max(1, tasks_of_executor(conf))


def _refuse_idle(context: SparkContext) -> None:
    """Raise `UsageError` if there are executors, and none can run a task.

    Spark writes that to its log only (`TaskSchedulerImpl`), and waits.
    """
    found = some_executors(context)
    if found and not any(each.maxTasks() for each in found):
        cores = max(each.totalCores() for each in found)
        raise UsageError(
            f"Spark starts no task: {TASK_CORES}={context.getConf().get(TASK_CORES)} is more than"
            f" its executors have cores ({cores}). Give --conf {TASK_CORES}={cores} or less, or"
            " more spark.executor.cores. What was copied is kept"
        )


def tries(context: SparkContext) -> int:
    """Return how often Spark tries a task: in local mode once, unless the master names a number."""
    if not LOCAL.fullmatch(str(context.master)):
        return int(context.getConf().get("spark.task.maxFailures") or TRIES)
    retries = re.fullmatch(r"local\[[^,]+,\s*(\d+)\]", str(context.master))
    return int(retries[1]) if retries else 1


def not_started(error: Exception, execution: ExecutionOptions) -> CpreplicateError:
    """Return the error for a session that ended while it started, with its probable reason.

    A standalone master of another release cannot read the registration of an application. It logs
    that, and answers nothing; Spark gives up after a minute, and stops what is not yet there.
    """
    found = failures.reason(error)
    if masters(_master(execution)) and "SparkEnv" in found:
        return CpreplicateError(
            f"the master at {_master(execution)} accepts connections, and did not answer the"
            f" registration: it runs another release of Spark than {pyspark.__version__}, which is"
            " that of pyspark here, or it asks for spark.authenticate. Its log names the reason."
            " What was copied is kept"
        )
    return CpreplicateError(
        f"Spark ended while it started: {found}. Look in the cluster's logs, or use --conf"
        " spark.log.level=INFO. What was copied is kept"
    )


@contextlib.contextmanager
def _new_context(
    execution: ExecutionOptions, directory: Path, pools: int, is_lost: Callable[[], bool]
) -> Iterator[SparkContext]:
    """Start a context of Spark, and stop it at the end: soon, if its engine `is_lost`.

    Its files are in `directory`. Raises `CpreplicateError` if it does not start.
    """
    if not is_submitted() and not has_passwd_entry():
        raise CpreplicateError(
            f"Spark cannot start: user id {os.geteuid()} has no passwd entry, which Hadoop's login"
            " in its JVM needs. Add an entry at the container's start, as the images of Spark do,"
            " or use --runner inline. What was copied is kept"
        )
    wait_for_master(_master(execution), execution.engine_timeout)
    conf, began = _conf(execution, directory, pools), time.monotonic()
    if execution.spark_master() is not None or not is_submitted():
        # otherwise the workers run whatever `python3` is
        os.environ["PYSPARK_PYTHON"] = _python(execution)
    with _explained(directory / "stderr") as stderr, _own_interrupt():
        context = _started(conf, stderr, execution.engine_timeout)
    startup_times.record(str(context.master), time.monotonic() - began)
    try:
        yield context
    finally:
        _stop(context, _STOP_LOST_SECONDS if is_lost() else _STOP_SECONDS)


def _master(execution: ExecutionOptions) -> str:
    """Return the master as far as it is known before the session; empty if others choose it.

    That of an existing session counts, whatever was given.
    """
    found = existing(execution)
    if found is not None:
        return str(found.master)
    return execution.spark_master() or ("" if is_submitted() else DEFAULT_MASTER)


def _wanted(execution: ExecutionOptions) -> own.Wanted:
    return execution.spark_master(), execution.conf


def existing(execution: ExecutionOptions) -> SparkContext | None:
    """Return the context that a run with these options would use, if that has started."""
    return own.existing(_wanted(execution))


def is_running(context: SparkContext) -> bool:
    """Return whether a context has not ended, as when its application failed."""
    try:
        return not context._jsc.sc().isStopped()
    except LOST:
        return False


def _python(execution: ExecutionOptions) -> str:
    """Return the Python of executors: this one, unless another was given for other machines."""
    given = execution.property("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON")
    return (
        given if given is not None and not LOCAL.fullmatch(_master(execution)) else sys.executable
    )


def _conf(execution: ExecutionOptions, directory: Path, pools: int) -> SparkConf:
    """Return the configuration: the defaults of cpreplicate, then the given properties.

    Under `spark-submit`, there are no defaults of cpreplicate, but its own configuration.
    """
    conf = SparkConf()
    if not is_submitted():
        conf.setMaster(execution.spark_master() or DEFAULT_MASTER).setAll(_quiet(directory))
        if not is_elsewhere(execution):
            conf.set("spark.driver.host", "127.0.0.1").set("spark.driver.bindAddress", "127.0.0.1")
        else:
            conf.setAll([*fault_settings(execution), *_AT_ONCE])
    if pools:
        conf.set("spark.scheduler.mode", "FAIR").set(
            "spark.scheduler.allocation.file", _pools(directory, pools)
        )
    conf.setAppName("cpreplicate").setAll(list(execution.conf))
    return conf.setMaster(execution.master) if execution.master else conf


def fault_settings(execution: ExecutionOptions) -> list[tuple[str, str]]:
    """Return the properties for machines that fail.

    With few tries, exclusion is left out: see `_can_exclude`.
    """
    exclusion = _EXCLUSION if _can_exclude(execution.property) else []
    return [(_MAX_FAILURES, str(TRIES)), *exclusion]


# On YARN and Kubernetes, Spark would wait up to 30 s for four executors in five before a first task
_AT_ONCE = [("spark.scheduler.minRegisteredResourcesRatio", "0")]


def refuse_unrunnable(conf: Properties) -> None:
    """Raise `UsageError` if Spark would run no job with these properties.

    Spark's own message of that is in its log only, or is none.
    """
    _refuse_little_memory(conf)
    if is_true(conf(_EXCLUDES)) and not _can_exclude(conf):
        raise UsageError(
            f"Spark runs no job with {_EXCLUDES}=true unless {_MAX_FAILURES}"
            f" ({conf(_MAX_FAILURES) or TRIES}) is above {_TRIES_ON_NODE}"
            f" ({conf(_TRIES_ON_NODE) or _TRIES_ON_NODE_BY_DEFAULT}). Change one of them, or give"
            f" --conf {_EXCLUDES}=false. What was copied is kept"
        )


def _refuse_little_memory(conf: Properties) -> None:
    """Raise `UsageError` if a task has too little address space for its threads.

    `PythonRunner` divides the memory by the cores of an executor, and `worker.py` limits RLIMIT_AS.
    """
    given, cores = str(conf(_PYTHON_MEMORY) or ""), str(conf(EXECUTOR_CORES) or 1)
    found = _SPARK_SIZE.fullmatch(given.lower())
    if found is None or not cores.isdecimal():
        return
    size = int(found[1]) << _SHIFTS[found[2] or "m"]
    if size < _LEAST_PYTHON_MEMORY * int(cores):
        raise UsageError(
            f"{_PYTHON_MEMORY}={given} is too little: it limits the address space of Python, and"
            f" each of the {cores} tasks of an executor needs 2g for its threads. Leave it out, or"
            f" give --conf {_PYTHON_MEMORY}={2 * int(cores)}g. What was copied is kept"
        )


def _can_exclude(conf: Properties) -> bool:
    """Return whether Spark tries a task less often on one machine than in all.

    `HealthTracker.validateExcludeOnFailureConfs` requires that with exclusion. It is raised where
    the first job starts, and ends Spark.
    """
    tries = str(conf(_MAX_FAILURES) or TRIES)
    on_node = str(conf(_TRIES_ON_NODE) or _TRIES_ON_NODE_BY_DEFAULT)
    if not (tries.isdecimal() and on_node.isdecimal()):
        return False  # Spark names the mistake
    return int(on_node) < int(tries)


_MAX_FAILURES = "spark.task.maxFailures"
_EXCLUDES = "spark.excludeOnFailure.enabled"
_TRIES_ON_NODE = "spark.excludeOnFailure.task.maxTaskAttemptsPerNode"
_TRIES_ON_NODE_BY_DEFAULT = 2
_EXCLUSION = [
    # otherwise a machine on which each batch fails quickly would get most of them
    (_EXCLUDES, "true"),
    ("spark.excludeOnFailure.timeout", "10m"),
    # after that, each batch is tried once more on any machine
    ("spark.scheduler.excludeOnFailure.unschedulableTaskSetTimeout", "5s"),
]


def _quiet(directory: Path) -> list[tuple[str, str]]:
    """Return settings by which Spark prints nothing, serves no pages and runs no task twice."""
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
        # a second copy does not make a slow one faster; --conf turns it on
        ("spark.speculation", "false"),
    ]


def _pools(directory: Path, pools: int) -> str:
    """Write the pools, and return the URI of the file.

    An earlier pool gets nearly all slots that it has tasks for.
    """
    file = directory / "pools.xml"
    levels = [
        _POOL.format(name=f"level-{level}", weight=10 ** min(9, pools - level))
        for level in range(pools)
    ]
    file.write_text(_POOLS.format("".join(levels)))
    return file.as_uri()


def _started(conf: SparkConf, stderr: Path, timeout: float | None) -> SparkContext:
    try:
        _launch(conf, stderr)
        cancellation.go_on()
        context = _made(conf, timeout)
    except BaseException as error:
        # before the JVM is stopped, because the message is there
        reason = error.java_exception.getMessage() if isinstance(error, Py4JJavaError) else None
        if SparkContext._active_spark_context is None:  # else it is in the user's JVM
            _forget_jvm()  # a JVM may run without a session
        if reason is None:
            raise
        raise RuntimeError(reason) from None
    _let_accumulators_end(context)
    return context


class _Making:
    """A context that another thread makes: nothing ends its wait for a full cluster.

    Under `spark-submit`, nothing ends the JVM either. Then that thread is left behind, and stops
    the context once it is there.
    """

    left: ClassVar[_Making | None] = None  # behind

    def __init__(self, conf: SparkConf) -> None:
        self._is_left = False
        self.call = in_thread(partial(self._make, conf), "spark-context")

    def _make(self, conf: SparkConf) -> SparkContext:
        context = SparkContext(conf=conf)
        if self._is_left:
            context.stop()
        return context

    def leave(self, tag: str) -> None:
        """End it, with the JVM that was started for it and the application that YARN accepted."""
        self._is_left = True
        with contextlib.suppress(RuntimeError):  # there is no thread left
            in_thread(partial(_kill_application, tag), "yarn").wait(_STOP_LOST_SECONDS)
        process = _jvm_process()
        if process is None:
            _Making.left = self
        else:
            _end_jvm(process)
            _forget_jvm()
            self.call.wait(_STOP_LOST_SECONDS)
        SparkContext._active_spark_context = None  # that which is not ready


def _made(conf: SparkConf, timeout: float | None) -> SparkContext:
    """Return a new context. Its JVM runs.

    Raises `EngineLost` if YARN or Kubernetes do not begin the application in time, and
    `RunnerStopped` if its start is given up.
    """
    master = str(conf.get("spark.master") or SparkConf().get("spark.master"))
    seconds = timeout or FIRST_SECONDS if master.startswith(_MANAGERS) else math.inf
    lost = EngineLost(errno.ETIMEDOUT, _not_begun(seconds), master)
    end = time.monotonic() + seconds
    while _Making.left is not None and not _Making.left.call.wait(_LOOK):
        _refuse_to_wait(end, lost)
    _Making.left = None
    tag = f"cpreplicate-{uuid.uuid4().hex}"
    if master == "yarn":
        tags = conf.get(_TAGS) or SparkConf().get(_TAGS)
        conf.set(_TAGS, ",".join(filter(None, (tags, tag))))
    making = _Making(conf)
    try:
        while not making.call.wait(_LOOK):
            _refuse_to_wait(end, lost)
    except BaseException:
        making.leave(tag if master == "yarn" else "")
        raise
    return making.call.result()


def _refuse_to_wait(end: float, lost: EngineLost) -> None:
    """Raise if the start of a context is given up, or has lasted too long."""
    own.go_on()
    if time.monotonic() >= end:
        raise lost


def _kill_application(tag: str) -> None:
    """Have YARN kill the application with this tag that it has accepted.

    It would wait for its driver, and each further try would add one. Does nothing without a tag.
    """
    jvm = SparkContext._jvm
    if not tag or jvm is None:
        return
    records = jvm.org.apache.hadoop.yarn.api.records.YarnApplicationState
    states = jvm.java.util.EnumSet.of(records.NEW, records.SUBMITTED, records.ACCEPTED)
    hadoop = jvm.org.apache.spark.deploy.SparkHadoopUtil.get()
    client = jvm.org.apache.hadoop.yarn.client.api.YarnClient.createYarnClient()
    client.init(hadoop.newConfiguration(jvm.org.apache.spark.SparkConf()))
    client.start()
    try:
        for each in client.getApplications(jvm.java.util.Collections.singleton("SPARK"), states):
            if each.getApplicationTags().contains(tag):
                client.killApplication(each.getApplicationId())
    finally:
        client.close()


def _not_begun(seconds: float) -> str:
    return (
        f"the cluster has not begun Spark's application within {seconds:.0f} s, which is as long as"
        " --engine-timeout allows. Free room in its queue, or give a longer --engine-timeout. What"
        " was copied is kept"
    )


def _launch(conf: SparkConf, stderr: Path) -> None:
    """Start the JVM, unless there is one, with this file for what it prints.

    That would be incubator modules and native libraries; and this process may print at any time.
    """
    cancellation.go_on()
    if SparkContext._gateway is None:
        with stderr.open("wb") as file:
            gateway = launch_gateway(conf, {"stderr": file})  # type: ignore[no-untyped-call]  # pyspark has no types here
        SparkContext._ensure_initialized(gateway=gateway)


def end_start(thread: int) -> None:
    """End the start of a session by another thread, if it is at one, with the JVM of that."""
    process = _jvm_process()
    if own.give_up(thread) and process is not None:
        _end_jvm(process)


def _end_jvm(process: subprocess.Popen[bytes]) -> None:
    process.terminate()  # it removes its temporary files
    try:
        process.wait(_STOP_LOST_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()


def given(execution: ExecutionOptions, name: str) -> str | None:
    """Return a property as it was given: to this command, or to `spark-submit`."""
    found = execution.property(name)
    if found is None and is_submitted():
        SparkContext._ensure_initialized()
        found = SparkConf().get(name)
    return found


def _let_accumulators_end(context: SparkContext) -> None:
    """Have pyspark's server of accumulators end without a word when the JVM is killed.

    `socketserver` would print the traceback of the broken connection. Nothing here uses
    accumulators, and the job that is under way reports the loss.
    """
    server = getattr(context, "_accumulatorServer", None)
    if server is not None:
        server.handle_error = lambda _request, _address: None


def _wait_for_executors(context: SparkContext) -> None:
    """Wait until executors have registered, which they do one after the other."""
    scheduler, began = context._jsc.sc(), time.monotonic()
    seen, since = 0, began
    while True:
        # the driver is one of them
        now, count = (time.monotonic(), int(scheduler.getExecutorMemoryStatus().size()) - 1)
        if count > seen:
            seen, since = count, now
        if (seen and now - since > _SETTLED) or now - began > _PATIENCE:
            return
        cancellation.go_on()
        time.sleep(_LOOK)


@contextlib.contextmanager
def _own_interrupt() -> Iterator[None]:
    """Keep this process's handler of Ctrl-C.

    pyspark's handler calls the JVM, which fails if it interrupts a call.
    """
    handler = signal.getsignal(signal.SIGINT)
    yield
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, handler)


def _stop(context: SparkContext, seconds: float) -> None:
    """Stop Spark, even if its JVM is gone, so that this process can start another session.

    If that takes longer than some seconds, kill the JVM.
    """
    stopping = in_thread(partial(_stop_or_clean_up, context), "spark")
    if not stopping.wait(seconds) and (process := _jvm_process()) is not None:
        process.kill()
        stopping.wait()
    if stopping.has_ended:
        stopping.result()


def _stop_or_clean_up(context: SparkContext) -> None:
    with warnings.catch_warnings():
        # pyspark warns in some cases that its JVM is gone
        warnings.simplefilter("error", RuntimeWarning)
        try:
            context.stop()
        except (*LOST, RuntimeWarning):
            context.stop()  # the first call failed at the JVM; the second cleans up in Python
            _forget_jvm()


def _jvm_process() -> subprocess.Popen[bytes] | None:
    """Return the process of the JVM; None under `spark-submit`, which runs in it."""
    return getattr(SparkContext._gateway, "proc", None)


def _forget_jvm() -> None:
    """Reap the JVM that is gone, so that the next session does not call it."""
    process = _jvm_process()
    SparkContext._gateway = SparkContext._jvm = None
    if process is not None:
        process.kill()
        with contextlib.suppress(OSError):  # the pipe is broken
            if process.stdin is not None:
                process.stdin.close()
        process.wait()


def _shipped(directory: Path) -> Path:
    """Return a zip of this package, so that executors need not have it installed."""
    package = Path(version.__file__).parent
    archive = directory / "cpreplicate.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as zipped:
        for file in sorted(package.rglob("*.py")):
            zipped.write(file, Path(package.name) / file.relative_to(package))
    return archive


def _java_output(stderr: Path) -> str:
    """Return what a JVM that did not start printed, or where else the reason may be found."""
    lines = [
        line
        for line in (stderr.read_bytes() if stderr.exists() else b"")
        .decode(errors="replace")
        .splitlines()
        if not _ALWAYS_PRINTED.search(line)
    ]
    output = " ".join(" ".join(lines).split())
    if output:
        return f"It printed: {output[-2000:]}"
    return (
        "If it waited for executors, the logs of the cluster's workers, or of its pods, show why"
        " none came; --conf spark.log.level=INFO shows more here. What was copied is kept"
    )


@contextlib.contextmanager
def _explained(stderr: Path) -> Iterator[Path]:
    """Raise what the block raises as an error of the start, with what the JVM printed there."""
    try:
        yield stderr
    except (RunnerStopped, EngineLost):
        raise
    except Exception as error:
        raise CpreplicateError(
            f"Spark did not start: {str(error).rstrip('.')}. {_java_output(stderr)}"
        ) from error
