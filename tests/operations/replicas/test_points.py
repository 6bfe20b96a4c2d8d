"""`list`: the points in time that replicas hold, and what each of them costs."""

import json
from dataclasses import asdict

import google_crc32c
import pytest

from cpreplicate.core.packs import PackOptions
from cpreplicate.errors import NotThere
from cpreplicate.operations.handover import promote
from cpreplicate.operations.handover.promote import PromoteRequest
from cpreplicate.operations.replicas.points import Points, points, points_below
from cpreplicate.operations.verify.verify import NOTHING, record, verify
from cpreplicate.storage import Side, Sides
from tests.support.commandline import run
from tests.support.jobs import JOB, write_checkpoint
from tests.support.kafka_jobs import replicated_with_derived
from tests.support.replicas import FILES, NEXT, paths, synced

THIRD = {"shared/h": 800, "shared/y": 60, "shared/z": 5, "chk-3/x": 50}
EVERY = {**FILES, **NEXT, **THIRD}
ADDED = [55, 40, 100 + 200 + 300 + 30]  # of chk-3, chk-2 and chk-1


@pytest.fixture(params=["off", "on"])
def replica(tmp_path, request):
    packing = PackOptions(request.param, 700)
    return synced(tmp_path, {1: FILES, 2: NEXT, 3: THIRD}, keep=3, packing=packing)


def of(replica):
    (row,) = points([f"file:{replica}"], Sides()).replicas
    return row


def test_each_point_has_its_size_and_what_it_adds_to_the_others(replica):
    row = of(replica)
    assert [each.checkpoint for each in row.points] == ["chk-3", "chk-2", "chk-1"]
    assert [each.checkpoint_id for each in row.points] == [3, 2, 1]
    assert [each.files for each in row.points] == [len(each) for each in (THIRD, NEXT, FILES)]
    assert [each.bytes for each in row.points] == [
        sum(each.values()) for each in (THIRD, NEXT, FILES)
    ]
    assert row.bytes == sum(EVERY.values())
    assert [each.added_bytes for each in row.points] == ADDED
    assert (row.job, row.sealed, row.error) == (JOB, None, None)


@pytest.mark.parametrize("pack", ["off", "on"])
def test_the_only_point_of_a_replica_adds_all_that_it_needs(tmp_path, pack):
    first = synced(tmp_path, {1: FILES}, packing=PackOptions(pack, 700))
    (point,) = of(first).points
    whole = sum(FILES.values())
    assert (point.checkpoint_id, point.files, point.bytes) == (1, len(FILES), whole)
    assert (point.added_bytes, of(first).bytes) == (whole, whole)
    later = synced(tmp_path, {2: NEXT}, packing=PackOptions(pack, 700))
    (point,) = of(later).points
    assert (point.files, point.bytes) == (len(NEXT), sum(NEXT.values()))


def test_of_the_only_point_the_names_in_its_manifest_are_not_read(tmp_path):
    replica = synced(tmp_path, {1: FILES})
    before, manifest = of(replica), replica / ".cpreplicate" / "chk-1.parquet"
    content = bytearray(manifest.read_bytes())
    content[4:40] = bytes(36)  # of its first page
    manifest.write_bytes(content)
    metadata = replica / "chk-1" / "_metadata"  # that would be read instead
    metadata.write_bytes(b"\xff" * len(metadata.read_bytes()))
    assert of(replica).points[0].files == before.points[0].files


def test_the_manifests_are_enough_and_so_are_the_metadata_files(replica):
    before = of(replica)
    for number in (1, 2, 3):
        manifest = replica / ".cpreplicate" / f"chk-{number}.parquet"
        hidden = manifest.with_suffix(".hidden")
        manifest.rename(hidden)
        assert of(replica) == before
        hidden.rename(manifest)
        metadata = replica / f"chk-{number}" / "_metadata"
        content = metadata.read_bytes()
        metadata.write_bytes(b"\xff" * len(content))  # it is listed, and not read
        assert of(replica) == before
        metadata.write_bytes(content)


def test_a_point_has_the_time_at_which_it_was_completed_at_the_source(tmp_path):
    replica = synced(tmp_path, {1: FILES, 2: NEXT}, keep=2)
    jobs = tmp_path / "dcA" / JOB
    times = [(jobs / f"chk-{number}" / "_metadata").stat().st_mtime for number in (2, 1)]
    assert [each.completed for each in of(replica).points] == times


