"""`diff` and `sync` on checkpoints that real Flink wrote."""

import json
import shutil
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cpreplicate.core import uri
from cpreplicate.core.closure import closure
from cpreplicate.core.metadata import Absolute, rewrite
from cpreplicate.core.packs import PackOptions
from cpreplicate.errors import (
    CopyFailed,
    LeaseHeld,
    MetadataError,
    NotThere,
    Refused,
    SourceBroken,
    SourceMovedOn,
    TargetGone,
    UsageError,
    exit_code_of,
)
from cpreplicate.operations.sync.diff import check, diff
from cpreplicate.operations.sync.report import Report
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.operations.sync.source.state import read_source
from cpreplicate.operations.sync.sync import sync
from cpreplicate.operations.verify.verify import ALL, Sample, verify
from cpreplicate.protocol import lease, manifest, publication
from cpreplicate.protocol.digest import digest_of
from cpreplicate.protocol.held import HeldReplica
from cpreplicate.protocol.source import read_metadata
from cpreplicate.runners import ExecutionOptions
from cpreplicate.runners.inline import InlineRunner
from cpreplicate.storage import Side, Sides
from tests.support import checker, commandline, corpus, parts
from tests.support.corpus import DataCentre
from tests.support.encoder import (
    File,
    Incremental,
    Inline,
    OperatorEntry,
    Segment,
    Subtask,
    Tree,
    encode,
)
from tests.support.faults import Faulty
from tests.support.jobs import JOB, metadata_of, write_checkpoint
from tests.support.memory import MemoryStorage
from tests.support.registry import serving
from tests.support.replicas import FILES, NEXT, recorded, synced
from tests.support.tracing import Tracing

pytestmark = pytest.mark.usefixtures("still_source")

FOLDERS = sorted(folder.name for folder in corpus.ROOT.iterdir())
INCREMENTAL = "2.3.0-rocks-incr"


def silent(_line: str) -> None:
    """These tests do not read progress messages."""


class Pair:
    """A source data centre and an empty target root."""

    def __init__(self, folder: str, directory: Path) -> None:
        self.source = DataCentre(folder, directory)
        self.job = self.source.jobs()[-1]
        self.target = directory / "dcB"

    def request(self, number: int, **options: object) -> SyncRequest:
        source = f"file:{self.source.job_root(self.job)}/chk-{number}"
        return SyncRequest(
            source,
            f"file:{self.target}",
            remaps=(self.source.remap,),
            execution=ExecutionOptions(runner="inline"),
            **options,
        )

    def sync(self, number: int, **options: object) -> Report:
        return sync(self.request(number, **options), silent)

    @property
    def replica(self) -> Path:
        return self.target / self.job

    def lose_source(self) -> None:
        shutil.rmtree(self.source.path)

    def verified(self, checkpoint: str | None = None):
        return verify(f"file:{self.replica}", checkpoint, ALL, silent, Side())


@pytest.fixture
def pair(tmp_path):
    return Pair(INCREMENTAL, tmp_path)


# auto is one of them: the default, of which the next test reads the bytes
@pytest.mark.parametrize("paths", [parts.rest("auto"), "relative", "absolute"])
@pytest.mark.parametrize("folder", FOLDERS)
def test_every_job_of_the_corpus_is_replicated_checkpoint_by_checkpoint(folder, paths, tmp_path):
    pair = Pair(folder, tmp_path)
    for job in pair.source.jobs():
        pair.job = job
        for number in pair.source.numbers(job):
            if not pair.source.is_whole(job, number):
                with pytest.raises(SourceBroken):
                    pair.sync(number, paths=paths)
                continue
            report = pair.sync(number, paths=paths)
            assert report.committed
            assert pair.sync(number, paths=paths).plan.empty
            assert pair.verified().restorable
    whole = {
        job: [n for n in pair.source.numbers(job) if pair.source.is_whole(job, n)]
        for job in pair.source.jobs()
    }
    before = {job: numbers[-1] for job, numbers in whole.items() if numbers}
    assert before
    pair.lose_source()
    for pair.job, number in before.items():
        verification = pair.verified()
        assert verification.restorable
        assert verification.checkpoint_id == number
        assert [path.name for path in pair.replica.glob("chk-*")] == [f"chk-{number}"]


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_bytes_of_every_file_are_those_of_the_source(folder, tmp_path):
    pair = Pair(folder, tmp_path)
    number = pair.source.numbers(pair.job)[-1]
    report = pair.sync(number)
    for action in report.plan.copies:
        source = Path(action.source.removeprefix("file:"))
        assert (pair.replica / action.target).read_bytes() == source.read_bytes()
    needed = {action.target for action in report.plan.copies} | {f"chk-{number}/_metadata"}
    assert set(corpus.tree(pair.replica)) == needed


