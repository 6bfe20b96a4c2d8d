"""One census answers whose the checkpoints of a replica are, and which of its own is the newest."""

import json
import shutil

import pytest

from cpreplicate.protocol import census, replica_state
from cpreplicate.protocol.census import Census
from cpreplicate.protocol.checkpoint_record import read_record, write_record
from cpreplicate.protocol.digest import Digest
from cpreplicate.protocol.publication import announce_rewrite
from cpreplicate.protocol.replica import Replica
from cpreplicate.storage import Side
from cpreplicate.storage.backends.local.local import LocalStorage
from tests.support.faults import Faulty
from tests.support.jobs import write_checkpoint
from tests.support.kafka_jobs import replicated_with_derived
from tests.support.registry import serving
from tests.support.replicas import FILES, NEXT, synced
from tests.support.tracing import Tracing

THIRD = {"shared/h": 800, "shared/z": 5, "chk-3/x": 50}
THREE = {1: FILES, 2: NEXT, 3: THIRD}


@pytest.fixture
def path(tmp_path):
    return synced(tmp_path, THREE, keep=3)


def opened(path):
    return Replica(f"file:{path}", Side())


def taken(path) -> Census:
    return census.take(opened(path))


def by_digests(path) -> Census:
    return replica_state.examine(opened(path)).census


def both(path) -> Census:
    """Return the census, which is the same by lengths and by digests."""
    found = taken(path)
    assert found == by_digests(path)
    return found


def metadata(path, name="chk-3"):
    return path / name / "_metadata"


def own(path, name="chk-3", suffix="json"):
    return path / ".cpreplicate" / f"{name}.{suffix}"


def test_own_checkpoints_are_in_the_order_of_their_publication(path):
    assert both(path).own == ("chk-3", "chk-2", "chk-1")
    assert (both(path).newest, both(path).others, both(path).derived) == ("chk-3", (), ())


def test_a_lower_number_that_was_published_later_is_the_newest(tmp_path):
    synced(tmp_path, {7: FILES})
    path = synced(tmp_path, {2: NEXT, 3: THIRD}, keep=3, allow_older=True)
    assert both(path).own == ("chk-3", "chk-2")
    record = read_record(opened(path), "chk-2")
    assert record is not None
    write_record(opened(path), "chk-2", record._replace(sequence=99))
    assert both(path).own == ("chk-2", "chk-3")


def test_a_directory_without_checkpoints_has_none(tmp_path):
    assert both(tmp_path / "nothing") == Census()


def test_a_record_or_a_manifest_without_a_metadata_is_no_checkpoint(path):
    metadata(path).unlink()
    assert own(path).exists()
    assert own(path, suffix="parquet").exists()
    assert (both(path).newest, both(path).others) == ("chk-2", ())
    shutil.rmtree(path / "chk-3")
    assert both(path).own == ("chk-2", "chk-1")


def test_a_metadata_without_record_and_manifest_is_unrecorded(path):
    write_checkpoint(path.parent, 9, NEXT)
    assert both(path).unrecorded == ("chk-9",)
    assert both(path).own == ("chk-3", "chk-2", "chk-1")
    own(path).unlink()
    own(path, suffix="parquet").unlink()
    assert both(path).unrecorded == ("chk-9", "chk-3")
    assert both(path).newest == "chk-2"


@pytest.mark.parametrize("damaged", [None, b"", b"{}", b"\xff" * 40])
def test_a_manifest_replaces_a_lost_or_damaged_record_and_numbers_decide_then(path, damaged):
    """As in replicas of version 0.2.0."""
    own(path).unlink()
    if damaged is not None:
        own(path).write_bytes(damaged)
    assert both(path).own == ("chk-3", "chk-2", "chk-1")
    assert both(path).completed("chk-3") is None
    own(path, suffix="parquet").write_bytes(b"damaged")
    assert both(path).unrecorded == ("chk-3",)


