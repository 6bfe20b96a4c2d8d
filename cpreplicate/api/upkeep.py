"""The upkeep of replicas."""

from __future__ import annotations

from dataclasses import replace

from cpreplicate.api import values
from cpreplicate.api.cancellation import Cancellation
from cpreplicate.api.places import AnyPlace, place_of
from cpreplicate.api.running import execution_of, running
from cpreplicate.api.values import Amount
from cpreplicate.core.notify import Notify, silent
from cpreplicate.operations.upkeep import sweep as _sweep
from cpreplicate.operations.upkeep.sweep import Sweep, SweepRequest
from cpreplicate.runners import ExecutionOptions
from cpreplicate.storage import Sides


def sweep(
    replica: AnyPlace,
    *,
    min_age: Amount = "24h",
    max_delete: int | str = "50%",
    trash: bool = False,
    empty_trash: bool = False,
    dry_run: bool = False,
    lock_wait: Amount = 0.0,
    unsafe_lease: bool = False,
    execution: ExecutionOptions | None = None,
    on_message: Notify = silent,
    cancellation: Cancellation | None = None,
) -> Sweep:
    """Remove the files that no checkpoint of a replica references, as `cpreplicate sweep`.

    With `dry_run` they are only found. Raises `TooManyDeletes`, whose `report` is the sweep, if
    there are more than `max_delete`: a number of files, or a share such as `20%`.
    """
    place = place_of("replica", replica)
    side = replace(place.side(), unsafe_lease=values.flag("unsafe_lease", unsafe_lease))
    request = SweepRequest(
        place.uri,
        values.seconds("min_age", min_age),
        values.cap("max_delete", max_delete),
        values.flag("trash", trash),
        values.flag("empty_trash", empty_trash),
        lock_wait=values.seconds("lock_wait", lock_wait),
        sides=Sides(side, side),
        execution=execution_of(execution),
    )
    is_dry_run = values.flag("dry_run", dry_run)
    with running(on_message, cancellation):
        return _sweep.check(request) if is_dry_run else _sweep.sweep(request, on_message)
