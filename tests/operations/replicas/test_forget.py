"""`forget` removes replicas of earlier lives whole, and nothing that is not cpreplicate's."""

import errno
import json
import os
import shutil

import pytest

from cpreplicate.errors import CopyFailed, LeaseHeld, NotThere, Refused, Sealed, UsageError
from cpreplicate.operations.replicas import forget as operation
from cpreplicate.operations.replicas.forget import ForgetRequest
from cpreplicate.output.report import page_of
from cpreplicate.protocol import lease
from cpreplicate.protocol.switch_record import SwitchRecord, switching
from cpreplicate.runners import ExecutionOptions
from cpreplicate.storage import Side
from cpreplicate.storage.backends.local.local import LocalStorage
from tests.support.adopting import Adopted
from tests.support.faults import Faulty
from tests.support.jobs import JOB
from tests.support.kafka_jobs import replicated_with_derived
from tests.support.registry import serving
from tests.support.replicas import FILES, NEXT, aged, paths, planned, recorded, sealed, synced
from tests.support.roots import FIRST, HOUR, NOON, SECOND, THIRD, Roots
from tests.support.simulated_flink import SimulatedControl, SimulatedFlink

DAY = 24 * HOUR
INLINE = ExecutionOptions(runner="inline")


@pytest.fixture
def roots(tmp_path):
    """Three lives of orders, and another job."""
    roots = Roots(tmp_path)
    for job, since in ((FIRST, NOON), (SECOND, NOON + DAY), (THIRD, NOON + 2 * DAY)):
        roots.add(job, "orders", since, since + HOUR)
    roots.add("2d" * 16, "clicks")
    return roots


@pytest.fixture
def replica(tmp_path):
    return synced(tmp_path, {1: FILES, 2: NEXT}, keep=2, name="orders")


def request(**options):
    return ForgetRequest(execution=INLINE, **options)


def forgotten(replica, **options):
    asked = request(**{"last_point": True, **options})
    return operation.forget(operation.candidate(f"file:{replica}", asked), asked, print)


def all_forgotten(roots, **options):
    asked = request(**options)
    places = [f"file:{each}" for each in sorted(roots.targets.iterdir())]
    report = operation.forget_all(operation.candidates(places, asked), asked, print)
    return {job.name: job for job in report.jobs}


def left(roots):
    return {each.name for each in roots.targets.iterdir()}


def test_nothing_is_left_of_a_replica_and_nothing_else_is_touched(replica, tmp_path):
    (replica.parent / "beside").write_text("of somebody")
    (replica / ".cpreplicate" / "chk-2.fingerprints").write_text("{}")
    before = paths(tmp_path / "dcA")
    done = forgotten(replica)
    assert (done.checkpoints, done.done) == (("chk-2", "chk-1"), True)
    assert done.files == len({*FILES, *NEXT}) + 2
    assert (paths(replica.parent), paths(tmp_path / "dcA")) == ({"beside"}, before)
    assert not replica.exists()


def test_a_dry_run_changes_nothing(replica):
    before = paths(replica)
    assert not forgotten(replica, dry_run=True).done
    assert paths(replica) == before


def test_a_sync_after_it_begins_a_new_replica(replica, tmp_path):
    def id_of():
        return json.loads((replica / ".cpreplicate/replica.json").read_text())["replica_id"]

    former = id_of()
    forgotten(replica)
    synced(tmp_path, {2: NEXT})
    assert id_of() != former


def test_what_is_forgotten_already_is_not_there(replica):
    forgotten(replica)
    with pytest.raises(NotThere, match="is not there or is empty"):
        forgotten(replica)


def test_the_newest_point_of_a_job_stays_unless_a_later_life_has_one(roots):
    with pytest.raises(
        Refused, match=f"{THIRD} stays as it is: chk-1 is the newest point of its job"
    ):
        forgotten(roots.targets / THIRD, last_point=False)
    done = forgotten(roots.targets / FIRST, last_point=False)
    assert done.why == f"{THIRD} is a later life of its job, and holds chk-1"
    assert left(roots) == {SECOND, THIRD, "2d" * 16}


