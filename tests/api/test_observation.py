"""Replicas as another program verifies them."""

import pytest

import cpreplicate
from cpreplicate import Place, SyncOptions, status, sync
from cpreplicate.runners import ExecutionOptions
from tests.support.jobs import JOB
from tests.support.replicas import FILES

pytestmark = pytest.mark.usefixtures("still_source")
INLINE = ExecutionOptions(runner="inline")
OPTIONS = SyncOptions(execution=INLINE)


def test_verify_and_status_see_the_replica(places):
    source, target = places
    sync(source, target, OPTIONS)
    verification = cpreplicate.verify(Place(f"{target.url}/{JOB}"), content=1.0, execution=INLINE)
    assert (verification.restorable, verification.compared) == (True, len(FILES))
    (row,) = status(target, [source], max_lag=60.0).replicas
    assert row.observed.replica_newest is not None
    assert row.observed.replica_newest.checkpoint_id == 1
