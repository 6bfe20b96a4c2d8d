"""Whether replicas can be restored, which points they hold, and the status of many."""

from __future__ import annotations

from collections.abc import Sequence

from cpreplicate.api import values
from cpreplicate.api.cancellation import Cancellation
from cpreplicate.api.places import AnyPlace, place_of
from cpreplicate.api.running import execution_of, running
from cpreplicate.api.values import Amount
from cpreplicate.core.notify import Notify, silent
from cpreplicate.errors import NotThere
from cpreplicate.operations.replicas import points as _points
from cpreplicate.operations.replicas import status as _status
from cpreplicate.operations.replicas.points import Points
from cpreplicate.operations.replicas.replica_status import FleetStatus
from cpreplicate.operations.replicas.replicas import replicas_below
from cpreplicate.operations.verify import verify as _verify
from cpreplicate.operations.verify.verify import Sample, Verification
from cpreplicate.runners import ExecutionOptions, WarmRunners
from cpreplicate.storage import Sides


def verify(
    replica: AnyPlace,
    checkpoint: str | None = None,
    *,
    content: Amount = 0.0,
    execution: ExecutionOptions | None = None,
    on_message: Notify = silent,
    cancellation: Cancellation | None = None,
) -> Verification:
    """Return whether a checkpoint of a replica can be restored: the newest one, or `chk-N`.

    `content` is the share of its files whose content is read and compared, from 0 to 1, or a text
    such as `5%`.
    """
    place, execution = place_of("replica", replica), execution_of(execution)
    sample, side = Sample(share=values.share("content", content)), place.side()
    if checkpoint is not None:
        values.of_type("checkpoint", checkpoint, str, "a name")
    with (
        WarmRunners(Sides(side, side), execution, 0.0, is_for_one=True) as runners,
        running(on_message, cancellation, runners.cancel) as cancelled,
    ):
        names, shared = (checkpoint,), runners.share()
        found = _verify.verify_each(place.uri, names, sample, on_message, side, execution, shared)
        cancelled.raise_if_cancelled()
    (verification,) = found.checkpoints
    return verification


def status(
    target: AnyPlace,
    sources: Sequence[AnyPlace] = (),
    *,
    max_lag: Amount | None = None,
    cancellation: Cancellation | None = None,
) -> FleetStatus:
    """Return the status of every replica below a target root, as `cpreplicate status`.

    `sources` are directories of jobs, or roots of such, whose storage is reached as the first one.
    What fails for one replica is in its row. Raises `NotThere` if there is none.
    """
    given = values.sequence("sources", sources, "a sequence of places")
    place, places = place_of("target", target), [place_of("sources", each) for each in given]
    sides = Sides((places[0] if places else place).side(), place.side())
    limit = values.optional(values.seconds, "max_lag", max_lag)
    with running(silent, cancellation) as cancelled:
        found = replicas_below(place.uri, [each.uri for each in places], sides)
        result = _status.status(found, sides, max_lag=limit)
        cancelled.raise_if_cancelled()  # else a row has it as its error
        return result


def list_points(
    target: AnyPlace,
    *,
    with_positions: bool = False,
    on_message: Notify = silent,
    cancellation: Cancellation | None = None,
) -> Points:
    """Return the points of every replica below a target root, or of one, as `cpreplicate list`.

    `with_positions`: also the positions in Kafka of each. What fails for one replica is in its row.
    Raises `NotThere` if there is none.
    """
    place, is_asked = place_of("target", target), values.flag("with_positions", with_positions)
    sides = Sides(place.side(), place.side())
    with running(on_message, cancellation) as cancelled:
        found = _points.points_below(place.uri, sides, is_asked, on_message)
        cancelled.raise_if_cancelled()  # else a row has it as its error
    if not found.replicas:
        raise NotThere(f"there is no replica below {place.uri}")
    return found
