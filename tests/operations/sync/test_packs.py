"""`sync --pack`, and what the other commands make of the packs."""

from __future__ import annotations

import os
import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet

from cpreplicate.core.packs import PackOptions
from cpreplicate.core.plan import Cap, Plan
from cpreplicate.errors import CopyFailed, Refused, SourceBroken, TooManyDeletes, UsageError
from cpreplicate.operations.sync.diff import diff
from cpreplicate.operations.sync.report import Report
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.operations.sync.sync import sync
from cpreplicate.operations.upkeep import relocate, sweep
from cpreplicate.operations.verify.verify import ALL, NOTHING, Sample, Verification, verify
from cpreplicate.protocol.journal import JournalWriter
from cpreplicate.protocol.ledger import Ledger
from cpreplicate.runners import ExecutionOptions, inline
from cpreplicate.runners.inline import InlineRunner
from cpreplicate.storage import Side, Sides
from tests.support import checker
from tests.support.encoder import Incremental, OperatorEntry, Segment, Subtask, Tree, encode
from tests.support.faults import Faulty
from tests.support.jobs import JOB, pattern, write_checkpoint
from tests.support.registry import serving
from tests.support.replicas import DAY, aged, recorded

ON, OFF = PackOptions("on", 1 << 20), PackOptions("off", 1 << 20)
FIRST = {f"shared/{name}": 100 for name in "abcdefgh"}
MOST = {**{f"shared/{name}": 100 for name in "abcdef"}, "shared/x": 100}
FEW = {**{f"shared/{name}": 100 for name in "abc"}, "shared/y": 100}


def silent(_line: str) -> None:
    """These tests do not read progress messages."""


