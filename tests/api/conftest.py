"""A job with a checkpoint, and a root of replicas."""

import pytest

from cpreplicate import Checkpoint, Place
from tests.support.jobs import JOB, write_checkpoint
from tests.support.replicas import FILES


@pytest.fixture
def places(tmp_path):
    write_checkpoint(tmp_path / "dcA", 1, FILES)
    return Checkpoint(f"{tmp_path}/dcA/{JOB}"), Place(f"file:{tmp_path}/dcB")
