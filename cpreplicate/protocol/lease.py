"""The lease: one run at a time writes to a replica.

`.cpreplicate/lease` is created exclusively, names its holder, and is never written again. The
heartbeat goes to a file of the holder's own beside it. If the holder died on this host, or its time
ran out, one contender takes the lease over (`Storage.take_over`). The holder considers the lease
lost half a minute before others may take it over, because clocks differ.
"""

from __future__ import annotations

import random
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any, NamedTuple

from cpreplicate.core import uri
from cpreplicate.core.clock import Instant
from cpreplicate.core.notify import Notify
from cpreplicate.core.placement import OWN
from cpreplicate.errors import Cancelled, CpreplicateError, LeaseHeld, TargetGone, is_full
from cpreplicate.protocol import json_files
from cpreplicate.protocol.processes import is_alive, own_process
from cpreplicate.storage import TEMPORARY, Side
from cpreplicate.storage.waiting.cancellation import cancellable, go_on

NAME = "lease"
PATH = f"{OWN}/{NAME}"  # in the replica
SECONDS = 120.0  # after the last heartbeat, another run may take the lease over
HEARTBEAT = 20.0  # seconds between two heartbeats
JUST_CHECKED = 1.0  # seconds for which the check before the commit counts after it
TOLERATED_SKEW = 30.0  # seconds by which the clocks of two hosts may differ
# after the last heartbeat, the holder publishes and deletes no more
_OWN_SECONDS = SECONDS - TOLERATED_SKEW
_FAR = 10 * SECONDS  # a lease that expires later was written by a clock that is wrong
_ROOM = 4096  # bytes: a block, and more than a lease has
_SLICE = 0.5  # seconds between two checks for a cancellation
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 5.0  # seconds between two attempts to take it
_WAITING_IS_REPORTED_AFTER = 1.0  # seconds


class LeaseToken(NamedTuple):
    """A lease as those who work for its holder know it, on any host."""

    uri: str
    token: str

    @property
    def replica(self) -> str:
        """The URI of the replica."""
        return uri.parent(uri.parent(self.uri))

    def check(self, side: Side) -> None:
        """Raise `LeaseHeld` if another run took the lease over.

        Raises `TargetGone` if the replica's directory is not there any more.
        """
        storage = side.storage(self.uri)
        holder = json_files.parse(json_files.read(storage, self.uri))
        if _token_of(holder) == self.token:
            return
        if holder is None and storage.has_directories and storage.stat(self.replica) is None:
            raise TargetGone(
                f"{self.replica} is gone: it was unmounted, moved or removed during the run, which"
                " stopped before publishing or deleting. Mount it again, and run again"
            )
        raise LeaseHeld(
            "this run lost its lease and stopped before publishing or deleting: "
            + _refusal(self.uri, holder)
        )