@pytest.mark.parametrize("is_so", ["unnamed", "another root", "at the same time", "damaged"])
def test_a_replica_that_is_not_surely_a_later_life_protects_no_earlier_one(tmp_path, is_so):
    roots = Roots(tmp_path)
    roots.add(FIRST, None if is_so == "unnamed" else "orders", NOON, NOON + HOUR)
    since = NOON if is_so == "at the same time" else NOON + DAY
    source = "dcC" if is_so == "another root" else "dcA"
    later = roots.add(SECOND, "orders", since, NOON + 2 * DAY, source)
    if is_so == "damaged":
        with (later / "chk-1" / "_metadata").open("ab") as file:
            file.write(b"more")
    with pytest.raises(Refused, match="is the newest point of its job"):
        forgotten(roots.targets / FIRST, last_point=False)


@pytest.mark.parametrize("words", [{"older_than": DAY}, {"ended": True}])
def test_of_all_only_earlier_lives_go_and_each_newest_point_stays(roots, words):
    (roots.root / "dcA").mkdir()
    (roots.root / "dcA" / "another").mkdir()
    found = all_forgotten(roots, **words)
    assert {name: job.outcome for name, job in found.items()} == {
        FIRST: "removed",
        SECOND: "removed",
        THIRD: "stays",
        "2d" * 16: "stays",
    }
    assert left(roots) == {THIRD, "2d" * 16}


def test_the_page_has_each_replica_with_its_reason(roots):
    places = [f"file:{each}" for each in sorted(roots.targets.iterdir())]
    asked = request(older_than=DAY)
    report = operation.forget_all(operation.candidates(places, asked), asked, print)
    page = page_of(report)
    columns = {column.name: column.values for column in page.tables[0].columns}
    assert page.answer.startswith("2 of 4 replicas removed")
    assert columns["outcome"] == [job.outcome for job in report.jobs]
    assert columns["reason"] == [job.why for job in report.jobs]
    assert [chart.title for chart in page.charts] == ["Bytes by replica"]


def test_a_job_has_not_ended_if_its_source_does_not_answer_or_has_newer_checkpoints(roots):
    found = all_forgotten(roots, ended=True)
    assert {job.outcome for job in found.values()} == {"stays"}
    assert "its source does not answer" in found[FIRST].why
    shutil.copytree(roots.root / "made" / "dcA" / JOB, roots.root / "dcA" / FIRST)
    found = all_forgotten(roots, ended=True)
    assert "no later life is known to have begun since" in found[FIRST].why
    assert (found[SECOND].outcome, left(roots)) == ("removed", {FIRST, THIRD, "2d" * 16})


def test_a_replica_that_keeps_points_goes_with_others_only_by_its_age(tmp_path):
    roots = Roots(tmp_path)
    first = roots.add(FIRST, "orders", NOON, NOON + HOUR)
    roots.add(SECOND, "orders", NOON + DAY, NOON + 2 * DAY)
    kept = synced(tmp_path / "kept", {1: FILES, 2: NEXT}, keep=5)
    shutil.copy(kept / ".cpreplicate/retention.json", first / ".cpreplicate")
    (roots.root / "dcA" / "another").mkdir(parents=True)
    assert "it keeps points (last 5)" in all_forgotten(roots, ended=True)[FIRST].why
    assert all_forgotten(roots, ended=True, older_than=DAY)[FIRST].outcome == "removed"


def test_what_one_of_many_makes_fail_does_not_stop_the_others(roots):
    (roots.targets / FIRST / "shared" / "theirs").write_text("of somebody")
    found = all_forgotten(roots, older_than=DAY)
    assert (found[FIRST].outcome, found[FIRST].exit_code) == ("failed", 6)
    assert found[SECOND].outcome == "removed"
    assert "theirs" in str(found[FIRST].error)


