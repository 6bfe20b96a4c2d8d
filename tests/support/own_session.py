"""A user's program with a SparkSession of its own, in which it syncs: what that leaves of it.

`python -m tests.support.own_session MASTER TARGETS CHECKPOINT [CHECKPOINT …]` prints a JSON object
a line. Each checkpoint has a TARGET_ROOT below TARGETS. Those after the first are replicated at the
same time. After `{"event": "synced"}` it reads a line of stdin, so that executors can be replaced,
and then runs a job of the user's once more.
"""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pyspark.sql import SparkSession

from cpreplicate import Checkpoint, ExecutionOptions, Place, SyncOptions, sync
from cpreplicate.errors import CpreplicateError

_CONF = {
    "spark.ui.enabled": "false",
    "spark.log.level": "OFF",
    "spark.scheduler.mode": "FAIR",
    "spark.executor.memory": "512m",
}
_EXECUTION = ExecutionOptions(runner="spark")


def main() -> None:
    """Run the program."""
    master, targets, *checkpoints = sys.argv[1:]
    first, *others = [(each, f"{targets}/{number}") for number, each in enumerate(checkpoints)]
    builder = SparkSession.builder.master(master).appName("of the user")
    for name, value in _CONF.items():
        builder = builder.config(name, value)
    context = builder.getOrCreate().sparkContext
    context.setLocalProperty("spark.scheduler.pool", "of-the-user")
    context.setJobGroup("group-of-the-user", "its description")
    before = _state(context)
    _print("job", sum=_sum(context))
    _print("sync", error=_synced(first))
    _print("again", error=_synced((first[0], f"{targets}/again")))
    with ThreadPoolExecutor(len(others) or 1) as pool:
        for error in pool.map(_synced, others):
            _print("sync", error=error)
    _print("state", before=before, after=_state(context))
    _print("synced")
    sys.stdin.readline()
    _print("job", sum=_sum(context))


def _print(event: str, **facts: Any) -> None:
    print(json.dumps({"event": event, **facts}), flush=True)


def _sum(context: Any) -> int:
    return int(context.parallelize(range(100), 2).map(lambda number: number + 1).sum())


def _synced(places: tuple[str, str]) -> str | None:
    checkpoint, target_root = places
    try:
        sync(Checkpoint(checkpoint), Place(target_root), SyncOptions(execution=_EXECUTION))
    except Exception as error:  # noqa: BLE001  # each is one of ours, or a fault
        name = type(error).__name__
        return f"{name if isinstance(error, CpreplicateError) else 'not ours: ' + name}: {error}"
    return None


def _state(context: Any) -> dict[str, Any]:
    """Return what of a session anybody can see."""
    worker = context.parallelize([0], 1).map(lambda _: __import__("sys").path).collect()
    names = ("spark.scheduler.pool", "spark.jobGroup.id", "spark.job.description")
    pools = context._jsc.sc().getAllPools().mkString(",").count("name")
    return {
        "conf": sorted(map(list, context.getConf().getAll())),
        "properties": {name: context.getLocalProperty(name) for name in names},
        "sys.path": sys.path,
        "sys.path of a worker": worker,
        "files": context._jsc.sc().listFiles().mkString(","),
        "pools": pools,
    }


if __name__ == "__main__":
    main()
