"""Try what a change of a replica does, and remove what that wrote.

A dry run ends as the change would: without the right to write, on a read-only disk, in safe mode.
"""

from __future__ import annotations

import errno
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

from cpreplicate.core import uri
from cpreplicate.core.notify import Notify
from cpreplicate.core.placement import OWN
from cpreplicate.errors import LeaseHeld, NoSpace, is_full
from cpreplicate.protocol import lease_safety
from cpreplicate.protocol.lease import PATH, Lease
from cpreplicate.protocol.replica import Replica
from cpreplicate.protocol.replica_state import State
from cpreplicate.storage import TEMPORARY, Storage
from cpreplicate.storage.base import room_of

_CONTENT = b"written by a check of cpreplicate, which removes it again\n"


class Probe:
    """One file, with which each verb of a change is tried; `within` is its place in messages.

    `offset` is by how many seconds the clock of the storage is ahead of this machine's, None as
    long as nothing was written.
    """

    def __init__(self, storage: Storage, file: str, within: str) -> None:
        self.offset: float | None = None
        self.within = within
        self._storage, self._file = storage, file

    def steps(self) -> Iterator[tuple[str, Callable[[], object]]]:
        """Yield the verbs, each with what it is called in a message. Each raises `OSError`."""
        yield f"write below {self.within}", self._write
        yield f"read what was written below {self.within}", self._read
        yield f"create a lease below {self.within}", self._create_exclusively
        yield f"delete what was written below {self.within}", self._delete

    def give_up(self) -> None:
        """Remove what was written, as far as that can be done."""
        with suppress(OSError):
            self._storage.delete(self._file)

    def _write(self) -> None:
        started = time.time()
        self._storage.put(self._file, lambda: [_CONTENT])
        ended, status = time.time(), self._storage.stat(self._file)
        if status is None:
            raise OSError(errno.EIO, "the file that was just written is not there", self._file)
        self.offset = ahead(status.modified, started, ended)

    def _read(self) -> None:
        if self._storage.read(self._file) != _CONTENT:
            raise OSError(errno.EIO, "the file has not the content that was written", self._file)

    def _create_exclusively(self) -> None:
        """Fail if two runs could hold a lease. Of object stores, the conditions are tried apart."""
        if self._storage.needs_conditions:
            return
        name = f"{self._file}-exclusive"
        first = self._storage.create_exclusive(name, b"first")
        if not first or self._storage.create_exclusive(name, b"second"):
            raise OSError(errno.ENOTSUP, "the storage does not create files exclusively", name)
        self._storage.delete(name)

    def _delete(self) -> None:
        if not self._storage.delete(self._file):
            raise OSError(errno.EIO, "the file was gone before it was deleted", self._file)


def ahead(shown: float, earliest: float, latest: float) -> float:
    """Return how many seconds a clock is ahead, which showed a time between two own times.

    A service may cut its time to whole seconds.
    """
    if shown + 1 < earliest:
        return shown + 1 - earliest
    return max(0.0, shown - latest)


def refuse_held(replica: Replica) -> None:
    """Raise `LeaseHeld` if another run holds the lease, as taking it would."""
    refusal = Lease(replica.root, replica.side).refusal()
    if refusal is not None:
        raise LeaseHeld(refusal)


def try_opened(
    replica: Replica, state: State, command: str, notify: Notify, only_removes: bool = False
) -> None:
    """Raise as `try_change`, and as `change.opened` where the storage cannot hold a lease.

    A command that `only_removes` writes nothing but its lease, for which a full disk may have room.
    """
    try:
        try_change(replica, command)
    except NoSpace:
        if not (only_removes and _has_room(replica)):
            raise
    lease_safety.has_conditions(replica, state, notify)


def _has_room(replica: Replica) -> bool:
    return replica.storage.stat(replica.uri_of(room_of(PATH))) is not None


def try_change(replica: Replica, command: str, checkpoints: Sequence[str] = ()) -> None:
    """Raise the `OSError`, or `NoSpace`, with which a command that changes a replica would end.

    What it writes in `.cpreplicate/`, and in the directories of the `checkpoints` that it rewrites,
    is tried with a file of a name that every command takes for temporary, and removed again.
    """
    for directory in (OWN, *checkpoints):
        place = replica.uri_of(directory)
        storage = replica.side.storage(place, replica.root)  # without the lease
        _try(Probe(storage, uri.join(place, _file_name()), place), command)


def try_sync(replica: Replica, target_root: str) -> None:
    """Raise the `OSError`, or `NoSpace`, with which a sync, also a first one, ends.

    Without the replica, it is tried in the target root, or not at all if that is not there either.
    """
    if replica.children():
        try_change(replica, "sync")
        return
    storage = replica.side.storage(target_root)
    if storage.stat(target_root) is not None:
        _try(Probe(storage, uri.join(target_root, _file_name()), target_root), "sync")


def _file_name() -> str:
    return f"{TEMPORARY}probe-{uuid.uuid4().hex}"


def _try(probe: Probe, command: str) -> None:
    for step, act in probe.steps():
        try:
            act()
        except OSError as error:
            probe.give_up()
            reason = f"{command} would fail: cannot {step}: {error.strerror or error}"
            if is_full(error):
                raise NoSpace(f"{reason}. Free some space, and run again") from error
            raise type(error)(error.errno, reason, error.filename or probe.within) from error
