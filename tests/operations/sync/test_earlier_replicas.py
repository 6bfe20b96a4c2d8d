"""A job that was restored from an earlier one: its files come from the replica of that job."""

from __future__ import annotations

import json
import shutil
import threading
import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import google_crc32c
import pytest

from cpreplicate.core.ledger import Member, MemberTable
from cpreplicate.core.packs import PackOptions
from cpreplicate.core.uri import Remap
from cpreplicate.errors import CpreplicateError, SourceBroken
from cpreplicate.operations.handover import promote
from cpreplicate.operations.sync.diff import diff
from cpreplicate.operations.sync.report import Report
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.operations.sync.sync import sync
from cpreplicate.operations.upkeep import sweep
from cpreplicate.operations.verify.verify import ALL, verify
from cpreplicate.output.results.report import FORMS, fields
from cpreplicate.protocol import manifest
from cpreplicate.protocol.lease import acquire
from cpreplicate.protocol.manifest import ManifestEntry, ManifestTable
from cpreplicate.runners import ExecutionOptions
from cpreplicate.storage import Side, Sides
from tests.support.faults import Faulty
from tests.support.jobs import JOB, NEXT_JOB, metadata_of, put_restored, write_checkpoint
from tests.support.registry import serving
from tests.support.tracing import Tracing
from tests.support.untimed import untimed
from tests.support.waiting import PATIENCE

FILES = {"shared/a": 100, "shared/b": 200, "shared/c": 5000, "taskowned/d": 40, "chk-1/x": 30}
EARLIER = {name: FILES[name] for name in ("shared/a", "shared/b", "shared/c", "taskowned/d")}
OWN = {"shared/n": 70, "chk-2/y": 20}
ON, OFF = PackOptions("on", 1000), PackOptions("off", 1000)
BYTES = sum(EARLIER.values())


