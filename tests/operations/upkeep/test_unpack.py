"""`relocate --unpack` makes every packed file a plain one and changes nothing else."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from click.testing import CliRunner

from cpreplicate.cli.commands.replication import cli
from cpreplicate.core.metadata import decode, rewrite
from cpreplicate.core.metadata.rewrite import Segment
from cpreplicate.core.metadata.segments import segments
from cpreplicate.core.packs import PackOptions
from cpreplicate.errors import Refused, ReplicaDamaged
from cpreplicate.operations.sync import sync
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.operations.upkeep import relocate
from cpreplicate.operations.upkeep.relocate import RelocateRequest, Relocation
from cpreplicate.operations.verify.verify import ALL, NOTHING, Verification, verify
from cpreplicate.protocol import publication
from cpreplicate.runners import ExecutionOptions
from cpreplicate.storage import Side
from tests.support import checker, parts
from tests.support.jobs import JOB
from tests.support.replicas import FILES, NEXT, held, paths, synced
from tests.support.simulated import Clock, SimulatedDisk, files
from tests.support.staging import LATER, Stage, record_run, running_on, silent

PACKED = PackOptions("on", 1 << 20)
INLINE = ExecutionOptions(runner="inline", parallelism=1)


def unpack(replica: Path, **options: object) -> Relocation:
    request = RelocateRequest(f"file:{replica}", unpack=True, execution=INLINE, **options)
    return relocate.relocate(request, silent)


def own(replica: Path) -> set[str]:
    """The files of a replica without those of `.cpreplicate/`."""
    return {path for path in paths(replica) if not path.startswith(".cpreplicate/")}


def contents(replica: Path) -> dict[str, bytes]:
    return {path: (replica / path).read_bytes() for path in own(replica)}


def is_restorable(replica: Path, name: str) -> bool:
    verified = verify(f"file:{replica}", name, ALL, silent, Side())
    return verified.restorable and verified.compared == verified.files


def rewritten_by_cpreplicate(replica: Path, name: str, **changed: object) -> None:
    """Publish a checkpoint anew, with other values in its first segment."""
    path = replica / name / "_metadata"
    data = path.read_bytes()
    decoded = decode(data, f"file:{replica}/{name}")
    rows = iter(list(segments(data, decoded)))
    first = next(handle for handle in decoded.handles if handle.kind == "segment")

    def spelling(handle):
        row = next(rows)
        new = Segment(*row)
        return new._replace(**changed) if handle.start == first.start else new

    content = b"".join(rewrite(data, decoded, spelling))
    with held(replica) as opened:
        before = opened.metadata_bytes(name)
        manifest = opened.manifest(name)
        publication.announce_rewrite(opened, name, before.digest, lambda: [content])
        opened.publish(name, lambda: [content], lambda: None, replace=True)
        digest = opened.metadata_bytes(name).digest
        opened.write_manifest(name, manifest._replace(metadata=digest))


@pytest.fixture
def replica(tmp_path: Path) -> Path:
    return synced(tmp_path, {1: FILES, 2: NEXT}, keep=2, packing=PACKED)


@pytest.mark.parametrize("spelling", ["relative", "absolute"])
def test_an_unpacked_replica_is_the_replica_that_was_never_packed(tmp_path, spelling):
    packed = synced(tmp_path, {1: FILES, 2: NEXT}, keep=2, packing=PACKED, paths=spelling)
    assert (packed / "packed").is_dir()
    done = unpack(packed, paths=spelling)
    assert [one.rewritten for one in done.checkpoints] == [True, True]
    assert {one.paths for one in done.checkpoints} == {spelling}
    assert done.unpacked.files == len({*FILES, *NEXT})
    assert done.unpacked.bytes == sum({**FILES, **NEXT}.values())
    assert done.unpacked.packs == 2
    unpacked = contents(packed)
    shutil.rmtree(packed)
    plain = synced(tmp_path, {1: FILES, 2: NEXT}, keep=2, paths=spelling)
    assert unpacked == contents(plain)


def test_the_manifests_list_the_plain_files_and_a_sync_has_nothing_to_do(replica, tmp_path):
    unpack(replica)
    assert is_restorable(replica, "chk-1")
    assert is_restorable(replica, "chk-2")
    assert checker.faults(replica) == []
    source = f"file:{tmp_path}/dcA/{JOB}"
    request = SyncRequest(source, f"file:{tmp_path}/dcB", keep=2, execution=INLINE, packing=PACKED)
    assert sync.sync(request, silent).plan.empty
    (replica / "shared" / "h").write_bytes(b"?" * FILES["shared/h"])
    assert not is_restorable(replica, "chk-2")


def test_unpacking_again_changes_nothing(replica):
    unpack(replica)
    before = {path: (replica / path).stat().st_mtime_ns for path in paths(replica)}
    done = unpack(replica)
    assert not any(one.rewritten for one in done.checkpoints)
    assert done.unpacked == (0, 0, 0, ())
    assert {path: (replica / path).stat().st_mtime_ns for path in paths(replica)} == before


def test_a_replica_that_was_moved_is_unpacked_where_it_is_now(replica, tmp_path):
    moved = Path(shutil.move(replica, tmp_path / "elsewhere"))
    done = unpack(moved)
    assert done.moved_from == (f"file:{replica}",)
    assert is_restorable(moved, "chk-1")
    assert not (moved / "packed").exists()
    again = Path(shutil.move(moved, tmp_path / "again"))  # relative paths now
    assert is_restorable(again, "chk-2")


def test_without_unpack_packs_stay_and_are_reported_as_absolute(replica):
    done = relocate.relocate(RelocateRequest(f"file:{replica}"), silent)
    assert not any(one.rewritten for one in done.checkpoints)
    assert {one.paths for one in done.checkpoints} == {"mixed"}
    assert "packed files have no relative form" in done.warnings[0]
    assert is_restorable(replica, "chk-2")


def test_a_damaged_member_ends_the_run_before_any_metadata_changes(replica):
    before = contents(replica)
    pack = min((replica / "packed").iterdir(), key=lambda path: path.stat().st_size)
    data = pack.read_bytes()
    pack.write_bytes(bytes([data[0] ^ 1]) + data[1:])
    with pytest.raises(ReplicaDamaged, match=r"is damaged .* --check-content"):
        unpack(replica)
    for name in ("chk-1", "chk-2"):
        assert (replica / name / "_metadata").read_bytes() == before[f"{name}/_metadata"]
    assert pack.exists()
    pack.write_bytes(data)
    unpack(replica)
    assert is_restorable(replica, "chk-2")


@pytest.mark.parametrize("kind", ["file", "link", "directory"])
def test_a_file_that_cpreplicate_did_not_record_is_never_overwritten(replica, tmp_path, kind):
    occupied = replica / "shared" / "h"
    occupied.parent.mkdir(exist_ok=True)
    other = tmp_path / "other"
    other.write_bytes(b"of a job")
    if kind == "file":
        shutil.copy2(other, occupied)
        old = (replica / "chk-1" / "_metadata").stat().st_mtime - 10
        os.utime(occupied, (old, old))
    elif kind == "link":
        occupied.symlink_to(other)
    else:
        occupied.mkdir()
    before = contents(replica)
    with pytest.raises(Refused, match=r"did not record.*shared/h"):
        unpack(replica)
    assert contents(replica) == before
    assert other.read_bytes() == b"of a job"


@pytest.mark.parametrize(
    "logical_id",
    ["../../outside", "/etc/passwd", "packed/x", "chk-1/_metadata", "shared/..%2f..%2fx", "x", ""],
)
def test_a_member_without_a_valid_logical_path_is_refused(replica, logical_id):
    rewritten_by_cpreplicate(replica, "chk-2", logical_id=logical_id)
    before = contents(replica)
    with pytest.raises(Refused, match="logical path"):
        unpack(replica)
    assert contents(replica) == before


def test_two_members_with_one_logical_path_and_other_bytes_are_refused(replica):
    rewritten_by_cpreplicate(replica, "chk-2", logical_id="shared/a")
    before = contents(replica)
    with pytest.raises(Refused, match=r"other\s+bytes.*shared/a"):
        unpack(replica)
    assert contents(replica) == before


def test_members_whose_crc32c_is_not_recorded_are_refused(replica):
    for manifest in (replica / ".cpreplicate").glob("*.parquet"):
        manifest.unlink()
    before = contents(replica)
    with pytest.raises(Refused, match="no CRC32C is recorded"):
        unpack(replica)
    assert contents(replica) == before


def test_packs_that_cpreplicate_did_not_record_stay(replica):
    stranger = replica / "packed" / "of-another-program"
    stranger.write_bytes(b"?")
    os.utime(stranger, (1, 1))
    unpack(replica)
    assert own(replica) >= {"packed/of-another-program"}
    assert len(list((replica / "packed").iterdir())) == 1


def test_packs_that_an_adopted_checkpoint_references_stay(replica, tmp_path):
    for lost in ("replica.json", "chk-1.json", "chk-1.parquet"):
        (replica / ".cpreplicate" / lost).unlink()
    third = {**NEXT, "chk-3/x": 50}
    synced(tmp_path, {3: third}, keep=2, packing=PACKED, adopt=True)
    unpack(replica)
    assert len(list((replica / "packed").iterdir())) == 1
    for name in ("chk-1", "chk-2", "chk-3"):
        assert verify(f"file:{replica}", name, NOTHING, silent, Side()).restorable, name


def test_packs_stay_that_a_checkpoint_needs_which_a_job_completed_meanwhile(replica):
    packs = {path for path in own(replica) if path.startswith("packed/")}

    def complete_another(line: str) -> None:
        if line.startswith("writing "):
            shutil.copytree(replica / "chk-2", replica / "chk-7")

    request = RelocateRequest(f"file:{replica}", unpack=True, execution=INLINE)
    unpacked = relocate.relocate(request, complete_another).unpacked
    (warning,) = unpacked.warnings
    assert "chk-7/_metadata was created by another program during the run" in warning
    assert unpacked.packs == 0
    assert own(replica) >= packs
    shutil.rmtree(replica / "chk-7")
    assert unpack(replica).unpacked.packs == len(packs)
    assert not packs & own(replica)


def test_packed_files_beside_plain_ones_and_merged_segments_of_the_source():
    stage = Stage(Random(5), keep=2, merged=True, foreign=True)
    stage.complete().sync(paths="relative").complete()
    stage.sync(paths="relative", packing=PACKED)
    with running_on(stage.disk):
        before = verify(stage.replica, None, ALL, silent, Side())
        done = relocate.relocate(
            RelocateRequest(stage.replica, "relative", unpack=True, execution=INLINE), silent
        )
        after = verify(stage.replica, None, ALL, silent, Side())
    assert done.unpacked.files
    assert done.checkpoints[0].paths == "mixed"  # the source's segments stay segments
    assert "merged segments" in done.warnings[0]
    assert after.restorable
    assert after.files == before.files
    assert not [path for path in files(stage.disk.snapshot()) if "/packed/" in path]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "every"),
    [(0, 6), parts.rest(0, 1), *(parts.nightly(seed, 1) for seed in range(1, 4))],
    ids=str,
)
def test_a_death_between_any_two_steps_leaves_every_checkpoint_whole_and_is_resumed(seed, every):
    """Of the states that a death may leave, each, or one of so many, is resumed from."""
    draw = Random(f"unpack {seed}")
    stage = Stage(draw, keep=2, foreign=True, merged=seed % 2 == 1)
    stage.disk.hook = lambda *_: stage.disk.clock.pass_(0.001)
    stage.complete().sync(packing=PACKED, paths="relative")
    stage.complete().sync(packing=PACKED, paths="relative")
    start, now = stage.disk.snapshot(), stage.disk.clock.now
    request = RelocateRequest(stage.replica, unpack=True, execution=INLINE)
    disk = SimulatedDisk(start, Clock(now), stage.disk.links)
    states = record_run(disk, lambda: relocate.relocate(request, silent))
    end = _of_replica(disk, stage.replica)
    assert len(states) > 40
    assert not any("/packed/" in path for path in end)
    for number, state in list(enumerate(states))[::every]:
        later = SimulatedDisk(state, Clock(now + LATER), stage.disk.links)
        with running_on(later):
            for verified in _verified(later, stage.replica):
                # until its manifest is written, the content of a checkpoint cannot be compared
                assert replace(verified, uncompared=()).restorable, number
            relocate.relocate(request, silent)
            assert [one.restorable for one in _verified(later, stage.replica)] == [True, True]
        assert _of_replica(later, stage.replica) == end, number
        if any("/packed/" in path for path in files(state, stage.replica)):  # else nothing to do
            there = files(later.snapshot(), stage.replica)
            assert not [path for path in there if "/copied-" in path], number
        with running_on(later):
            assert sync.sync(stage.request(paths="relative"), silent).plan.empty, number


def _verified(disk: SimulatedDisk, replica: str) -> list[Verification]:
    """Return what `verify --content` finds of both checkpoints."""
    there = files(disk.snapshot(), replica)
    names = [path.split("/")[-2] for path in there if path.endswith("/_metadata")]
    assert len(names) == 2
    return [verify(replica, name, ALL, silent, Side()) for name in names]


def _of_replica(disk: SimulatedDisk, replica: str) -> dict[str, bytes]:
    """The files of a replica without those of `.cpreplicate/`."""
    there = files(disk.snapshot(), replica)
    return {path: data for path, data in there.items() if "/.cpreplicate/" not in path}


def test_the_command_prints_what_was_unpacked(replica, tmp_path):
    copy = Path(shutil.copytree(replica, tmp_path / "copy" / replica.name))
    arguments = ["relocate", "--unpack", "--runner", "inline"]
    as_text = CliRunner().invoke(cli, [*arguments, str(replica)])
    assert as_text.exit_code == 0, as_text.output
    assert "unpacked    11 files, 3.6 KiB; 2 packs deleted" in as_text.stdout
    as_json = CliRunner().invoke(cli, [*arguments, "--output", "json", str(copy)])
    unpacked = json.loads(as_json.stdout)["unpacked"]
    assert unpacked == {"files": 11, "bytes": 3730, "packs": 2}
