"""A replica with many points on an object store, and what a sync calls there."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

from cpreplicate.core.retention import Retention
from cpreplicate.operations.sync.report import Report
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.operations.sync.sync import sync
from cpreplicate.runners import ExecutionOptions
from cpreplicate.storage import Side, Sides
from cpreplicate.storage.base import Storage
from cpreplicate.storage.wrappers.base import StorageWrapper
from tests.support.jobs import JOB, write_checkpoint
from tests.support.registry import serving
from tests.support.staging import silent

SETTLES = 3.5  # seconds after which what was written is not young, by times of whole seconds


class Counting(StorageWrapper):
    """Counts calls by verb, and those that read a `_metadata` of a point as `points`."""

    def __init__(self, inner: Storage) -> None:
        super().__init__(inner)
        self.calls = Counter[str]()

    def before(self, verb: str, uri: str) -> None:
        self.calls[verb] += 1
        self.calls["points"] += verb == "open" and uri.endswith("/_metadata")


class KeptPoints:
    """A job at `directory` whose last `count` checkpoints are kept below `root`.

    They were replicated on local disk, and copied to the store with what the replica records.
    """

    def __init__(self, directory: Path, side: Side, root: str, count: int) -> None:
        self.directory, self.side, self.root, self.count = directory, side, root, count
        self.replica, self.number = f"{root}/{JOB}", 0
        local = directory / "local"
        for _ in range(count):
            self._complete()
            sync(self.request(f"file:{local}"), silent)
        storage = side.storage(root)
        for path in filter(Path.is_file, local.rglob("*")):
            storage.put(f"{root}/{path.relative_to(local)}", partial(_content, path))
        time.sleep(SETTLES)

    def request(self, root: str) -> SyncRequest:
        """What keeps the points."""
        return SyncRequest(
            f"file:{self.directory}/dcA/{JOB}",
            root,
            keep=Retention(last=self.count),
            sides=Sides(target=self.side),
            execution=ExecutionOptions(runner="inline"),
            subsumption_wait=0.0,
        )

    def sync(self) -> Report:
        """Replicate a new checkpoint."""
        self._complete()
        return sync(self.request(self.root), silent)

    def calls(self) -> Counter[str]:
        """Replicate a new checkpoint, and return what that called at the store."""
        counting = Counting(self.side.storage(self.root))
        with serving(self.root.partition(":")[0], counting):
            assert self.sync().committed
        return counting.calls

    def rewrite(self, name: str, change: Callable[[bytes], bytes]) -> None:
        """Another program writes over the `_metadata` of a point."""
        storage, place = self.side.storage(self.root), f"{self.replica}/{name}/_metadata"
        data = change(storage.read(place))
        storage.put(place, lambda: [data])

    def _complete(self) -> None:
        self.number += 1
        files = {f"shared/{self.number + each}": 100 + each for each in range(3)}
        own = {f"chk-{self.number}/own": 10}
        write_checkpoint(self.directory / "dcA", self.number, files | own)


def _content(path: Path) -> list[bytes]:
    return [path.read_bytes()]
