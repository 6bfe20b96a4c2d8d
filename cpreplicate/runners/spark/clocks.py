"""The check that the clock of an executor shows what that of the driver shows.

The driver gives an executor a time until which it may delete, because another run may hold the
lease then. On an executor whose clock is behind, that time comes too late.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time

from cpreplicate.protocol.lease import TOLERATED_SKEW
from cpreplicate.runners.spark.executors import Differs
from cpreplicate.storage import Transient
from cpreplicate.storage.rpc import Answers, RpcClient

_log = logging.getLogger(__name__)


class DriverClock:
    """The driver's part of the check. It logs a warning for each host whose clock is off."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reported: set[str] = set()

    @property
    def answers(self) -> Answers:
        """The functions that tasks call by RPC."""
        return {"clock": time.time, "clock_differs": self._report}

    def _report(self, host: str, text: str) -> None:
        with self._lock:
            is_new = host not in self._reported
            self._reported.add(host)
        if is_new:
            _log.warning("%s. Its batches are given to other executors", text)


def check(client: RpcClient | None, sent: float, most: float = TOLERATED_SKEW) -> None:
    """Raise `Differs` if this host's clock is off by more seconds than a lease tolerates.

    `client` calls the driver, None if that cannot be reached. The driver sent the task at `sent`,
    by its own clock.
    """
    offset = _offset(client, sent)
    if abs(offset) <= most:
        return
    host, direction = socket.gethostname(), "ahead of" if offset > 0 else "behind"
    text = (
        f"the clock of the executor on {host} is {abs(offset):.0f} s {direction} the driver's, and"
        f" leases tolerate {most:.0f} s; synchronise both with NTP, see docs/clusters.md"
    )
    if client is not None:
        with contextlib.suppress(Transient):  # the reason of the failed task has it, too
            client.call("clock_differs", host, text)
    raise Differs(text)


def _offset(client: RpcClient | None, sent: float) -> float:
    """Return by how many seconds this clock is ahead of the driver's, at least."""
    began = time.time()
    try:
        driver = sent if client is None else float(client.call("clock"))
    except Transient:
        client, driver = None, sent
    ended = time.time()
    if ended < driver:
        return ended - driver
    # a task may have waited for long since it was sent
    return max(0.0, began - driver) if client is not None else 0.0