def test_the_source_is_never_written_to(pair):
    before = {p: p.stat().st_mtime_ns for p in pair.source.path.rglob("*")}
    for number in pair.source.numbers(pair.job):
        pair.sync(number)
    assert {p: p.stat().st_mtime_ns for p in pair.source.path.rglob("*")} == before


def test_the_next_checkpoint_copies_only_what_is_new_and_deletes_what_only_the_old_one_needed(pair):
    first, second, _ = pair.source.numbers(pair.job)
    whole = pair.sync(first).plan
    plan = pair.sync(second).plan
    assert plan.base_checkpoint_id == first
    assert 0 < len(plan.copies) < len(whole.copies)
    assert plan.keeps
    assert {action.reason for action in plan.deletes} == {f"only chk-{first} needed it"}
    for action in plan.deletes:
        assert not (pair.replica / action.target).exists()


def test_diff_shows_the_plan_that_sync_executes_and_does_nothing(pair):
    number = pair.source.numbers(pair.job)[0]
    shown = diff(pair.request(number)).plan
    assert not pair.target.exists()
    assert pair.sync(number).plan == shown


def test_files_whose_names_are_not_plain_are_replicated_checkpoint_by_checkpoint(tmp_path):
    odd = {"shared/<b>": 700, "shared/é%20": 90}
    synced(tmp_path, {1: {**FILES, **odd}, 2: {**NEXT, **odd, "shared/?": 30}})
    replica = tmp_path / "dcB" / JOB
    assert checker.faults(replica) == []
    assert {"<b>", "é%20", "?"} <= {path.name for path in (replica / "shared").iterdir()}


def test_a_delete_that_fails_is_a_warning_and_the_commit_stands(pair):
    first, second, _ = pair.source.numbers(pair.job)
    pair.sync(first)
    victim = pair.replica / diff(pair.request(second)).plan.deletes[0].target
    victim.unlink()
    victim.mkdir()
    report = pair.sync(second)
    assert report.committed
    assert "1 file could not be deleted" in report.warnings[0]
    assert victim.name in report.warnings[0]
    assert pair.verified().restorable


def test_where_an_old_metadata_cannot_be_withdrawn_none_of_its_files_is_deleted(pair, monkeypatch):
    first, second, _ = pair.source.numbers(pair.job)
    pair.sync(first)

    def fails(_self, path, _keeps_aside):
        raise OSError(f"cannot delete {path}")

    with monkeypatch.context() as patch:
        patch.setattr(HeldReplica, "withdraw", fails)
        report = pair.sync(second)
    assert report.committed
    assert "left as they are" in report.warnings[0]
    assert pair.verified(f"chk-{first}").restorable
    assert pair.sync(second).plan.dropped == (f"chk-{first}",)
    assert [path.name for path in pair.replica.glob("chk-*")] == [f"chk-{second}"]


@pytest.mark.parametrize("packing", [PackOptions("off"), PackOptions("on")])
def test_a_target_that_goes_during_the_copies_is_not_made_anew(tmp_path, packing):
    write_checkpoint(tmp_path / "dcA", 1, FILES)
    (tmp_path / "dcB").mkdir()

    def unmount(line: str) -> None:
        if line.startswith("copying "):
            shutil.rmtree(tmp_path / "dcB" / JOB)

    request = SyncRequest(
        f"file:{tmp_path}/dcA/{JOB}/chk-1",
        f"file:{tmp_path}/dcB",
        execution=ExecutionOptions(runner="inline"),
        packing=packing,
    )
    with pytest.raises(TargetGone, match="is gone: it was unmounted") as gone:
        sync(request, unmount)
    assert exit_code_of(gone.value) == 10
    assert list((tmp_path / "dcB").iterdir()) == []


