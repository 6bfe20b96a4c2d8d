"""A savepoint is a point of the replica of its job, and of no other."""

import os
import shutil
from pathlib import Path

import pytest

from cpreplicate.core import uri
from cpreplicate.core.closure import closure
from cpreplicate.core.uri import Remap
from cpreplicate.errors import NotThere, Refused, Sealed, SourceBroken, UsageError
from cpreplicate.operations.doctor import Configured, diagnose
from cpreplicate.operations.handover.promote import PromoteRequest, promote
from cpreplicate.operations.handover.promote_all import PromoteAllRequest, candidates
from cpreplicate.operations.handover.unseal import UnsealRequest, unseal
from cpreplicate.operations.replicas.points import points_below
from cpreplicate.operations.replicas.replicas import replicas_below
from cpreplicate.operations.replicas.selection import select
from cpreplicate.operations.replicas.status import status
from cpreplicate.operations.sync.diff import diff
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.operations.sync.sync import sync
from cpreplicate.operations.verify.verify import ALL, verify
from cpreplicate.protocol.marker import read_marker
from cpreplicate.protocol.source import read_metadata
from cpreplicate.runners import ExecutionOptions
from cpreplicate.storage import Side, Sides
from tests.support import commandline, jobs
from tests.support.commandline import run
from tests.support.corpus import DataCentre
from tests.support.encoder import Incremental, OperatorEntry, RelativeFile, Subtask, Tree, encode
from tests.support.jobs import JOB, write_checkpoint
from tests.support.replicas import FILES, NEXT

INLINE = ExecutionOptions(runner="inline")
FOLDER = "2.3.0-sp-canonical"
FIXED = "0" * 32


def silent(_line):
    pass


@pytest.fixture
def centre(tmp_path):
    """A data centre with a job of Flink 2.3, and the canonical savepoint that it took last."""
    return DataCentre(FOLDER, tmp_path / "dcA")


def savepoint_of(centre: DataCentre) -> Path:
    return next((centre.path / "sp").iterdir())


def synced(centre: DataCentre, place: Path, root: Path, **options):
    request = SyncRequest(
        f"file:{place}", f"file:{root}", remaps=(centre.remap,), execution=INLINE, **options
    )
    return sync(request, silent)


def job_of(centre: DataCentre) -> Path:
    (job,) = (centre.path / "ckpt").iterdir()
    return job


def taken(tmp_path: Path, number: int, name: str | None = None, job: str = JOB) -> Path:
    """A savepoint that a job of the data centre took, as Flink lays it out."""
    directory = tmp_path / "savepoints" / (name or f"savepoint-{job[:6]}-{number:012x}")
    directory.mkdir(parents=True)
    (directory / "state").write_bytes(b"s" * 50)
    metadata = jobs.metadata_of(number, {f"file:{directory}/state": 50})
    (directory / "_metadata").write_bytes(metadata)
    return directory


def asked(tmp_path: Path, source: Path, **options) -> SyncRequest:
    return SyncRequest(f"file:{source}", f"file:{tmp_path}/dcB", execution=INLINE, **options)


