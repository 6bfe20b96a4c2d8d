"""Call a URL while every job is replicated in time, so that its owner raises an alarm if not."""

from __future__ import annotations

import http.client
import math
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from urllib.parse import urlsplit

from cpreplicate.errors import UsageError
from cpreplicate.operations.jobs.observation import Observation
from cpreplicate.storage.waiting.side_call import SideCall, in_thread

_TIMEOUT = 5.0
_EVERY = 30.0  # seconds between two calls; healthchecks.io takes five a minute
_REPORT_EVERY = 60.0


def is_in_time(job: Observation, max_lag: float, now: float) -> bool:
    """Return whether a job was tried, is not lost, and lags by at most `max_lag` seconds.

    While its tries fail, the lag is that of what was seen last. So the last success must not be
    older either.
    """
    if not job.tries or job.is_lost or job.lag(now) > max_lag:
        return False
    return job.last_error is None or now - (job.last_success or -math.inf) <= max_lag


class Heartbeat:
    """Calls a URL with GET, at most every 30 s and in a thread of its own.

    A failed call is reported to `warn`, at most once a minute and without the path of the URL,
    which is a secret. No proxy is used, also if the environment names one. Raises
    `UsageError` if the URL is not one of HTTP.
    """

    def __init__(
        self,
        url: str,
        max_lag: float,
        warn: Callable[[str], None],
        every: float = _EVERY,
        clock: Callable[[], float] = time.time,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError("--heartbeat: expected a URL that begins with http:// or https://")
        self._url, self._place = url, f"{parts.scheme}://{parts.hostname}"
        self._max_lag, self._warn, self._every, self._clock = max_lag, warn, every, clock
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        self._called = self._reported = -math.inf
        self._calling: SideCall[None] | None = None

    def update(self, jobs: Sequence[Observation]) -> None:
        """Call the URL if every job is in time and a call is due. Return at once."""
        now = self._clock()
        is_due = now - self._called >= self._every
        is_calling = self._calling is not None and not self._calling.has_ended
        if is_calling or not is_due or not jobs:
            return
        if all(is_in_time(job, self._max_lag, now) for job in jobs):
            self._called = now
            # the end of the process does not wait for it
            self._calling = in_thread(self._call, "heartbeat")

    def _call(self) -> None:
        try:
            with self._opener.open(self._url, timeout=_TIMEOUT) as response:
                response.read(1024)
        except urllib.error.HTTPError as error:
            self._report(f"it answered with status {error.code}")
        except (OSError, http.client.HTTPException, ValueError) as error:
            self._report(str(getattr(error, "reason", error)) or type(error).__name__)

    def _report(self, reason: str) -> None:
        now = self._clock()
        if now - self._reported >= _REPORT_EVERY:
            self._reported = now
            self._warn(f"the heartbeat could not be sent to {self._place}: {reason}")
