"""What a report page shows beside the result of its command: operators, and the history."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from cpreplicate.core import uri
from cpreplicate.core.plan import Plan
from cpreplicate.errors import CpreplicateError, described
from cpreplicate.operations.inspect.handle_columns import HandleColumns, handle_columns
from cpreplicate.operations.replicas.points import Points, points
from cpreplicate.storage import Side, Sides

T = TypeVar("T")


@dataclass(frozen=True)
class Overview:
    """What a checkpoint holds, and the kept checkpoints of a replica.

    Both are None if they were not asked for, or could not be read: then `problems` has why. They
    illustrate a result, and do not change it.
    """

    handles: HandleColumns | None = None
    history: Points | None = None
    problems: tuple[str, ...] = ()


def of_plan(plan: Plan, is_committed: bool, sides: Sides, remaps: Sequence[uri.Remap]) -> Overview:
    """Return what the checkpoint of a plan holds, and the history of its replica.

    A committed one is read in the replica: the source may have withdrawn it meanwhile.
    """

    def read() -> HandleColumns:
        if is_committed:
            return handle_columns(uri.join(plan.replica, plan.checkpoint), sides.target, ())
        return handle_columns(plan.source, sides.source, remaps)

    return _overview(read, lambda: points([plan.replica], sides))


def of_replica(replica: str, side: Side) -> Overview:
    """Return the history of a replica."""
    return _overview(None, lambda: points([replica], Sides(target=side)))


def _overview(
    read_handles: Callable[[], HandleColumns] | None, read_history: Callable[[], Points] | None
) -> Overview:
    problems: list[str] = []
    found = _read("the operators", read_handles, problems)
    history = _read("the kept checkpoints", read_history, problems)
    return Overview(found, history, tuple(problems))


def _read(what: str, read: Callable[[], T] | None, problems: list[str]) -> T | None:
    try:
        return None if read is None else read()
    except (CpreplicateError, OSError) as error:
        problems.append(f"{what} are not shown: {described(error)}")
        return None