class TestASavepointThatFlinkTook:
    def test_is_the_newest_point_of_the_replica_of_its_job(self, centre, tmp_path):
        root, savepoint = tmp_path / "dcB", savepoint_of(centre)
        synced(centre, job_of(centre), root, name="pay")
        report = synced(centre, savepoint, root, name="pay")
        assert [each.name for each in root.iterdir()] == [job_of(centre).name]
        assert verify(report.plan.replica, None, ALL, silent, Side()).checkpoint == "chk-3"
        (replica,) = points_below(f"file:{root}", Sides()).replicas
        assert [(each.checkpoint, each.savepoint) for each in replica.points] == [
            ("chk-3", f"file:{savepoint}"),
            ("chk-2", None),  # the next checkpoint needs its files
        ]
        (row,) = status(replicas_below(f"file:{root}", (), Sides()), Sides()).replicas
        assert (row.checkpoint, row.savepoint, row.observed.behind()) == (
            *("chk-3", f"file:{savepoint}"),
            0,
        )

    def test_is_what_promote_takes_by_the_name_of_its_job_and_for_all_jobs(self, centre, tmp_path):
        root = tmp_path / "dcB"
        synced(centre, job_of(centre), root, name="pay")
        synced(centre, savepoint_of(centre), root, name="pay")
        chosen = select(f"file:{root}", Side(), "pay").replica
        request = PromoteAllRequest(tuple(replicas_below(f"file:{root}", (), Sides())))
        assert [each.replica for each in candidates(request)] == [chosen]
        promotion = promote(
            PromoteRequest(chosen, side=Side(), source=Side(), max_lag=0.0, dry_run=True), silent
        )
        assert promotion.checkpoint == "chk-3"
        assert promotion.starting is not None

    def test_makes_a_sync_of_its_job_have_nothing_to_do_until_the_next_checkpoint(
        self, centre, tmp_path
    ):
        root, job = tmp_path / "dcB", job_of(centre)
        synced(centre, job, root)
        synced(centre, savepoint_of(centre), root)
        again = synced(centre, job, root)
        assert (again.committed, again.plan.empty, again.plan.checkpoint) == (False, True, "chk-3")

    def test_has_a_metadata_that_records_whether_it_ended_its_job(self, centre):
        savepoint = savepoint_of(centre)
        place, content = savepoint / "_metadata", (savepoint / "_metadata").read_bytes()
        assert not read_metadata(f"file:{savepoint}", Side()).metadata.ends_job
        for action in (b"SUSPEND", b"TERMINATE"):
            ending = b"t\0" + bytes([len(action)]) + action
            place.write_bytes(content.replace(b"t\0\4NONE", ending))
            assert read_metadata(f"file:{savepoint}", Side()).metadata.ends_job


class TestAFollowedJob:
    def test_keeps_or_drops_the_savepoint_by_the_policy_at_its_next_checkpoint(self, tmp_path):
        job = write_checkpoint(tmp_path / "dcA", 1, FILES).parent
        sync(asked(tmp_path, job), silent)
        sync(asked(tmp_path, taken(tmp_path, 2)), silent)
        write_checkpoint(tmp_path / "dcA", 3, NEXT)
        report = sync(asked(tmp_path, job), silent)
        copied = {each.target for each in report.plan.copies}
        assert copied == {"shared/y", "chk-2/x"}  # what chk-1 has is kept
        assert set(report.plan.dropped) == {"chk-1", "chk-2"}
        sync(asked(tmp_path, taken(tmp_path, 4)), silent)
        write_checkpoint(tmp_path / "dcA", 5, NEXT)
        kept = sync(asked(tmp_path, job, keep=2), silent)
        assert kept.plan.dropped == ("chk-3",)
        replica = f"file:{tmp_path}/dcB/{JOB}"
        assert all(
            verify(replica, name, ALL, silent, Side()).restorable for name in ("chk-4", "chk-5")
        )

    def test_that_was_started_from_scratch_is_not_taken_for_one_that_is_held(self, tmp_path):
        first = write_checkpoint(tmp_path / "dcA", 1, FILES)
        sync(asked(tmp_path, first.parent), silent)
        sync(asked(tmp_path, taken(tmp_path, 9)), silent)
        shutil.rmtree(first.parent)
        later = write_checkpoint(tmp_path / "dcA", 2, FILES)
        os.utime(later / "_metadata", (2e9, 2e9))
        with pytest.raises(Refused, match="A replica never goes back"):
            sync(asked(tmp_path, first.parent), silent)

    def test_is_not_taken_back_behind_a_savepoint_by_the_allow_older_of_a_fleet(
        self, tmp_path, monkeypatch
    ):
        """It is for one job of a root, which was started from scratch, and holds for all."""
        root = write_checkpoint(tmp_path / "dcA", 1, FILES).parent.parent
        sync(asked(tmp_path, root / JOB), silent)
        sync(asked(tmp_path, taken(tmp_path, 2)), silent)
        monkeypatch.setattr(jobs, "JOB", FIXED)
        sync(asked(tmp_path, write_checkpoint(tmp_path / "dcA", 7, FILES).parent), silent)
        shutil.rmtree(root / FIXED)
        write_checkpoint(tmp_path / "dcA", 1, FILES)
        table = f'[[root]]\nsource = "{root}"\ntarget = "{tmp_path}/dcB"\nkeep = 3\n'
        (tmp_path / "jobs.toml").write_text(table)
        words = ("fleet", str(tmp_path / "jobs.toml"), "--runner", "inline")
        alone = f"`cpreplicate sync --allow-older file:{root}/{FIXED} file:{tmp_path}/dcB`"
        assert alone in run(*words).out
        assert run(*words, "--allow-older").code == 0
        held = points_below(f"file:{tmp_path}/dcB", Sides()).replicas
        assert {each.job[:32]: [point.checkpoint for point in each.points] for each in held} == {
            JOB: ["chk-2", "chk-1"],
            FIXED: ["chk-1"],
        }