def test_a_file_where_a_directory_belongs_seen_after_the_commit_is_a_warning(tmp_path):
    replica = synced(tmp_path, {1: FILES})
    recorded(replica, "taskowned/x")
    source = write_checkpoint(tmp_path / "dcA", 2, NEXT)

    def put_a_file(line: str) -> None:
        if line.startswith("committed "):
            (replica / "taskowned").write_text("another program's")

    request = SyncRequest(
        f"file:{source}", f"file:{tmp_path}/dcB", execution=ExecutionOptions(runner="inline")
    )
    report = sync(request, put_a_file)
    assert report.committed
    [warning] = report.warnings
    assert f"{replica}/taskowned is a file where a replica has a directory" in warning
    assert "chk-2 was committed before that" in warning
    assert (replica / "taskowned").read_text() == "another program's"
    assert list((replica / ".cpreplicate").glob("copied-*"))


def test_a_lease_that_is_lost_after_the_commit_is_exit_11_with_the_report(tmp_path, monkeypatch):
    replica = synced(tmp_path, {1: FILES})
    source = write_checkpoint(tmp_path / "dcA", 2, NEXT)
    held_by, withdraw = replica / ".cpreplicate/lease", publication.withdraw

    def taken_over(held, name, *how):
        held_by.write_text(json.dumps({**json.loads(held_by.read_text()), "token": "another"}))
        withdraw(held, name, *how)

    monkeypatch.setattr(publication, "withdraw", taken_over)
    done = commandline.run("sync", source, tmp_path / "dcB", "--runner", "inline")
    assert done.code == 11
    assert "chk-2 was committed before that" in done.out
    assert {"chk-1", "chk-2"} <= {path.name for path in replica.iterdir()}
    assert all((replica / path).exists() for path in FILES)


def test_an_old_metadata_that_another_program_replaced_after_the_commit_stays_with_a_warning(
    tmp_path,
):
    replica = synced(tmp_path, {1: FILES})
    source = write_checkpoint(tmp_path / "dcA", 2, NEXT)
    old = replica / "chk-1" / "_metadata"

    def replace_the_old_one(line: str) -> None:
        if line.startswith("committed "):
            old.write_bytes(b"of a job")

    request = SyncRequest(
        f"file:{source}", f"file:{tmp_path}/dcB", execution=ExecutionOptions(runner="inline")
    )
    report = sync(request, replace_the_old_one)
    assert report.committed
    [warning] = report.warnings
    assert f"{old} is not the one that cpreplicate wrote. Nothing was deleted" in warning
    assert old.read_bytes() == b"of a job"
    assert all((replica / path).exists() for path in FILES)


def test_two_checkpoints_are_kept_when_asked_for(pair):
    first, second, third = pair.source.numbers(pair.job)
    for number in (first, second, third):
        pair.sync(number, keep=2)
    assert pair.verified(f"chk-{second}").restorable
    assert pair.verified(f"chk-{third}").restorable
    with pytest.raises(NotThere):
        pair.verified(f"chk-{first}")


def test_a_replica_never_goes_back(pair):
    first, second, _ = pair.source.numbers(pair.job)
    pair.sync(second)
    before = corpus.tree(pair.replica)
    with pytest.raises(Refused, match=f"holds chk-{second}, newer"):
        pair.sync(first)
    assert corpus.tree(pair.replica) == before


def test_of_a_checkpoint_without_files_the_second_one_has_nothing_to_do(tmp_path):
    listed = synced(tmp_path, {1: {}}) / ".cpreplicate/chk-1.parquet"
    before = listed.stat().st_ino
    report = sync(SyncRequest(f"file:{tmp_path}/dcA/{JOB}", f"file:{tmp_path}/dcB"), silent)
    assert not report.committed
    assert listed.stat().st_ino == before


def test_another_spelling_of_the_paths_is_published_without_copying(pair):
    number = pair.source.numbers(pair.job)[0]
    pair.sync(number, paths="relative")
    report = pair.sync(number, paths="absolute")
    assert report.committed
    assert not report.plan.copies
    assert pair.verified().restorable


def test_a_file_lost_from_the_replica_is_copied_again(pair):
    number = pair.source.numbers(pair.job)[0]
    lost = pair.sync(number).plan.copies[0].target
    (pair.replica / lost).unlink()
    plan = pair.sync(number).plan
    assert [(action.target, action.reason) for action in plan.copies] == [
        (lost, "missing in the replica")
    ]
    assert pair.verified().restorable


