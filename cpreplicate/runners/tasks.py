"""What runners execute: copies, reads and deletes, many files at once."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple, TypeAlias

from cpreplicate.errors import CopyFailed, CpreplicateError, UsageError, described
from cpreplicate.protocol.lease import LeaseToken
from cpreplicate.storage import DamagedFile, DamagedPart, ShortSource, SourceMissing, Unreachable
from cpreplicate.storage.transfer import around
from cpreplicate.storage.waiting import cancellation

# bytes; what a smaller file costs is waiting, so a task has many in flight, and few of the others
SMALL = 4 << 20


class Part(NamedTuple):
    """What is copied of a file at the target, and the CRC32C that was recorded for it.

    A member of a pack begins at `offset`. None is a file that is copied whole.
    """

    offset: int | None
    crc32c: int


class Copy(NamedTuple):
    """A copy of `source` to `target`, of at least `extent` bytes, or about `size` if that is more.

    `token` is set for a merged file, which grows: a run that lost its lease must not replace a
    longer copy of it. With a `pack`, the file becomes a member of a pack whose URI begins with this
    stem, and `target` is its logical URI. With a `part`, `source` is a file or a pack at the
    target, and exactly `extent` bytes of it are copied. No directory is made but below `inside`,
    the replica: it may be gone, as when its disk was unmounted.
    """

    source: str
    target: str
    extent: int
    size: int = 0
    token: LeaseToken | None = None
    pack: str | None = None
    part: Part | None = None
    inside: str = ""


class CopyRange(NamedTuple):
    """A copy of a range of `source`, from `offset` on, into a `file` that is joined of ranges.

    It has `extent` bytes. The last range of a file reaches to the end of the source: it has at
    least so many, or about `size` if that is more. `joint` is what `Storage.begin_join` returned
    for the file. `inside` is as of `Copy`.
    """

    source: str
    file: str
    offset: int
    extent: int
    size: int
    is_last: bool
    joint: str
    inside: str = ""

    @property
    def target(self) -> str:
        """What its outcome is known by."""
        return f"{self.file} from byte {self.offset}"


class Read(NamedTuple):
    """A read of `target`, of `extent` bytes, for its CRC32C.

    It is a file of its own, or the member of a `pack` that begins at `offset`. With itself for a
    pack, it is the beginning of a merged file.
    """

    target: str
    extent: int
    pack: str | None = None
    offset: int = 0


class Delete(NamedTuple):
    """A delete of `target`, or a move `to` another URI. It is no failure if the file is gone.

    Not begun after `until`, seconds since the epoch: then another run may hold the lease. An
    executor whose clock differs from the driver's by more than a lease tolerates executes nothing.
    """

    target: str
    until: float = math.inf
    to: str | None = None


Task: TypeAlias = Copy | CopyRange | Read | Delete


class Late(CpreplicateError):
    """Raised for an action that comes too late."""


class Outcome(NamedTuple):
    """The result of one action.

    A packed file is at `offset` of `pack`. The first `prefix` bytes of a merged file that was
    copied have the CRC32C `prefix_crc32c`. `missing`: the file to be copied is not at the source.
    `short`: it is there, and shorter than its extent. `late`: the action was not begun in time.
    `damaged`: what is to be read at the target is. `dropped`: the copy was not wanted
    any more, and was not made. No other try ends better than one of these. `receipt`: a range was
    copied, and this is what its file is joined by.
    """

    target: str
    bytes: int
    crc32c: int | None
    seconds: float
    error: str | None = None
    missing: bool = False
    late: bool = False
    short: bool = False
    pack: str | None = None
    offset: int = 0
    damaged: bool = False
    prefix: int | None = None
    prefix_crc32c: int | None = None
    dropped: bool = False
    receipt: str | None = None

    @property
    def files(self) -> int:
        """How many files are done: a range of a file is none."""
        return 1 if self.receipt is None else 0

    @property
    def is_worth_a_try(self) -> bool:
        """Whether another try may succeed."""
        is_final = self.missing or self.short or self.late or self.damaged or self.dropped
        return self.error is not None and not is_final

    @property
    def is_damaged_at_source(self) -> bool:
        """Whether the storage of the source has the file and cannot return it."""
        return not self.damaged and (self.error or "").startswith(f"{DamagedFile.__name__}: ")

    @property
    def is_usage_error(self) -> bool:
        """Whether something is not configured or installed that the file needs."""
        return (self.error or "").startswith(f"{UsageError.__name__}: ")

    @property
    def has_been_retried(self) -> bool:
        """Whether a storage was tried for as long as `--retry-for` allows."""
        kinds = (f"{Unreachable.__name__}: ", f"{DamagedFile.__name__}: ")
        return self.error is not None and self.error.startswith(kinds)


def size_of(action: Task) -> int:
    """Return the bytes that an action moves."""
    if isinstance(action, (Copy, CopyRange)):
        return max(action.extent, action.size)
    return action.extent if isinstance(action, Read) else 0


def file_of(action: Task) -> str:
    """Return the URI of the file that an action is about."""
    return action.file if isinstance(action, CopyRange) else action.target


class Wanted:
    """Which copies of a run are still wanted. Some may be dropped while it goes on, by any thread.

    A copy that is dropped is not begun, and one under way is broken off. `version` changes with
    each drop.
    """

    def __init__(self) -> None:
        self._dropped: frozenset[str] = frozenset()
        self.version = 0

    def __call__(self, target: str) -> bool:
        """Return whether the copy to this URI is wanted."""
        return target not in self._dropped

    def drop(self, targets: Iterable[str]) -> None:
        """Drop the copies to these URIs, and want all others."""
        self._dropped = frozenset(targets)
        self.version += 1


_WANTED: ContextVar[Wanted | None] = ContextVar("wanted", default=None)


@contextmanager
def dropping(wanted: Wanted | None) -> Iterator[None]:
    """Let runs of this thread drop what is not wanted any more, while the block runs."""
    token = _WANTED.set(wanted)
    try:
        yield
    finally:
        _WANTED.reset(token)


def is_gone(outcome: Outcome, wanted: Wanted | None) -> bool:
    """Return whether a copy is not to be made any more: it was dropped, or its file is not there,
    and the run may turn to a checkpoint that does not need it.
    """
    return outcome.dropped or (outcome.missing and wanted is not None)


def current_wanted() -> Wanted | None:
    """Return what runs of this thread want, None if they want all."""
    return _WANTED.get()


class Watcher:
    """An observer of a batch, called from any thread, which can cancel the batch.

    What ends the work of the thread that creates it cancels the batch, too.
    """

    def __init__(self) -> None:
        self._stopped = threading.Event()
        self._go_on = cancellation.current()
        self.around = around()  # the copies of the batch

    def moved(self, count: int) -> None:  # noqa: ARG002  # subclasses use it
        """Record `count` more bytes moved. Raises `RunnerStopped` once the batch is cancelled."""
        if self._stopped.is_set():
            raise RunnerStopped
        try:
            self._go_on()
        except Exception as error:
            self.stop()
            raise RunnerStopped from error

    def is_wanted(self, index: int) -> bool:  # noqa: ARG002  # subclasses use it
        """Return whether an action is still wanted, by its index in the batch."""
        return True

    def refuse_unwanted(self, index: int) -> None:
        """Raise `Dropped` if an action is not wanted any more."""
        if not self.is_wanted(index):
            raise Dropped("not wanted any more")

    def done(self, index: int, outcome: Outcome) -> None:
        """Record the outcome of an action, by its index in the batch."""

    def stop(self) -> None:
        """Cancel the batch."""
        self._stopped.set()


class RunnerStopped(Exception):
    """Raised at the next piece of a file after a cancellation."""


class Dropped(Exception):
    """Raised at the next piece of a file that is not wanted any more."""


class EngineLost(Unreachable):
    """Raised when what executes tasks on other machines has not answered for too long.

    Tasks that were begun there may still run, cut off.
    """


class JobCancelled(CpreplicateError):
    """Raised once somebody has cancelled a job of Spark: nothing is started again.

    Tasks of it that are being killed may still run for a moment.
    """

    exit_code = CopyFailed.exit_code


def failed(task: Task, error: Exception, seconds: float) -> Outcome:
    """Return the outcome of a task that ended by an error of its file or of its storage."""
    text = described(error) if isinstance(error, OSError) else str(error)
    return Outcome(
        task.target,
        0,
        None,
        seconds,
        " ".join(f"{type(error).__name__}: {text}".split()),
        missing=isinstance(error, SourceMissing),
        late=isinstance(error, Late),
        short=isinstance(error, ShortSource),
        damaged=_is_damage_of_replica(task, error),
        dropped=isinstance(error, Dropped),
    )


def _is_damage_of_replica(task: Task, error: Exception) -> bool:
    """Return whether what a task reads in the replica is damaged."""
    is_read_there = isinstance(task, Read) or (isinstance(task, Copy) and task.part is not None)
    return is_read_there and isinstance(error, (DamagedPart, DamagedFile))
