"""The DAG in a real Airflow: imported, and run with `dag.test()` on real checkpoints."""

from __future__ import annotations

import json
import sqlite3
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from cpreplicate.protocol.lease import acquire
from cpreplicate.storage import Side
from scripts.deployment import tools
from tests.support.jobs import JOB, write_checkpoint

_LOOK = 0.1  # seconds between two looks
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
        variables = json.dumps({"cpreplicate_jobs": _jobs(place)})
        with _held(place / "held" / JOB, place / "airflow" / "airflow.db"):
            output = tools.run(python, script, tools.DEPLOY / "airflow", variables, env=env)
    states = {(task, index): (state, tries) for task, index, state, tries in _last(output)}
    if wrong := {key: states.get(key) for key in _EXPECTED if states.get(key) != _EXPECTED[key]}:
        sys.exit(f"Airflow: {wrong} instead of {_EXPECTED}")
    print("Airflow: imported, and run: success, retry, skip, fail", flush=True)


@contextmanager
def _held(replica: Path, database: Path) -> Iterator[None]:
    """Hold the lease of a replica until Airflow has recorded that its job is to be tried again."""
    holder = threading.Thread(target=_hold, args=(f"file:{replica}", database), daemon=True)
    holder.start()
    while not (replica / ".cpreplicate" / "lease").exists():
        time.sleep(_LOOK)
    yield


def _hold(replica: str, database: Path) -> None:
    with acquire(replica, Side()):
        while not _is_to_be_tried_again(database):
            time.sleep(_LOOK)


def _is_to_be_tried_again(database: Path) -> bool:
    asked = "select count(*) from task_instance where state = 'up_for_retry'"
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        return bool(connection.execute(asked).fetchone()[0])


def _last(output: str) -> list[tuple[str, int, str, int]]:
    return [tuple(each) for each in json.loads(output.splitlines()[-1])]


def _jobs(place: Path) -> list[dict[str, object]]:
    """Return a job that is replicated, one to be skipped, one that fails, and one tried again."""
    write_checkpoint(place / "dcA", 1, {"shared/a": 1000})
    source, none = f"{place}/dcA/{JOB}", f"{place}/dcA/none"
    options = {"keep": 2}
    return [
        {"name": "there", "source": source, "target_root": f"{place}/there", "options": options},
        {"name": "new", "source": none, "target_root": f"{place}/new", "skip_not_there": True},
        {"name": "gone", "source": none, "target_root": {"url": f"{place}/gone"}},
        {"name": "held", "source": {"url": source}, "target_root": {"url": f"{place}/held"}},
    ]
