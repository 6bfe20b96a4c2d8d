"""A directory of others that was adopted, and a job that goes on there from the replica."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cpreplicate.core.plan import Cap
from cpreplicate.operations.sync.report import Report
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.operations.sync.sync import sync
from cpreplicate.operations.upkeep import sweep
from cpreplicate.runners import ExecutionOptions
from tests.support.jobs import JOB, metadata_of, write_checkpoint
from tests.support.replicas import FILES, aged

LATER = {"shared/zz": 10, "chk-3/q": 7}
SHARED = {name: size for name, size in FILES.items() if "shared/" in name and name < "shared/f"}


class Adopted:
    """A directory in which a job wrote a file before it was adopted, and the job goes on there."""

    def __init__(self, root: Path, **options: Any) -> None:
        self.root, self.replica = root, root / "dcB" / JOB
        write_checkpoint(root / "dcA", 1, FILES)
        (self.replica / "shared").mkdir(parents=True)
        (self.replica / "shared/of-b").write_bytes(b"of the job")
        self.sync(adopt=True, **options)

    def request(self, **options: Any) -> SyncRequest:
        return SyncRequest(
            f"file:{self.root}/dcA/{JOB}",
            f"file:{self.root}/dcB",
            execution=ExecutionOptions(runner="inline"),
            **options,
        )

    def sync(self, **options: Any) -> Report:
        return sync(self.request(**options), lambda _line: None)

    def complete(self, files: dict[str, int], number: int = 2, root: str = "") -> None:
        """Complete a checkpoint of the job, which was started from chk-1 of the replica."""
        recorded = root or f"file:{self.replica}"
        place = self.replica / f"chk-{number}"
        place.mkdir()
        uris = {f"{recorded}/{name}": size for name, size in files.items()}
        (place / "_metadata").write_bytes(metadata_of(number, uris))

    def moves_on(self) -> None:
        write_checkpoint(self.root / "dcA", 3, LATER)

    def sweep(self) -> sweep.Sweep:
        aged(self.replica)
        options = ExecutionOptions(runner="inline")
        everything = Cap(1, is_share=True)
        request = sweep.SweepRequest(f"file:{self.replica}", 0, everything, execution=options)
        return sweep.sweep(request, lambda _line: None)

    def there(self) -> set[str]:
        return {name for name in FILES if (self.replica / name).exists()}
