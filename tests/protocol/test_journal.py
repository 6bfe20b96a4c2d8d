"""The journal lists what a run that died had copied, but for what was complete in its last half
minute.
"""

import threading

import pytest

from cpreplicate.core.plan import Cap
from cpreplicate.errors import CopyFailed
from cpreplicate.operations.sync import sync
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.operations.upkeep import sweep
from cpreplicate.operations.verify.verify import ALL, verify
from cpreplicate.protocol import journal, manifest
from cpreplicate.protocol.journal import Journal, JournalRow, JournalWriter
from cpreplicate.runners import ExecutionOptions
from cpreplicate.storage import Side
from tests.support.faults import Faulty
from tests.support.jobs import JOB, write_checkpoint
from tests.support.memory import MemoryStorage
from tests.support.registry import serving
from tests.support.replicas import FILES, NEXT, aged, synced
from tests.support.waiting import wait_until

ROOT = "memory:/dcB/job"


@pytest.fixture
def memory():
    return MemoryStorage()


def parts(storage):
    names = [status.name for status in storage.list(f"{ROOT}/.cpreplicate")]
    return [journal.read(storage, ROOT, name) for name in journal.names(names)]


def copied(number):
    return JournalRow(f"shared/{number}", number, 7 * number)


def test_what_is_planned_is_listed_before_anything_is_copied(memory):
    JournalWriter(memory, ROOT).plan(["shared/a", "chk-1/b"])
    [part] = parts(memory)
    assert part.planned == {"shared/a", "chk-1/b"}
    assert part.copied == {}


def test_a_part_is_written_after_so_many_files(memory):
    with JournalWriter(memory, ROOT, seconds=3600, files=3).writing() as writer:
        for number in range(3):
            writer.done(copied(number))
        wait_until(lambda: parts(memory))
        assert list(parts(memory)[0].copied.values()) == [copied(number) for number in range(3)]


def test_a_part_is_written_after_so_many_seconds(memory):
    with JournalWriter(memory, ROOT, seconds=0.05, files=2000).writing() as writer:
        writer.done(copied(1))
        wait_until(lambda: parts(memory))
        assert parts(memory)[0].copied == {"shared/1": copied(1)}


def test_a_run_that_fails_leaves_all_that_was_complete(memory):
    writer = JournalWriter(memory, ROOT)

    def fail():
        with writer.writing():
            writer.done(copied(1))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert parts(memory)[0].copied == {"shared/1": copied(1)}
    assert not any(each.name == "journal" for each in threading.enumerate())


def test_a_part_that_cannot_be_read_lists_nothing(memory):
    memory.put(f"{ROOT}/.cpreplicate/copied-1-a-000000.parquet", lambda: [b"torn"])
    [part] = parts(memory)
    assert part.paths == frozenset()


def interrupted(root, number, before):
    """A sync of which the copy of one file fails, once all others are complete."""
    source = f"file:{root}/dcA/{JOB}/chk-{number}"
    request = SyncRequest(
        source, f"file:{root}/dcB", execution=ExecutionOptions(runner="inline", parallelism=1)
    )
    full = Faulty(
        Side().storage("file:/"),
        lambda verb, uri: OSError("full") if (verb, before in uri) == ("put", True) else None,
    )
    with serving("file", full), pytest.raises(CopyFailed):
        sync.sync(request, lambda _line: None)
    return request


def test_a_copy_that_was_interrupted_is_resumed_and_the_journal_goes_with_the_commit(tmp_path):
    write_checkpoint(tmp_path / "dcA", 1, FILES)
    request = interrupted(tmp_path, 1, "/shared/c")
    plan = sync.sync(request, lambda _line: None).plan
    assert [each.target for each in plan.copies] == ["shared/c"]
    assert {each.reason for each in plan.keeps} == {"copied by an earlier run"}
    own = [each.name for each in (tmp_path / "dcB" / JOB / ".cpreplicate").iterdir()]
    of_protocol = {"chk-1.json", "chk-1.parquet", "replica.json", "lease-room", journal.LATE}
    assert set(own) == of_protocol
    assert verify(f"file:{tmp_path}/dcB/{JOB}", None, ALL, lambda _line: None, Side()).restorable


