"""What the tests of secure clusters share."""

from __future__ import annotations

import uuid

import pytest

from cpreplicate.storage import Side
from tests.support.hdfs import HdfsCluster
from tests.support.jobs import JOB, put_checkpoint
from tests.support.kerberos import Secure

FILES = {"shared/a": 100_000, "shared/b": 2000}


@pytest.fixture(scope="session")
def checkpoint(secure: Secure) -> str:
    """A checkpoint of alice's on the first cluster."""
    root = f"{secure.a.uri}/alice/{uuid.uuid4().hex}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KRB5CCNAME", secure.ticket("alice")["KRB5CCNAME"])
        return put_checkpoint(side_of(secure.a), root, 1, FILES)


@pytest.fixture
def target(secure: Secure) -> str:
    """A directory of the test's own on the second cluster, which alice may make."""
    return f"{secure.b.uri}/alice/{uuid.uuid4().hex}"


def side_of(cluster: HdfsCluster) -> Side:
    """Return the side of a cluster, for the user of the environment's ticket."""
    return Side((("", tuple(cluster.conf.items())),))


def replica_of(target: str) -> str:
    """Return the replica of the checkpoint's job in a TARGET_ROOT."""
    return f"{target}/{JOB}"
