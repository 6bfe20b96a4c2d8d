"""Whether replicas can be restored, and the status of many."""

from __future__ import annotations

from collections.abc import Sequence

from cpreplicate.api.cancellation import Cancellation
from cpreplicate.api.places import Place
from cpreplicate.core.notify import Notify, silent
from cpreplicate.errors import UsageError
from cpreplicate.operations.replicas import status as _status
from cpreplicate.operations.replicas.replica_status import FleetStatus
from cpreplicate.operations.replicas.replicas import replicas_below
from cpreplicate.operations.verify import verify as _verify
from cpreplicate.operations.verify.verify import Sample, Verification
from cpreplicate.runners import ExecutionOptions, WarmRunners
from cpreplicate.storage import Sides


def verify(
    replica: Place,
    checkpoint: str | None = None,
    *,
    content: float = 0.0,
    execution: ExecutionOptions | None = None,
    on_message: Notify = silent,
    cancellation: Cancellation | None = None,
) -> Verification:
    """Return whether a checkpoint of a replica can be restored: the newest one, or `chk-N`.

    `content` is the share of its files whose content is read and compared, from 0 to 1.
    """
    if not 0 <= content <= 1:
        raise UsageError(
            f"the option content of the API is {content!r}: expected a share from 0 to 1"
        )
    side, execution = replica.side(), execution or ExecutionOptions()
    cancellation = cancellation or Cancellation()
    with (
        WarmRunners(Sides(side, side), execution, 0.0, is_for_one=True) as runners,
        cancellation.ending(runners.cancel),
    ):
        sample = Sample(share=content)
        names, shared = (checkpoint,), runners.share()
        found = _verify.verify_each(replica.uri, names, sample, on_message, side, execution, shared)
        cancellation.raise_if_cancelled()
    (verification,) = found.checkpoints
    return verification


def status(
    target: Place,
    sources: Sequence[Place] = (),
    *,
    max_lag: float | None = None,
    cancellation: Cancellation | None = None,
) -> FleetStatus:
    """Return the status of every replica below a target root, as `cpreplicate status`.

    `sources` are directories of jobs, or roots of such, whose storage is reached as the first one.
    What fails for one replica is in its row. Raises `NotThere` if there is none.
    """
    side = sources[0].side() if sources else target.side()
    sides = Sides(side, target.side())
    cancellation = cancellation or Cancellation()
    with cancellation.ending():
        found = replicas_below(target.uri, [each.uri for each in sources], sides)
        result = _status.status(found, sides, max_lag=max_lag)
        cancellation.raise_if_cancelled()  # else a row has it as its error
        return result