def test_a_manifest_counts_where_the_record_has_other_digests(path):
    record = read_record(opened(path), "chk-3")
    assert record is not None
    write_record(opened(path), "chk-3", record._replace(digests=(Digest(1, 2),)))
    assert both(path).newest == "chk-3"
    assert both(path).completed("chk-3") == record.completed


def test_what_another_program_wrote_over_one_of_ours_is_unrecorded(path):
    metadata(path).write_bytes(metadata(path).read_bytes() + b" ")
    assert (both(path).newest, both(path).unrecorded) == ("chk-2", ("chk-3",))


def test_what_has_the_same_length_is_so_where_it_was_read(path):
    """The one case in which lengths alone do not find out."""
    metadata(path).write_bytes(bytes(reversed(metadata(path).read_bytes())))
    assert (taken(path).newest, taken(path).unrecorded) == ("chk-3", ())
    found = by_digests(path)
    assert (found.newest, found.unrecorded) == ("chk-2", ("chk-3",))


def test_adopted_checkpoints_are_no_own_ones_until_another_program_replaces_them(tmp_path):
    write_checkpoint(tmp_path / "dcB", 8, NEXT)
    path = synced(tmp_path, {9: THIRD}, adopt=True)
    assert both(path).own == ("chk-9",)
    assert (both(path).adopted, both(path).unrecorded) == (("chk-8",), ())
    write_checkpoint(tmp_path / "dcB", 8, FILES)
    assert (both(path).adopted, both(path).unrecorded) == ((), ("chk-8",))


def test_derived_checkpoints_are_a_group_of_their_own_and_never_the_newest(tmp_path):
    path, derived = replicated_with_derived(tmp_path)
    assert both(path).derived == (derived,)
    assert (both(path).newest, both(path).names) == ("chk-1", ("chk-1", derived))
    metadata(path, "chk-1").unlink()
    assert both(path).newest is None
    assert both(path).derived == (derived,)


def test_a_publication_that_is_pending_changes_nothing(path):
    current = read_record(opened(path), "chk-3")
    assert current is not None
    announce_rewrite(opened(path), "chk-3", current.digests[-1], lambda: [b"another spelling"])
    own(path, "chk-4").write_text(own(path).read_text())
    assert both(path).own == ("chk-3", "chk-2", "chk-1")
    metadata(path).write_bytes(b"another spelling")
    assert taken(path).own == ("chk-3", "chk-2", "chk-1")


def test_by_lengths_no_metadata_is_read_and_no_manifest_where_records_list_them(path):
    tracing = Tracing(LocalStorage())
    with serving("file", tracing):
        taken(path)
    read = {uri.rpartition("/")[2] for verb, uri in tracing.calls if verb in ("open", "read")}
    assert read == {"chk-1.json", "chk-2.json", "chk-3.json"}


@pytest.mark.parametrize("becomes", ["withdrawn", "published"])
def test_what_a_run_changes_between_the_looks_is_not_another_programs(path, becomes):
    """The record goes after the `_metadata`, and comes before it."""
    record = own(path).read_bytes()

    def change(verb, uri):
        if verb not in ("open", "read") or not uri.endswith("/chk-3.json"):
            return
        changed.append(uri)
        if len(changed) > 1:
            return
        if becomes == "withdrawn":
            for file in (metadata(path), own(path, suffix="parquet"), own(path)):
                file.unlink()
        else:  # another spelling, since it was listed
            fields = json.loads(record) | {"digests": [[5, 6]]}
            own(path).write_text(json.dumps(fields))
            own(path, suffix="parquet").unlink()
            metadata(path).write_bytes(b"other")

    changed: list[str] = []
    with serving("file", Faulty(LocalStorage(), change)):
        found = taken(path)
    assert changed
    assert found.unrecorded == ()
    assert found.newest == {"withdrawn": "chk-2", "published": "chk-3"}[becomes]
