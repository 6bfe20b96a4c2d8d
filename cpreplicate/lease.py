"""The lease: one run at a time writes to a replica.

`.cpreplicate/lease` is created exclusively and tells who holds it. A heartbeat renews it; one whose holder died on
this host, or whose time ran out, is taken over, by one contender only: by moving it away, or by a conditional put.
"""

from __future__ import annotations

import getpass
import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from typing import Any

from cpreplicate import uri
from cpreplicate.errors import LeaseHeld
from cpreplicate.placement import OWN
from cpreplicate.storage import Site

SECONDS = 120.0  # a holder that could not renew for so long has lost it
_HEARTBEAT = 20.0
_LONGEST = 1 << 16  # bytes; no lease is near


class Lease:
    """A lease that this process took; `check` before anything that cannot be taken back."""

    def __init__(self, replica: str, site: Site) -> None:
        self._place = uri.join(replica, f"{OWN}/lease")
        self._storage = site.storage(replica)
        self._token = uuid.uuid4().hex
        self._started = self._renewed = time.time()
        self._stop = threading.Event()
        self._renewer = threading.Thread(target=self._renew_until_stopped, name="lease", daemon=True)

    def take(self) -> None:
        """Take it, or raise `LeaseHeld` naming who holds it since when."""
        try:
            taken = self._create() or self._take_over_stale()
        except OSError as error:
            raise type(error)(error.errno, f"the lease {self._place} cannot be taken: {error.strerror or error}") from error
        if not taken:
            raise LeaseHeld(_refusal(self._place, _held(self._read())))
        self._renewer.start()

    def check(self) -> None:
        """Raise `LeaseHeld` if another run took the lease over, or may at any moment."""
        if time.time() > self._renewed + SECONDS:
            raise LeaseHeld(
                f"this run could not renew {self._place} for {SECONDS:.0f} s and stopped before publishing or deleting"
            )
        held = _held(self._read())
        if _token(held) != self._token:
            raise LeaseHeld("this run lost its lease and stopped before publishing or deleting: " + _refusal(self._place, held))

    def give_back(self) -> None:
        """Stop renewing and remove the lease, unless it is no longer ours."""
        self._stop.set()
        if self._renewer.is_alive():
            self._renewer.join()
        if _token(_held(self._read())) == self._token:
            self._storage.delete(self._place)

    def _create(self) -> bool:
        return self._storage.create_exclusive(self._place, self._text())

    def _text(self) -> bytes:
        return json.dumps({
            "token": self._token, "owner": getpass.getuser(), "host": socket.gethostname(), "pid": os.getpid(),
            "started": self._started, "expires": time.time() + SECONDS,
        }).encode()  # fmt: skip

    def _read(self) -> bytes | None:
        try:
            with self._storage.open(self._place) as stream:
                return stream.read(_LONGEST)
        except FileNotFoundError:
            return None

    def _take_over_stale(self) -> bool:
        seen = self._read()
        if seen is None:
            return self._create()
        return _is_stale(_held(seen) or {}) and self._storage.take_over(self._place, seen, self._text())

    def _renew_until_stopped(self) -> None:
        while not self._stop.wait(_HEARTBEAT):
            try:
                if _token(_held(self._read())) != self._token:
                    return  # lost: `check` tells the run before it publishes or deletes
                self._storage.put(self._place, lambda: [self._text()])
            except OSError:
                continue  # tried again at the next beat; `check` refuses once the lease ran out
            self._renewed = time.time()


@contextmanager
def held(replica: str, site: Site) -> Iterator[Callable[[], None]]:
    """Hold the lease of a replica; yields the check to be made before each irrevocable step."""
    lease = Lease(replica, site)
    lease.take()
    try:
        yield lease.check
    except BaseException:
        with suppress(OSError):  # why the run ended is what counts; a lease that stays is taken over when it expires
            lease.give_back()
        raise
    lease.give_back()


def _held(text: bytes | None) -> dict[str, Any] | None:
    """What a lease tells of its holder; nothing if it is damaged, None if it is gone."""
    if text is None:
        return None
    try:
        held = json.loads(text)
    except ValueError:
        return {}
    return held if isinstance(held, dict) else {}


def _token(held: dict[str, Any] | None) -> object:
    return held.get("token") if held is not None else None


def _is_stale(held: dict[str, Any]) -> bool:
    expires = held.get("expires")
    if isinstance(expires, (int, float)) and expires < time.time():
        return True
    return held.get("host") == socket.gethostname() and not _is_alive(held.get("pid"))


def _is_alive(pid: object) -> bool:
    if not isinstance(pid, int) or pid <= 0:
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


def _refusal(place: str, held: dict[str, Any] | None) -> str:
    if not held:
        return f"{place} is {'gone' if held is None else 'damaged'}; remove it once you are sure that no run is at work"
    started = held.get("started")
    since = _clock(started) if isinstance(started, (int, float)) else "an unknown time"
    who = f"{held.get('owner', 'unknown')}@{held.get('host', 'unknown')}, process {held.get('pid', 'unknown')}"
    return f"{place} is held by {who}, since {since}; wait for that run to end"


def _clock(seconds: float) -> str:
    try:
        return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="seconds")
    except (ValueError, OverflowError, OSError):
        return "an unknown time"
