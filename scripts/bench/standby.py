"""The syncs of a standby whose checkpoints are small, by a process that is warm."""

from __future__ import annotations

import time

from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.operations.sync.sync import sync
from cpreplicate.runners import ExecutionOptions
from cpreplicate.storage import Side, Sides
from scripts.bench.clusters import NAMED
from tests.support.jobs import JOB, put_checkpoint

_FILES = 20
_SIZE = 64 << 10  # bytes of the file that each checkpoint adds
_BETWEEN = 2.5  # seconds: what was just written is read again


def seconds(source: str, target: str, rounds: int) -> list[float]:
    """Return what each sync of a checkpoint with one new file takes, after a first one."""
    sides = Sides(Side(), Side((("", (tuple(NAMED.split("=", 1)),)),)))  # type: ignore[arg-type]  # one property
    request = SyncRequest(
        f"{source}/{JOB}", target, sides=sides, execution=ExecutionOptions(runner="inline")
    )
    files = {f"shared/{number:03}": 3000 + number for number in range(_FILES)}
    took = []
    for number in range(1, rounds + 2):
        files = {**dict(list(files.items())[1:]), f"shared/new-{number}": _SIZE}
        put_checkpoint(sides.source, source, number, files)
        time.sleep(_BETWEEN)
        began = time.monotonic()
        sync(request, lambda _line: None)
        took.append(time.monotonic() - began)
    return took[1:]