def test_a_merged_file_that_was_truncated_is_copied_again(tmp_path):
    pair = Pair("2.3.0-filemerge", tmp_path)
    number = pair.source.numbers(pair.job)[-1]
    target = max(pair.sync(number).plan.copies, key=lambda action: action.bytes).target
    merged = pair.replica / target
    length = merged.stat().st_size
    merged.write_bytes(merged.read_bytes()[:100])
    plan = pair.sync(number).plan
    reason = f"damaged: it has 100 bytes, {length} are recorded"
    assert [(action.target, action.reason) for action in plan.copies] == [(target, reason)]
    assert pair.verified().restorable


def test_a_checkpoint_that_is_incomplete_at_the_source_is_never_committed(pair):
    first, second, _ = pair.source.numbers(pair.job)
    pair.sync(first)
    before = corpus.tree(pair.replica)
    lost = next(
        action.source
        for action in diff(pair.request(second)).plan.copies
        if "/shared/" in action.source
    )
    Path(lost.removeprefix("file:")).unlink()
    with pytest.raises(SourceBroken, match=lost):
        pair.sync(second)
    assert before.items() <= corpus.tree(pair.replica).items()
    assert pair.verified().checkpoint_id == first


def test_a_checkpoint_subsumed_during_the_copy_raises_source_moved_on_and_its_copies_are_used(
    pair: Pair,
) -> None:
    first, second, third = pair.source.numbers(pair.job)
    pair.sync(first)
    directory = pair.source.job_root(pair.job) / f"chk-{second}"
    copied = [action.source for action in diff(pair.request(second)).plan.copies]

    def subsume(verb: str, uri: str) -> None:
        if verb == "open" and uri in copied:
            shutil.rmtree(directory, ignore_errors=True)

    subsuming = Faulty(Side().storage("file:/"), subsume)
    with serving("file", subsuming), pytest.raises(SourceMovedOn):
        pair.sync(second)
    assert pair.verified().checkpoint_id == first
    assert pair.verified().restorable
    plan = pair.sync(third).plan
    assert any(action.reason == "copied by an earlier run" for action in plan.keeps)
    assert pair.verified().restorable


def test_a_failed_copy_commits_and_deletes_nothing_and_running_again_completes(pair):
    first, second, _ = pair.source.numbers(pair.job)
    pair.sync(first)
    blocked = pair.replica / diff(pair.request(second)).plan.copies[0].target
    blocked.mkdir(parents=True)
    (blocked / "in the way").touch()
    with pytest.raises(CopyFailed, match=blocked.name):
        pair.sync(second)
    assert pair.verified().checkpoint_id == first
    assert pair.verified().restorable
    shutil.rmtree(blocked)
    assert pair.sync(second).committed
    assert pair.verified().checkpoint_id == second


def test_a_job_directory_means_its_newest_completed_checkpoint(pair):
    newest = pair.source.numbers(pair.job)[-1]
    (pair.source.job_root(pair.job) / f"chk-{newest + 1}").mkdir()
    request = SyncRequest(
        f"file:{pair.source.job_root(pair.job)}", f"file:{pair.target}", remaps=(pair.source.remap,)
    )
    assert diff(request).plan.checkpoint_id == newest


def test_a_savepoint_is_replicated_under_its_own_name(tmp_path):
    pair = Pair("2.3.0-sp-canonical", tmp_path)
    savepoint = next((pair.source.path / "sp").iterdir())
    report = sync(
        SyncRequest(f"file:{savepoint}", f"file:{pair.target}", remaps=(pair.source.remap,)), silent
    )
    assert report.plan.replica == f"file:{pair.target}/{savepoint.name}"
    assert verify(report.plan.replica, None, ALL, silent, Side()).restorable


def test_a_source_that_does_not_exist_raises_not_there(pair):
    with pytest.raises(NotThere):
        pair.sync(99)
    with pytest.raises(NotThere):
        diff(SyncRequest("file:/no/such/job", "file:/no/such/root"))


def test_a_metadata_that_is_not_understood_raises_an_error_with_its_path(pair):
    number = pair.source.numbers(pair.job)[0]
    metadata = pair.source.job_root(pair.job) / f"chk-{number}" / "_metadata"
    metadata.write_bytes(metadata.read_bytes()[:100])
    with pytest.raises(MetadataError, match=str(metadata)):
        pair.sync(number)