def _sleep(seconds: float) -> None:
    """Pause, unless the work of this thread is cancelled."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        go_on()
        time.sleep(min(left, _SLICE))
    go_on()


class Lease:
    """A lease that this process took. Call `check` before each step that cannot be undone.

    `makes_root`: the directory of the replica is made if it is not there.
    """

    def __init__(
        self, replica: str, side: Side, heartbeat: float = HEARTBEAT, makes_root: bool = True
    ) -> None:
        self.token = LeaseToken(uri.join(replica, PATH), uuid.uuid4().hex)
        self._uri, self._secret = self.token
        self._side, self._storage = side, side.storage(replica, replica)
        self._creating = side.storage(replica) if makes_root else self._storage
        self._heartbeat = heartbeat
        self._started = self._renewed = json_files.now()
        self._checked: Instant | None = None  # when the lease was read last, and was this run's
        self._asked: Instant | None = None  # when it was asked ahead to read it, for a check
        self._checking = threading.Lock()
        self._has_beaten = self._is_delegated = self._is_left = False
        self._keeps_room = False
        self._may_be_there = False  # whether the lease may have been created
        self._loss: CpreplicateError | None = None  # what the heartbeat found
        self._stop = threading.Event()
        self._renewer = threading.Thread(
            target=self._renew_until_stopped, name="lease", daemon=True
        )

    def take(self, wait: float, notify: Notify) -> None:
        """Take the lease within `wait` seconds, or raise `LeaseHeld`, which names the holder."""
        until, pause = time.monotonic() + wait, _FIRST_PAUSE
        _note(self)
        while not self._try():
            left = until - time.monotonic()
            if left <= 0:
                raise LeaseHeld(self._held_by())
            if pause > _WAITING_IS_REPORTED_AFTER > pause / 2:
                notify(f"waiting {left:.0f} s at most: {self._held_by()}")
            _sleep(min(left, pause * random.uniform(0.5, 1.0)))
            pause = min(2 * pause, _LONGEST_PAUSE)
        self._renewer.start()

    def refusal(self) -> str | None:
        """Return why the lease could not be taken now, which names the holder; None if it could.

        Nothing is changed.
        """
        holder = self._holder()
        is_free = holder is None or self._is_stale(holder)
        return None if is_free else self._held_by()

    def _held_by(self) -> str:
        holder = self._holder()
        if holder and self._is_stale(holder):
            return _taken_over(self._uri, holder)
        return _refusal(self._uri, holder, self._last_heartbeat(holder or {}))

    @property
    def aside(self) -> str:
        """The URI by which this run withdraws a `_metadata`, until another run fences it."""
        return self._aside_uri(self._secret)

    @property
    def counts(self) -> float:
        """For how many seconds a check counts where another one would be a round trip."""
        return JUST_CHECKED if self._storage.answers_ahead else 0.0

    def until(self) -> float:
        """Return when this run must consider the lease lost, in seconds since the epoch.

        Each heartbeat extends it.
        """
        return self._renewed + _OWN_SECONDS

    def delegate(self) -> None:
        """Let the lease outlive this process until it expires.

        Executors delete on its behalf, and may not notice its end.
        """
        self._is_delegated = True
        self._write_heartbeat()

    def keep_room(self) -> None:
        """Keep room for leases of later runs, now and at the end of this one.

        A filesystem that others fill, at whatever time, has none, and a sweep, which frees some,
        needs a lease.
        """
        self._keeps_room = True
        with suppress(OSError):
            self._storage.keep_room(self._uri, _ROOM)

    def keep_no_room(self) -> None:
        """Leave no file for later leases behind: the replica is removed."""
        self._keeps_room = False

    def leave(self) -> None:
        """Let the lease expire instead of giving it back, and renew it no more.

        Executors that cannot be reached may still delete on its behalf until then.
        """
        self._is_left = True
        self._stop.set()

    def check(self, seconds: float = 0.0) -> None:
        """Raise `LeaseHeld` if another run took the lease over, or soon may.

        The lease is not read again if it was, less than `seconds` ago.
        """
        if json_files.now() > self.until():
            raise LeaseHeld(
                f"this run could not renew {self._uri} for {_OWN_SECONDS:.0f} s and stopped before"
                " publishing or deleting. Run again"
            )
        with self._checking:  # threads that check at once do not all read it
            if not self._is_just_checked(seconds):
                self._read_again()

    def _read_again(self) -> None:
        began, self._asked = self._asked or Instant.now(), None
        try:
            self.token.check(self._side)
        except CpreplicateError:
            self._checked = None  # an earlier check counts no more
            raise
        self._checked = began  # or later, if what was asked ahead did not count any more

    def ask(self, seconds: float = 0.0) -> None:
        """Begin to read the lease for a `check` that comes soon, after some other round trip.

        Nothing is read if the lease was just read, as of `check`. What is read counts for
        `JUST_CHECKED` seconds, whoever asked for it first.
        """
        if self._is_just_checked(seconds):
            return
        self._asked = self._asked or Instant.now()  # an earlier answer may be there still
        json_files.ask(self._side.storage(self._uri), self._uri, JUST_CHECKED)

    def _is_just_checked(self, seconds: float) -> bool:
        return self._checked is not None and self._checked.age() < seconds

    def go_on(self) -> None:
        """Raise `LeaseHeld` or `TargetGone` once a heartbeat has found the lease lost.

        Costs no call. A heartbeat that did not reach the storage has found nothing.
        """
        if self._loss is not None:
            raise type(self._loss)(str(self._loss))

    def refuse_lost(self) -> None:
        """Raise as `check` if the lease is another run's or is gone; ask the storage.

        Raises nothing if that cannot be found out, nor before the lease was taken.
        """
        self.go_on()
        if self._may_be_there:
            self._checked = None  # the end of the lease asks again: this may be an earlier answer
            with suppress(OSError):
                self.token.check(self._side)

    def give_back(self) -> None:
        """Stop renewing the lease and remove it, unless it is, or soon may be, another run's.

        It stays after `leave`. May be called again, as after an interrupt.
        """
        self.renew_no_more()
        if self._renewer.is_alive():
            self._renewer.join()
        if self._is_left or not self._may_be_there:
            return
        if self._has_beaten:
            self._storage.delete(self._heartbeat_uri(self._secret))
        if json_files.now() < self.until() and self._is_own():
            if self._keeps_room:  # this lease may have used it up
                self._storage.delete_into_room(self._uri)
            else:
                self._storage.delete(self._uri)
        self._may_be_there = False

    def renew_no_more(self) -> None:
        """End the heartbeat: the lease expires unless it is given back."""
        self._stop.set()

    @property
    def may_be_there(self) -> bool:
        """Whether the lease was taken, or perhaps was, and was not given back."""
        return self._may_be_there

    def _try(self) -> bool:
        """Return whether the lease was taken. Of one that is interrupted that is not known."""
        try:
            self._started, began = json_files.now(), Instant.now()
            self._renewed = self._started
            self._may_be_there = True
            is_created = self._creating.create_exclusive(self._uri, self._content())
            self._may_be_there = is_created or self._take_over_stale()
            if self._may_be_there:
                self._checked = began
            return self._may_be_there
        except OSError as error:
            reason = f"the lease cannot be taken: {error.strerror or error}{_room_for(error)}"
            raise type(error)(error.errno, reason, self._uri) from error

    def _content(self) -> bytes:
        fields = {
            "token": self._secret,
            **json_files.signature(),
            **own_process(),
            "started": self._started,
            **self._beat(),
        }
        return json_files.encoded(fields)

    @staticmethod
    def _beat() -> dict[str, float]:
        return {"heartbeat": json_files.now(), "expires": json_files.now() + SECONDS}

    def _heartbeat_uri(self, token: str) -> str:
        return f"{self._uri}-{token}.heartbeat"

    def _aside_uri(self, token: str) -> str:
        # a temporary file: every version removes one that was left
        return uri.join(uri.parent(self._uri), f"{TEMPORARY}withdrawn-{token}")

    def _holder(self) -> dict[str, Any] | None:
        return json_files.parse(json_files.read(self._storage, self._uri))

    def _is_own(self) -> bool:
        """Return whether the lease is that of this run still.

        What a heartbeat found is newer than an answer that was asked ahead.
        """
        if self._loss is not None:
            return False
        return self._is_just_checked(self.counts) or _token_of(self._holder()) == self._secret

    def _take_over_stale(self) -> bool:
        data = json_files.read(self._storage, self._uri)
        if data is None:
            return self._creating.create_exclusive(self._uri, self._content())
        holder = json_files.parse(data) or {}
        if not self._is_stale(holder):
            return False
        self._fence(holder)
        return self._storage.take_over(self._uri, data, self._content())

    def _fence(self, holder: dict[str, Any]) -> None:
        """Let a holder that was only held up withdraw no more.

        It is done before the lease is taken over: who dies between the two leaves no gap.
        """
        token = _token_of(holder)
        if is_alive(holder) and isinstance(token, str) and token.isalnum():
            self._storage.fence(self._aside_uri(token))

    def _is_stale(self, holder: dict[str, Any]) -> bool:
        """Return whether nobody works under the lease any more.

        Either its time is over, or its process died and no executor works for that.
        """
        beat = self._last_heartbeat(holder)
        is_expired = _is_past(holder) and (not beat or _is_past(beat))
        return is_expired or (not is_alive(holder) and not beat.get("delegated"))

    def _last_heartbeat(self, holder: dict[str, Any]) -> dict[str, Any]:
        token = _token_of(holder)
        if not isinstance(token, str) or not token.isalnum():
            return {}
        return json_files.parse(json_files.read(self._storage, self._heartbeat_uri(token))) or {}

    def _renew_until_stopped(self) -> None:
        while not self._stop.wait(self._heartbeat):
            try:
                self.token.check(self._side)
                self._write_heartbeat()
            except OSError:
                continue  # the next beat tries again, and `check` raises once the time is over
            except CpreplicateError as error:
                self._loss = error  # what works under the lease ends: `go_on`
                return

    def _write_heartbeat(self) -> None:
        beat = self._beat()
        data = json_files.encoded({**beat, "delegated": self._is_delegated})
        self._has_beaten = True
        self._storage.put(self._heartbeat_uri(self._secret), lambda: [data])
        self._renewed = beat["heartbeat"]


@contextmanager
def acquire(
    replica: str,
    side: Side,
    wait: float = 0.0,
    notify: Notify = lambda _line: None,
    absent: Sequence[str] = (),
    heartbeat: float = HEARTBEAT,
    makes_root: bool = True,
) -> Iterator[Lease]:
    """Hold the lease of a replica while the block runs. Wait for it at most `wait` seconds.

    A heartbeat that finds it lost ends what waits or works in the block. Whatever fails in a run
    that lost its lease, `LeaseHeld` is raised, or `TargetGone`. `absent`: directories that taking
    the lease creates, the deepest first. If the block ends by an exception and leaves them empty,
    they are removed. `heartbeat`: seconds between two heartbeats. `makes_root` is as of `Lease`.
    """
    lease = Lease(replica, side, heartbeat, makes_root)
    try:  # an interrupt may come at any time
        lease.take(wait, notify)
        try:
            with cancellable(lease.go_on):
                yield lease
        except (CpreplicateError, OSError) as error:
            _raise_if_lost(lease, error)
            raise
        lease.give_back()
    except BaseException:
        # The reason why the run ended matters more. A lease that stays is taken over once it
        # expires.
        with suppress(OSError):
            _give_back(lease, absent, side)
        raise
    finally:
        lease.renew_no_more()


def _raise_if_lost(lease: Lease, error: Exception) -> None:
    if isinstance(error, (LeaseHeld, TargetGone, Cancelled)):
        return
    try:
        lease.refuse_lost()
    except CpreplicateError as lost:
        raise lost from error


def _give_back(lease: Lease, absent: Sequence[str], side: Side) -> None:
    was_there = lease.may_be_there
    lease.give_back()
    if was_there:
        # until one is not empty
        all(side.storage(directory).rmdir(directory) for directory in absent)


_taken: ContextVar[list[Lease] | None] = ContextVar("taken", default=None)


def _note(lease: Lease) -> None:
    taken = _taken.get()
    if taken is not None:
        taken.append(lease)


class NoLeaseLeft:
    """A context manager: leases that this thread takes in the block end with it, whatever happens.

    An exception of a signal handler may come where nothing handles it: right after `acquire` has
    begun, and before its block has. It may be kept, as a notebook keeps the last one, and with it
    all that it came through.
    """

    def __enter__(self) -> None:
        self._former = _taken.set([])

    def __exit__(self, *_: object) -> None:
        taken = _taken.get() or []
        for lease in taken:
            lease.renew_no_more()
        for lease in taken:
            with suppress(OSError):  # it expires
                lease.give_back()
        _taken.reset(self._former)


class Holder(NamedTuple):
    """Who holds a lease since when, in seconds since the epoch; None if that is damaged.

    `is_stale`: nobody works under it any more, and the next run takes it over.
    """

    owner: str
    host: str
    since: float | None
    is_stale: bool


def holder(replica: str, side: Side) -> Holder | None:
    """Return who holds the lease of a replica, or None if it is free. Nothing is changed."""
    lease = Lease(replica, side)
    fields = lease._holder()
    if fields is None:
        return None
    started = fields.get("started")
    return Holder(
        json_files.word(fields, "owner"),
        json_files.word(fields, "host"),
        float(started) if isinstance(started, (int, float)) else None,
        bool(fields) and lease._is_stale(fields),
    )


def _token_of(holder: dict[str, Any] | None) -> object:
    return holder.get("token") if holder is not None else None


def _is_past(fields: dict[str, Any]) -> bool:
    expires = fields.get("expires")
    return isinstance(expires, (int, float)) and expires < json_files.now()


def _room_for(error: OSError) -> str:
    """Return how a full filesystem gets room for a lease where none was kept."""
    if not is_full(error):
        return ""
    return (
        ". It takes one small file, for which no earlier run kept room. Remove one: of another"
        f" program, or a {TEMPORARY}… file in the replica that is older than a day"
    )


def _refusal(
    lease_uri: str, holder: dict[str, Any] | None, beat: dict[str, Any] | None = None
) -> str:
    """Return why a lease cannot be taken, and what to do; `beat` is its last heartbeat."""
    if holder is None:
        return f"{lease_uri} is gone: another run removed it. Run again"
    if not holder:
        return f"{lease_uri} is damaged: it does not show who holds it. {_removal('', lease_uri)}"
    user = f"{json_files.word(holder, 'owner')}@{json_files.word(holder, 'host')}"
    held = (
        f"{lease_uri} is held by {user}, process {json_files.word(holder, 'pid')}, since"
        f" {json_files.clock_of(holder, 'started')}"
    )
    latest = next((each for each in (holder, beat or {}) if _is_far(each)), None)
    if latest is None:
        return f"{held}. Wait for that run to end, or let this one wait with --lock-wait"
    process = (
        f"process {json_files.word(holder, 'pid')} on {json_files.word(holder, 'host')} has ended,"
        " and that "
    )
    return (
        f"{held}. It does not expire by itself before {json_files.clock_of(latest, 'expires')}: a"
        f" clock was wrong, or the file was changed. {_removal(process, lease_uri)}"
    )


def _taken_over(lease_uri: str, holder: dict[str, Any]) -> str:
    """Return why a lease cannot be taken that nobody works under any more."""
    user = f"{json_files.word(holder, 'owner')}@{json_files.word(holder, 'host')}"
    locked = f": `lslocks` shows who locks {uri.parent(lease_uri)}" if _is_local(lease_uri) else ""
    return (
        f"{lease_uri}, left by {user}, process {json_files.word(holder, 'pid')}, is being taken"
        f" over by another run, which has not finished that. Run again. If that run stands still,"
        f" end it{locked}"
    )


def _is_local(lease_uri: str) -> bool:
    return uri.filesystem(lease_uri) == "file:"


def _is_far(fields: dict[str, Any]) -> bool:
    """Return whether a lease or a heartbeat expires so late that its clock was wrong, or never."""
    if not fields:
        return False
    expires = fields.get("expires")
    # not `>`: no comparison holds for NaN
    return not (isinstance(expires, (int, float)) and expires <= json_files.now() + _FAR)


def _removal(process: str, lease_uri: str) -> str:
    """Return how a lease is removed safely that no run takes over."""
    return (
        f"Make sure that {process}no run of cpreplicate works on the replica, on any host. Then"
        f" delete the file {lease_uri} and nothing else, and run again"
    )
