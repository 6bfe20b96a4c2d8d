"""Jobs of one id in one TARGET_ROOT: each has a replica, and keeps it whatever is added later."""

import json
from pathlib import Path

import pytest

from cpreplicate.operations.jobs.job import Job, marked
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.operations.sync.sync import sync
from cpreplicate.protocol.marker import read_marker
from cpreplicate.runners import ExecutionOptions
from cpreplicate.storage import Side
from tests.operations.jobs.test_service import Jobs, stepping
from tests.support import checker, jobs
from tests.support.jobs import JOB, write_checkpoint
from tests.support.replicas import FILES, NEXT

INLINE = ExecutionOptions(runner="inline")
FIXED = "0" * 32
CLUSTERS = ("orders", "payments", "clicks")


@pytest.fixture(params=[JOB, FIXED, "checkpoints"])
def job_id(request, monkeypatch):
    """The last directory of each job: an id, the id of application clusters, or none."""
    monkeypatch.setattr(jobs, "JOB", request.param)
    return request.param


def cluster(tmp_path, job_id, name):
    """The job of an application cluster, as discovery finds it."""
    source = f"file:{tmp_path}/{name}/{job_id}"
    return Job(name, SyncRequest(source, f"file:{tmp_path}/dcB", execution=INLINE, name=name))


def owners(tmp_path):
    """Which source each replica has, by the name of its directory."""
    places = sorted(path for path in (tmp_path / "dcB").iterdir() if path.is_dir())
    markers = {path.name: read_marker(Side(), f"file:{path}") for path in places}
    return {name: marker.sources[0].given for name, marker in markers.items() if marker is not None}


def follow(*found):
    """Follow jobs by a service that begins anew, until nothing is due; return how each stands."""
    warnings: list[str] = []
    with stepping(Jobs(*found), warnings) as stepped:
        stepped.step()
        seen = {each.name: each for each in stepped.service.observations()}
    assert all("nothing-there" in line for line in warnings)
    return {
        name: (
            each.last_exit_code,
            each.replica_newest and each.replica_newest.checkpoint_id,
            each.replica,
        )
        for name, each in seen.items()
    }


@pytest.mark.parametrize("order", [CLUSTERS, CLUSTERS[::-1]])
def test_whoever_is_added_in_which_order_each_keeps_its_replica_over_restarts(
    tmp_path, job_id, order
):
    found: list[Job] = []
    places: dict[str, str] = {}
    for number, name in enumerate(order, 1):
        write_checkpoint(tmp_path / name, 1, FILES)
        for each in found:
            write_checkpoint(tmp_path / each.name, number, {**FILES, f"shared/{number}": 10})
        found.insert(0, cluster(tmp_path, job_id, name))
        seen = follow(*found)
        for each in found:
            assert seen[each.name][:2] == (0, 1 if each.name == name else number)
            assert places.setdefault(each.name, seen[each.name][2]) == seen[each.name][2]
    assert len(set(places.values())) == len(order)
    assert owners(tmp_path) == {
        place.rpartition("/")[2]: f"file:{tmp_path}/{name}/{job_id}"
        for name, place in places.items()
    }
    for place in places.values():
        assert checker.faults(Path(place.removeprefix("file:"))) == []


def test_jobs_that_begin_together_all_get_replicas_and_keep_them_alone(tmp_path, job_id):
    for name in CLUSTERS:
        write_checkpoint(tmp_path / name, 1, FILES)
    found = [cluster(tmp_path, job_id, name) for name in CLUSTERS]
    together = follow(*found)
    assert len({place for _, _, place in together.values()}) == len(found)
    for job in found:
        assert follow(job) == {job.name: together[job.name]}


def test_a_job_that_is_followed_stays_so_while_another_of_its_id_is_refused(tmp_path, job_id):
    write_checkpoint(tmp_path / "orders", 1, FILES)
    one = cluster(tmp_path, job_id, "orders")
    first = follow(one)
    write_checkpoint(tmp_path / "orders", 2, NEXT)
    assert follow(cluster(tmp_path, job_id, "nothing-there"), one)["orders"][:2] == (0, 2)
    assert first["orders"][2] in {f"file:{tmp_path}/dcB/{name}" for name in owners(tmp_path)}


def test_a_typed_sync_of_a_second_source_warns_and_names_the_first(tmp_path):
    for name in ("orders", "payments"):
        write_checkpoint(tmp_path / name, 1, FILES)
    first = sync(cluster(tmp_path, JOB, "orders").request, lambda _line: None)
    second = sync(cluster(tmp_path, JOB, "payments").request, lambda _line: None)
    assert first.warnings == ()
    (warning,) = second.warnings
    for part in (first.plan.replica, second.plan.replica, f"{tmp_path}/orders", "--same-source"):
        assert part in warning
    write_checkpoint(tmp_path / "payments", 2, NEXT)
    later = sync(cluster(tmp_path, JOB, "payments").request, lambda _line: None)
    assert (later.plan.replica, later.warnings) == (second.plan.replica, ())


def test_two_names_of_one_directory_make_one_replica(tmp_path, job_id):
    write_checkpoint(tmp_path / "orders", 1, FILES)
    (tmp_path / "link").symlink_to(tmp_path / "orders")
    sync(cluster(tmp_path, job_id, "orders").request, lambda _line: None)
    sync(cluster(tmp_path, job_id, "link").request, lambda _line: None)
    assert len(owners(tmp_path)) == 1


def test_a_replica_that_an_earlier_version_made_keeps_its_name(tmp_path, job_id):
    write_checkpoint(tmp_path / "orders", 1, FILES)
    report = sync(cluster(tmp_path, job_id, "orders").request, lambda _line: None)
    made = tmp_path / "dcB" / report.plan.replica.rpartition("/")[2]
    marker = made / ".cpreplicate" / "replica.json"
    assert json.loads(marker.read_text())["job"] == job_id
    if made.name != job_id:
        made.rename(made.parent / job_id)
    write_checkpoint(tmp_path / "orders", 2, NEXT)
    report = sync(cluster(tmp_path, job_id, "orders").request, lambda _line: None)
    assert report.plan.replica == f"file:{tmp_path}/dcB/{job_id}"


def test_only_jobs_of_one_name_in_one_target_are_marked():
    requests = [
        SyncRequest(f"file:/a/{JOB}", "file:/t"),
        SyncRequest(f"file:/b/{JOB}/chk-1", "file:/t"),
        SyncRequest(f"file:/b/{JOB}", "file:/u"),
        SyncRequest(f"file:/c/{FIXED}", "file:/t"),
    ]
    found = [Job("x", request) for request in requests]
    assert [job.request.has_namesake for job in marked(found)] == [True, True, False, False]