@pytest.mark.parametrize(
    ("file", "is_allowed"), [("hdfs:/earlier/file", True), ("hdfs://b/theirs/file", False)]
)
def test_a_source_without_the_name_of_its_cluster_allows_no_file_of_another_one(file, is_allowed):
    side = Side((("", (("fs.defaultFS", "hdfs://a"),)),))
    refusal = nullcontext() if is_allowed else pytest.raises(Refused, match="--source-root")
    with serving("hdfs", MemoryStorage()):
        place = f"hdfs:/own/{JOB}/chk-1/_metadata"
        side.storage(place).put(place, lambda: [metadata_of(1, {file: 10})])
        with refusal:
            read_source(SyncRequest(f"hdfs:/own/{JOB}", "hdfs://c/replicas", sides=Sides(side)))


def test_files_outside_the_source_roots_are_refused(pair):
    number = pair.source.numbers(pair.job)[0]
    request = SyncRequest(
        pair.request(number).source, f"file:{pair.target}", source_roots=("file:/elsewhere",)
    )
    with pytest.raises(Refused, match="--source-root"):
        sync(request, silent)


def test_a_replica_inside_its_source_is_refused(pair):
    request = SyncRequest(
        pair.request(6).source, f"file:{pair.source.path}/ckpt", remaps=(pair.source.remap,)
    )
    with pytest.raises(Refused, match="own source"):
        sync(request, silent)


def test_a_moved_replica_with_absolute_paths_is_refused_before_anything_is_deleted(pair):
    first, second, _ = pair.source.numbers(pair.job)
    pair.sync(first, paths="absolute")
    pair.target = pair.target.rename(pair.target.with_name("moved"))
    before = corpus.tree(pair.replica)
    with pytest.raises(Refused, match="outside the replica"):
        pair.sync(second)
    assert corpus.tree(pair.replica) == before


def test_verify_finds_a_merge_directory_left_at_the_source(tmp_path):
    """Flink deletes such a directory recursively once it owns the checkpoint."""
    pair = Pair("2.3.0-filemerge", tmp_path)
    number = pair.source.numbers(pair.job)[-1]
    pair.sync(number)
    assert pair.verified().restorable
    committed = pair.replica / f"chk-{number}" / "_metadata"
    data = committed.read_bytes()
    metadata = read_metadata(f"file:{committed.parent}", Side()).metadata
    first = next(handle for handle in metadata.handles if handle.kind == "directory")
    left = f"file:{pair.source.path}/ckpt/{pair.job}/shared/left"
    committed.write_bytes(
        b"".join(
            rewrite(data, metadata, lambda h: Absolute(left) if h.start == first.start else None)
        )
    )
    verification = pair.verified()
    assert verification.outside == (left,)
    assert not verification.restorable


LARGE = 17 << 20  # bytes of inline state: the manifest is read instead of a larger `_metadata`


def write_large_checkpoint(root: Path, number: int, files: Mapping[str, int]) -> None:
    checkpoint = write_checkpoint(root, number, files)
    shared = tuple((path, File(f"file:{root}/{JOB}/{path}", size)) for path, size in files.items())
    inline = Inline("inline", bytes(LARGE))
    state = Incremental(11, number, "backend", (0, 128), 1, inline, shared, ())
    subtasks = (Subtask(0, keyed=state),)
    tree = Tree(6, (OperatorEntry(bytes(16), 1, 128, subtasks),), number)
    (checkpoint / "_metadata").write_bytes(encode(tree).data)


def request_for(root: Path, **options: Any) -> SyncRequest:
    return SyncRequest(
        f"file:{root}/dcA/{JOB}",
        f"file:{root}/dcB",
        execution=ExecutionOptions(runner="inline"),
        **options,
    )


def test_a_large_metadata_is_not_decoded_if_its_manifest_lists_the_files(tmp_path: Path) -> None:
    write_large_checkpoint(tmp_path / "dcA", 1, FILES)
    sync(request_for(tmp_path), silent)
    write_checkpoint(tmp_path / "dcA", 2, NEXT)
    tracing = Tracing(Side().storage("file:/"))
    with serving("file", tracing):
        plan = diff(request_for(tmp_path)).plan
    assert {action.target for action in plan.deletes} == set(FILES) - set(NEXT)
    metadata = f"file:{tmp_path}/dcB/{JOB}/chk-1/_metadata"
    assert tracing.calls.count(("open", metadata)) == 1  # for its digest


