"""A DAG that replicates and verifies Flink jobs: docs/deployment.md.

The Airflow variable `cpreplicate_jobs` is a JSON array of objects: `name`, `source`, `target_root`,
and optionally `options`, the fields of `cpreplicate.SyncOptions`, and `skip_not_there`, true for a
job that may have no checkpoint yet. `source` and `target_root` are URIs, or objects with the fields
of `cpreplicate.Place`. cpreplicate is installed beside Airflow.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any, TypeVar

from airflow.sdk import Variable, dag, task, task_group
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException

# Airflow has the directory of the DAGs on its path: copy both files there.
from cpreplicate_exit_codes import NOT_RESTORABLE, Outcome, outcome

T = TypeVar("T")


def ended(work: Callable[[], T], skip_not_there: bool = False) -> T:
    """Return what `work` returns.

    Raises `AirflowSkipException`, `AirflowFailException` or `AirflowException`, by the exit code
    with which the command would end.
    """
    from cpreplicate import errors

    try:
        return work()
    except Exception as error:
        code = errors.exit_code_of(error)
        raise failure(code, errors.described(error), skip_not_there) from error


def failure(code: int, message: str, skip_not_there: bool = False) -> Exception:
    """Return the exception of Airflow for an exit code."""
    becomes, text = outcome(code, skip_not_there), f"exit {code}: {message}"
    if becomes is Outcome.SKIP:
        return AirflowSkipException(text)
    return AirflowFailException(text) if becomes is Outcome.FAIL else AirflowException(text)


def fields(place: str | dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a `Place`, which may be given as its URI."""
    return {"url": place} if isinstance(place, str) else dict(place)


@dag(
    schedule=timedelta(minutes=5),
    start_date=datetime(2024, 1, 1, tzinfo=timezone.utc),
    catchup=False,
    max_active_runs=1,
    default_args={
        "retries": 3,
        "retry_delay": timedelta(seconds=20),
        "retry_exponential_backoff": True,
        "max_retry_delay": timedelta(minutes=2),
    },
    tags=["flink", "replication"],
)
def cpreplicate() -> None:
    """Replicate each job of the variable `cpreplicate_jobs`, and verify what is new."""

    @task
    def jobs() -> list[dict[str, Any]]:
        """Return the jobs."""
        return list(Variable.get("cpreplicate_jobs", default=[], deserialize_json=True))

    @task
    def sync(job: dict[str, Any]) -> dict[str, Any]:
        """Replicate a job, and return what was replicated to where."""
        from cpreplicate import Checkpoint, Place, SyncOptions
        from cpreplicate import sync as replicate

        source, target = Checkpoint(**fields(job["source"])), Place(**fields(job["target_root"]))
        options = SyncOptions(**{"name": job.get("name"), **job.get("options", {})})
        report = ended(
            lambda: replicate(source, target, options, on_message=print),
            bool(job.get("skip_not_there", False)),
        )
        replica = {**fields(job["target_root"]), "url": report.plan.replica}
        checkpoint = report.plan.checkpoint
        return {"replica": replica, "checkpoint": checkpoint, "committed": report.committed}

    @task
    def verify(report: dict[str, Any]) -> None:
        """Verify a replica to which a checkpoint was committed."""
        from cpreplicate import Place
        from cpreplicate import verify as prove

        if not report["committed"]:
            raise AirflowSkipException(f"{report['checkpoint']} was there already")
        replica = Place(**report["replica"])
        if not ended(lambda: prove(replica, on_message=print)).restorable:
            raise failure(NOT_RESTORABLE, f"run: cpreplicate verify {replica.url}")

    @task_group
    def replicate(job: dict[str, Any]) -> None:
        """Replicate and verify a job: a failure of one job does not hold up the others."""
        verify(sync(job))

    replicate.expand(job=jobs())


cpreplicate()
