"""The lease: one run at a time writes to a replica.

`.cpreplicate/lease` is created exclusively, tells who holds it, and is never written again: the
heartbeat goes to a file of the holder's own beside it. One whose holder died on this host, or whose
time ran out, is taken over, by one contender only (`Storage.take_over`). The holder takes it for
lost half a minute before others may take it, as clocks differ.
"""

from __future__ import annotations

import random
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from cpreplicate.core import uri
from cpreplicate.core.placement import OWN
from cpreplicate.errors import LeaseHeld
from cpreplicate.protocol import json_files
from cpreplicate.protocol.processes import is_alive, own_process
from cpreplicate.storage import Side

NAME = "lease"
SECONDS = 120.0  # after the last heartbeat another run may take it over
_OWN_SECONDS = SECONDS - 30.0  # after it the holder does nothing more that counts
_HEARTBEAT = 20.0
_FIRST_LOOK, _LONGEST_LOOK = 0.2, 5.0  # seconds between two tries to take it
_WAITING_IS_TOLD_AFTER = 1.0
Notify = Callable[[str], None]


class LeaseToken(NamedTuple):
    """A lease as whoever works for its holder knows it, on any host."""

    place: str
    token: str

    def check(self, side: Side) -> None:
        """Raise `LeaseHeld` if another run took it over."""
        holder = json_files.parse(json_files.read(side.storage(self.place), self.place))
        if _secret_of(holder) != self.token:
            raise LeaseHeld(
                "this run lost its lease and stopped before publishing or deleting: "
                + _refusal(self.place, holder)
            )


class Lease:
    """A lease that this process took; `check` before anything that cannot be taken back."""

    def __init__(self, replica: str, side: Side) -> None:
        self.token = LeaseToken(uri.join(replica, f"{OWN}/{NAME}"), uuid.uuid4().hex)
        self._place, self._secret = self.token
        self._side, self._storage = side, side.storage(replica)
        self._started = self._renewed = json_files.now()
        self._has_beaten = self._is_delegated = False
        self._stop = threading.Event()
        self._renewer = threading.Thread(
            target=self._renew_until_stopped, name="lease", daemon=True
        )

    def take(self, wait: float, notify: Notify) -> None:
        """Take it within `wait` seconds, or raise `LeaseHeld` naming who holds it since when."""
        until, pause = time.monotonic() + wait, _FIRST_LOOK
        while not self._try():
            left = until - time.monotonic()
            if left <= 0:
                raise LeaseHeld(_refusal(self._place, json_files.parse(self._read(self._place))))
            if pause > _WAITING_IS_TOLD_AFTER > pause / 2:
                notify(
                    f"waiting {left:.0f} s at most:"
                    f" {_refusal(self._place, json_files.parse(self._read(self._place)))}"
                )
            time.sleep(min(left, pause * random.uniform(0.5, 1.0)))
            pause = min(2 * pause, _LONGEST_LOOK)
        self._renewer.start()

    def until(self) -> float:
        """Seconds since the epoch at which this run must take it for lost, unless renewed
        meanwhile.
        """
        return self._renewed + _OWN_SECONDS

    def delegate(self) -> None:
        """Have the lease outlive this process until it expires: others delete on its behalf, who
        may not notice its end.
        """
        self._is_delegated = True
        self._write_heartbeat()

    def check(self) -> None:
        """Raise `LeaseHeld` if another run took the lease over, or may soon."""
        if json_files.now() > self.until():
            raise LeaseHeld(
                f"this run could not renew {self._place} for {_OWN_SECONDS:.0f} s; it stopped"
                " before publishing or deleting"
            )
        self.token.check(self._side)

    def give_back(self) -> None:
        """Stop renewing and remove the lease, unless it is no longer ours or others may be about to
        take it over.
        """
        self._stop.set()
        if self._renewer.is_alive():
            self._renewer.join()
        if self._has_beaten:
            self._storage.delete(self._heartbeat_of(self._secret))
        if (
            json_files.now() < self.until()
            and _secret_of(json_files.parse(self._read(self._place))) == self._secret
        ):
            self._storage.delete(self._place)

    def _try(self) -> bool:
        try:
            self._started = self._renewed = json_files.now()
            return (
                self._storage.create_exclusive(self._place, self._text()) or self._take_over_stale()
            )
        except OSError as error:
            raise type(error)(
                error.errno, f"the lease {self._place} cannot be taken: {error.strerror or error}"
            ) from error

    def _text(self) -> bytes:
        return json_files.encoded({
            "token": self._secret, **json_files.signature(), **own_process(), "started": self._started, **self._beat(),
        })  # fmt: skip

    @staticmethod
    def _beat() -> dict[str, float]:
        return {"heartbeat": json_files.now(), "expires": json_files.now() + SECONDS}

    def _heartbeat_of(self, token: str) -> str:
        return f"{self._place}-{token}.heartbeat"

    def _read(self, place: str) -> bytes | None:
        return json_files.read(self._storage, place)

    def _take_over_stale(self) -> bool:
        seen = self._read(self._place)
        if seen is None:
            return self._storage.create_exclusive(self._place, self._text())
        return self._is_stale(json_files.parse(seen) or {}) and self._storage.take_over(
            self._place, seen, self._text()
        )

    def _is_stale(self, holder: dict[str, Any]) -> bool:
        """Nobody works for it any more: its process is gone, and no executor of it is left, or its
        time has passed.
        """
        beat = self._last_heartbeat(holder)
        is_expired = _is_past(holder) and (not beat or _is_past(beat))
        return is_expired or (not is_alive(holder) and not beat.get("delegated"))

    def _last_heartbeat(self, holder: dict[str, Any]) -> dict[str, Any]:
        token = _secret_of(holder)
        if not isinstance(token, str) or not token.isalnum():
            return {}
        return json_files.parse(self._read(self._heartbeat_of(token))) or {}

    def _renew_until_stopped(self) -> None:
        while not self._stop.wait(_HEARTBEAT):
            try:
                if _secret_of(json_files.parse(self._read(self._place))) != self._secret:
                    return  # lost: `check` tells the run before it publishes or deletes
                self._write_heartbeat()
            except OSError:
                continue  # tried again at the next beat; `check` refuses once the lease ran out

    def _write_heartbeat(self) -> None:
        beat = self._beat()
        note = json_files.encoded({**beat, "delegated": self._is_delegated})
        self._has_beaten = True
        self._storage.put(self._heartbeat_of(self._secret), lambda: [note])
        self._renewed = beat["heartbeat"]