def test_a_path_of_a_tampered_manifest_outside_the_replica_is_not_deleted(tmp_path: Path) -> None:
    write_large_checkpoint(tmp_path / "dcA", 1, FILES)
    sync(request_for(tmp_path), silent)
    root = f"file:{tmp_path}/dcB/{JOB}"
    digest = digest_of([(tmp_path / "dcB" / JOB / "chk-1" / "_metadata").read_bytes()])
    tampered = manifest.Manifest(
        1,
        digest,
        manifest.ManifestTable.of({"shared/../../victim": manifest.ManifestEntry(1, 1, 0)}),
    )
    manifest.write(Side().storage(root), root, "chk-1", tampered)
    victim = tmp_path / "dcB" / "victim"
    victim.write_text("precious")
    write_checkpoint(tmp_path / "dcA", 2, NEXT)
    assert sync(request_for(tmp_path), silent).committed
    assert victim.read_text() == "precious"


def test_a_second_run_is_refused_and_the_holder_of_the_lease_named(pair):
    number = pair.source.numbers(pair.job)[0]
    with (
        lease.acquire(f"file:{pair.replica}", Side()),
        pytest.raises(LeaseHeld, match=r"held by .*, process \d+, since 20"),
    ):
        pair.sync(number)
    assert pair.sync(number).committed


def test_the_lease_is_given_back_after_a_failure(pair):
    number = pair.source.numbers(pair.job)[0]
    pair.replica.mkdir(parents=True)
    full = Faulty(
        Side().storage("file:/"),
        lambda verb, uri: OSError("full") if verb == "put" and "/shared/" in uri else None,
    )
    with serving("file", full), pytest.raises(CopyFailed):
        pair.sync(number)
    assert not (pair.replica / ".cpreplicate" / "lease").exists()
    assert pair.sync(number).committed


def test_without_its_manifest_no_file_is_in_the_ledger_and_all_are_copied_again(pair):
    number = pair.source.numbers(pair.job)[0]
    first = pair.sync(number).plan
    lost = pair.replica / ".cpreplicate" / f"chk-{number}.parquet"
    lost.unlink()
    again = pair.sync(number).plan
    assert {action.target for action in again.copies} == {action.target for action in first.copies}
    assert lost.exists()
    assert pair.verified().restorable


@pytest.mark.parametrize("folder", FOLDERS)
@pytest.mark.parametrize("paths", ["relative", "absolute"])
def test_one_file_has_one_spelling_and_no_source_path_is_left(folder, paths, tmp_path):
    pair = Pair(folder, tmp_path)
    number = pair.source.numbers(pair.job)[-1]
    pair.sync(number, paths=paths)
    metadata = read_metadata(f"file:{pair.replica}/chk-{number}", Side()).metadata
    uris = closure(metadata).uris
    spelled: dict[str, set[tuple[str, str]]] = {}
    for handle in metadata.handles:
        if handle.path is not None:
            spelled.setdefault(uris[handle.path], set()).add((handle.kind, handle.path))
            assert not handle.path.startswith(corpus.RECORDED)
    assert all(len(spellings) == 1 for spellings in spelled.values())
    assert all(path.startswith(f"file:{pair.replica}/") for path in spelled)


class TestASampleOfTheContent:
    """`verify --sample`: a seeded part is read, and the result is of that part."""

    def test_is_the_same_for_the_same_seed_and_another_for_another(self):
        paths = [f"shared/{number}" for number in range(1000)]
        first, again, other = (
            {path for path in paths if Sample(0.05, seed).takes(path)} for seed in (1, 1, 2)
        )
        assert first == again != other
        assert 20 < len(first) < 90

    def test_finds_a_flipped_bit_only_in_what_it_reads(self, tmp_path):
        write_checkpoint(tmp_path / "dcA", 1, {f"shared/{number:03}": 50 for number in range(100)})
        sync(
            SyncRequest(
                f"file:{tmp_path}/dcA/{JOB}",
                f"file:{tmp_path}/dcB",
                execution=ExecutionOptions(runner="inline"),
            ),
            silent,
        )
        replica = tmp_path / "dcB" / JOB
        for victim in (replica / "shared").iterdir():
            victim.write_bytes(bytes([victim.read_bytes()[0] ^ 1]) + victim.read_bytes()[1:])
        sample = Sample(0.2, seed=7)
        verification = verify(f"file:{replica}", None, sample, silent, Side())
        assert (
            len(verification.corrupt)
            == verification.compared
            == sum(sample.takes(f"shared/{n:03}") for n in range(100))
        )
        assert 5 < verification.compared < 40
        assert not verification.restorable


