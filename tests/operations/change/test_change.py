"""What is deleted is in the replica, by its real place; how many, and until when, is bounded."""

import errno
import time

import pytest

from cpreplicate.core import uri
from cpreplicate.core.placement import OWN
from cpreplicate.core.plan import Cap
from cpreplicate.errors import CpreplicateError, LeaseHeld, TooManyDeletes, UsageError
from cpreplicate.operations.change import change
from cpreplicate.operations.sync import sync
from cpreplicate.operations.sync.report import Report
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.protocol import json_files
from cpreplicate.protocol.replica import Replica
from cpreplicate.protocol.replica_state import examine
from cpreplicate.runners import Delete, EngineLost, ExecutionOptions, JobCancelled
from cpreplicate.runners.batch import attempt
from cpreplicate.runners.inline import InlineRunner
from cpreplicate.runners.wrapper import RunnerWrapper
from cpreplicate.storage import Side, Sides
from tests.support.encoder import File, Incremental, OperatorEntry, Segment, Subtask, Tree, encode
from tests.support.jobs import JOB, write_checkpoint
from tests.support.registry import serving
from tests.support.replicas import FILES, NEXT, paths, synced
from tests.support.tracing import Tracing

ELSEWHERE = [
    "file:/etc/hostname",
    "file:{replica}/../other/file",
    "../../../other/file",
    "../.cpreplicate/lease",
    "hdfs://dcB/x",
    "../shared/%2e%2e/%2e%2e/other",
    "../shared/%252e%252e/x",
    "../shared/a%2fb",
    "file:{replica}/chk-1/_metadata",
    "s3://b/x",
    "../README",
    "file:/shared/a",
]


def sync_next(tmp_path, **options):
    write_checkpoint(tmp_path / "dcA", 2, NEXT)
    request = SyncRequest(
        f"file:{tmp_path}/dcA/{JOB}/chk-2",
        f"file:{tmp_path}/dcB",
        execution=ExecutionOptions(runner="inline"),
        **options,
    )
    return sync.sync(request, lambda _line: None)


def corrupt(replica, path, handle):
    """Have the committed `_metadata` reference that path too."""
    named = ("1.sst", handle(path))
    state = Incremental(
        11, 1, "backend", (0, 128), 1, None, (("0.sst", File("../shared/a", 100)), named), ()
    )
    tree = Tree(6, (OperatorEntry(bytes(16), 1, 128, (Subtask(0, keyed=state),)),), 1)
    (replica / "chk-1" / "_metadata").write_bytes(encode(tree).data)


@pytest.mark.parametrize(
    "handle",
    [lambda path: File(path, 1), lambda path: Segment(0, 1, 0, path, "id")],
    ids=["file", "segment"],
)
@pytest.mark.parametrize("path", ELSEWHERE)
def test_a_corrupt_metadata_of_the_replica_has_nothing_written_or_deleted(tmp_path, path, handle):
    replica = synced(tmp_path, {1: FILES})
    corrupt(replica, path.format(replica=replica), handle)
    before = paths(replica)
    tracing = Tracing(Side().storage("file:/"))
    with serving("file", tracing), pytest.raises(CpreplicateError) as refused:
        sync_next(tmp_path)
    assert refused.value.exit_code == 6
    assert paths(replica) == before
    lease = f"file:{replica}/.cpreplicate/lease"  # and its heartbeat, if the run takes long
    assert all(uri.startswith(lease) for _verb, uri in tracing.changes())


@pytest.mark.parametrize("name", ["shared", "chk-1", "foreign/x"])
def test_nothing_is_written_or_deleted_through_a_link(tmp_path, name):
    replica = synced(tmp_path, {1: {**FILES, "shared/x/deep": 5}})
    elsewhere = tmp_path / "elsewhere"
    where = replica / ("shared/x" if name == "foreign/x" else name)
    where.rename(elsewhere)
    where.symlink_to(elsewhere)
    before = paths(elsewhere), paths(replica)
    with pytest.raises(CpreplicateError, match="a symbolic link") as refused:
        sync_next(tmp_path)
    assert refused.value.exit_code == 6
    assert (paths(elsewhere), paths(replica)) == before


def test_a_target_root_that_is_a_link_itself_is_the_operators_choice(tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "dcB").symlink_to(tmp_path / "disk")
    synced(tmp_path, {1: FILES})
    assert sync_next(tmp_path).committed
    assert (tmp_path / "disk" / JOB / "chk-2" / "_metadata").exists()


