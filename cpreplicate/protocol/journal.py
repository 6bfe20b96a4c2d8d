"""The journal of a run: what it is about to write and to delete, and which copies are complete.

Its parts are `.cpreplicate/copied-<time>-<run>-<part>.parquet`. Part 0 is written before the first
copy and lists each path that the run may write or delete. So every file that cpreplicate ever wrote
is recorded before it appears. But a plan does not prove who wrote what is at its path. The name
of a pack is chosen while it is written: part 0 lists what the names of the run's packs begin with,
`packed/<time>-<run>`. Every 30 s or 2,000 files, a further part lists the files that are complete,
with length and CRC32C. If the run dies, the next one resumes from them. A file of another program
that the checkpoint needs is listed in part 0 as not `written`: so that is recorded at every
instant, also while the manifest still is that of the `_metadata` that is replaced. The journal is
removed once the manifest of the commit lists these files, and the other files are deleted.

Executors of a run that died may write late: after the next run has removed what they left, and
committed. So a run that takes the journal of a dead one over records in `.cpreplicate/late.json`
in which directories they may. Each sync that changes something looks there, too, until the first
one that is a day later. Nobody else needs that record: one that is damaged counts as none.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from cpreplicate.core import uri
from cpreplicate.core.ledger import Member, MemberTable
from cpreplicate.core.packs import are_valid
from cpreplicate.core.path_columns import texts
from cpreplicate.core.placement import CHECKPOINT_NAME, OWN, PACKED, are_replica_paths
from cpreplicate.errors import CpreplicateError, is_full
from cpreplicate.protocol import json_files, parquet_files
from cpreplicate.protocol.pending import PendingPut
from cpreplicate.storage import TEMPORARY, Storage
from cpreplicate.storage.base import room_of
from cpreplicate.storage.reading import Reading

PREFIX = "copied-"
LATE = "late.json"
_LATE_FORMAT = 1
LATE_SECONDS = 86_400.0  # what is written later is left to a sweep
_LATE_RUNS = 8  # recorded at most: the newest
_LATE_DIRECTORIES = 20  # recorded at most of a run: there are `shared`, `packed`, and few others
SECONDS = 30.0  # at most, between two parts
FILES = 2_000  # about, in a part
_ROW = 24  # bytes at most that a row takes beside its path: length, CRC32C, and some of a member
_FRAME = 8 << 10  # bytes: the schema and the footer of a part
# Name to type. Version 0.2.0 wrote the first three only.
_COLUMNS = {
    "path": "string",
    "length": "int64",
    "crc32c": "uint32",
    "pack": "string",
    "offset": "int64",
    "written": "bool",
    "prefix": "int64",
    "prefix_crc32c": "uint32",
}


class JournalRow(NamedTuple):
    """A complete file by its path in the replica: its length and CRC32C.

    A packed file has its logical path, and begins at `offset` of `pack`. `written`: cpreplicate
    wrote it. The first `prefix` bytes of a merged file have the CRC32C `prefix_crc32c`.
    """

    path: str
    length: int
    crc32c: int
    pack: str | None = None
    offset: int | None = None
    written: bool = True
    prefix: int | None = None
    prefix_crc32c: int | None = None


class _Row(NamedTuple):
    """A row of a part: a path that is planned, or the fields of a complete file."""

    path: str
    length: int | None = None
    crc32c: int | None = None
    pack: str | None = None
    offset: int | None = None
    written: bool | None = None
    prefix: int | None = None
    prefix_crc32c: int | None = None


class Journal(NamedTuple):
    """One part of a journal.

    `planned` are the paths that its run was about to write or delete, `copied` are the complete
    files by their path.
    """

    name: str
    planned: frozenset[str]
    copied: Mapping[str, JournalRow]

    @property
    def paths(self) -> frozenset[str]:
        """The paths of all files and packs that it lists."""
        return self.planned.union(copied.pack or path for path, copied in self.copied.items())


class LateRun(NamedTuple):
    """A run that died, and the directories in which its executors may still write.

    `found` is when another run took its journal over, in seconds since the epoch.
    """

    run: str
    directories: tuple[str, ...]
    found: float

    @property
    def packs(self) -> str | None:
        """What the paths of its packs begin with, None if it wrote none."""
        return f"{PACKED}/{self.run}" if PACKED in self.directories else None

    def is_over(self, now: float) -> bool:
        """Return whether a sync that looks there now is the last one to do so."""
        return not abs(now - self.found) < LATE_SECONDS


class JournalWriter:
    """Writes the journal of one run. `done` may be called from any thread."""

    def __init__(
        self, storage: Storage, replica: str, seconds: float = SECONDS, files: int = FILES
    ) -> None:
        run = f"{int(json_files.now() * 1000):014d}-{uuid.uuid4().hex[:12]}"
        self._storage, self._stem = storage, uri.join(replica, f"{OWN}/{PREFIX}{run}")
        self._spare = uri.join(replica, f"{OWN}/{TEMPORARY}{uuid.uuid4().hex}")
        self.pack_stem = f"{PACKED}/{run}"  # what the paths of this run's packs begin with
        self._seconds, self._most = seconds, files
        self._lock, self._flushing = threading.Lock(), threading.Lock()
        self._full, self._ended = threading.Event(), False
        self._waiting: list[JournalRow] = []
        self._parts = 0
        self._begun: PendingPut | None = None
        self._last = _FRAME  # bytes that the last part may take

    @contextmanager
    def begun(self) -> Iterator[None]:
        """Begin the first part before its paths are known, if its close is slow.

        If nothing is planned while the block runs, nothing appears.
        """
        if not self._storage.closes_slowly:
            yield
            return
        with PendingPut(self._storage, self._part_uri(self._next_part()), None) as self._begun:
            yield

    def plan(self, paths: Sequence[str]) -> None:
        """Record the paths that are about to be written or deleted."""
        with self.planning(paths) as part:
            part.appear()

    def planning(self, paths: Sequence[str], known: Sequence[JournalRow] = ()) -> PendingPut:
        """Return the part with these paths while it is written; the caller lets it appear.

        `known` are files that are there, of which the part is to keep what is known.
        """
        rows: list[_Row | JournalRow] = [*map(_Row, paths), *known]
        data = _encoded(rows)
        share = min(1.0, 2 * self._most / max(len(rows), 1))
        self._last = max(self._last, int(share * (len(data) + _ROW * len(rows))) + _FRAME)
        begun, self._begun = self._begun, None
        if begun is None:
            return self._pending(data)
        begun.fill(lambda: [data])
        return begun

    def take_over(self, others: Iterable[Journal], copied: Sequence[JournalRow]) -> None:
        """Record the complete files of journals of runs that died, and remove these journals.

        `copied` are those that no other record replaces. The caller has planned their other paths.
        """
        if copied:
            self._write(copied)
        for part in others:
            self._storage.delete(uri.join(uri.parent(self._stem), part.name))

    def remove(self) -> None:
        """Remove all parts that were written, the plan last."""
        for number in reversed(range(self._parts)):
            self._storage.delete(self._part_uri(number))

    def done(self, copied: JournalRow) -> None:
        """Record a complete file in the next part."""
        with self._lock:
            self._waiting.append(copied)
            if len(self._waiting) % self._most == 0:
                self._full.set()

    @contextmanager
    def writing(self) -> Iterator[JournalWriter]:
        """Write parts while the block runs.

        If the block ends by an exception, write the remaining files, too. Room for that is kept: it
        may be that the filesystem is full.
        """
        has_room = False
        with suppress(OSError):
            has_room = self._storage.keep_room(self._spare, self._last)
        thread = threading.Thread(target=self._write_parts, name="journal", daemon=True)
        thread.start()
        try:
            yield self
        except BaseException:
            self._stop(thread)
            # The reason why the run ended matters more: files that are not recorded are copied
            # again.
            with suppress(OSError, CpreplicateError):
                self._flush_last()
            raise
        else:
            self._stop(thread)
        finally:
            if has_room:
                with suppress(OSError, CpreplicateError):
                    self._storage.delete(room_of(self._spare))

    def flush(self) -> None:
        """Write a part with the complete files that no part lists yet."""
        with self._flushing:  # the part that the thread writes just now is complete then, too
            with self._lock:
                waiting = self._waiting[:]
            if waiting:
                self._write(waiting)
            with self._lock:  # else a later part lists them: the filesystem may be full now
                del self._waiting[: len(waiting)]

    def _flush_last(self) -> None:
        try:
            self.flush()
        except OSError as error:
            if not is_full(error):
                raise
            part = self._part_uri(self._next_part())
            self._storage.fill_room(self._spare, part, _encoded(self._waiting))

    def _stop(self, thread: threading.Thread) -> None:
        self._ended = True
        self._full.set()
        thread.join()

    def _write_parts(self) -> None:
        while True:
            self._full.wait(self._seconds)
            if self._ended:
                return
            self._full.clear()
            # If the run dies, the files of a lost part are copied again.
            with suppress(OSError, CpreplicateError):
                self.flush()

    def _write(self, rows: Sequence[_Row | JournalRow]) -> None:
        with self._pending(_encoded(rows)) as part:
            part.appear()

    def _pending(self, data: bytes) -> PendingPut:
        return PendingPut(self._storage, self._part_uri(self._next_part()), lambda: [data])

    def _next_part(self) -> int:
        with self._lock:  # a further plan may be written beside what is complete
            number, self._parts = self._parts, self._parts + 1
        return number

    def _part_uri(self, number: int) -> str:
        return f"{self._stem}-{number:06d}.parquet"


def names(own: Iterable[str]) -> list[str]:
    """Return the parts of journals among the files of `.cpreplicate/`, the oldest first."""
    return sorted(name for name in own if name.startswith(PREFIX))


def run_of(name: str) -> str:
    """Return what the names of all parts of the same run have, and the paths of its packs."""
    return name.removeprefix(PREFIX).rpartition("-")[0]


def read(storage: Reading, replica: str, name: str) -> Journal:
    """Return a part of a journal: an empty one if it does not exist or is damaged.

    A part with a path or a pack outside the replica, or with a member at no valid place, was not
    written by cpreplicate and counts as damaged.
    Raises `Refused` if it is larger than any that cpreplicate writes.
    """
    try:
        place = uri.join(replica, f"{OWN}/{name}")
        rows = _rows(parquet_files.content(storage, place), place)
    except FileNotFoundError:
        rows = []
    copied = {
        row.path: JournalRow(
            *(row.path, row.length, row.crc32c, row.pack, row.offset),
            *(row.written is not False, row.prefix, row.prefix_crc32c),
        )
        for row in rows
        if row.length is not None and row.crc32c is not None
    }
    return Journal(name, frozenset(row.path for row in rows if row.length is None), copied)


def late_runs(dead: Iterable[Journal]) -> list[LateRun]:
    """Return the runs of which these are journals, as found now."""
    planned: dict[str, set[str]] = {}
    for part in dead:
        planned.setdefault(run_of(part.name), set()).update(uri.directories(part.paths))
    now = json_files.now()
    return [
        LateRun(run, tuple(_ranked(directories)[:_LATE_DIRECTORIES]), now)
        for run, directories in planned.items()
    ]


def _ranked(directories: Iterable[str]) -> list[str]:
    """Return directories, those first to which most is written: `shared`, `packed`, and that of the
    newest checkpoint. From those of older ones, which may be many, a run only deletes.
    """
    numbers = {
        each: int(match[1]) for each in directories if (match := CHECKPOINT_NAME.fullmatch(each))
    }
    newest = max(numbers, key=numbers.__getitem__, default=None)
    ranks = {"shared": 0, PACKED: 0, newest: 0}
    return sorted(
        directories, key=lambda each: (ranks.get(each, 2 if each in numbers else 1), each)
    )


def read_late(storage: Reading, replica: str) -> tuple[LateRun, ...]:
    """Return the runs that are recorded as ones that may write late, none if that is damaged."""
    try:
        fields = json_files.parse(json_files.read(storage, uri.join(replica, f"{OWN}/{LATE}")))
        if not fields or fields["format"] != _LATE_FORMAT:
            return ()
        return tuple(map(_late_run, fields["runs"][:_LATE_RUNS]))
    except (IsADirectoryError, LookupError, TypeError, ValueError):
        return ()


def _late_run(fields: Mapping[str, Any]) -> LateRun:
    """Return a run that is recorded. Raises if it is not as it was written."""
    run, directories = fields["run"], tuple(fields["directories"][:_LATE_DIRECTORIES])
    paths = [f"{directory}/x" for directory in directories]
    found = json_files.seconds(fields, "found")
    if found is None or not are_replica_paths(texts([*paths, f"{PACKED}/{run}-x"])).all():
        raise ValueError(fields)
    return LateRun(run, directories, found)


def write_late(storage: Storage, replica: str, runs: Sequence[LateRun]) -> None:
    """Record that executors of these runs may write late; of many runs, of the newest."""
    place = uri.join(replica, f"{OWN}/{LATE}")
    if not runs:
        storage.delete(place)
        return
    newest = sorted(runs, key=lambda each: each.found)[-_LATE_RUNS:]
    fields = {"format": _LATE_FORMAT, "runs": [each._asdict() for each in newest]}
    content = json_files.encoded(fields)
    storage.put(place, lambda: [content])


def _rows(data: bytes, place: str) -> list[_Row]:
    try:
        table = parquet_files.decoded(data, _COLUMNS, place)
        columns = parquet_files.columns(table, _COLUMNS)
        rows = list(map(_Row._make, zip(*columns, strict=True)))
    except parquet_files.DamagedParquet:
        return []
    return rows if _are_valid(rows) else []


def _are_valid(rows: Sequence[_Row]) -> bool:
    """Return whether the rows of a part name files of a replica, with lengths that can be."""
    if not are_replica_paths(texts(row.path for row in rows)).all():
        return False
    if any(row.length is not None and row.length < 0 for row in rows):
        return False
    if any(row.prefix is not None and row.prefix > (row.length or 0) for row in rows):
        return False
    members = {
        row.path: Member(row.pack, row.offset or 0, row.length or 0)
        for row in rows
        if row.pack is not None
    }
    return are_valid(MemberTable.of(members), {})


def _encoded(rows: Sequence[_Row | JournalRow]) -> bytes:
    import pyarrow as pa

    columns = {
        name: pa.array([getattr(row, name) for row in rows], pa.type_for_alias(kind))
        for name, kind in _COLUMNS.items()
    }
    return parquet_files.encoded(pa.table(columns))