@contextmanager
def acquire(
    replica: str,
    side: Side,
    wait: float = 0.0,
    notify: Notify = lambda _line: None,
    absent: Sequence[str] = (),
) -> Iterator[Lease]:
    """Hold the lease of a replica, waiting for it so many seconds at most; it is to be checked
    before each irrevocable step.

    `absent`: directories that taking the lease creates, the deepest first. A block that ends by an
    exception and leaves them empty has them removed.
    """
    lease = Lease(replica, side)
    lease.take(wait, notify)
    try:
        yield lease
    except BaseException:
        # why the run ended is what counts; a lease that stays is taken over when it expires
        with suppress(OSError):
            lease.give_back()
            all(side.storage(place).rmdir(place) for place in absent)  # until one is not empty
        raise
    lease.give_back()


def _secret_of(holder: dict[str, Any] | None) -> object:
    return holder.get("token") if holder is not None else None


def _is_past(told: dict[str, Any]) -> bool:
    expires = told.get("expires")
    return isinstance(expires, (int, float)) and expires < json_files.now()


def _refusal(place: str, holder: dict[str, Any] | None) -> str:
    if not holder:
        return (
            f"{place} is {'gone' if holder is None else 'damaged'}; remove it once you are sure that"
            " no run is at work"
        )
    who = (
        f"{json_files.word(holder, 'owner')}@{json_files.word(holder, 'host')}, process"
        f" {json_files.word(holder, 'pid')}"
    )
    held_by = f"{place} is held by {who}, since {json_files.clock(holder, 'started')}"
    return f"{held_by}; wait for that run to end, or have this one wait with --lock-wait"