@pytest.mark.parametrize(
    ("cap", "allowed"),
    [(Cap(4), False), (Cap(5), True), (Cap(0.4, True), False), (Cap(0.5, True), True)],
)
def test_more_deletes_than_allowed_are_refused_with_the_plan(tmp_path, cap, allowed):
    replica = synced(tmp_path, {1: FILES})
    before = paths(replica)
    if allowed:
        assert sync_next(tmp_path, max_delete=cap).committed
        return
    with pytest.raises(TooManyDeletes, match="4 of 9 files") as refused:
        sync_next(tmp_path, max_delete=cap)
    assert paths(replica) == before
    report = refused.value.report
    assert isinstance(report, Report)
    assert {action.target for action in report.plan.deletes} == set(FILES) - set(NEXT)


def test_deletes_that_are_put_off_leave_a_replica_without_the_old_checkpoint(tmp_path):
    replica = synced(tmp_path, {1: FILES})
    report = sync_next(tmp_path, async_deletes=True)
    assert set(report.undeleted) == set(FILES) - set(NEXT)
    assert all((replica / path).exists() for path in report.undeleted)
    assert not (replica / "chk-1" / "_metadata").exists()


def test_a_delete_that_comes_too_late_is_not_made_and_not_tried_again(tmp_path):
    file = tmp_path / "file"
    file.write_text("needed by another run")
    outcome = attempt(Delete(f"file:{file}", time.time() - 1), Sides(), lambda _count: None)
    assert outcome.late
    assert not outcome.is_worth_a_try
    assert file.exists()


def test_a_run_that_lost_its_lease_deletes_nothing_more(tmp_path, monkeypatch):
    replica = Replica(f"file:{synced(tmp_path, {1: FILES})}", Side())
    with change.opened(replica, examine) as opened:
        runner = opened.runner
        real, runs = runner.run, []

        def run(actions):
            runs.append(len(actions))
            Side().storage(replica.root).delete(replica.uri_of(".cpreplicate/lease"))
            return real(actions)

        monkeypatch.setattr(runner, "run", run)
        with pytest.raises(LeaseHeld):
            opened.delete(sorted(FILES), files_per_check=2)
    assert runs == [2]
    there = Replica(replica.root, Side()).present(uri.directories(FILES))  # listed anew
    assert len(set(FILES) - set(there)) == 2


@pytest.mark.parametrize(
    "error",
    [
        EngineLost(errno.ETIMEDOUT, "no executor answers", "spark://h:7077"),
        JobCancelled("a job of this run was cancelled in Spark"),
    ],
)
def test_a_run_whose_executors_may_still_delete_leaves_its_lease_to_expire(
    tmp_path, monkeypatch, error
):
    replica = Replica(f"file:{synced(tmp_path, {1: FILES})}", Side())

    def run(_actions):
        raise error

    def delete():
        with change.opened(replica, examine) as opened:
            monkeypatch.setattr(opened.runner, "run", run)
            opened.delete(sorted(FILES))

    with pytest.raises(type(error)):
        delete()
    holder = json_files.parse(json_files.read(replica.storage, f"{replica.root}/{OWN}/lease"))
    assert holder is not None
    assert holder["expires"] > time.time()


class LostAtDeletes(RunnerWrapper):
    """Executors that answer no more, or do not start, once they are to delete."""

    def __init__(self, runner, error):
        super().__init__(runner)
        self._error = error

    def run(self, actions, level=0, done=None):
        if any(isinstance(action, Delete) for action in actions):
            raise self._error
        return super().run(actions, level, done)


@pytest.mark.parametrize(
    "error",
    [
        EngineLost(errno.ETIMEDOUT, "no executor answers", "spark://h:7077"),
        CpreplicateError("Spark did not start: no executor answers"),
        UsageError("Spark starts no task: no executor answers"),
        JobCancelled("cancelled in Spark: no executor answers"),
    ],
)
def test_deletes_whose_executors_do_not_answer_are_a_warning_of_a_sync(tmp_path, error):
    replica = synced(tmp_path, {1: FILES})
    write_checkpoint(tmp_path / "dcA", 2, NEXT)
    request = SyncRequest(f"file:{tmp_path}/dcA/{JOB}/chk-2", f"file:{tmp_path}/dcB")
    report = sync.sync(request, lambda _line: None, LostAtDeletes(InlineRunner(Sides()), error))
    assert report.committed
    [warning] = report.warnings
    assert "no executor answers. chk-2 was committed before that" in warning
    assert all((replica / path).exists() for path in FILES)
