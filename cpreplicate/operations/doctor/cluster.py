"""Checks of what copies: Java, the Spark session, and its executors."""

from __future__ import annotations

import platform
import socket
from dataclasses import replace

from cpreplicate import errors
from cpreplicate.core import uri
from cpreplicate.core.sizes import counted
from cpreplicate.errors import CpreplicateError
from cpreplicate.operations.doctor.case import Case, Visit
from cpreplicate.operations.doctor.findings import Result, failure, skipped, warning
from cpreplicate.operations.doctor.sockets import unanswered
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.runners import EngineLost
from cpreplicate.runners.choose import RunnerChoice, refuse_without_pyspark, runner_choice
from cpreplicate.storage import Sides, java, questions
from cpreplicate.version import __version__

_TASKS = 32  # on executors, unless --parallelism gives another number
_REMEDY = "Correct --master and --conf, or what executors run, see docs/clusters.md"
_NO_START = 1
_COPIES_FAILED = 3


def check_java(subject: Case) -> Result:
    """Check the Java that Spark needs, if Spark may copy."""
    chosen = _choice(subject)
    if subject.request.execution.runner == "inline":
        return Result("not needed by --runner inline")
    problem = _java_problem()
    if problem is None:
        path = java.executable() or ""
        reported = java.version(path)
        return Result(f"Java {reported[1] if reported else 'unknown'}, {path}")
    remedy = f"Install Java {java.least()} or later, set JAVA_HOME to it, or use --runner inline"
    if chosen.runner == "spark":
        return failure(f"Spark needs Java {java.least()}, and {problem}", remedy, _NO_START)
    return warning(f"{problem}. This sync would run inline, a larger one needs it", remedy)


def _java_problem() -> str | None:
    path = java.executable()
    if path is None:
        return "no Java was found"
    reported = java.version(path)
    if reported is None:
        return f"{path} does not run"
    major, full = reported
    return None if major >= java.least() else f"{path} is Java {full}"


def _choice(subject: Case) -> RunnerChoice:
    """Return which runner a sync would use, as far as its plan is known."""
    request, plan = subject.request, subject.plan
    if plan is None or plan.empty:
        runner = request.execution.runner
        return RunnerChoice("inline" if runner == "auto" else runner, "nothing to copy is known")
    return runner_choice(request.execution, *plan.amount, request.sides.target.limits.bandwidth)


def check_runner(subject: Case) -> Result:
    """Report which runner a sync would use."""
    chosen = _choice(subject)
    return Result(f"{chosen.runner} ({chosen.reason})")


def check_spark(subject: Case) -> Result:
    """Start the session, and run tasks on its executors, if Spark was asked for."""
    request = subject.request
    if request.execution.runner != "spark":
        return skipped("give --runner spark to start a session and ask its executors")
    refuse_without_pyspark()
    from cpreplicate.runners.spark.engine import masters

    addresses = masters(request.execution.spark_master() or "")
    if addresses and unanswered(addresses) == addresses:
        return failure(
            f"no Spark master answers at {', '.join(addresses)}",
            "Start it, correct --master, or open the port for this machine",
            EngineLost.exit_code,
        )
    try:
        subject.visits = _visits(request)
    except (CpreplicateError, EngineLost) as error:  # whose message has no remedy
        return failure(str(error).rstrip("."), _REMEDY, error.exit_code)
    return Result(_versions(subject.visits))


def _visits(request: SyncRequest) -> list[Visit]:
    """Start a session, and return what its tasks report."""
    from cpreplicate.runners.spark.runner import SparkRunner

    places = (request.source, request.target_root)
    execution = replace(request.execution, show=None)  # there is no progress to show
    with SparkRunner(request.sides, execution) as runner:
        visitor = _Visitor(runner.limited(request.sides), *places)
        return runner.map(visitor, range(execution.parallelism or _TASKS), places)


def _versions(visits: list[Visit]) -> str:
    hosts = sorted({visit.host for visit in visits})
    pythons = ", ".join(sorted({visit.python for visit in visits}))
    versions = ", ".join(sorted({visit.version for visit in visits}))
    return (
        f"{counted(len(visits), 'task')} ran on {', '.join(hosts)}: Python {pythons}, cpreplicate"
        f" {versions}; the driver has Python {platform.python_version()}, cpreplicate"
        f" {__version__}"
    )


def check_executors(subject: Case) -> Result:
    """Check that the executors reach both sides."""
    if not subject.visits:
        return skipped("no task ran on an executor")
    problems = {
        f"{visit.host}: {problem}" for visit in subject.visits for problem in visit.problems
    }
    if not problems:
        return Result("every task reached both sides")
    return failure(
        "; ".join(sorted(problems)),
        "Let the executors' hosts resolve and reach the services, with the same mounts for file:",
        _COPIES_FAILED,
    )


class _Visitor:
    """The function that runs on executors."""

    def __init__(self, sides: Sides, source: str, target_root: str) -> None:
        self._sides, self._source, self._target_root = sides, source, target_root

    def __call__(self, _number: int) -> Visit:
        problems = filter(None, (self._source_problem(), self._target_problem()))
        host, python = socket.gethostname(), platform.python_version()
        return Visit(host, python, __version__, tuple(problems))

    def _source_problem(self) -> str | None:
        try:
            status = self._sides.source.storage(self._source).stat(self._source)
        except (OSError, CpreplicateError) as error:
            return errors.described(error)
        return f"{self._source} is not there" if status is None else None

    def _target_problem(self) -> str | None:
        storage = self._sides.target.storage(self._target_root)
        try:
            questions.reach(storage, self._target_root)
        except (OSError, CpreplicateError) as error:
            return f"{uri.filesystem(self._target_root)}: {errors.described(error)}"
        return None