@pytest.mark.parametrize(
    "name",
    ["shared/theirs", "theirs", "chk-9/theirs", ".cpreplicate/theirs", "their-dir/theirs"],
)
def test_nothing_goes_if_one_file_is_of_another_program_unless_it_is_left(replica, name):
    (replica / name).parent.mkdir(exist_ok=True)
    (replica / name).write_text("of somebody")
    before = paths(replica)
    with pytest.raises(Refused, match=f"It is {name.replace('/theirs', '')}"):
        forgotten(replica)
    assert paths(replica) == before
    forgotten(replica, leaves_others=True)
    assert paths(replica) == {name}


def test_a_file_that_another_program_replaced_stays(replica):
    (replica / "shared" / "h").write_text("of another length")
    with pytest.raises(Refused, match=r"shared/h \(it has another length than"):
        forgotten(replica)
    forgotten(replica, leaves_others=True)
    assert paths(replica) == {"shared/h"}


def test_a_file_that_a_run_which_died_may_have_written_is_not_proven(replica):
    (replica / "shared" / "perhaps").write_text("of whom?")
    planned(replica, "shared/perhaps")
    with pytest.raises(Refused, match=r"shared/perhaps \(a run that died was about to write it"):
        forgotten(replica)


def test_what_runs_that_died_left_goes(replica):
    for name in ("shared/copied", "shared/.cpreplicate-tmp-1", ".cpreplicate/.cpreplicate-tmp-2"):
        (replica / name).write_text("left")
    recorded(replica, "shared/copied")
    forgotten(replica)
    assert not replica.exists()


def test_a_checkpoint_of_another_program_keeps_the_whole_replica(replica):
    shutil.copytree(replica / "chk-2", replica / "chk-3")
    before = paths(replica)
    with pytest.raises(Refused, match="was not written by cpreplicate"):
        forgotten(replica, leaves_others=True)
    assert paths(replica) == before


def test_an_adopted_checkpoint_and_what_it_references_stay(tmp_path):
    adopted = Adopted(tmp_path)
    adopted.complete({"shared/a": FILES["shared/a"], "shared/of-b": 10})
    adopted.sync(adopt=True)
    with pytest.raises(Refused, match="of which nothing proves"):
        forgotten(adopted.replica)
    forgotten(adopted.replica, leaves_others=True)
    assert paths(adopted.replica) == {
        *("chk-2/_metadata", "shared/a", "shared/of-b", ".cpreplicate/chk-2.json")
    }


def test_a_sealed_replica_stays(replica):
    sealed(replica, "chk-2")
    with pytest.raises(Refused, match="it is sealed by"):
        forgotten(replica)
    assert replica.exists()


def test_a_replica_from_which_a_checkpoint_is_derived_stays(tmp_path):
    replica, name = replicated_with_derived(tmp_path)
    before = paths(replica)
    with pytest.raises(Refused, match=f"holds derived checkpoints.*{name}"):
        forgotten(replica)
    assert paths(replica) == before


def test_a_replica_whose_switch_has_not_ended_stays(replica):
    root = f"file:{replica}"
    record = SwitchRecord("orders", JOB, "/a", "http://a", "http://b", "checkpoint", "s", "n", "b")
    with switching(root, Side(), record) as log:
        log.write(step="starting")
    before = paths(replica)
    with pytest.raises(Refused, match="a switch of the job orders has begun and not ended"):
        forgotten(replica)
    assert paths(replica) == before


def test_a_replica_whose_switch_was_left_to_the_operator_goes_once_it_is_unsealed(replica):
    """There is nothing to continue, and no other command ends it."""
    root = f"file:{replica}"
    record = SwitchRecord("orders", JOB, "/a", "http://a", "", "checkpoint", "s", "n", "b")
    with switching(root, Side(), record) as log:
        log.write(step="promoted")
    forgotten(replica)
    assert not replica.exists()