class Packed:
    """A synthetic job and its replica, with packs."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.replica = directory / "dcB" / JOB
        self.files: dict[int, Mapping[str, int]] = {}

    def write(self, number: int, files: Mapping[str, int], version: int = 6) -> None:
        """Have the job complete a checkpoint."""
        write_checkpoint(self.directory / "dcA", number, files, version)
        self.files[number] = files

    def request(self, **options: Any) -> SyncRequest:
        return SyncRequest(
            f"file:{self.directory}/dcA/{JOB}",
            f"file:{self.directory}/dcB",
            execution=ExecutionOptions(runner="inline", parallelism=1),
            **{"packing": ON, **options},
        )

    def sync(self, **options: Any) -> Report:
        return sync(self.request(**options), silent)

    def next(self, number: int, files: Mapping[str, int], **options: Any) -> Plan:
        """Have the job complete a checkpoint, and sync it."""
        self.write(number, files)
        report = self.sync(**options)
        assert not any("could not be deleted" in warning for warning in report.warnings)
        self.check()
        return report.plan

    def check(self) -> None:
        """Have the independent checker look at every committed checkpoint and its bytes."""
        assert checker.faults(self.replica) == []
        for metadata in self.replica.glob("chk-*/_metadata"):
            names = list(self.files[int(metadata.parent.name[4:])])
            needs = checker.needs(metadata)
            for name, need in zip(names, needs, strict=True):
                data = Path(need.path).read_bytes()
                part = data[need.position : need.extent] if need.is_packed else data
                assert part == pattern(name, self.files[int(metadata.parent.name[4:])][name])
        assert self.sync_again().plan.empty

    def sync_again(self) -> Report:
        return diff(self.request(packing=OFF, keep=9))

    @property
    def packs(self) -> list[str]:
        return sorted(path.name for path in (self.replica / "packed").glob("*"))

    def places(self, number: int) -> dict[str, tuple[str, int, int]]:
        """Return the pack, offset and end of each packed file of a checkpoint."""
        needs = checker.needs(self.replica / f"chk-{number}" / "_metadata")
        return {
            str(need.segment): (Path(need.path).name, need.position, need.extent)
            for need in needs
            if need.is_packed
        }

    @property
    def pack(self) -> Path:
        (name,) = self.packs
        return self.replica / "packed" / name

    def flip(self, number: int, path: str) -> None:
        """Damage one byte of a packed file."""
        name, offset, _end = self.places(number)[path]
        pack = self.replica / "packed" / name
        data = bytearray(pack.read_bytes())
        data[offset + 5] ^= 1
        pack.write_bytes(data)

    def verified(self, content: Sample = ALL) -> Verification:
        return verify(f"file:{self.replica}", None, content, silent, Side())

    def sweep(self, **options: Any) -> sweep.Sweep:
        return sweep.sweep(
            sweep.SweepRequest(
                f"file:{self.replica}", execution=ExecutionOptions(runner="inline"), **options
            ),
            silent,
        )


@pytest.fixture
def job(tmp_path):
    packed = Packed(tmp_path)
    packed.write(1, FIRST)
    return packed


@pytest.fixture
def packed(job):
    """A replica of one checkpoint of eight files, all in one pack."""
    assert len(job.sync().plan.packed) == 8
    job.check()
    assert len(job.packs) == 1
    return job


def flip(pack, files, name):
    """Damage a byte of a member by its content, which no other member has."""
    content = pattern(f"shared/{name}", files[f"shared/{name}"])
    damaged = bytes([content[0] ^ 1]) + content[1:]
    data = pack.read_bytes()
    assert content in data
    pack.write_bytes(data.replace(content, damaged))


def targets(actions):
    return {action.target for action in actions}


# What is packed


@pytest.mark.parametrize(
    ("count", "version", "paths", "is_packed"),
    [
        (1000, 5, "auto", True),
        (1000, 6, "absolute", True),
        (999, 6, "auto", False),
        (1000, 4, "auto", False),
        (1000, 6, "relative", False),
    ],
)
def test_auto_packs_a_thousand_files_of_flink_2_unless_paths_are_relative(
    count, version, paths, is_packed, tmp_path
):
    job = Packed(tmp_path)
    job.write(1, {f"shared/{number}": 1 for number in range(count)}, version)
    plan = diff(job.request(packing=PackOptions("auto", 2), paths=paths)).plan
    assert len(plan.packed) == (count if is_packed else 0)


def test_only_files_below_the_size_are_packed(tmp_path):
    job = Packed(tmp_path)
    job.write(1, {"shared/small": 99, "shared/large": 100})
    assert job.sync(packing=PackOptions("on", 100)).plan.packed == {"shared/small"}
    job.check()


def test_preserve_is_refused_with_on_and_turns_auto_off(tmp_path):
    job = Packed(tmp_path)
    job.write(1, {f"shared/{number}": 1 for number in range(1000)})
    sides = Sides(preserve=True)
    with pytest.raises(UsageError, match="--preserve cannot be given with --pack on"):
        job.sync(sides=sides)
    assert not job.replica.exists()
    assert (
        diff(job.request(sides=sides, packing=PackOptions("auto", 100))).plan.packed == frozenset()
    )


@pytest.mark.parametrize("version", [3, 4])
def test_packs_in_metadata_of_an_older_flink_are_warned_of(version, tmp_path):
    job = Packed(tmp_path)
    job.write(1, FIRST, version)
    assert any("only Flink 1.20 and later" in warning for warning in job.sync().warnings)
    job.check()


# Incremental rounds


def test_running_again_after_the_commit_finds_nothing_to_do(packed):
    before = packed.packs
    for packing in (ON, OFF, PackOptions("auto", 1 << 20)):
        again = packed.sync(packing=packing)
        assert again.plan.empty
        assert not again.committed
    assert packed.packs == before


def test_members_that_are_still_needed_stay_where_they_are(packed):
    before = packed.places(1)
    plan = packed.next(2, MOST)
    assert targets(plan.copies) == {"shared/x"}
    assert plan.repacks == ()
    after = packed.places(2)
    assert {path: after[path] for path in MOST if path in before} == {
        path: before[path] for path in MOST if path in before
    }
    assert len(packed.packs) == 2


def test_a_pack_that_no_committed_checkpoint_references_is_deleted(packed):
    old = packed.packs
    plan = packed.next(2, {"shared/x": 50})
    assert targets(plan.deletes) == {f"packed/{old[0]}"}
    assert not set(old) & set(packed.packs)


def test_a_pack_stays_while_a_kept_checkpoint_references_it(packed):
    old = packed.packs
    packed.next(2, {"shared/x": 50}, keep=2)
    assert set(old) < set(packed.packs)
    packed.next(3, {"shared/z": 50}, keep=2)
    assert not set(old) & set(packed.packs)
    assert len(packed.packs) == 2


def test_members_of_a_pack_of_which_less_than_half_is_needed_move_to_a_new_one(packed):
    old = packed.packs
    plan = packed.next(2, FEW)
    assert targets(plan.repacks) == {"shared/a", "shared/b", "shared/c"}
    assert targets(plan.copies) == {"shared/y"}
    assert targets(plan.deletes) == {f"packed/{old[0]}"}
    assert not set(old) & set(packed.packs)
    assert packed.verified().restorable


def test_exactly_half_of_a_pack_stays(packed):
    assert packed.next(2, {f"shared/{name}": 100 for name in "abcd"}).repacks == ()


def test_a_sparse_pack_that_another_checkpoint_needs_stays_when_its_members_move(packed):
    old = packed.packs
    packed.next(2, FEW, keep=2)
    assert set(old) < set(packed.packs)
    assert packed.sync(keep=2).plan.empty
    packed.next(3, {**FEW, "shared/z": 5}, keep=2)
    assert not set(old) & set(packed.packs)


def test_off_keeps_members_in_their_packs_and_moves_none(packed):
    before, pack = packed.places(1), packed.packs
    plan = packed.next(2, FEW, packing=OFF)
    assert (plan.repacks, plan.packed, packed.packs) == ((), frozenset(), pack)
    assert packed.places(2) == {f"shared/{name}": before[f"shared/{name}"] for name in "abc"}
    assert (packed.replica / "shared" / "y").is_file()


def test_members_move_although_the_source_has_lost_their_files(packed):
    """The replica is read, not the source: Flink deletes files at any time."""
    packed.write(2, FEW)
    (packed.directory / "dcA" / JOB / "shared" / "a").unlink()
    packed.sync()
    packed.check()


def test_a_file_that_was_copied_before_stays_a_file(job):
    job.sync(packing=OFF)
    job.next(2, MOST)
    assert set(job.places(2)) == {"shared/x"}
    assert (job.replica / "shared" / "a").is_file()


# Damage


@pytest.mark.parametrize("damage", [lambda p: p.unlink(), lambda p: os.truncate(p, 450),
                                    lambda p: p.write_bytes(p.read_bytes() + b"more")],
                         ids=["missing", "truncated", "longer"])  # fmt: skip
@pytest.mark.parametrize("packing", [ON, OFF])
def test_the_members_of_a_pack_that_is_not_of_its_recorded_length_are_copied_again(
    packed, damage, packing
):
    damaged = packed.pack
    damage(damaged)
    assert not packed.verified(NOTHING).restorable
    report = packed.sync(packing=packing)
    assert targets(report.plan.copies) == set(FIRST)
    assert report.committed
    packed.check()
    assert not damaged.exists()
    assert packed.verified().restorable


def test_a_sync_that_trusts_packs_of_any_length_is_detected(packed, monkeypatch):
    os.truncate(packed.pack, 450)
    monkeypatch.setattr(Ledger, "whole_members", lambda self, _present: dict(self.members))
    assert packed.sync().plan.copies == ()
    assert checker.faults(packed.replica) != []


def test_check_content_finds_a_damaged_member_and_copies_it_again(packed):
    packed.flip(1, "shared/c")
    assert packed.sync().plan.empty
    report = packed.sync(check_content=True)
    assert targets(report.plan.copies) == {"shared/c"}
    packed.check()
    assert packed.verified().restorable
    assert packed.sync(check_content=True).plan.empty


def test_a_damaged_member_that_moves_is_copied_from_the_source_instead(packed):
    packed.flip(1, "shared/b")
    report = packed.next(2, FEW)
    assert "shared/b" in targets(report.repacks)
    packed.check()
    assert packed.verified().restorable


def test_a_damaged_member_that_the_source_lacks_fails_the_sync(packed, monkeypatch):
    monkeypatch.setattr(inline, "PAUSE", 0.0)
    packed.flip(1, "shared/b")
    packed.write(2, FEW)
    (packed.directory / "dcA" / JOB / "shared" / "b").unlink()
    with pytest.raises(SourceBroken):
        packed.sync()
    assert not (packed.replica / "chk-2" / "_metadata").exists()
    assert len(packed.places(1)) == 8


def test_verify_names_the_pack_that_is_missing_short_or_longer(packed):
    pack = packed.pack
    name, data = f"packed/{pack.name}", pack.read_bytes()
    pack.write_bytes(data[:450])
    assert packed.verified(NOTHING).short == (name,)
    pack.write_bytes(data + b"more")
    assert packed.verified(NOTHING).corrupt == (name,)
    pack.unlink()
    assert packed.verified(NOTHING).missing == (name,)


def test_verify_content_names_the_damaged_member_alone(packed):
    packed.flip(1, "shared/c")
    assert packed.verified(NOTHING).restorable
    verified = packed.verified()
    assert (verified.corrupt, verified.compared) == (("shared/c",), 8)
    assert not verified.restorable


# Deletes


def test_max_delete_counts_the_members_that_no_checkpoint_will_have(packed):
    packed.write(2, {"shared/x": 50})
    with pytest.raises(TooManyDeletes, match="8 of 8 files and 1 of 1 checkpoint"):
        packed.sync(max_delete=Cap(8))
    assert packed.sync(max_delete=Cap(9)).committed


# Runs that died


class Forgetful(InlineRunner):
    """A runner that reports members of packs as done although it wrote no pack."""

    def run(self, actions, level=0, done=None):
        outcomes = super().run(actions, level, done)
        for pack in {outcome.pack for outcome in outcomes} - {None}:
            Path(pack.removeprefix("file:")).unlink()
        return outcomes


def test_members_of_a_pack_that_never_appeared_are_not_committed(job):
    with pytest.raises(CopyFailed, match="not as it was written"):
        sync(job.request(), silent, Forgetful(Sides()))
    assert not (job.replica / "chk-1" / "_metadata").exists()
    assert targets(job.sync().plan.copies) == set(FIRST)
    job.check()


def no_metadata(verb, uri):
    return OSError("full") if verb == "put" and uri.endswith("/_metadata") else None


def died(job, **options):
    """Have a sync end when everything was copied."""
    with (
        serving("file", Faulty(Side().storage("file:/"), no_metadata)),
        pytest.raises(OSError, match="full"),
    ):
        job.sync(**options)


def test_a_run_that_died_is_resumed_from_its_packs(job, monkeypatch):
    monkeypatch.setattr("cpreplicate.protocol.journal.FILES", 1)
    full = Faulty(
        Side().storage("file:/"),
        lambda verb, uri: OSError("full") if (verb, uri[-2:]) == ("open", "/h") else None,
    )
    monkeypatch.setattr(inline, "PAUSE", 0.0)
    with serving("file", full), pytest.raises(CopyFailed):
        job.sync()
    assert targets(job.sync(packing=OFF).plan.copies) == {"shared/h"}
    job.check()


def test_the_next_sync_removes_the_packs_of_runs_that_died_and_no_others(packed):
    stranger = packed.replica / "packed" / "of-somebody"
    stranger.write_text("precious")
    aged(stranger, 3)
    packed.write(2, {"shared/x": 50})
    died(packed)
    dead = set(packed.packs) - set(packed.places(1)["shared/a"]) - {stranger.name}
    assert len(dead) == 1
    packed.write(3, {**FIRST, "shared/z": 9})
    packed.sync(packing=OFF)
    assert set(packed.packs) == {packed.places(3)["shared/a"][0], stranger.name}
    aged(packed.replica)
    aged(stranger, 3)
    found = packed.sweep(max_delete=Cap(1, is_share=True))
    assert found.found.left == {"packed/of-somebody": "not recorded as written by cpreplicate"}
    assert set(packed.packs) == {packed.places(3)["shared/a"][0], stranger.name}
    packed.check()


def test_sweep_removes_packs_of_which_only_the_beginning_of_the_path_was_recorded(packed):
    journal = JournalWriter(Side().storage("file:/"), f"file:{packed.replica}")
    journal.plan([journal.pack_stem])
    lost = packed.replica / f"{journal.pack_stem}-0123456789ab"
    lost.write_text("of an executor that died")
    aged(packed.replica)
    assert targets(packed.sweep().deletes) >= {f"{journal.pack_stem}-0123456789ab"}
    assert not lost.exists()
    packed.check()


@pytest.mark.parametrize("name", ["upload", "a-b", "{run}x-1", "x/{run}-1"])
def test_sweep_is_refused_if_there_is_a_newer_file_of_others_among_the_packs(packed, name):
    run = packed.pack.name.rpartition("-")[0]
    theirs = packed.replica / "packed" / name.format(run=run)
    theirs.parent.mkdir(exist_ok=True)
    theirs.write_text("precious")
    os.utime(theirs, (theirs.stat().st_mtime + DAY,) * 2)
    with pytest.raises(Refused, match="cpreplicate did not write"):
        packed.sweep(min_age=-2 * DAY)
    assert theirs.exists()


# Other owners, and other roads


def test_in_an_adopted_directory_files_that_were_there_are_kept_and_never_deleted(job):
    theirs = job.replica / "shared" / "a"
    theirs.parent.mkdir(parents=True)
    theirs.write_bytes(pattern("shared/a", 100))
    pack = job.replica / "packed" / "of-somebody"
    pack.parent.mkdir()
    pack.write_text("precious")
    plan = job.sync(adopt=True).plan
    assert "shared/a" in targets(plan.keeps)
    assert set(job.places(1)) == set(FIRST) - {"shared/a"}
    job.next(2, {"shared/x": 50})
    assert theirs.exists()
    assert job.packs[-1] == "of-somebody"
    assert len(job.packs) == 2


def test_random_rounds_converge(tmp_path):
    draw = random.Random(0)
    job, names = Packed(tmp_path), [f"shared/{number}" for number in range(12)]
    for number in range(1, 30):
        names = [name for name in names if draw.random() < 0.7]
        names += [f"shared/{number}-{index}" for index in range(4)]
        packing = PackOptions("on" if draw.random() < 0.8 else "off", 1 << 20)
        sizes = {name: draw.choice([0, 1, 40, 300]) for name in names}
        old = job.files.get(number - 1, {})
        files = {name: old.get(name, sizes[name]) for name in names}
        job.next(number, files, packing=packing, keep=draw.choice([1, 2]), keep_less=True)
        assert job.verified().restorable
        referenced = {
            place[0]
            for path in job.replica.glob("chk-*/_metadata")
            for place in job.places(int(path.parent.name[4:])).values()
        }
        assert set(job.packs) == referenced


def test_damage_in_a_replica_of_a_packed_replica_is_detected(packed, tmp_path):
    third = f"file:{tmp_path}/dcC"
    sync(replace(packed.request(), source=f"file:{packed.replica}", target_root=third), silent)
    copy = Packed(tmp_path)
    copy.replica = tmp_path / "dcC" / JOB
    copy.flip(1, "shared/c")
    assert copy.verified(NOTHING).restorable
    assert copy.verified().corrupt == (f"packed/{copy.pack.name}",)


def test_a_packed_replica_is_a_source_like_any_other(packed, tmp_path):
    packed.next(2, MOST)
    third = f"file:{tmp_path}/dcC"
    request = replace(packed.request(), source=f"file:{packed.replica}", target_root=third)
    for packing in (OFF, ON):
        report = sync(replace(request, packing=packing), silent)
        assert report.committed == (packing is OFF)
        assert sync(replace(request, packing=packing), silent).plan.empty
    copy = Packed(tmp_path)
    copy.replica, copy.files = tmp_path / "dcC" / JOB, packed.files
    packed.replica.rename(tmp_path / "gone")
    assert checker.faults(copy.replica) == []
    verified = copy.verified()
    assert verified.restorable
    assert verified.uncompared == ()


def test_members_that_move_or_are_copied_again_do_not_count_as_deleted(packed):
    packed.write(2, FEW)
    assert packed.sync(max_delete=Cap(6)).committed  # with chk-1 itself
    packed.check()
    for name in packed.packs:
        (packed.replica / "packed" / name).write_bytes(b"damaged")
    assert packed.sync(max_delete=Cap(0)).committed
    packed.check()


def test_a_damaged_file_is_replaced_where_it_lies_and_not_packed(job):
    """Other checkpoints need it, and it would be taken for the complete one again."""
    job.sync(packing=OFF)
    (job.replica / "shared" / "a").write_bytes(bytes(100))
    job.next(2, MOST, keep=2, check_content=True)
    assert set(job.places(2)) == {"shared/x"}
    assert job.verified().restorable


def test_a_journal_that_is_taken_over_does_not_bring_back_a_damaged_member(job):
    died(job)
    for name in "ab":
        flip(job.pack, FIRST, name)
    orphan = job.replica / "shared" / "orphan"
    orphan.parent.mkdir()
    orphan.write_text("so that a journal stays after the commit")
    recorded(job.replica, "shared/orphan")
    job.sync(check_content=True)
    assert job.verified().restorable
    job.write(2, MOST)
    died(job)
    died(job)
    report = job.sync()
    assert {"shared/a", "shared/b"} <= targets(report.plan.keeps)
    assert job.verified().restorable
    job.check()


def test_the_damaged_pack_is_deleted_when_check_content_copied_all_its_members_again(packed):
    damaged = packed.pack
    damaged.write_bytes(bytes(damaged.stat().st_size))
    assert targets(packed.sync(check_content=True).plan.copies) == set(FIRST)
    packed.check()
    assert not damaged.exists()


def test_members_of_a_pack_that_is_mostly_damaged_move_in_the_same_run(packed):
    old = packed.pack
    for name in "abcde":
        packed.flip(1, f"shared/{name}")
    plan = packed.sync(check_content=True).plan
    assert targets(plan.repacks) == {"shared/f", "shared/g", "shared/h"}
    assert not old.exists()
    assert packed.sync().plan.empty
    packed.check()


def test_relocating_a_replica_that_keeps_two_leaves_nothing_to_do(tmp_path):
    job, options = Packed(tmp_path), {"keep": 2, "packing": PackOptions("on", 1000)}
    large = {"shared/large": 2000}
    job.write(1, {**FIRST, **large})
    job.sync(**options, paths="relative")
    job.next(2, {**FEW, **large}, **options, paths="relative")
    done = relocate.relocate(relocate.RelocateRequest(f"file:{job.replica}", "absolute"), silent)
    assert [each.rewritten for each in done.checkpoints] == [True, True]
    again = job.sync(**options, paths="absolute")
    assert again.plan.empty
    assert not again.committed


def test_a_member_that_the_next_checkpoint_references_by_segments_becomes_a_file(packed):
    root = f"file:{packed.directory}/dcA/{JOB}"
    segment = Segment(10, 80, 1, f"{root}/shared/a", "id")
    state = Incremental(11, 2, "backend", (0, 128), 1, None, (("a.sst", segment),), ())
    tree = Tree(6, (OperatorEntry(bytes(16), 1, 128, (Subtask(0, keyed=state),)),), 2)
    packed.write(2, FIRST)
    (packed.directory / "dcA" / JOB / "chk-2" / "_metadata").write_bytes(encode(tree).data)
    packed.sync()
    (need,) = checker.needs(packed.replica / "chk-2" / "_metadata")
    assert (need.path, need.position) == (f"{packed.replica}/shared/a", 10)
    assert Path(need.path).read_bytes() == pattern("shared/a", 100)


def without_columns(path, *columns):
    """Write a manifest or a journal as version 0.2.0 did, which knew no packs."""
    table = parquet.read_table(path)
    assert set(columns) <= set(table.column_names)
    parquet.write_table(table.drop_columns(list(columns)), path)


def test_a_manifest_of_a_version_that_knew_no_packs_is_read(job):
    job.sync(packing=OFF)
    without_columns(job.replica / ".cpreplicate" / "chk-1.parquet", "pack", "offset")
    assert job.sync().plan.empty
    job.next(2, MOST)
    assert set(job.places(2)) == {"shared/x"}


def test_a_journal_of_a_version_that_knew_no_packs_is_read(job):
    died(job, packing=OFF)
    for part in (job.replica / ".cpreplicate").glob("copied-*"):
        without_columns(part, "pack", "offset")
    assert job.sync().plan.copies == ()
    job.check()
