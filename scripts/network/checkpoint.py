"""A checkpoint of a network, and what its replica must hold: run on the driver.

python -m scripts.network.checkpoint write ROOT
python -m scripts.network.checkpoint check ROOT    # of replicas; prints what is wrong
python -m scripts.network.checkpoint lease ROOT    # prints what is there of lease and commit
"""

from __future__ import annotations

import sys

from cpreplicate.storage import Side
from scripts.bench.clusters import NAMED
from tests.support.jobs import JOB, pattern, put_checkpoint

FILES = {f"shared/{number:04}": 200_000 + number for number in range(90)}


def _side() -> Side:
    name, _, value = NAMED.partition("=")
    return Side(options=(("hdfs:", ((name, value),)),))


def faults(root: str) -> list[str]:
    """Return what is missing or differs in the replica below a root."""
    storage, found = _side().storage(root), []
    for name, length in FILES.items():
        status = storage.stat(f"{root}/{JOB}/{name}")
        if status is None:
            found.append(f"{name} is missing")
        elif storage.read(f"{root}/{JOB}/{name}", 0, length + 1) != pattern(name, length):
            found.append(f"{name} differs")
    if storage.stat(f"{root}/{JOB}/chk-1/_metadata") is None:
        found.append("chk-1 is not committed")
    return found


def state(root: str) -> list[str]:
    """Return `lease` and `committed`, as far as they are there."""
    storage = _side().storage(root)
    places = {"lease": ".cpreplicate/lease", "committed": "chk-1/_metadata"}
    return [
        word for word, path in places.items() if storage.stat(f"{root}/{JOB}/{path}") is not None
    ]


def main(action: str, root: str) -> None:
    """Do one of the three, and print one line for each finding."""
    if action == "write":
        put_checkpoint(_side(), root, 1, FILES)
        return
    for line in faults(root) if action == "check" else state(root):
        print(line)


if __name__ == "__main__":
    main(*sys.argv[1:])