class TestASavepointOfAnotherJob:
    def test_in_the_same_directory_has_a_replica_of_its_own(self, tmp_path):
        sync(asked(tmp_path, write_checkpoint(tmp_path / "dcA", 1, FILES).parent), silent)
        other = taken(tmp_path, 2, "savepoint-ffffff-000000000002")
        report = sync(asked(tmp_path, other, name="orders"), silent)
        assert report.plan.replica.endswith(other.name)
        (line,) = [each for each in report.warnings if "--job" in each]
        assert "it is not known whose savepoint it is" in line

    def test_of_a_fixed_id_is_tied_by_the_word_of_the_operator_only(self, tmp_path, monkeypatch):
        monkeypatch.setattr(jobs, "JOB", FIXED)
        job = write_checkpoint(tmp_path / "dcA", 1, FILES).parent
        replica = sync(asked(tmp_path, job), silent).plan.replica
        savepoint = taken(tmp_path, 2, job=FIXED)
        with pytest.raises(Refused, match=f"such as --job {replica}"):
            sync(asked(tmp_path, savepoint), silent)
        report = sync(asked(tmp_path, savepoint, savepoint_of=replica), silent)
        assert (report.plan.replica, report.plan.checkpoint) == (replica, "chk-2")
        marker = read_marker(Side(), replica)
        assert [each.given for each in marker.sources] == [f"file:{job}"]

    def test_that_shares_no_operator_is_refused_whatever_the_operator_names(self, centre, tmp_path):
        job = write_checkpoint(tmp_path / "dcA", 1, FILES).parent
        replica = sync(asked(tmp_path, job), silent).plan.replica
        with pytest.raises(Refused, match="has none of the operators"):
            synced(centre, savepoint_of(centre), tmp_path / "dcB", savepoint_of=replica)

    def test_never_replaces_a_checkpoint_that_has_its_number(self, tmp_path):
        job = write_checkpoint(tmp_path / "dcA", 1, FILES).parent
        replica = sync(asked(tmp_path, job), silent).plan.replica
        other = taken(tmp_path, 1, "of-another-job")
        with pytest.raises(Refused, match="is another checkpoint than"):
            sync(asked(tmp_path, other, savepoint_of=replica), silent)


def test_the_paths_that_are_reported_are_those_of_a_savepoint_that_stays(centre, tmp_path):
    """A claim mode that is safe with the paths of one checkpoint may not be so with another's."""
    for number in (1, 2):
        os.utime(job_of(centre) / f"chk-{number}" / "_metadata", (1e9 + number,) * 2)
    synced(centre, job_of(centre), tmp_path / "dcB")
    synced(centre, savepoint_of(centre), tmp_path / "dcB")
    asked_for = synced(centre, job_of(centre), tmp_path / "dcB", paths="absolute")
    assert asked_for.plan.paths == "relative"
    assert not asked_for.committed
    [warning] = asked_for.warnings
    assert warning.startswith(
        "--paths absolute changed nothing: the newest checkpoint, chk-3, is a"
    )
    assert "sync --paths absolute" in warning
    synced(centre, savepoint_of(centre), tmp_path / "dcB", paths="absolute")
    report = synced(centre, job_of(centre), tmp_path / "dcB")
    assert (report.plan.paths, report.warnings) == ("absolute", ())


def test_a_savepoint_older_than_the_replica_is_refused(tmp_path):
    job = write_checkpoint(tmp_path / "dcA", 5, FILES).parent
    sync(asked(tmp_path, job), silent)
    with pytest.raises(Refused, match="A replica never goes back"):
        sync(asked(tmp_path, taken(tmp_path, 4)), silent)


