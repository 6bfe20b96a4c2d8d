"""Packs: many small files written into one, so that the target creates one file instead of many.

Readers run ahead of the writers and hold whole members in memory, up to a budget. Each writer
appends members to a pack of its own until it is full. A member counts as done only when its pack
has appeared under its final name.
"""

from __future__ import annotations

import queue
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from typing import NamedTuple

from cpreplicate.core.packs import PACK_BYTES
from cpreplicate.errors import CpreplicateError
from cpreplicate.runners.tasks import Copy, Dropped, Outcome, failed, size_of
from cpreplicate.storage import Sides, WholeFile, read_exactly, read_part, read_whole
from cpreplicate.storage.waiting.cancellation import cancellable

# Bytes of members that are being read or were read, and not yet written. A process needs up to four
# times as much for them (the pieces of a file, the file, buffers of the client), and should not
# exceed 256 MiB: `make bench-packs`.
READ_AHEAD = 16 << 20
_Moved = Callable[[int], None]


class PackPool(NamedTuple):
    """How members are packed: readers and writers at once, bytes of a pack, bytes read ahead."""

    readers: int
    writers: int
    pack_bytes: int = PACK_BYTES
    read_ahead: int = READ_AHEAD


class _Member(NamedTuple):
    """A file that was read and is to be appended to a pack."""

    number: int
    data: bytes
    crc32c: int
    seconds: float


class _Placed(NamedTuple):
    """A member in a pack that is being written."""

    number: int
    offset: int
    length: int
    crc32c: int
    seconds: float


def write_packs(
    members: Mapping[int, Copy],
    sides: Sides,
    moved: _Moved,
    done: Callable[[int, Outcome], None],
    packing: PackPool,
    refuse_unwanted: Callable[[int], None] = lambda _index: None,
) -> dict[int, Outcome]:
    """Read the source of each member and write them into packs; return an outcome for each index.

    `members` name the stem of their packs. `moved` is called with bytes as they are read, and may
    raise to break off; then nothing more is begun, and what it raised is raised here. `done` is
    called with each outcome when it is final: of a member that succeeded, after its pack appeared.
    `refuse_unwanted` is called before a member is read, and raises `Dropped` if it is not wanted.
    """
    if not members:
        return {}
    return _Packer(members, sides, moved, done, packing, refuse_unwanted).run()


class _Packer:
    """The work of one batch: what its readers and writers share."""

    def __init__(
        self,
        members: Mapping[int, Copy],
        sides: Sides,
        moved: _Moved,
        done: Callable[[int, Outcome], None],
        packing: PackPool,
        refuse_unwanted: Callable[[int], None],
    ) -> None:
        self.members, self.sides, self.packing = members, sides, packing
        self.budget = _Budget(packing.read_ahead)
        self.ready: queue.SimpleQueue[_Member | None] = queue.SimpleQueue()
        self._moved, self._done, self._refuse_unwanted = moved, done, refuse_unwanted
        self._outcomes: dict[int, Outcome] = {}
        self._lock = threading.Lock()
        self._unread = len(members)
        self._stopped = threading.Event()
        self._broken: Exception | None = None

    def run(self) -> dict[int, Outcome]:
        """Read with a pool of threads, write with another, until every member has an outcome."""
        writers = min(self.packing.writers, len(self.members))
        readers = min(self.packing.readers, len(self.members))
        with (
            ThreadPoolExecutor(readers, "pack-read") as reading,
            ThreadPoolExecutor(writers, "pack-write") as writing,
        ):
            futures: list[Future[None]] = []
            try:  # an interrupt may come at any time
                futures += [writing.submit(self._write_packs) for _ in range(writers)]
                futures += [reading.submit(self._read_next, index) for index in self.members]
                wait(futures, return_when=FIRST_EXCEPTION)
            except BaseException:
                self._break_off(futures)
                raise
            if any(future.done() and future.exception() is not None for future in futures):
                self._break_off(futures)
        _raise_first(futures)
        return self._outcomes

    def read(self, index: int) -> _Member:
        """Read a member whole. Raises what its storage raises."""
        started = time.monotonic()
        member = self.members[index]
        with cancellable(self.go_on):
            data, crc32c = self._bytes_of(member)
        return _Member(index, data, crc32c, time.monotonic() - started)

    def settle(self, index: int, outcome: Outcome) -> None:
        """Record the final outcome of a member, and report it."""
        with self._lock:
            self._outcomes[index] = outcome
        self._done(index, outcome)

    def _bytes_of(self, member: Copy) -> WholeFile:
        if member.part is None:
            return read_whole(member.source, member.extent, self.sides, self._count)
        offset, crc32c = member.part
        expected = member.extent, crc32c, self.sides.target, self._count
        if offset is None:
            return read_exactly(member.source, *expected)
        return read_part(member.source, offset, *expected)

    def refuse(self, member: _Member, error: Exception) -> None:
        """Record that a member that was read cannot be written."""
        self.budget.give_back(size_of(self.members[member.number]))
        self.settle(member.number, failed(self.members[member.number], error, member.seconds))

    def go_on(self) -> None:
        """Raise if what is under way is no longer wanted."""
        self._count(0)

    def _count(self, moved: int) -> None:
        """Count bytes that were moved. Raise if what is under way is no longer wanted."""
        self._moved(moved)
        if self._stopped.is_set():
            raise _BrokenOff

    def _read_next(self, index: int) -> None:
        try:
            if self._broken is not None:
                self.settle(index, failed(self.members[index], self._broken, 0.0))
            elif not self._stopped.is_set():
                self._read_within_budget(index)
        except BaseException:
            self._stopped.set()  # before the writers see the end of the members
            raise
        finally:
            self._end_if_last()

    def _read_within_budget(self, index: int) -> None:
        size = size_of(self.members[index])
        self.budget.take(size, self.go_on)
        try:
            self._refuse_unwanted(index)
            self.ready.put(self.read(index))
        except (OSError, CpreplicateError, Dropped) as error:
            self.budget.give_back(size)
            self.settle(index, failed(self.members[index], error, 0.0))
        except BaseException:
            self.budget.give_back(size)
            raise

    def _end_if_last(self) -> None:
        with self._lock:
            self._unread -= 1
            is_last = self._unread == 0
        if is_last:
            self.ready.put(None)

    def _write_packs(self) -> None:
        try:
            while (member := self.ready.get()) is not None:
                if self._broken is not None:
                    self.refuse(member, self._broken)
                else:
                    self._write_pack(member)
        finally:
            self.ready.put(None)  # for the other writers

    def _write_pack(self, first: _Member) -> None:
        pack = _OpenPack(self, first)
        try:
            pack.write()
        except (OSError, CpreplicateError) as error:
            self._broken = error
            pack.fail(error)

    def _break_off(self, futures: Iterable[Future[None]]) -> None:
        self._stopped.set()
        for future in futures:
            future.cancel()
        self.ready.put(None)


