"""What runs that died had written goes with the next commit, where records prove whose it is."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from cpreplicate.operations.sync.report import Report
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.operations.sync.sync import sync
from cpreplicate.protocol.journal import JournalRow, JournalWriter
from cpreplicate.runners import ExecutionOptions
from cpreplicate.storage import TEMPORARY, Side, checksum
from tests.support import checker
from tests.support.jobs import JOB, write_checkpoint
from tests.support.replicas import FILES, NEXT, synced

LATER = {**NEXT, "shared/later": 10}
PLANNED = "shared/planned"
WRITTEN = ("shared/written", "chk-2/own")
UNFINISHED = f"packed/{TEMPORARY}0123"
PACK = "packed/00000000000001-0123456789ab"


def run(root: Path, **options: object) -> tuple[Report, list[str]]:
    lines: list[str] = []
    request = SyncRequest(
        f"file:{root}/dcA/{JOB}",
        f"file:{root}/dcB",
        execution=ExecutionOptions(runner="inline"),
        **options,
    )
    return sync(request, lines.append), lines


def paths(replica: Path) -> set[str]:
    found = (path for path in replica.rglob("*") if path.is_file())
    return {f"{path.relative_to(replica)}" for path in found}


@pytest.fixture
def replica(tmp_path: Path) -> Path:
    """A replica of chk-1. A run died that copied chk-2, which is gone at the source since."""
    made = synced(tmp_path, {1: FILES})
    for name in (*WRITTEN, PLANNED, UNFINISHED, f"{PACK}-0123456789ab"):
        (made / name).parent.mkdir(exist_ok=True)
        (made / name).write_bytes(name.encode())
    writer = JournalWriter(Side().storage("file:/"), f"file:{made}", files=1)
    writer.plan([*WRITTEN, PLANNED, PACK])
    for name in WRITTEN:
        length, crc32c = checksum(f"file:{made}/{name}", Side())
        writer.done(JournalRow(name, length, crc32c))
    writer.flush()
    write_checkpoint(tmp_path / "dcA", 3, NEXT)
    return made


def test_what_is_proven_to_be_a_dead_runs_goes_with_the_next_commit(
    tmp_path: Path, replica: Path
) -> None:
    report, lines = run(tmp_path)
    left = paths(replica)
    assert left.isdisjoint({*WRITTEN, UNFINISHED, f"{PACK}-0123456789ab"})
    assert "deleting 3 files that runs which died had written for other checkpoints" in lines
    assert report.warnings == ()
    assert checker.faults(replica) == []


def test_what_a_dead_run_only_planned_stays_and_is_listed_as_planned(
    tmp_path: Path, replica: Path
) -> None:
    """It may be another program's: the run may have died before it wrote there."""
    run(tmp_path)
    assert PLANNED in paths(replica)
    assert any(name.startswith(".cpreplicate/copied-") for name in paths(replica))
    (replica / PLANNED).unlink()
    write_checkpoint(tmp_path / "dcA", 4, LATER)
    run(tmp_path)
    assert not any(name.startswith(".cpreplicate/copied-") for name in paths(replica))


def test_what_another_program_has_written_there_since_stays(tmp_path: Path, replica: Path) -> None:
    (replica / WRITTEN[0]).write_bytes(b"of another program")
    (replica / "packed/of-another-program").write_bytes(b"x")
    run(tmp_path)
    assert {WRITTEN[0], "packed/of-another-program"} <= paths(replica)
    assert WRITTEN[1] not in paths(replica)


def test_what_the_checkpoint_needs_is_kept(tmp_path: Path, replica: Path) -> None:
    write_checkpoint(tmp_path / "dcA", 4, {**NEXT, WRITTEN[0]: len(WRITTEN[0])})
    shutil.copy(replica / WRITTEN[0], tmp_path / "dcA" / JOB / WRITTEN[0])
    report, _lines = run(tmp_path)
    assert WRITTEN[0] not in {each.target for each in report.plan.copies}
    assert WRITTEN[0] in paths(replica)
    assert checker.faults(replica) == []


def test_a_run_that_may_not_delete_yet_puts_it_off(tmp_path: Path, replica: Path) -> None:
    report, _lines = run(tmp_path, async_deletes=True)
    assert set(report.undeleted) >= {*WRITTEN, f"{PACK}-0123456789ab"}
    assert set(WRITTEN) <= paths(replica)