class Racing(InlineRunner):
    """A runner after which an attempt that was considered lost makes each copy longer."""

    def run(self, actions, level=0, done=None):
        outcomes = super().run(actions, level, done)
        for outcome in outcomes:
            with open(uri.local_path(outcome.target), "ab") as file:
                file.write(b"later")
        return outcomes


def sync_with_a_race(tmp_path, handle):
    root = f"file:{tmp_path}/dcA"
    write_checkpoint(tmp_path / "dcA", 1, {"shared/a": 100})
    path = f"{root}/{JOB}/shared/a"
    state = Incremental(11, 1, "backend", (0, 128), 1, None, (("a.sst", handle(path)),), ())
    tree = Tree(6, (OperatorEntry(bytes(16), 1, 128, (Subtask(0, keyed=state),)),), 1)
    (tmp_path / "dcA" / JOB / "chk-1" / "_metadata").write_bytes(encode(tree).data)
    request = SyncRequest(f"{root}/{JOB}/chk-1", f"file:{tmp_path}/dcB")
    return sync(request, silent, shared=Racing(Sides()))


def test_of_a_merged_file_at_which_two_attempts_raced_only_the_extent_is_proved(tmp_path):
    report = sync_with_a_race(tmp_path, lambda path: Segment(10, 80, 0, path, "id"))
    assert report.committed
    replica = tmp_path / "dcB" / JOB
    listed = manifest.read(Side().storage("file:/"), f"file:{replica}", "chk-1")
    assert listed is not None
    assert listed.entries["shared/a"].crc32c is None
    verification = verify(f"file:{replica}", None, ALL, silent, Side())
    assert (verification.restorable, verification.compared) == (True, 1)
    (replica / "shared/a").write_bytes(bytes(200))
    verification = verify(f"file:{replica}", None, ALL, silent, Side())
    assert verification.corrupt == ("shared/a",)


def test_a_file_that_is_not_as_it_was_written_is_not_committed(tmp_path):
    with pytest.raises(CopyFailed, match="not as it was written"):
        sync_with_a_race(tmp_path, lambda path: File(path, 100))
    assert not (tmp_path / "dcB" / JOB / "chk-1" / "_metadata").exists()


@pytest.mark.parametrize(
    "verb",
    [
        diff,
        lambda request: sync(request, silent),
        check,
    ],
)
def test_a_target_root_that_is_a_replica_is_refused_and_the_right_one_named(pair, verb):
    number = pair.source.numbers(pair.job)[-1]
    pair.sync(number)
    before = corpus.tree(pair.target)
    with pytest.raises(
        UsageError,
        match=rf"a replica, or in one: .* \.cpreplicate\. .* Give file:{pair.target} instead",
    ):
        verb(replace(pair.request(number), target_root=f"file:{pair.replica}"))
    assert corpus.tree(pair.target) == before


def test_a_target_root_that_is_a_replica_of_another_job_is_refused(pair):
    pair.sync(pair.source.numbers(pair.job)[-1])
    other = pair.replica.rename(pair.target / "another")
    with pytest.raises(UsageError, match=f"Give file:{pair.target} instead"):
        diff(replace(pair.request(pair.source.numbers(pair.job)[-1]), target_root=f"file:{other}"))


def test_a_target_root_that_is_the_job_directory_of_a_flink_is_refused(pair, tmp_path):
    flinks = shutil.copytree(pair.source.job_root(pair.job), tmp_path / "flink" / pair.job)
    number = pair.source.numbers(pair.job)[-1]
    with pytest.raises(
        UsageError, match=r"is the directory of this job.* Give a directory that only"
    ):
        diff(replace(pair.request(number), target_root=f"file:{flinks}"))


def test_a_target_root_that_only_has_the_name_of_the_job_is_accepted(pair):
    number = pair.source.numbers(pair.job)[-1]
    root = pair.target / pair.job
    root.mkdir(parents=True)
    done = sync(replace(pair.request(number), target_root=f"file:{root}"), silent)
    assert done.committed
    assert sync(replace(pair.request(number), target_root=f"file:{root}"), silent).plan.empty
