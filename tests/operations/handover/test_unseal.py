"""A promoted replica is unsealed only when the job that was started from it cannot need it any
more.
"""

import json
import os
import time

import pytest

from cpreplicate.errors import Refused
from cpreplicate.operations.handover import promote, unseal
from cpreplicate.operations.handover.promote import PromoteRequest
from cpreplicate.operations.handover.unseal import UnsealRequest
from tests.support.commandline import printed
from tests.support.commandline import run as ended
from tests.support.encoder import OperatorEntry, Tree, encode
from tests.support.jobs import JOB, NEXT_JOB, metadata_of, write_checkpoint
from tests.support.kafka_jobs import replicated_with_derived
from tests.support.replicas import FILES, synced

AN_HOUR = 3600
OWN = {"shared/own": 10}


@pytest.fixture
def replica(tmp_path):
    """A replica of a job with a fixed id, promoted for `chk-5`."""
    made = synced(tmp_path, {5: FILES})
    promote.promote(PromoteRequest(f"file:{made}"), lambda _line: None)
    return made


def completed(tmp_path, number, age=0.0, files=None):
    """A checkpoint that the job in data centre B completed, under the same id, some seconds ago."""
    checkpoint = write_checkpoint(tmp_path / "own", number, files or OWN)
    os.utime(checkpoint / "_metadata", (time.time() - age,) * 2)


def run(replica, tmp_path):
    return unseal.unseal(UnsealRequest(f"file:{replica}", f"file:{tmp_path}/own/{JOB}"))


def is_sealed(replica):
    return (replica / ".cpreplicate" / "sealed").exists()


def test_a_replica_is_unsealed_once_its_job_has_completed_a_checkpoint_of_its_own(
    replica, tmp_path
):
    completed(tmp_path, 6)
    assert "for chk-5" in run(replica, tmp_path).sealed
    assert not is_sealed(replica)


@pytest.mark.parametrize(
    ("number", "age"),
    [(4, 0), (5, 0), (9, AN_HOUR)],
    ids=["older", "the-same-number", "before-the-promotion"],
)
def test_checkpoints_that_a_job_of_a_fixed_id_left_before_do_not_count_as_its_own(
    replica, tmp_path, number, age
):
    completed(tmp_path, number, age)
    with pytest.raises(Refused, match=r"no checkpoint that was completed since .* \(chk-5\)"):
        run(replica, tmp_path)
    assert is_sealed(replica)


def test_a_checkpoint_of_the_job_that_references_the_replica_keeps_the_seal(replica, tmp_path):
    completed(tmp_path, 6)
    metadata = tmp_path / "own" / JOB / "chk-7" / "_metadata"
    metadata.parent.mkdir()
    metadata.write_bytes((replica / "chk-5" / "_metadata").read_bytes())
    with pytest.raises(Refused, match="the job needs them"):
        run(replica, tmp_path)
    assert is_sealed(replica)


def completed_by(tmp_path, number, *operators):
    """A checkpoint of a job with these operators, under the same id."""
    directory = tmp_path / "own" / JOB / f"chk-{number}"
    directory.mkdir(parents=True, exist_ok=True)
    entries = tuple(OperatorEntry(bytes([each]) * 16, 1, 128, ()) for each in operators)
    (directory / "_metadata").write_bytes(encode(Tree(6, entries, number)).data)


def test_the_directory_of_another_job_that_runs_the_same_program_is_refused(replica, tmp_path):
    completed_by(tmp_path, 6, 0)
    other = (tmp_path / "own" / JOB).rename(tmp_path / "own" / NEXT_JOB)
    with pytest.raises(Refused, match=f"nothing in file:{other} names the job {JOB}"):
        unseal.unseal(UnsealRequest(f"file:{replica}", f"file:{other}"))
    assert is_sealed(replica)


