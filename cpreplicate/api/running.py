"""The run of an operation for another program."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from cpreplicate.api import values
from cpreplicate.api.cancellation import Cancellation
from cpreplicate.core.notify import Notify
from cpreplicate.protocol.lease import NoLeaseLeft
from cpreplicate.runners import ExecutionOptions


@contextmanager
def running(
    on_message: Notify,
    cancellation: Cancellation | None,
    stop: Callable[[], None] = lambda: None,
) -> Iterator[Cancellation]:
    """While the block runs, a cancellation calls `stop` and ends what waits; no lease outlives it.

    Raises `UsageError` for what is no function, or no `Cancellation`.
    """
    values.function("on_message", on_message)
    given = Cancellation() if cancellation is None else cancellation
    values.of_type("cancellation", given, Cancellation, "a Cancellation")
    with NoLeaseLeft(), given.ending(stop):
        yield given


def execution_of(execution: ExecutionOptions | None) -> ExecutionOptions:
    """Return the options of a runner, by default those of `auto`."""
    if execution is None:
        return ExecutionOptions()
    return values.of_type("execution", execution, ExecutionOptions, "an ExecutionOptions")