def test_a_point_is_verified_if_the_last_recorded_verification_is_about_it(replica):
    assert {each.is_restorable for each in of(replica).points} == {None}
    verification = verify(f"file:{replica}", "chk-2", NOTHING, lambda _line: None, Side())
    record(verification, NOTHING, Side(), lambda _line: None)
    found = {each.checkpoint: each for each in of(replica).points}
    assert [found[f"chk-{number}"].is_restorable for number in (1, 2, 3)] == [None, True, None]
    assert [each.verified is None for each in found.values()] == [True, False, True]


def is_verified(replica):
    """Whether `status` shows that its last verification is about its newest checkpoint."""
    (row,) = json.loads(run("status", replica.parent, "--output", "json").out)["replicas"]
    return row["verified"]["is_current"]


@pytest.mark.parametrize("forgotten", [None, "verified", "chk-3"])
def test_a_verification_counts_for_no_checkpoint_of_the_next_life_with_the_same_number(
    replica, tmp_path, forgotten
):
    verification = verify(f"file:{replica}", "chk-3", NOTHING, lambda _line: None, Side())
    record(verification, NOTHING, Side(), lambda _line: None)
    assert is_verified(replica)
    synced(tmp_path, {3: {"chk-3/y": 7}}, allow_older=True)
    if forgotten is not None:  # as by version 0.2.0
        place = replica / ".cpreplicate" / f"{forgotten}.json"
        place.write_text(json.dumps({**json.loads(place.read_text()), "completed": None}))
    assert {each.is_restorable for each in of(replica).points} == {None}
    assert not is_verified(replica)


def test_checkpoints_of_other_programs_are_named_and_are_no_points(replica):
    write_checkpoint(replica.parent, 9, NEXT)
    row = of(replica)
    assert row.others == ("chk-9",)
    assert [each.added_bytes for each in row.points] == ADDED


def test_points_are_in_the_order_of_their_publication_also_beside_others(tmp_path):
    synced(tmp_path, {7: FILES})
    replica = synced(tmp_path, {2: NEXT, 3: THIRD}, keep=3, allow_older=True)
    write_checkpoint(replica.parent, 9, NEXT)
    assert [each.checkpoint for each in of(replica).points] == ["chk-3", "chk-2"]


def test_a_point_whose_record_was_lost_is_listed_by_its_manifest(replica):
    (replica / ".cpreplicate" / "chk-2.json").unlink()
    row = of(replica)
    assert [each.added_bytes for each in row.points] == ADDED
    assert row.points[1].completed is None


def test_a_replica_that_was_promoted_keeps_its_points(replica):
    before = [each.bytes for each in of(replica).points]
    promote.promote(PromoteRequest(f"file:{replica}", "chk-2"), lambda _line: None)
    row = of(replica)
    assert "for chk-2" in str(row.sealed)
    assert [each.bytes for each in row.points] == before


def test_every_replica_below_a_root_is_listed_and_what_is_none_is_not(replica):
    (replica.parent / "other").mkdir()
    before = paths(replica)
    found = points_below(f"file:{replica.parent}", Sides())
    assert found == Points((of(replica),))
    assert points_below(f"file:{replica}", Sides()) == found
    assert paths(replica) == before
    with pytest.raises(NotThere):
        points_below(f"file:{replica.parent}/nothing", Sides())


def test_what_cannot_be_read_is_in_the_row_of_its_replica(replica):
    (replica / ".cpreplicate" / "chk-3.parquet").unlink()
    record = replica / ".cpreplicate" / "chk-3.json"
    damaged = b"not a checkpoint"
    (replica / "chk-3" / "_metadata").write_bytes(damaged)
    fields = json.loads(record.read_text())
    fields["digests"] = [[len(damaged), google_crc32c.value(damaged)]]
    record.write_text(json.dumps(fields))
    row = of(replica)
    assert "chk-3" in str(row.error)
    assert row.points == ()


def test_a_row_is_fit_for_json(replica):
    assert json.dumps(asdict(of(replica)))


def test_a_derived_checkpoint_is_listed_by_itself_with_what_it_keeps(tmp_path):
    replica, name = replicated_with_derived(tmp_path)
    row = of(replica)
    assert [each.checkpoint for each in row.points] == ["chk-1"]
    assert [(each.checkpoint, each.checkpoint_id) for each in row.derived] == [(name, 1)]
    assert row.others == ()
    assert row.points[0].added_bytes < row.points[0].bytes  # the rest is shared
    (replica / "chk-1" / "_metadata").unlink()  # as a sync withdraws it
    row = of(replica)
    assert row.points == ()
    assert 0 < row.derived[0].added_bytes == row.derived[0].bytes == row.bytes
