"""Each point is proved by what it needs of merged files, whatever other points had of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from cpreplicate.core.ledger import NO_PREFIXES
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.operations.sync.sync import sync
from cpreplicate.operations.upkeep import sweep
from cpreplicate.operations.verify.verify import ALL, NOTHING, Verification, verify
from cpreplicate.protocol import manifest
from cpreplicate.runners import ExecutionOptions
from cpreplicate.storage import Side
from tests.support.jobs import JOB, write_checkpoint, write_merged
from tests.support.replicas import aged, held

MERGED = "shared/merged"
# extent of the point, bytes that the file had when it was copied for it
FIRST, SECOND = (100, 120), (280, 300)


def run(root: Path, number: int, **options: object) -> Path:
    request = SyncRequest(
        f"file:{root}/dcA/{JOB}/chk-{number}",
        f"file:{root}/dcB",
        execution=ExecutionOptions(runner="inline"),
        subsumption_wait=0.0,
        **options,
    )
    sync(request, lambda _line: None)
    return root / "dcB" / JOB


def complete(root: Path, number: int, extent: int, length: int) -> None:
    write_merged(root / "dcA", number, {MERGED: length}, {MERGED: (extent - 10, 10)})


def verified(place: Path, name: str, content: bool = True) -> Verification:
    sample = ALL if content else NOTHING
    return verify(f"file:{place}", name, sample, lambda _line: None, Side())


def listed(place: Path, name: str) -> manifest.Manifest:
    found = manifest.read(Side().storage("file:/"), f"file:{place}", name)
    assert found is not None
    return found


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


@pytest.fixture
def grown(tmp_path: Path) -> Path:
    """A replica that keeps chk-1, whose merged file was copied again for chk-2, which is gone."""
    complete(tmp_path, 1, *FIRST)
    run(tmp_path, 1)
    complete(tmp_path, 2, *SECOND)
    place = run(tmp_path, 2, keep=2)
    drop(place, "chk-2")
    return place


def drop(place: Path, name: str) -> None:
    """Withdraw a point as a retention does that keeps an older one."""
    (place / name / "_metadata").unlink()
    for record in (place / ".cpreplicate").glob(f"{name}.*"):
        record.unlink()


def test_a_point_is_restorable_after_the_later_one_for_which_its_file_grew_was_dropped(grown):
    assert (grown / MERGED).stat().st_size == SECOND[1]
    found = verified(grown, "chk-1")
    assert (found.restorable, found.compared, found.uncompared) == (True, 1, ())


@pytest.mark.parametrize("at", [0, FIRST[0] - 1])
def test_damage_within_the_extent_is_found(grown, at):
    flip(grown / MERGED, at)
    found = verified(grown, "chk-1")
    assert (found.restorable, found.corrupt) == (False, (MERGED,))


@pytest.mark.parametrize("at", [FIRST[0], FIRST[1], SECOND[1] - 1])
def test_damage_behind_the_extent_is_none_of_the_point(grown, at):
    flip(grown / MERGED, at)
    assert verified(grown, "chk-1").restorable


def test_a_file_that_was_cut_behind_the_extent_is_restorable(grown):
    data = (grown / MERGED).read_bytes()
    (grown / MERGED).write_bytes(data[: FIRST[0]])
    assert verified(grown, "chk-1").restorable
    assert verified(grown, "chk-1", content=False).restorable
    (grown / MERGED).write_bytes(data[: FIRST[0] - 1])
    assert verified(grown, "chk-1", content=False).short == (MERGED,)


def test_damage_behind_the_extent_of_the_older_point_is_found_in_the_later_one(tmp_path):
    complete(tmp_path, 1, *FIRST)
    run(tmp_path, 1)
    complete(tmp_path, 2, *SECOND)
    place = run(tmp_path, 2, keep=2)
    flip(place / MERGED, SECOND[0] - 1)
    assert verified(place, "chk-1").restorable
    assert verified(place, "chk-2").corrupt == (MERGED,)


def test_a_point_whose_file_was_kept_from_an_older_one_is_proved_by_what_was_copied(tmp_path):
    complete(tmp_path, 1, *FIRST)
    run(tmp_path, 1)
    complete(tmp_path, 2, FIRST[0] + 5, FIRST[1])
    place = run(tmp_path, 2)
    assert listed(place, "chk-2").prefixes[MERGED].length == FIRST[1]
    complete(tmp_path, 3, *SECOND)
    run(tmp_path, 3, keep=2)
    drop(place, "chk-3")
    assert verified(place, "chk-2").restorable
    flip(place / MERGED, FIRST[0])
    assert verified(place, "chk-2").corrupt == (MERGED,)


def test_a_manifest_of_an_earlier_version_proves_the_bytes_that_were_copied(grown):
    older = listed(grown, "chk-1")._replace(prefixes=NO_PREFIXES)
    with held(grown) as changed:
        changed.write_manifest("chk-1", older)
    assert verified(grown, "chk-1").restorable
    flip(grown / MERGED, FIRST[1])
    assert verified(grown, "chk-1").restorable
    flip(grown / MERGED, FIRST[0])
    assert verified(grown, "chk-1").corrupt == (MERGED,)


def test_a_point_that_lost_its_manifest_is_proved_by_that_of_a_later_one(tmp_path):
    complete(tmp_path, 1, *FIRST)
    run(tmp_path, 1)
    complete(tmp_path, 2, *SECOND)
    place = run(tmp_path, 2, keep=2)
    (place / ".cpreplicate/chk-1.parquet").unlink()
    assert verified(place, "chk-1").restorable


def test_a_file_that_does_not_grow_and_is_longer_than_it_was_copied_is_corrupt(tmp_path):
    write_checkpoint(tmp_path / "dcA", 1, {"shared/a": 50})
    place = run(tmp_path, 1)
    (place / "shared/a").write_bytes((place / "shared/a").read_bytes() + b"more")
    assert verified(place, "chk-1").corrupt == ("shared/a",)


def test_a_run_that_died_left_the_proof_in_its_journal(tmp_path, monkeypatch):
    complete(tmp_path, 1, *FIRST)
    monkeypatch.setattr(
        "cpreplicate.operations.sync.commit.Committing.publish", lambda *_args: 1 / 0
    )
    with pytest.raises(ZeroDivisionError):
        run(tmp_path, 1)
    monkeypatch.undo()
    place = run(tmp_path, 1)
    assert listed(place, "chk-1").prefixes[MERGED].length == FIRST[0]


def test_a_merged_file_that_grew_is_deleted_with_the_last_point_that_needs_it(grown, tmp_path):
    write_checkpoint(tmp_path / "dcA", 3, {"shared/a": 50})
    run(tmp_path, 3, keep=1, keep_less=True)
    assert not (grown / MERGED).exists()


def test_sweep_removes_a_merged_file_that_grew_after_its_point_is_gone(grown, tmp_path):
    write_checkpoint(tmp_path / "dcA", 3, {"shared/a": 50})
    run(tmp_path, 3, keep=2)
    (grown / "chk-1/_metadata").unlink()
    aged(grown)
    request = sweep.SweepRequest(f"file:{grown}", execution=ExecutionOptions(runner="inline"))
    found = sweep.sweep(request, lambda _line: None).found
    assert MERGED in {orphan.target for orphan in found.orphans}
    assert not (grown / MERGED).exists()
