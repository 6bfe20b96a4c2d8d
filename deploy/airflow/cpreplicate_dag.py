"""A DAG that replicates and verifies Flink jobs: docs/deployment.md.

The Airflow variable `cpreplicate_jobs` is a JSON array of objects: `name`, `source`, `target_root`,
and optionally `options`, an array of words, and `skip_not_there`, true for a job that may have no
checkpoint yet. The variable `cpreplicate_program` is the path of the program, if it is not on the
PATH of the workers.
"""

from __future__ import annotations

import json
import subprocess
from datetime import datetime, timedelta, timezone
from typing import Any

from airflow.sdk import Variable, dag, task, task_group
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException

# Airflow has the directory of the DAGs on its path: copy both files there.
from cpreplicate_exit_codes import Outcome, outcome

_STOP_SECONDS = 60  # to end after SIGTERM: without partial files, and without the lease


def run(words: list[str], skip_not_there: bool = False) -> dict[str, Any]:
    """Run cpreplicate and return its JSON result.

    Raise `AirflowSkipException`, `AirflowFailException` or `AirflowException`, by its exit code.
    """
    program = Variable.get("cpreplicate_program", default="cpreplicate")
    code, result, messages = _ended([program, *words, "-q", "--output", "json"])
    if messages:
        print(messages)
    last = (messages.splitlines() or [f"exit {code}"])[-1]
    becomes = outcome(code, skip_not_there)
    if becomes is Outcome.SKIP:
        raise AirflowSkipException(last)
    if becomes is Outcome.FAIL:
        raise AirflowFailException(last)
    if becomes is Outcome.RETRY:
        raise AirflowException(last)
    return dict(json.loads(result))


def _ended(command: list[str]) -> tuple[int, str, str]:
    """Return exit code, stdout and stderr. A task that Airflow stops ends the run, too."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as process:
        try:
            result, messages = process.communicate()
        except BaseException:
            process.terminate()
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
            raise
    return process.returncode, result, messages


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
        """Replicate a job, and return the names of what it replicated."""
        places = [job["source"], job["target_root"]]
        words = ["sync", *places, *job.get("options", [])]
        report = run(words, bool(job.get("skip_not_there", False)))
        return {key: report[key] for key in ("replica", "checkpoint_id", "committed")}

    @task
    def verify(report: dict[str, Any]) -> None:
        """Verify a replica to which a checkpoint was committed."""
        if not report["committed"]:
            raise AirflowSkipException(f"chk-{report['checkpoint_id']} was there already")
        run(["verify", report["replica"]])

    @task_group
    def replicate(job: dict[str, Any]) -> None:
        """Replicate and verify a job: a failure of one job does not hold up the others."""
        verify(sync(job))

    replicate.expand(job=jobs())


cpreplicate()
