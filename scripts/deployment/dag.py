"""The DAG in a real Airflow: imported, and run with `dag.test()` on real checkpoints."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from scripts.deployment import tools
from tests.support.jobs import JOB, write_checkpoint

# Ends with 12 at the first run for the job `moved`, and is cpreplicate at every other.
_PROGRAM = """#!/bin/sh
case "$*" in *moved*) if mkdir "$0.moved" 2>/dev/null; then exit 12; fi ;; esac
exec {python} -m cpreplicate "$@"
"""
_EXPECTED = {
    ("replicate.sync", 0): ("success", 1),
    ("replicate.verify", 0): ("success", 1),
    ("replicate.sync", 1): ("skipped", 1),
    ("replicate.sync", 2): ("failed", 1),  # at once, not tried again
    ("replicate.sync", 3): ("success", 2),  # tried again
    ("replicate.verify", 3): ("success", 1),
}


def check() -> None:
    """Exit unless each job of a run of the DAG ends as its exit code says."""
    python = tools.airflow()
    with tempfile.TemporaryDirectory(prefix="cpreplicate-airflow-") as directory:
        place = Path(directory)
        env = {
            "AIRFLOW_HOME": f"{place}/airflow",
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__DAGS_FOLDER": str(tools.DEPLOY / "airflow"),
        }
        tools.run(python.with_name("airflow"), "db", "migrate", env=env)
        script = Path(__file__).with_name("airflow_run.py")
        variables = json.dumps(_variables(place))
        output = tools.run(python, script, tools.DEPLOY / "airflow", variables, env=env)
    states = {(task, index): (state, tries) for task, index, state, tries in _last(output)}
    if wrong := {key: states.get(key) for key in _EXPECTED if states.get(key) != _EXPECTED[key]}:
        sys.exit(f"Airflow: {wrong} instead of {_EXPECTED}")
    print("Airflow: imported, and run: success, retry, skip, fail", flush=True)


def _last(output: str) -> list[tuple[str, int, str, int]]:
    return [tuple(each) for each in json.loads(output.splitlines()[-1])]


def _variables(place: Path) -> dict[str, object]:
    """Return a job that is replicated, one to be skipped, one that fails, and one tried again."""
    write_checkpoint(place / "dcA", 1, {"shared/a": 1000})
    source, none = f"{place}/dcA/{JOB}", f"{place}/dcA/none"
    program = place / "program"
    program.write_text(_PROGRAM.format(python=sys.executable))
    program.chmod(0o755)
    jobs = [
        {"name": "there", "source": source, "target_root": f"{place}/there"},
        {"name": "new", "source": none, "target_root": f"{place}/new", "skip_not_there": True},
        {"name": "gone", "source": none, "target_root": f"{place}/gone"},
        {"name": "moved", "source": source, "target_root": f"{place}/moved"},
    ]
    return {"cpreplicate_jobs": jobs, "cpreplicate_program": str(program)}
