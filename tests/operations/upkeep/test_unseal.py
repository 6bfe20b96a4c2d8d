"""A promoted replica is unsealed only when the job that was started from it cannot need it any
more.
"""

import os
import time

import pytest

from cpreplicate.errors import Refused
from cpreplicate.operations.upkeep import promote, unseal
from cpreplicate.operations.upkeep.promote import PromoteRequest
from cpreplicate.operations.upkeep.unseal import UnsealRequest
from tests.support.jobs import JOB, write_checkpoint
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
