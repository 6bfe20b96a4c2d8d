"""Limits on calls and bytes that hold for a whole run, however many processes take part.

One rate limiter, in the process that started the run, decides how long each process waits.
Executors ask it by RPC.
"""

from __future__ import annotations

import functools
import math
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from cpreplicate.core.timetable import Timetable, constant
from cpreplicate.errors import UsageError
from cpreplicate.storage.base import Storage
from cpreplicate.storage.rpc import RpcAddress, RpcClient
from cpreplicate.storage.waiting import cancellation
from cpreplicate.storage.wrappers.base import StorageWrapper

_WRITING = ("put", "create_exclusive", "take_over")
# seconds of unused allowance that may be used later: enough to be smooth, too little to be noticed
_BURST = 0.1
_SLICE = 0.5  # seconds between two checks for a cancellation
# seconds of the whole run's bytes by which a large piece is reserved: who wants few bytes does not
# wait for all of it
_TURN = 0.5
# seconds of the whole run's allowance that a process asks for at once; what it leaves unused is
# lost
_GRAIN = 0.002


class Limits(NamedTuple):
    """The limits of a run: metadata operations a second on each cluster, and bytes a second in all.

    They travel to executors. `address` is that of the rate limiter. Without it, the rate limiter is
    in this process, under `run`. The bytes are those of a timetable by this process' local time.
    """

    calls: float | None = None
    timetable: Timetable | None = None
    run: str = ""
    address: RpcAddress | None = None

    @property
    def any(self) -> bool:
        """Whether anything is limited."""
        return self.calls is not None or self.timetable is not None

    @property
    def bandwidth(self) -> float | None:
        """The bytes a second of now, None without a limit."""
        return None if self.timetable is None else self.timetable.at(_second_of_week())


def _second_of_week() -> int:
    """Return the second of the week by the local time."""
    now = time.localtime()
    return ((now.tm_wday * 24 + now.tm_hour) * 60 + now.tm_min) * 60 + now.tm_sec


class Turn(NamedTuple):
    """When what was asked for may be used: after so many seconds.

    With `again`, nothing was reserved: after these seconds it is asked for once more.
    """

    seconds: float
    again: bool = False


class Pace(Protocol):
    """A rate limiter, in this process or in another one."""

    def reserve(self, what: str, amount: float) -> Turn:
        """Reserve an amount of `calls …` or `bytes`. Return when it may be used."""


class RateLimiter:
    """A rate limiter: for each resource, the instant from which more of it may be used.

    `rates` are amounts a second, by the first word of a resource: each `calls CLUSTER` may have
    those of `calls`. A rate of a timetable is that of `second_of_week` when something is reserved.

    Bytes that take longer than `_TURN` are a large piece. It is used as soon as there is room for a
    part of it. The rest is a debt, which is paid by what nobody uses, and in turns by the next
    large piece before it begins. So large pieces come one after the other, and small ones between
    their turns.
    """

    def __init__(
        self,
        rates: Mapping[str, float | Timetable | None],
        clock: Callable[[], float] = time.monotonic,
        second_of_week: Callable[[], int] = _second_of_week,
    ) -> None:
        self._rates, self._second_of_week = rates, second_of_week
        self._clock = clock
        self._free: dict[str, float] = {}
        self._debt = 0.0  # bytes of a large piece that were used and not reserved yet
        self._paid = -math.inf  # until then no further part of a large piece is reserved
        self._lock = threading.Lock()

    def reserve(self, what: str, amount: float) -> Turn:
        """See `Pace`. A reservation counts, whether it is used or not."""
        rate = self._rates.get(what.partition(" ")[0])
        if isinstance(rate, Timetable):
            rate = rate.at(self._second_of_week())
        if rate is None:
            return Turn(0.0)
        with self._lock:
            now = self._clock()
            if what != "bytes":
                return Turn(self._take(what, amount, rate, now))
            self._pay_by_rest(rate, now)
            if amount <= rate * _TURN:
                return Turn(self._take(what, amount, rate, now))
            return self._begin_large(amount, rate, now)

    def _take(self, what: str, amount: float, rate: float, now: float) -> float:
        """Reserve an amount; return the seconds until it may be used."""
        begin = max(self._free.get(what, 0.0), now - _BURST)
        self._free[what] = begin + amount / rate
        return max(0.0, begin - now)

    def _pay_by_rest(self, rate: float, now: float) -> None:
        """Pay the debt by what nobody used until now."""
        if self._debt > 0:
            paid = min(self._debt, max(0.0, now - self._free["bytes"]) * rate)
            self._debt -= paid
            self._free["bytes"] += paid / rate

    def _begin_large(self, amount: float, rate: float, now: float) -> Turn:
        """Begin a large piece, or pay a part of the debt of the one before."""
        if self._debt > 0 and self._paid > now:
            return Turn(self._paid - now, again=True)
        has_debt = self._debt > 0
        part = min(self._debt, rate * _TURN) if has_debt else rate * _TURN
        self._debt = self._debt - part if has_debt else amount - part
        wait = self._take("bytes", part, rate, now)
        self._paid = self._free["bytes"]
        return Turn(self._paid - now, again=True) if has_debt else Turn(wait)