class _BrokenOff(Exception):
    """Raised in the threads of a batch of which another thread failed."""


class _OpenPack:
    """One pack: takes members until it is full or there are no more."""

    def __init__(self, packer: _Packer, first: _Member) -> None:
        self._packer = packer
        self._first: _Member | None = first
        copy = packer.members[first.number]
        self._uri, self._inside = f"{copy.pack}-{uuid.uuid4().hex[:12]}", copy.inside
        self._placed: list[_Placed] = []

    def write(self) -> None:
        """Write the pack, then report its members as done."""
        storage = self._packer.sides.target.storage(self._uri, self._inside)
        with cancellable(self._packer.go_on):
            storage.put(self._uri, self._content, lambda _length: self._packer.go_on())
        for placed in self._placed:
            self._packer.settle(placed.number, self._outcome(placed))

    def fail(self, error: Exception) -> None:
        """Report every member that was taken as failed."""
        if self._first is not None:
            self._packer.refuse(self._first, error)
        for placed in self._placed:
            member = self._packer.members[placed.number]
            self._packer.settle(placed.number, failed(member, error, placed.seconds))

    def _outcome(self, placed: _Placed) -> Outcome:
        target = self._packer.members[placed.number].target
        return Outcome(
            target,
            placed.length,
            placed.crc32c,
            placed.seconds,
            pack=self._uri,
            offset=placed.offset,
        )

    def _content(self) -> Iterator[bytes]:
        """Yield the bytes of the pack. A second try reads the members of the first one again."""
        yield from self._again()
        offset = sum(placed.length for placed in self._placed)
        while self._first is not None or offset < self._packer.packing.pack_bytes:
            member, self._first = self._first or self._packer.ready.get(), None
            if member is None:
                self._packer.go_on()
                self._packer.ready.put(None)  # for the loop that looks for the next pack
                return
            length = len(member.data)
            placed = _Placed(member.number, offset, length, member.crc32c, member.seconds)
            self._placed.append(placed)
            offset += length
            try:
                self._packer.go_on()
                yield member.data
            finally:
                self._packer.budget.give_back(size_of(self._packer.members[member.number]))

    def _again(self) -> Iterator[bytes]:
        offset = 0
        for position, placed in enumerate(self._placed):
            member = self._packer.read(placed.number)
            self._placed[position] = placed._replace(
                offset=offset, length=len(member.data), crc32c=member.crc32c
            )
            offset += len(member.data)
            yield member.data


class _Budget:
    """Bytes that may be in memory at once; one larger file may be there alone."""

    def __init__(self, most: int) -> None:
        self._most, self._used = most, 0
        self._changed = threading.Condition()

    def take(self, count: int, go_on: Callable[[], None]) -> None:
        """Wait until so many bytes are free. `go_on` is called meanwhile and may raise."""
        with self._changed:
            while self._used and self._used + count > self._most:
                self._changed.wait(0.2)
                go_on()
            self._used += count

    def give_back(self, count: int) -> None:
        """Free so many bytes."""
        with self._changed:
            self._used -= count
            self._changed.notify_all()


def _raise_first(futures: list[Future[None]]) -> None:
    """Raise what the first thread that failed raised; the others were broken off because of it."""
    errors = [future.exception() for future in futures if not future.cancelled()]
    raised = [error for error in errors if error is not None]
    for error in sorted(raised, key=lambda error: isinstance(error, _BrokenOff)):
        raise error