class Chain:
    """The earlier job, whose replica is synced, and the job that was restored from it."""

    def __init__(self, root: Path, **options: object) -> None:
        self.root = root
        write_checkpoint(root / "dcA", 1, FILES)
        self.sync(f"file:{root}/dcA/{JOB}", **options)
        self.earlier = root / "dcB" / JOB
        self.replica = root / "dcB" / NEXT_JOB
        put_restored(Side(), f"file:{root}/dcA", 2, OWN, EARLIER)
        self.lines: list[str] = []

    def request(
        self, source: str | None = None, target: str = "dcB", **options: object
    ) -> SyncRequest:
        return SyncRequest(
            source or f"file:{self.root}/dcA/{NEXT_JOB}",
            f"file:{self.root}/{target}",
            execution=ExecutionOptions(runner="inline"),
            subsumption_wait=0.0,
            **options,
        )

    def sync(self, source: str | None = None, **options: object) -> Report:
        self.lines = []
        return sync(self.request(source, **options), self.lines.append)

    def lose_earlier_files(self) -> None:
        shutil.rmtree(self.root / "dcA" / JOB)

    def within(self, report: Report) -> int:
        assert verify(f"file:{self.replica}", None, ALL, lambda _line: None, Side()).restorable
        return len(report.plan.reused_copies)

    def tree(self) -> dict[str, tuple[bytes, int]]:
        files = (path for path in self.earlier.rglob("*") if path.is_file())
        return {str(path): (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


@pytest.fixture
def chain(tmp_path):
    return Chain(tmp_path)


@pytest.mark.parametrize("packing", [OFF, ON], ids=["plain", "packed"])
@pytest.mark.parametrize("before", [OFF, ON], ids=["from plain", "from packed"])
@pytest.mark.parametrize("paths", ["auto", "absolute"])
def test_files_of_an_earlier_job_come_from_its_replica_which_stays_as_it_is(
    tmp_path, before, packing, paths
):
    chain = Chain(tmp_path, packing=before, paths=paths)
    before_sync = chain.tree()
    chain.lose_earlier_files()
    report = chain.sync(packing=packing, paths=paths)
    assert chain.within(report) == len(EARLIER)
    assert chain.tree() == before_sync
    assert chain.sync(packing=packing, paths=paths).plan.empty


def test_no_call_is_made_at_the_source_for_such_a_file(chain):
    storage = Side().storage("file:/")
    with untimed(), serving("file", tracing := Tracing(storage)):  # no heartbeat is due
        chain.sync()
    assert not [uri for verb, uri in tracing.calls if f"dcA/{JOB}" in uri]
    changed = {uri for _, uri in tracing.changes() if f"dcB/{NEXT_JOB}" not in uri}
    assert changed == {f"file:{chain.earlier}/.cpreplicate/lease"}


def test_diff_shows_what_is_copied_within_the_target_and_changes_nothing(chain):
    before = chain.tree()
    report = diff(chain.request())
    found = fields(report, actions=True)
    assert found["copied_within_target"] == {"files": len(EARLIER), "bytes": BYTES}
    reasons = {row["target"]: row["reason"] for row in found["actions"]}
    assert set(reasons.values()) == {"new", f"copied from the replica of {JOB}"}
    assert f"{len(EARLIER)} of the files (5.2 KiB) within the target" in FORMS.text(report)
    assert chain.tree() == before
    assert json.dumps(found)
    assert not chain.replica.exists()


def test_a_sync_reports_what_was_copied_within_the_target(chain):
    found = fields(chain.sync())
    assert found["copied_within_target"] == {"files": len(EARLIER), "bytes": BYTES}
    assert found["copy"]["files"] == len(EARLIER) + len(OWN)
    assert any("from replicas of earlier jobs" in line for line in chain.lines)


@pytest.mark.parametrize("packing", [OFF, ON], ids=["plain", "packed"])
@pytest.mark.parametrize("before", [OFF, ON], ids=["from plain", "from packed"])
def test_a_damaged_file_of_the_earlier_replica_is_copied_from_the_source(tmp_path, before, packing):
    chain = Chain(tmp_path, packing=before)
    for path in [*chain.earlier.glob("shared/*"), *chain.earlier.glob("packed/*")]:
        path.write_bytes(path.read_bytes()[:-1] + b"!")
    report = chain.sync(packing=packing)
    assert 0 < chain.within(report) < len(EARLIER)
    assert any("cannot be copied from replicas of earlier jobs" in line for line in chain.lines)
    reasons = {row.target: row.reason for row in report.plan.copies}
    assert f"could not be copied from the replica of {JOB}" in reasons.values()


def test_a_file_that_the_earlier_replica_lacks_or_has_in_another_length_is_not_planned(chain):
    (chain.earlier / "shared/a").unlink()
    (chain.earlier / "shared/b").write_bytes(b"longer" * 100)
    link = chain.earlier / "shared/c"
    link.rename(chain.root / "elsewhere")
    link.symlink_to(chain.root / "elsewhere")
    assert chain.within(chain.sync()) == len(EARLIER) - 3


def test_a_file_that_vanishes_from_the_earlier_replica_meanwhile_is_copied_from_the_source(chain):
    def after_the_plan(verb, uri):
        if verb == "create_exclusive" and JOB in uri:
            (chain.earlier / "shared/a").unlink()

    with serving("file", Faulty(Side().storage("file:/"), after_the_plan)):
        report = chain.sync()
    assert chain.within(report) == len(EARLIER) - 1


def test_it_is_an_incomplete_source_if_neither_the_replica_nor_the_source_has_a_file(chain):
    chain.lose_earlier_files()
    (chain.earlier / "shared/a").write_bytes(b"x" * 100)
    with pytest.raises(SourceBroken):
        chain.sync()
    assert not (chain.replica / "chk-2/_metadata").exists()


def test_a_lease_that_another_run_holds_is_not_waited_for(chain):
    with acquire(f"file:{chain.earlier}", Side()):
        assert chain.within(chain.sync(lock_wait=60.0)) == 0
    assert any("is held by" in line for line in chain.lines)


def test_no_sweep_of_the_earlier_replica_begins_while_files_are_copied_from_it(chain):
    refused: list[str] = []

    def sweeping(verb, uri):
        if verb == "put" and "/foreign/" in uri and not refused:
            with pytest.raises(CpreplicateError) as caught:
                sweep.sweep(sweep.SweepRequest(f"file:{chain.earlier}"), lambda _line: None)
            refused.append(str(caught.value))

    with serving("file", Faulty(Side().storage("file:/"), sweeping)):
        assert chain.within(chain.sync()) == len(EARLIER)
    assert "is held by" in refused[0]
    sweep.sweep(sweep.SweepRequest(f"file:{chain.earlier}"), lambda _line: None)


def test_an_earlier_replica_that_cannot_be_leased_is_not_used(chain):
    def refusing(verb, uri):
        is_lease = verb == "create_exclusive" and f"{JOB}/.cpreplicate/lease" in uri
        return PermissionError(13, "denied", uri) if is_lease else None

    with serving("file", Faulty(Side().storage("file:/"), refusing)):
        assert chain.within(chain.sync()) == 0
    assert any("denied" in line for line in chain.lines)


def test_a_sealed_replica_is_not_used(chain):
    promote.promote(promote.PromoteRequest(f"file:{chain.earlier}"), lambda _line: None)
    assert chain.within(chain.sync()) == 0
    assert any("is sealed" in line for line in chain.lines)


def test_a_replica_in_which_a_job_writes_is_not_used(chain):
    place = chain.earlier / "chk-9"
    place.mkdir()
    shutil.copy(chain.root / "dcA" / NEXT_JOB / "chk-2/_metadata", place)
    assert chain.within(chain.sync()) == 0
    assert any("another program's" in line for line in chain.lines)


def test_the_replica_of_another_source_with_the_same_job_id_is_not_used(tmp_path):
    chain = Chain(tmp_path)
    shutil.rmtree(chain.earlier)
    write_checkpoint(tmp_path / "dcC", 1, FILES)
    chain.sync(f"file:{tmp_path}/dcC/{JOB}")
    before = chain.tree()
    assert chain.within(chain.sync()) == 0
    assert chain.tree() == before


def test_a_directory_without_a_marker_is_neither_used_nor_changed(chain):
    (chain.earlier / ".cpreplicate/replica.json").unlink()
    before = chain.tree()
    assert chain.within(chain.sync()) == 0
    assert chain.tree() == before


def test_a_replica_whose_directory_is_a_symbolic_link_is_not_used(chain):
    shared = chain.earlier / "shared"
    shared.rename(chain.root / "elsewhere")
    shared.symlink_to(chain.root / "elsewhere")
    assert chain.within(chain.sync()) == 0
    assert any("symbolic link" in line for line in chain.lines)


def test_files_that_cpreplicate_did_not_write_are_not_used(tmp_path):
    chain = Chain(tmp_path)
    shutil.rmtree(chain.earlier)
    for name in ("shared/a", "shared/b"):
        (chain.earlier / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(tmp_path / "dcA" / JOB / name, chain.earlier / name)
    chain.sync(f"file:{tmp_path}/dcA/{JOB}", adopt=True)
    assert chain.within(chain.sync()) == len(EARLIER) - 2


@pytest.mark.parametrize("lost", ["chk-1/_metadata", ".cpreplicate/chk-1.parquet"])
def test_only_the_manifest_of_a_committed_checkpoint_counts(chain, lost):
    (chain.earlier / lost).unlink()
    assert chain.within(chain.sync()) == 0


def test_a_remapped_file_is_that_of_the_replica_whose_source_it_is_read_from(tmp_path):
    chain = Chain(tmp_path)
    recorded = f"file:{tmp_path}/old"
    put_restored(Side(), f"file:{tmp_path}/dcA", 2, OWN, {})
    (tmp_path / "old").symlink_to(tmp_path / "dcA")
    put_restored(Side(), recorded, 2, OWN, EARLIER)
    remaps = (Remap(recorded, f"file:{tmp_path}/dcA"),)
    assert chain.within(chain.sync(remaps=remaps)) == len(EARLIER)
    shutil.copytree(tmp_path / "dcA", tmp_path / "copy")
    shutil.rmtree(chain.replica)
    elsewhere = (Remap(recorded, f"file:{tmp_path}/copy"),)
    assert chain.within(chain.sync(remaps=elsewhere)) == 0


def test_a_job_whose_directory_was_moved_does_not_wait_for_its_own_lease(chain):
    moved = f"file:{chain.root}/dcC"
    storage = Side().storage(moved)
    place = f"{moved}/{JOB}/chk-2"
    files = {f"file:{chain.root}/dcA/{JOB}/shared/a": 100}
    storage.put(f"{place}/_metadata", lambda: [metadata_of(2, files)])
    report = chain.sync(place, same_source=True)
    assert report.committed
    assert (report.plan.reused, len(report.plan.copies)) == ({}, 1)
    assert not any("is not used" in line for line in chain.lines)


def test_with_preserve_the_source_is_read_which_has_the_attributes(chain):
    sides = Sides(preserve=True)
    assert chain.within(chain.sync(sides=sides)) == 0


def test_two_jobs_that_reference_each_other_do_not_wait_for_each_other(chain):
    chain.sync()
    root = f"file:{chain.root}/dcA"
    for number, (job, other) in enumerate([(JOB, NEXT_JOB), (NEXT_JOB, JOB)]):
        name = ["shared/n", "shared/b"][number]
        files = {f"shared/{uuid.uuid4().hex}": 5}
        put_restored(Side(), root, 3, files, {name: {**OWN, **FILES}[name]}, job, other)
    shutil.rmtree(chain.replica / "foreign")  # so that the file is needed again
    both_hold_their_own = threading.Barrier(2, timeout=PATIENCE)
    taken: Counter[str] = Counter()

    def meeting(verb, uri):
        if verb == "create_exclusive" and uri.endswith("/.cpreplicate/lease"):
            taken[threading.current_thread().name] += 1
            if taken[threading.current_thread().name] == 2:
                both_hold_their_own.wait()

    sources = [f"{root}/{job}" for job in (JOB, NEXT_JOB)]
    with (
        serving("file", Faulty(Side().storage("file:/"), meeting)),
        ThreadPoolExecutor(2) as pool,
    ):
        reports = [
            pool.submit(sync, chain.request(source), lambda _line: None) for source in sources
        ]
        assert all(report.result(PATIENCE).committed for report in reports)
    assert len(taken) == 2
    assert min(taken.values()) >= 2  # more if a lease was not free at once


FORGED = {
    "beside the replica": "../secret",
    "hidden below packs": "packed/../../secret",
    "absolute": "/secret",
}


@pytest.mark.parametrize("forged", FORGED)
def test_a_forged_pack_brings_no_other_file_of_the_target_into_the_replica(chain, forged):
    """Whoever may write one replica names a file of another one in its manifest."""
    secret = b"S" * FILES["shared/a"]
    (chain.root / "dcB" / "secret").write_bytes(secret)
    storage, root = Side().storage("file:/"), f"file:{chain.earlier}"
    listed = manifest.read(storage, root, "chk-1")
    entries = {
        **dict(listed.entries),
        FORGED[forged]: ManifestEntry(len(secret), len(secret), None),
    }
    del entries["shared/a"]
    crc32c = google_crc32c.value(secret)
    members = MemberTable.of({"shared/a": Member(FORGED[forged], 0, len(secret), crc32c)})
    made = listed._replace(entries=ManifestTable.of(entries), members=members)
    manifest.write(storage, root, "chk-1", made)
    assert chain.within(chain.sync()) == 0
    copies = [path.read_bytes() for path in chain.replica.rglob("*") if path.is_file()]
    assert secret not in copies
    assert (chain.root / "dcA" / JOB / "shared/a").read_bytes() in copies


def test_an_earlier_replica_with_a_link_further_down_is_not_used(tmp_path):
    chain = Chain(tmp_path)
    inner = {"shared/inner/a": 100}
    write_checkpoint(tmp_path / "dcA", 2, inner)
    chain.sync(f"file:{tmp_path}/dcA/{JOB}")
    put_restored(Side(), f"file:{tmp_path}/dcA", 3, OWN, inner)
    shutil.move(chain.earlier / "shared/inner", tmp_path / "elsewhere")
    (chain.earlier / "shared/inner").symlink_to(tmp_path / "elsewhere")
    assert chain.within(chain.sync()) == 0
    assert any("symbolic link" in line for line in chain.lines)
