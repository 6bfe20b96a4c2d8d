"""Replicas as another program verifies them."""

import pytest

import cpreplicate
from cpreplicate import Cancellation, Place, SyncOptions, errors, status, sync
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


def test_a_verification_that_is_cancelled_while_it_reads_ends(places):
    source, target = places
    sync(source, target, OPTIONS)
    cancellation = Cancellation()
    with pytest.raises(errors.Cancelled):
        cpreplicate.verify(
            Place(f"{target.url}/{JOB}"),
            content=1.0,
            execution=INLINE,
            on_message=lambda _line: cancellation.cancel(),  # it says how many files are compared
            cancellation=cancellation,
        )


@pytest.mark.parametrize("share", [-1, 2.0, float("nan")])
def test_a_share_of_content_is_from_zero_to_one(places, share):
    with pytest.raises(errors.UsageError, match="content"):
        cpreplicate.verify(Place(f"{places[1].url}/{JOB}"), content=share)