def test_a_savepoint_that_has_a_replica_of_its_own_keeps_it(tmp_path):
    savepoint = taken(tmp_path, 2)
    alone = sync(asked(tmp_path, savepoint), silent).plan.replica
    sync(asked(tmp_path, write_checkpoint(tmp_path / "dcA", 1, FILES).parent), silent)
    assert sync(asked(tmp_path, savepoint), silent).plan.replica == alone


def test_a_job_is_named_only_for_a_savepoint_and_has_a_replica(tmp_path):
    job = write_checkpoint(tmp_path / "dcA", 1, FILES).parent
    replica = sync(asked(tmp_path, job), silent).plan.replica
    with pytest.raises(UsageError, match="Leave out --job"):
        diff(asked(tmp_path, job, savepoint_of=replica))
    with pytest.raises(NotThere, match="is no replica of a job"):
        diff(asked(tmp_path, taken(tmp_path, 2), savepoint_of=f"{replica}-2"))


def test_doctor_warns_of_a_second_replica_of_a_job_as_sync_does(tmp_path):
    sync(asked(tmp_path, write_checkpoint(tmp_path / "one", 1, FILES).parent), silent)
    second = asked(tmp_path, write_checkpoint(tmp_path / "two", 1, FILES).parent)
    (line,) = [each for each in diff(second).warnings if "--same-source" in each]
    findings = {each.check: each for each in diagnose(second, Configured()).findings}
    assert (findings["plan"].status, line in findings["plan"].message) == ("warning", True)
    sync(second, silent)
    again = {each.check: each for each in diagnose(second, Configured()).findings}
    assert again["plan"].status == "ok"


def moved(savepoint: Path) -> Path:
    """A savepoint that was moved after it was taken: its paths are those of before."""
    place = savepoint.parent.parent / "archive" / savepoint.name
    place.parent.mkdir()
    return savepoint.rename(place)


def test_a_native_savepoint_of_rocksdb_is_a_point_of_its_job_wherever_it_is(tmp_path):
    job = write_checkpoint(tmp_path / "dcA", 1, FILES).parent
    replica = sync(asked(tmp_path, job), silent).plan.replica
    savepoint = taken(tmp_path, 2)
    (savepoint / "state").rename(savepoint / "000001-sst")
    shared = (("000001.sst", RelativeFile("000001-sst", 50)),)
    state = Incremental(11, 2, "backend", (0, 128), 1, None, shared, ())
    operator = OperatorEntry(bytes(16), 1, 128, (Subtask(0, keyed=state),))
    (savepoint / "_metadata").write_bytes(bytes(encode(Tree(6, (operator,), 2)).data))
    report = sync(asked(tmp_path, moved(savepoint)), silent)
    assert (report.plan.replica, report.plan.checkpoint) == (replica, "chk-2")
    assert verify(replica, "chk-2", ALL, silent, Side()).restorable
    assert promote(PromoteRequest(replica), silent).checkpoint == "chk-2"


def test_a_savepoint_that_was_moved_is_read_where_it_is_by_a_remap(tmp_path):
    job = write_checkpoint(tmp_path / "dcA", 1, FILES).parent
    replica = sync(asked(tmp_path, job), silent).plan.replica
    savepoint = moved(taken(tmp_path, 2))
    with pytest.raises(SourceBroken, match="--remap"):
        sync(asked(tmp_path, savepoint), silent)
    remaps = (Remap(f"file:{tmp_path}/savepoints", f"file:{tmp_path}/archive"),)
    report = sync(asked(tmp_path, savepoint, remaps=remaps), silent)
    assert (report.plan.replica, report.plan.checkpoint) == (replica, "chk-2")
    shutil.rmtree(savepoint)
    assert verify(replica, "chk-2", ALL, silent, Side()).restorable


