"""The jobs below a root, also of a root with problems."""

import threading

from cpreplicate.core.shard import Shard
from cpreplicate.errors import UsageError
from cpreplicate.operations.jobs.discovery import JobsUnder, KnownRoots
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.storage import Side
from tests.support.faults import Faulty
from tests.support.registry import serving
from tests.support.stepping import ManualClock
from tests.support.waiting import PATIENCE, wait_until

HANG = PATIENCE


ONE, TWO = f"{1:032x}", f"{2:032x}"


def test_each_job_below_a_root_is_followed_in_one_shard(tmp_path):
    job_ids = [f"{number:032x}" for number in range(6)]
    for job in job_ids:
        (tmp_path / job).mkdir()
    template = SyncRequest(f"file:{tmp_path}", "file:/dcB")
    found = [
        JobsUnder(template, lambda _line: None, Shard(number, 3)).jobs() for number in (1, 2, 3)
    ]
    assert sorted(job.name for jobs in found for job in jobs) == job_ids
    assert all(found)


def test_a_root_that_cannot_be_listed_keeps_its_jobs_and_one_without_jobs_is_reported_once(
    tmp_path, monkeypatch
):
    lines: list[str] = []
    roots = KnownRoots(Side(), lines.append, HANG)
    root = f"file:{tmp_path}"
    for _ in range(2):
        roots.look([root])
        assert roots.jobs_under(root) == []
    assert len(lines) == 1
    (tmp_path / ONE).mkdir()
    roots.look([root])
    assert roots.jobs_under(root) == [f"{root}/{ONE}"]

    def refuse(*_args):
        raise UsageError("no listing")

    monkeypatch.setattr("cpreplicate.operations.jobs.discovery.jobs_under", refuse)
    roots.look([root])
    assert roots.jobs_under(root) == [f"{root}/{ONE}"]
    assert "no listing. The jobs found below" in lines[-1]


def test_a_root_that_is_lost_keeps_its_jobs_and_is_reported(tmp_path):
    lines: list[str] = []
    roots, root = KnownRoots(Side(), lines.append, HANG), f"file:{tmp_path}/root"
    (tmp_path / "root" / ONE).mkdir(parents=True)
    roots.look([root])
    (tmp_path / "root").rename(tmp_path / "elsewhere")
    roots.look([root])
    assert roots.jobs_under(root) == [f"{root}/{ONE}"]
    assert f"The jobs found below {root} before are followed" in lines[-1]
    [place] = roots.coverage.places()
    assert place.problem == lines[-1]


def test_a_root_that_cannot_be_listed_is_a_place_that_was_asked_and_is_unseen(tmp_path):
    clock = ManualClock()
    root = f"file:{tmp_path}"
    found = JobsUnder(SyncRequest(root, "file:/dcB"), lambda _line: None, clock=clock)
    assert not found.coverage.was_asked(60.0)
    assert found.jobs() == []
    assert found.coverage.was_asked(60.0)
    assert found.coverage.discovered(60.0).unseen == {root: False}
    clock.pass_(61.0)
    assert found.coverage.discovered(60.0).unseen == {root: True}
    (tmp_path / ONE).mkdir()
    found.jobs()
    assert found.coverage.discovered(60.0).unseen == {root: False}


def test_a_root_that_does_not_answer_or_fails_unexpectedly_holds_up_no_other(tmp_path):
    lines: list[str] = []
    released = threading.Event()
    for name in ("good", "silent", "odd"):
        (tmp_path / name / ONE).mkdir(parents=True)

    def misbehave(verb, place):
        if verb == "list" and "silent" in place:
            released.wait(HANG)
        if verb == "list" and "odd" in place:
            raise RecursionError("a defect")

    roots = [f"file:{tmp_path}/{name}" for name in ("silent", "odd", "good")]
    with serving("file", Faulty(Side().storage("file:/"), misbehave)):
        known = KnownRoots(Side(), lines.append, 0.1)

        def jobs_below():
            known.look(roots)
            return [len(known.jobs_under(root)) for root in roots]

        wait_until(lambda: jobs_below() == [0, 0, 1])
        wait_until(lambda: any("unexpected RecursionError" in line for line in lines))
        released.set()
        wait_until(lambda: jobs_below() == [1, 0, 1])


def test_jobs_whose_directories_have_no_id_are_found_by_their_checkpoints(tmp_path):
    """`execution.checkpointing.create-subdir: false`, beside a job that has an id."""
    for place in ("orders/chk-3", "clicks/chk-1", "clicks/shared", ONE, "empty", ".hidden/chk-1"):
        (tmp_path / place).mkdir(parents=True)
    (tmp_path / "savepoint-55d1c8-0079e5e0a1c8" / "chk-1").mkdir(parents=True)
    found = JobsUnder(SyncRequest(f"file:{tmp_path}", "file:/dcB"), lambda _line: None).jobs()
    assert {job.name: job.request.source for job in found} == {
        name: f"file:{tmp_path}/{name}" for name in (ONE, "clicks", "orders")
    }


def test_a_directory_that_cannot_be_read_hides_no_job(tmp_path):
    for place in ("orders/chk-3", "locked"):
        (tmp_path / place).mkdir(parents=True)

    def refuse(verb, place):
        if verb == "list" and place.endswith("/locked"):
            raise PermissionError(13, "denied", place)

    template = SyncRequest(f"file:{tmp_path}", "file:/dcB")
    with serving("file", Faulty(Side().storage("file:/"), refuse)):
        assert [job.name for job in JobsUnder(template, lambda _line: None).jobs()] == ["orders"]