@pytest.mark.parametrize("path", ["hdfs://b/x/{job}/chk-2", "file:/elsewhere/chk-2"])
def test_a_replica_from_which_a_job_was_restored_stays_as_long_as_that_runs(replica, path):
    cluster = SimulatedFlink("http://b:8081", f"file:{replica.parent}")
    cluster.start("ab" * 16, "orders", restored=path.format(job=replica.name))
    control = SimulatedControl(cluster)

    def refuse(place):
        operation.refuse_running(place, [control])

    if "{job}" in path:
        with pytest.raises(Refused, match=r"was restored from, or writes, hdfs://b/x/.*/chk-2"):
            forgotten(replica, refuse=refuse)
        control.cancel("ab" * 16)
    forgotten(replica, refuse=refuse)
    assert not replica.exists()


def test_a_replica_that_is_sealed_meanwhile_stays(replica):
    asked = request(last_point=True)
    chosen = operation.candidate(f"file:{replica}", asked)
    sealed(replica, "chk-2")
    with pytest.raises(Sealed, match=r"a job may use its files\. Nothing was removed"):
        operation.forget(chosen, asked, print)


def test_a_replica_that_is_synced_meanwhile_stays(replica, tmp_path):
    asked = request(last_point=True)
    chosen = operation.candidate(f"file:{replica}", asked)
    synced(tmp_path, {3: NEXT})
    with pytest.raises(Refused, match="was replicated into meanwhile"):
        operation.forget(chosen, asked, print)


def test_the_later_life_must_be_there_still(roots):
    asked = request()
    chosen = operation.candidate(f"file:{roots.targets}/{FIRST}", asked)
    shutil.rmtree(roots.targets / THIRD)
    with pytest.raises(Refused, match="holds no checkpoint any more"):
        operation.forget(chosen, asked, print)
    assert (roots.targets / FIRST / "chk-1" / "_metadata").exists()


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_lease_of_another_run_keeps_it(replica, dry_run):
    before = paths(replica)
    with lease.acquire(f"file:{replica}", Side()), pytest.raises(LeaseHeld):
        forgotten(replica, dry_run=dry_run)
    assert paths(replica) == before


def test_a_copy_of_a_replica_may_reference_its_files(roots):
    copy = roots.targets / "copy"
    shutil.copytree(roots.targets / THIRD, copy)
    with pytest.raises(Refused, match="has the same replica id, so one is a copy"):
        forgotten(roots.targets / THIRD)


@pytest.mark.parametrize("place", ["", "/JOB/chk-1", "/JOB/.cpreplicate", "/../link"])
def test_what_is_no_replica_is_a_mistake(replica, tmp_path, place):
    (tmp_path / "link").symlink_to(replica)
    before = paths(tmp_path)
    named = os.path.normpath(f"{replica.parent}{place}".replace("JOB", JOB))
    with pytest.raises(UsageError):
        forgotten(named)
    assert paths(tmp_path) == before


def test_the_root_of_a_filesystem_is_a_mistake():
    with pytest.raises(UsageError, match="is all of a filesystem"):
        forgotten("/")


def test_what_could_not_be_removed_stays_listed_and_is_removed_by_the_next_run(replica):
    def fault(verb, uri):
        is_it = verb == "delete" and uri.endswith("shared/h")
        return OSError(errno.EIO, "does not delete", uri) if is_it else None

    disk = Faulty(LocalStorage(), fault)
    with serving("file", disk), pytest.raises(CopyFailed, match="Run again to resume"):
        forgotten(replica)
    assert not list(replica.glob("chk-*/_metadata"))
    forgotten(replica)
    assert not replica.exists()


def test_a_replica_without_a_checkpoint_is_old_by_what_was_written_there_last(roots):
    first = roots.targets / FIRST
    shutil.rmtree(first / "chk-1")
    assert all_forgotten(roots, older_than=DAY)[FIRST].outcome == "stays"
    aged(first)
    assert all_forgotten(roots, older_than=DAY)[FIRST].outcome == "removed"
