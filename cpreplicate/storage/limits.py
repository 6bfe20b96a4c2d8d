"""Limits on calls and bytes that hold for a whole run, however many processes take part.

One ledger, in the process that started the run, tells everybody how long to wait; executors ask it over a socket.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol

from cpreplicate.storage.base import Storage, Transient
from cpreplicate.storage.wrapped import Wrapped

if TYPE_CHECKING:
    from multiprocessing.connection import Connection, Listener

_WRITING = ("put", "create_exclusive", "take_over")
_BURST = 0.1  # seconds of unused allowance that may be used later: enough to be smooth, too little to be noticed


class Limits(NamedTuple):
    """What a run may do: metadata operations a second against each cluster, bytes a second in all. Travels to executors.

    `address` and `key` are of the ledger's server; without them the ledger is in this process, under `run`.
    """

    calls: float | None = None
    bandwidth: float | None = None
    run: str = ""
    address: tuple[str, int] | None = None
    key: bytes = b""

    @property
    def any(self) -> bool:
        """Whether anything is limited at all."""
        return self.calls is not None or self.bandwidth is not None


class Pace(Protocol):
    """Tells how long to wait."""

    def reserve(self, what: str, amount: float) -> float:
        """Reserve an amount of `calls …` or `bytes`; the seconds to wait before using it."""


class Ledger:
    """Who may do how much when: for each of what is limited, the instant from which more may be used."""

    def __init__(self, rates: Mapping[str, float | None], clock: Callable[[], float] = time.monotonic) -> None:
        self._rates = rates
        self._clock = clock
        self._free: dict[str, float] = {}
        self._lock = threading.Lock()

    def reserve(self, what: str, amount: float) -> float:
        """See `Pace`. What is reserved is gone, whether used or not."""
        rate = self._rates.get(what.partition(" ")[0])
        if rate is None:
            return 0.0
        with self._lock:
            now = self._clock()
            begin = max(self._free.get(what, 0.0), now - _BURST)
            self._free[what] = begin + amount / rate
            return max(0.0, begin - now)


class _Remote:
    """The ledger of another process."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._lock = threading.Lock()
        self._connection: Connection | None = None

    def reserve(self, what: str, amount: float) -> float:
        """See `Pace`. Raises `Transient` where the run that limits this one cannot be reached."""
        from multiprocessing import AuthenticationError
        from multiprocessing.connection import Client

        try:
            with self._lock:
                if self._connection is None:
                    assert self._limits.address is not None  # else this process holds the ledger
                    self._connection = Client(self._limits.address, authkey=self._limits.key)
                self._connection.send((what, amount))
                return float(self._connection.recv())
        except (OSError, EOFError, AuthenticationError) as error:
            self._connection = None
            raise Transient(errno.EIO, f"the driver, which holds the run's limits, cannot be reached: {error}") from error


@functools.cache
def _ledger(run: str, calls: float | None, bandwidth: float | None) -> Ledger:  # noqa: ARG001  # one for each run
    return Ledger({"calls": calls, "bytes": bandwidth})


@functools.cache
def pace(limits: Limits) -> Pace:
    """The ledger of a run, one a process."""
    return _Remote(limits) if limits.address is not None else _ledger(limits.run, limits.calls, limits.bandwidth)


def wait(limits: Limits, what: str, amount: float) -> None:
    """Wait until an amount of `calls …` or `bytes` may be used; at once where nothing is limited."""
    if limits.any:
        time.sleep(pace(limits).reserve(what, amount))


def new_limits(calls: float | None, bandwidth: float | None) -> Limits:
    """The limits of a new run, kept in this process."""
    return Limits(calls, bandwidth, uuid.uuid4().hex) if calls is not None or bandwidth is not None else Limits()


@contextlib.contextmanager
def served(limits: Limits, host: str) -> Iterator[Limits]:
    """The same limits for other processes, which ask for them at `host` for as long as the block runs."""
    if not limits.any:
        yield limits
        return
    server = _Server(pace(limits), host)
    try:
        yield limits._replace(address=server.address, key=server.key)
    finally:
        server.close()


class _Server:
    """Answers whoever knows the key, each in a thread."""

    def __init__(self, ledger: Pace, host: str) -> None:
        from multiprocessing.connection import Listener

        self.key = uuid.uuid4().bytes
        self._ledger = ledger
        self._listener: Listener = Listener((host, 0), backlog=128, authkey=self.key)
        self.address: tuple[str, int] = self._listener.address
        self._connections: list[Connection] = []
        self._closed = False
        threading.Thread(target=self._accept, name="limits", daemon=True).start()

    def close(self) -> None:
        """Answer nobody any more."""
        self._closed = True
        with contextlib.suppress(OSError):
            socket.create_connection(self.address, 1).close()  # wakes the thread that waits for one
        self._listener.close()
        for connection in self._connections:
            with contextlib.suppress(OSError):
                connection.close()

    def _accept(self) -> None:
        from multiprocessing import AuthenticationError

        while not self._closed:
            try:
                connection = self._listener.accept()
            except (AuthenticationError, EOFError, OSError):
                continue  # somebody without the key, or who left before saying who it was; or the end
            self._connections.append(connection)
            threading.Thread(target=self._answer, args=(connection,), name="limits", daemon=True).start()

    def _answer(self, connection: Connection) -> None:
        with contextlib.suppress(EOFError, OSError):
            while not self._closed:
                what, amount = connection.recv()
                connection.send(self._ledger.reserve(what, amount))


class Limited(Wrapped):
    """Waits before each verb until the run may make so many more calls against this cluster."""

    def __init__(self, inner: Storage, limits: Limits, cluster: str) -> None:
        super().__init__(inner)
        self._limits, self._what = limits, f"calls {cluster}"

    def before(self, verb: str, uri: str) -> None:  # noqa: ARG002  # a call costs the same everywhere
        wait(self._limits, self._what, self.put_calls if verb in _WRITING else 1)
