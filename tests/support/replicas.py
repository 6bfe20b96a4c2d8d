"""Replicas on local disk in the states that upkeep meets, made from synthetic jobs."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import google_crc32c

from cpreplicate.operations.sync import sync
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.protocol import lease, seal
from cpreplicate.protocol.held import HeldReplica
from cpreplicate.protocol.journal import JournalRow, JournalWriter
from cpreplicate.runners import ExecutionOptions
from cpreplicate.storage import Side
from tests.support.jobs import JOB, write_checkpoint

DAY = 24 * 3600
FILES = {f"shared/{name}": 100 * size for size, name in enumerate("abcdefgh", start=1)} | {
    "chk-1/x": 30
}
NEXT = {
    **{name: size for name, size in FILES.items() if name > "shared/c"},
    "shared/y": 60,
    "chk-2/x": 40,
}


def synced(root: Path, checkpoints: Mapping[int, Mapping[str, int]], **options: Any) -> Path:
    """The replica below `root/dcB` after each checkpoint of the job in `root/dcA` was synced."""
    for number, files in checkpoints.items():
        write_checkpoint(root / "dcA", number, files)
        source = f"file:{root}/dcA/{JOB}/chk-{number}"
        sync.sync(
            SyncRequest(
                source, f"file:{root}/dcB", execution=ExecutionOptions(runner="inline"), **options
            ),
            lambda _line: None,
        )
    return root / "dcB" / JOB


@contextmanager
def held(replica: Path, side: Side | None = None) -> Iterator[HeldReplica]:
    """The replica while its lease is held: what changes it by hand does so under the lease."""
    side = side or Side()
    with lease.acquire(f"file:{replica}", side) as taken:
        yield HeldReplica(f"file:{replica}", side, taken)


def sealed(replica: Path, checkpoint: str, side: Side | None = None) -> Path:
    """The replica, sealed for a checkpoint as by `promote`."""
    with held(replica, side) as changed:
        seal.seal(changed, checkpoint)
    return replica


def recorded(replica: Path, *names: str, days: float = 2) -> None:
    """Have a journal of a run that died some days ago list these files as its own: those that are
    there as complete.
    """
    there = {name: (replica / name).read_bytes() for name in names if (replica / name).is_file()}
    rows = [JournalRow(name, len(data), google_crc32c.value(data)) for name, data in there.items()]
    _plan(replica, names, rows)
    _age(replica, days)


def planned(replica: Path, *names: str, days: float = 2) -> None:
    """Have a journal of a run that died some days ago list these paths: whether it wrote there is
    not recorded.
    """
    _plan(replica, names)
    _age(replica, days)


def _plan(replica: Path, names: Sequence[str], known: Sequence[JournalRow] = ()) -> None:
    journal = JournalWriter(Side().storage("file:/"), f"file:{replica}")
    with journal.planning(names, known) as part:
        part.appear()


def _age(replica: Path, days: float) -> None:
    for part in (replica / ".cpreplicate").glob("copied-*"):
        aged(part, days)


def aged(path: Path, days: float = 2) -> Path:
    """Make a file, or all below a directory, some days old."""
    for each in [path, *path.rglob("*")]:
        os.utime(each, (time.time() - days * DAY,) * 2)
    return path


def paths(replica: Path) -> set[str]:
    """The files under a replica."""
    return {str(each.relative_to(replica)) for each in replica.rglob("*") if not each.is_dir()}