class TestASavepointThatTheRunningJobClaimed:
    """Its files are Flink's then, which deletes them when the job needs them no longer."""

    @pytest.fixture
    def claimed(self, tmp_path):
        """A replica that was promoted with a savepoint, and a file of it that the job needs."""
        job = write_checkpoint(tmp_path / "dcA", 1, FILES).parent
        sync(asked(tmp_path, job), silent)
        replica = sync(asked(tmp_path, taken(tmp_path, 2)), silent).plan.replica
        promote(PromoteRequest(replica), silent)
        (file,) = closure(read_metadata(f"{replica}/chk-2", Side()).metadata).files
        return replica, uri.local_path(file)

    def completed(self, tmp_path, number, *needed):
        """The job completes a checkpoint in its own directory; return that directory."""
        job = tmp_path / "own" / JOB
        state = job / "shared" / str(number)
        state.parent.mkdir(parents=True)
        state.write_bytes(b"s" * 50)
        (job / f"chk-{number}").mkdir()
        files = {f"file:{each}": 50 for each in (state, *needed)}
        (job / f"chk-{number}" / "_metadata").write_bytes(jobs.metadata_of(number, files))
        return f"file:{job}"

    def test_is_kept_while_a_checkpoint_of_the_job_references_it(self, claimed, tmp_path):
        replica, file = claimed
        job = self.completed(tmp_path, 3, file)
        with pytest.raises(Refused, match="references 1 file"):
            unseal(UnsealRequest(replica, job))
        write_checkpoint(tmp_path / "dcA", 4, NEXT)
        with pytest.raises(Sealed):
            sync(asked(tmp_path, tmp_path / "dcA" / JOB), silent)
        assert Path(file).exists()

    def test_is_replicated_again_once_flink_has_deleted_it(self, claimed, tmp_path):
        replica, file = claimed
        Path(file).unlink()
        shutil.rmtree(uri.local_path(f"{replica}/chk-2"))
        with pytest.raises((Refused, NotThere)):
            promote(PromoteRequest(replica), silent)
        unseal(UnsealRequest(replica, self.completed(tmp_path, 3)))
        savepoint = next((tmp_path / "savepoints").iterdir())
        assert sync(asked(tmp_path, savepoint), silent).plan.checkpoint == "chk-2"
        assert verify(replica, "chk-2", ALL, silent, Side()).restorable
        assert verify(replica, "chk-1", ALL, silent, Side()).restorable


class TestADamagedSavepointIsRepairedFromItself:
    @pytest.fixture
    def replica(self, tmp_path):
        """A replica whose newest point, chk-2, is a savepoint, beside chk-1 of its job."""
        write_checkpoint(tmp_path / "dcA", 1, FILES)
        sync(asked(tmp_path, tmp_path / "dcA" / JOB, keep=3), silent)
        sync(asked(tmp_path, taken(tmp_path, 2)), silent)
        return tmp_path / "dcB" / JOB

    def state_of(self, replica):
        (path,) = [
            each for each in (replica / "chk-2").parent.rglob("*") if each.name.endswith("state")
        ]
        return path

    def repaired(self, replica, checkpoint="chk-2"):
        """The command that `verify` prints is run; return it."""
        result = verify(f"file:{replica}", checkpoint, ALL, silent, Side())
        words = result.repair.split()
        done = commandline.run(*words[1:], "--runner", "inline")
        assert done.code == 0, done
        assert verify(f"file:{replica}", checkpoint, ALL, silent, Side()).restorable
        return words

    def test_by_the_command_that_verify_prints_also_if_its_content_is_damaged(self, replica):
        self.state_of(replica).write_bytes(b"t" * 50)
        words = self.repaired(replica)
        assert "--check-content" in words
        assert "--repair" not in words

    def test_as_an_older_point_too(self, tmp_path, replica):
        write_checkpoint(tmp_path / "dcA", 3, NEXT)
        sync(asked(tmp_path, tmp_path / "dcA" / JOB), silent)
        self.state_of(replica).unlink()
        assert "--repair" in self.repaired(replica)

    def test_and_a_sync_of_its_job_names_that_command_in_place_of_nothing_to_do(
        self, tmp_path, replica
    ):
        self.state_of(replica).unlink()
        request = asked(tmp_path, tmp_path / "dcA" / JOB)
        for refused in (lambda: sync(request, silent), lambda: diff(request)):
            with pytest.raises(Refused, match="lacks 1 file of it") as raised:
                refused()
            assert f"savepoint-{JOB[:6]}-000000000002" in str(raised.value)
            assert f"--job {JOB}" in str(raised.value)

    @pytest.mark.usefixtures("replica")
    def test_and_check_content_of_its_job_warns_that_it_compared_nothing(self, tmp_path):
        request = asked(tmp_path, tmp_path / "dcA" / JOB, check_content=True)
        (warning,) = sync(request, silent).warnings
        assert "--check-content compared nothing" in warning
