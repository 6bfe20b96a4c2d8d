"""Run by Airflow's own Python: import the DAG of `deploy/airflow`, run it, print the states.

Arguments: the directory of the DAG, and the variables of the DAG as JSON.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from airflow.dag_processing.dagbag import DagBag
from airflow.models.dagrun import DagRun
from airflow.utils.session import create_session


def run(directory: str, variables: dict[str, Any]) -> list[list[object]]:
    """Return [task, map index, state, number of tries] of each task of a run of the DAG."""
    for name, value in variables.items():
        text = value if isinstance(value, str) else json.dumps(value)
        os.environ[f"AIRFLOW_VAR_{name.upper()}"] = text
    sys.path.append(directory)  # as Airflow does with each bundle of DAGs
    bag = DagBag(dag_folder=directory)
    if bag.import_errors:
        sys.exit(str(bag.import_errors))
    dag = bag.dags["cpreplicate"]
    run_id = dag.test().run_id
    with create_session() as session:
        [dag_run] = session.query(DagRun).filter(DagRun.run_id == run_id)
        instances = dag_run.get_task_instances(session=session)
        return sorted(
            [each.task_id, each.map_index, str(each.state), each.try_number] for each in instances
        )


if __name__ == "__main__":
    states = run(sys.argv[1], json.loads(sys.argv[2]))
    print(json.dumps(states))