def test_what_a_superseded_run_copied_stays_recorded_until_it_is_deleted(tmp_path):
    write_checkpoint(tmp_path / "dcA", 1, FILES)
    interrupted(tmp_path, 1, "/shared/h")
    write_checkpoint(tmp_path / "dcA", 2, NEXT)
    sync.sync(
        SyncRequest(
            f"file:{tmp_path}/dcA/{JOB}",
            f"file:{tmp_path}/dcB",
            execution=ExecutionOptions(runner="inline"),
            async_deletes=True,
        ),
        lambda _line: None,
    )
    replica = tmp_path / "dcB" / JOB
    names = [each.name for each in (replica / ".cpreplicate").iterdir()]
    left = set().union(
        *(
            journal.read(Side().storage("file:/"), f"file:{replica}", name).paths
            for name in journal.names(names)
        )
    )
    orphans = {path for path in FILES if path not in NEXT and (replica / path).exists()}
    assert orphans
    assert orphans <= left


def recorded(replica):
    """The paths that journals and manifests of a replica name."""
    side = Side()
    own = [each.name for each in (replica / ".cpreplicate").iterdir()]
    parts = [
        journal.read(side.storage("file:/"), f"file:{replica}", name).paths
        for name in journal.names(own)
    ]
    manifests = [
        manifest.read(side.storage("file:/"), f"file:{replica}", f"chk-{number}")
        for number in range(9)
    ]
    return set().union(*parts, *(each.entries for each in manifests if each is not None))


def test_files_of_a_checkpoint_that_was_committed_without_a_manifest_stay_recorded(tmp_path):
    replica = synced(tmp_path, {1: FILES})
    (
        replica / ".cpreplicate" / "chk-1.parquet"
    ).unlink()  # the run died between the commit and this
    JournalWriter(Side().storage("file:/"), f"file:{replica}").plan(list(FILES))
    synced(tmp_path, {2: NEXT}, keep=2)
    assert recorded(replica) >= {*FILES, *NEXT}
    aged(replica)
    sweep.sweep(
        sweep.SweepRequest(
            f"file:{replica}",
            max_delete=Cap(1, is_share=True),
            execution=ExecutionOptions(runner="inline"),
        ),
        lambda _line: None,
    )
    assert recorded(replica) >= {*FILES, *NEXT}


def test_what_only_the_manifest_of_a_dropped_checkpoint_names_stays_recorded(tmp_path):
    replica = synced(tmp_path, {1: FILES})
    synced(tmp_path, {2: NEXT}, keep=2)
    (
        replica / ".cpreplicate" / "chk-2.parquet"
    ).unlink()  # the run died between the commit and this
    synced(tmp_path, {3: {"shared/z": 50, "chk-3/x": 20}}, keep=2)
    assert recorded(replica) >= {path for path in FILES if path in NEXT}


def test_files_whose_deletes_were_put_off_go_with_the_next_sync_that_deletes(tmp_path):
    replica = synced(tmp_path, {1: FILES})
    synced(tmp_path, {2: NEXT}, async_deletes=True)
    orphans = {path for path in FILES if path not in NEXT}
    assert all((replica / path).exists() for path in orphans)
    synced(tmp_path, {3: {"shared/z": 50, "chk-3/x": 20}})
    assert not any((replica / path).exists() for path in orphans)
    assert not journal.names(each.name for each in (replica / ".cpreplicate").iterdir())


def test_files_whose_deletes_were_put_off_stay_recorded_until_they_are_swept(tmp_path):
    replica = synced(tmp_path, {1: FILES})
    synced(tmp_path, {2: NEXT}, async_deletes=True)
    synced(tmp_path, {3: {"shared/z": 50, "chk-3/x": 20}}, async_deletes=True)
    orphans = {path for path in FILES if path not in NEXT}
    assert all((replica / path).exists() for path in orphans)
    assert recorded(replica) >= orphans
    aged(replica)
    sweep.sweep(
        sweep.SweepRequest(
            f"file:{replica}",
            max_delete=Cap(1, is_share=True),
            execution=ExecutionOptions(runner="inline"),
        ),
        lambda _line: None,
    )
    assert not any((replica / path).exists() for path in orphans)


@pytest.mark.parametrize("merging", [0, 5, 30])
def test_of_a_run_that_withdrew_many_points_the_directories_it_wrote_to_are_known(merging):
    run = "00000000000001-abcdefabcdef"
    withdrawn = {f"chk-{number}/old" for number in range(70, 120)}
    merged = {f"shared/job_{number}/new" for number in range(merging)}
    planned = {f"packed/{run}", "shared/new", "chk-120/new", *withdrawn, *merged}
    [late] = journal.late_runs([Journal(f"copied-{run}-000000.parquet", frozenset(planned), {})])
    assert late.packs == f"packed/{run}"
    assert {"shared", "chk-120"} <= set(late.directories)
    written = [each for each in late.directories if each.startswith("shared/job_")]
    assert len(written) == min(merging, 17)
    assert len(late.directories) == 20