def test_a_job_of_a_new_id_is_known_by_the_files_of_the_former_that_it_goes_on_with(
    replica, tmp_path
):
    former = tmp_path / "own" / JOB / "shared" / "former"
    former.parent.mkdir(parents=True)
    former.write_bytes(bytes(9))
    job = tmp_path / "own" / NEXT_JOB
    metadata = job / "chk-6" / "_metadata"
    metadata.parent.mkdir(parents=True)
    metadata.write_bytes(metadata_of(6, {f"file:{former}": 9}))
    assert unseal.unseal(UnsealRequest(f"file:{replica}", f"file:{job}")).found is not None


def test_the_source_of_the_replica_is_not_the_job_that_was_started_from_it(replica, tmp_path):
    write_checkpoint(tmp_path / "dcA", 6, OWN)
    with pytest.raises(Refused, match="is the source of"):
        unseal.unseal(UnsealRequest(f"file:{replica}", f"file:{tmp_path}/dcA/{JOB}"))
    assert is_sealed(replica)


class TestAJobIsKnownByItsOperators:
    def test_what_was_found_is_returned_and_printed(self, replica, tmp_path):
        completed_by(tmp_path, 6, 0)
        arguments = ("unseal", replica, "--job", tmp_path / "own" / JOB)
        found = (
            f"file:{tmp_path}/own/{JOB}/chk-6 is of the job {JOB}, has the one operator of chk-5"
        )
        assert found in printed(*arguments, "--dry-run").stderr
        assert ended(*arguments, "--output", "json").json()["found"].startswith(found)
        assert not is_sealed(replica)

    def test_another_job_of_the_same_id_is_refused(self, replica, tmp_path):
        completed_by(tmp_path, 6, 7)
        with pytest.raises(Refused, match="is not of the job that was started from chk-5"):
            run(replica, tmp_path)
        assert is_sealed(replica)

    def test_a_job_that_got_more_operators_is_the_same(self, replica, tmp_path):
        completed_by(tmp_path, 6, 7, 0)
        assert run(replica, tmp_path).found is not None

    def test_the_newest_checkpoint_counts_where_several_jobs_wrote(self, replica, tmp_path):
        completed_by(tmp_path, 6, 0)
        completed_by(tmp_path, 9, 7)
        with pytest.raises(Refused, match="chk-9 is not of the job"):
            run(replica, tmp_path)

    def test_so_it_is_when_flink_has_deleted_the_promoted_checkpoint(self, replica, tmp_path):
        (replica / "chk-5" / "_metadata").unlink()
        completed_by(tmp_path, 6, 7)
        with pytest.raises(Refused, match="is not of the job"):
            run(replica, tmp_path)
        completed_by(tmp_path, 7, 0)
        assert run(replica, tmp_path).found is not None

    def test_a_seal_of_an_earlier_version_has_the_operators_of_its_checkpoint(
        self, replica, tmp_path
    ):
        seal = replica / ".cpreplicate" / "sealed"
        fields = json.loads(seal.read_text())
        del fields["operators"]
        seal.write_text(json.dumps(fields))
        completed_by(tmp_path, 6, 7)
        with pytest.raises(Refused, match="is not of the job"):
            run(replica, tmp_path)
        completed_by(tmp_path, 7, 0)
        (replica / "chk-5" / "_metadata").unlink()
        with pytest.raises(Refused, match="it is not known which operators"):
            run(replica, tmp_path)
        assert is_sealed(replica)

    def test_without_a_job_it_says_that_none_was_looked_at(self, replica):
        done = printed("unseal", replica, "--no-job-uses-it")
        assert done.stderr.endswith(" for chk-5: no job was looked at (--no-job-uses-it)\n")


@pytest.mark.parametrize(("number", "is_later"), [(1, False), (2, True)])
def test_a_derived_checkpoint_has_the_number_of_that_which_it_was_derived_from(
    tmp_path, number, is_later
):
    replica, name = replicated_with_derived(tmp_path)
    promote.promote(PromoteRequest(f"file:{replica}", name), lambda _line: None)
    completed_by(tmp_path, number, 7)
    if is_later:
        assert run(replica, tmp_path).found is not None
    else:
        with pytest.raises(Refused, match="no checkpoint that was completed since"):
            run(replica, tmp_path)