class _Remote:
    """A client of the rate limiter in another process.

    It reserves so much at a time that it makes at most a few hundred calls a second.
    """

    def __init__(self, limits: Limits, address: RpcAddress) -> None:
        self._client = RpcClient(address)
        self._grains = {
            "calls": (limits.calls or 0.0) * _GRAIN,
            "bytes": (limits.timetable.highest or 0.0 if limits.timetable else 0.0) * _GRAIN,
        }
        self._lock = threading.Lock()
        self._left: dict[str, float] = {}

    def reserve(self, what: str, amount: float) -> Turn:
        """See `Pace`. Raises `Transient` where the run that limits this one cannot be reached."""
        with self._lock:
            left = self._left.get(what, 0.0)
            if amount <= left:
                self._left[what] = left - amount
                return Turn(0.0)
            asked = max(amount - left, self._grains[what.partition(" ")[0]])
            turn = Turn(*self._client.call("reserve", what, asked))
            if not turn.again:
                self._left[what] = left + asked - amount
            return turn


@functools.cache
def _rate_limiter(
    run: str,  # noqa: ARG001  # each run has its own
    calls: float | None,
    timetable: Timetable | None,
) -> RateLimiter:
    return RateLimiter({"calls": calls, "bytes": timetable})


@functools.cache
def pace(limits: Limits) -> Pace:
    """Return the rate limiter of a run, one a process."""
    return (
        _Remote(limits, limits.address)
        if limits.address is not None
        else _rate_limiter(limits.run, limits.calls, limits.timetable)
    )


def wait(
    limits: Limits, what: str, amount: float, meanwhile: Callable[[], None] = lambda: None
) -> None:
    """Wait until an amount of `calls …` or `bytes` may be used; at once where nothing is limited.

    `meanwhile` is called now and then, and may raise to wait no longer.
    """
    if limits.any:
        take_turn(pace(limits), what, amount, meanwhile)


def take_turn(
    pace: Pace, what: str, amount: float, meanwhile: Callable[[], None] = lambda: None
) -> None:
    """Wait as `wait` does, at one rate limiter."""
    is_over = False
    while not is_over:
        turn = pace.reserve(what, amount)
        is_over = not turn.again
        until = time.monotonic() + turn.seconds
        while (left := until - time.monotonic()) > 0:
            time.sleep(min(left, _SLICE))
            meanwhile()


def new_limits(calls: float | None, bandwidth: float | Timetable | None) -> Limits:
    """Return the limits of a new run, whose rate limiter is in this process.

    Raises `UsageError` for a rate by which nothing can be divided.
    """
    _refuse_no_rate(calls)
    table = constant(bandwidth) if isinstance(bandwidth, (int, float)) else bandwidth
    for change in () if table is None else table.changes:
        _refuse_no_rate(change.rate)
    if table is not None and table.highest is None:
        table = None  # it limits nothing
    if calls is None and table is None:
        return Limits()
    return Limits(calls, table, uuid.uuid4().hex)


def _refuse_no_rate(rate: float | None) -> None:
    if rate is not None and not 0 < rate < math.inf:  # which no comparison with NaN is
        raise UsageError(f"a limit of {rate:g} a second is none. Give a number above 0, or None")


class Limited(StorageWrapper):
    """A wrapper that waits before each verb until the run may make more calls to this cluster."""

    def __init__(self, inner: Storage, limits: Limits, cluster: str) -> None:
        super().__init__(inner)
        self._limits, self._what = limits, f"calls {cluster}"

    def before(self, verb: str, uri: str) -> None:  # noqa: ARG002  # a call costs the same everywhere
        if verb == "read":
            return  # of a file that is open: it asks for no metadata
        wait(
            self._limits, self._what, self.put_calls if verb in _WRITING else 1, cancellation.go_on
        )
