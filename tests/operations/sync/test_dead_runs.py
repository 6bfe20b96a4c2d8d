"""What runs that died had written goes with the next commit, where records prove whose it is."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path

import pytest

from cpreplicate.core.placement import OWN
from cpreplicate.operations.sync.report import Report
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.operations.sync.sync import sync
from cpreplicate.operations.upkeep.sweep import SweepRequest, sweep
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
LATE = f"{OWN}/late.json"
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
    assert "deleting 3 files that earlier runs left, which died or put deletes off" in lines
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
    report, lines = run(tmp_path, async_deletes=True)
    assert not any(line.startswith("deleting") for line in lines)
    assert set(report.undeleted) >= {*WRITTEN, f"{PACK}-0123456789ab"}
    assert set(WRITTEN) <= paths(replica)


@pytest.fixture
def taken_over(tmp_path: Path, replica: Path) -> Path:
    """The replica after the commit of a run that took it over; the dead run only planned one file.

    The next checkpoint has no packed file.
    """
    (replica / PLANNED).unlink()
    run(tmp_path)
    write_checkpoint(tmp_path / "dcA", 4, LATER)
    return replica


def pack_of_dead_run(replica: Path) -> str:
    """The name of a pack as an executor of the dead run may write it."""
    [late] = json.loads((replica / LATE).read_bytes())["runs"]
    return f"packed/{late['run']}-fedcba987654"


@pytest.mark.parametrize("directory", ["packed", "chk-2", "shared"])
def test_what_executors_of_a_dead_run_leave_after_the_next_commit_goes_with_the_one_after_it(
    tmp_path: Path, taken_over: Path, directory: str
) -> None:
    """They stood still while it committed, wherever they were to write."""
    late = {f"{directory}/{TEMPORARY}4567", pack_of_dead_run(taken_over)}
    for name in late:
        (taken_over / name).parent.mkdir(exist_ok=True)
        (taken_over / name).write_bytes(b"late")
    report, _lines = run(tmp_path)
    assert report.warnings == ()
    assert paths(taken_over).isdisjoint(late)
    assert checker.faults(taken_over) == []


def test_a_sweep_removes_such_a_pack_and_leaves_the_record(taken_over: Path) -> None:
    pack = taken_over / pack_of_dead_run(taken_over)
    pack.parent.mkdir(exist_ok=True)
    pack.write_bytes(b"late")
    execution = ExecutionOptions(runner="inline")
    request = SweepRequest(f"file:{taken_over}", execution=execution, min_age=0.0)
    assert sweep(request, lambda _line: None).found.left == {}
    assert not pack.exists()
    assert (taken_over / LATE).exists()


def test_a_sweep_keeps_the_record_as_long_as_it_leaves_such_a_pack(taken_over: Path) -> None:
    """A pack that is younger than `--min-age` is proven by that record only."""
    pack, ago = taken_over / pack_of_dead_run(taken_over), time.time() - 90_000
    pack.parent.mkdir(exist_ok=True)
    pack.write_bytes(b"late")
    os.utime(taken_over / LATE, (ago, ago))
    request = SweepRequest(f"file:{taken_over}", execution=ExecutionOptions(runner="inline"))
    sweep(request, lambda _line: None)
    assert pack.exists()
    assert (taken_over / LATE).exists()
    os.utime(pack, (ago, ago))
    for _ in range(2):
        sweep(request, lambda _line: None)
    assert not pack.exists()
    assert not (taken_over / LATE).exists()


def test_a_file_of_another_program_where_a_dead_run_had_planned_one_is_never_cpreplicates(
    tmp_path: Path, taken_over: Path
) -> None:
    write_checkpoint(tmp_path / "dcA", 5, {**LATER, PLANNED: len(PLANNED)})
    shutil.copy(tmp_path / "dcA" / JOB / PLANNED, taken_over / PLANNED)
    run(tmp_path)
    write_checkpoint(tmp_path / "dcA", 6, FILES)
    run(tmp_path)
    assert PLANNED in paths(taken_over)


def late_after(tmp_path: Path, taken_over: Path, **fields: object) -> bool:
    """Whether an unfinished file stays, if the record of the dead run has these fields."""
    record = json.loads((taken_over / LATE).read_bytes())
    record["runs"][0].update(fields)
    (taken_over / LATE).write_text(json.dumps(record))
    unfinished = taken_over / UNFINISHED
    unfinished.parent.mkdir(exist_ok=True)
    unfinished.write_bytes(b"late")
    run(tmp_path)
    return unfinished.exists()


@pytest.mark.parametrize("ahead", [-86_500.0, 0.0, 30.0])
def test_the_first_sync_a_day_later_looks_there_and_then_forgets_the_run(
    tmp_path: Path, taken_over: Path, ahead: float
) -> None:
    """The clock of the host that recorded it may be ahead."""
    assert not late_after(tmp_path, taken_over, found=time.time() + ahead)
    assert (taken_over / LATE).exists() == (ahead >= 0)


def test_the_record_stays_until_a_sync_finds_no_pack_any_more(
    tmp_path: Path, taken_over: Path
) -> None:
    """A delete may fail, and without the record nothing proves whose a pack is."""
    pack = taken_over / pack_of_dead_run(taken_over)
    pack.parent.mkdir(exist_ok=True)
    pack.write_bytes(b"late")
    late_after(tmp_path, taken_over, found=time.time() - 86_500)
    assert not pack.exists()
    assert (taken_over / LATE).exists()
    write_checkpoint(tmp_path / "dcA", 5, FILES)
    run(tmp_path)
    assert not (taken_over / LATE).exists()


@pytest.mark.parametrize(
    "fields",
    [
        {"directories": ["../dcA"]},
        {"directories": 1},
        {"run": "../x"},
        {"found": None},
        {"found": 10**400},
    ],
)
def test_a_damaged_record_of_late_runs_counts_as_none(
    tmp_path: Path, taken_over: Path, fields: dict[str, object]
) -> None:
    assert late_after(tmp_path, taken_over, **fields)


def test_runs_that_die_one_after_the_other_are_recorded_up_to_a_bound(
    tmp_path: Path, replica: Path
) -> None:
    (replica / PLANNED).unlink()
    for number in range(12):
        writer = JournalWriter(Side().storage("file:/"), f"file:{replica}")
        writer.plan([PLANNED, writer.pack_stem])
        write_checkpoint(tmp_path / "dcA", 5 + number, {**NEXT, f"shared/{number}": 10})
        run(tmp_path)
    runs = json.loads((replica / LATE).read_bytes())["runs"]
    assert [each["directories"] for each in runs] == [["packed", "shared"]] * 8
