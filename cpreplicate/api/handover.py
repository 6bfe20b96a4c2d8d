"""Replicas are handed over to jobs, and taken back."""

from __future__ import annotations

from datetime import datetime

from cpreplicate.api import values
from cpreplicate.api.cancellation import Cancellation
from cpreplicate.api.places import AnyPlace, place_of
from cpreplicate.api.running import execution_of, running
from cpreplicate.api.values import Amount
from cpreplicate.core.notify import Notify, silent
from cpreplicate.errors import UsageError
from cpreplicate.operations.handover import promote as _promote
from cpreplicate.operations.handover import unseal as _unseal
from cpreplicate.operations.handover.promote import PromoteRequest, Promotion
from cpreplicate.operations.handover.unseal import Unsealing, UnsealRequest
from cpreplicate.operations.verify.verify import Sample
from cpreplicate.runners import ExecutionOptions


def promote(
    replica: AnyPlace,
    checkpoint: str | None = None,
    *,
    as_of: datetime | Amount | None = None,
    source: AnyPlace | None = None,
    max_lag: Amount | None = None,
    allow_older: bool = False,
    content: Amount = 0.0,
    dry_run: bool = False,
    lock_wait: Amount = 0.0,
    execution: ExecutionOptions | None = None,
    on_message: Notify = silent,
    cancellation: Cancellation | None = None,
) -> Promotion:
    """Verify a replica, make its paths absolute and seal it, as `cpreplicate promote`.

    The newest checkpoint is taken, or `chk-N`, or the newest one that was completed at or before
    `as_of`. The source that the replica records is asked how far it is ahead; its storage is
    reached as `source`, by default as the replica's. Look at `is_promoted` of the result: a replica
    that cannot be restored is left as it is, and raises nothing. Raises `Lagging` over `max_lag`.
    """
    if checkpoint is not None and as_of is not None:
        raise UsageError("checkpoint and as_of both choose a checkpoint: give one")
    place = place_of("replica", replica)
    reached = place if source is None else place_of("source", source)
    request = PromoteRequest(
        place.uri,
        None if checkpoint is None else values.of_type("checkpoint", checkpoint, str, "a name"),
        Sample(share=values.share("content", content)),
        values.seconds("lock_wait", lock_wait),
        place.side(),
        execution_of(execution),
        values.optional(values.instant, "as_of", as_of),
        values.flag("dry_run", dry_run),
        source=reached.side(),
        max_lag=values.optional(values.seconds, "max_lag", max_lag),
        allow_older=values.flag("allow_older", allow_older),
    )
    with running(on_message, cancellation):
        return _promote.promote(request, on_message)


def unseal(
    replica: AnyPlace,
    job: AnyPlace | None = None,
    *,
    no_job_uses_it: bool = False,
    dry_run: bool = False,
    cancellation: Cancellation | None = None,
) -> Unsealing:
    """Remove the seal of a promoted replica, as `cpreplicate unseal`.

    `job` is the checkpoint directory of the job that was started from it: its storage is reached as
    the replica's. Or `no_job_uses_it` states that there is none. Raises `Refused` if a job may need
    the replica's files.
    """
    if (job is None) is not values.flag("no_job_uses_it", no_job_uses_it):
        raise UsageError(
            "give either job, the checkpoint directory of the job that was started from the"
            " replica, or no_job_uses_it=True"
        )
    place = place_of("replica", replica)
    used_by = None if job is None else place_of("job", job).uri
    request = UnsealRequest(place.uri, used_by, place.side(), values.flag("dry_run", dry_run))
    with running(silent, cancellation):
        return _unseal.unseal(request)
