"""`watch SOURCE` in this process: the service of one job, until a test has seen enough."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from cpreplicate.core.notify import Notify
from cpreplicate.operations.jobs.attempt import Show
from cpreplicate.operations.jobs.policy import OneJob
from cpreplicate.operations.jobs.service import Service, ServiceSettings
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.runners import WarmRunners
from cpreplicate.storage.waiting.side_call import in_thread

Stop = Callable[[], None]
_INTERVAL = 0.05


def watch(
    request: SyncRequest,
    show: Callable[[Stop], Show] = lambda _stop: _ignored,
    notify: Callable[[Stop], Notify] = lambda _stop: _ignored,
    may_come: bool = False,
    interval: float = _INTERVAL,
) -> None:
    """Follow a job until something calls `stop`, or a failure ends the watch and is raised.

    `show` and `notify` return what is called with reports and lines; they are given `stop`. Only
    the tries look at the source, however slow the machine is.
    """
    service: Service

    def stop() -> None:
        service.stop()

    report_line = notify(stop)
    one = OneJob(request, may_come, report_line)
    settings = ServiceSettings(
        interval, max_backoff=interval, grace=3600.0, least_look_within=1800.0
    )
    with WarmRunners(request.sides, request.execution, 60.0, is_for_one=True) as runners:
        service = Service(
            one, runners, in_thread, settings, report_line, report_line, show(stop), policy=one
        )
        service.run(_leave)


def _ignored(*_arguments: object) -> None:
    return None


def _leave() -> NoReturn:
    raise AssertionError("a storage does not answer")
