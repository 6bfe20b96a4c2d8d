"""For tests: an HDFS that is far away, without a server.

Each call to its NameNode, and each transfer to or from a DataNode, takes the time of a round trip.
It keeps a record of them, from which the longest chain follows: those that waited for each other.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple, TypeVar

from cpreplicate.core import uri as uris
from cpreplicate.core.notify import silent
from cpreplicate.operations.sync.report import Report
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.operations.sync.sync import sync
from cpreplicate.operations.verify.verify import ALL, Verification, verify
from cpreplicate.runners import ExecutionOptions
from cpreplicate.storage import Side, Sides
from cpreplicate.storage.backends.hdfs.common import HdfsClientStorage
from cpreplicate.storage.backends.local.local import LocalStorage
from cpreplicate.storage.base import Content
from cpreplicate.storage.statuses import FileStatus
from cpreplicate.storage.wrappers.retry import Retrying
from tests.support.jobs import JOB, put_checkpoint
from tests.support.registry import serving

T = TypeVar("T")
SOURCE, TARGET = "hdfs://a/source", "hdfs://b/target"
FILES = {f"shared/{number:03}": 3000 + number for number in range(20)}
CHANGED = {**dict(list(FILES.items())[1:]), "shared/new": 64 << 10}  # of the next checkpoint
TRANSFER = "transfer"  # to or from a DataNode: it is no call of a NameNode


class Call(NamedTuple):
    """A call, and when it began and ended, in seconds."""

    name: str
    uri: str
    began: float
    ended: float


class FarHdfs(HdfsClientStorage):
    """A filesystem `hdfs://…` in a local directory, each call of which lasts a round trip."""

    closes_slowly = True
    streams = closers = 64

    def __init__(self, directory: Path) -> None:
        self._local, self._directory = LocalStorage(), directory
        self.round_trip = 0.0  # seconds
        self._lock = threading.Lock()
        self.calls: list[Call] = []
        self.hook: Callable[[str, str], None] = lambda _name, _uri: None  # before each call

    def _path(self, uri: str) -> str:
        return f"file:{self._directory}/{uri.partition('://')[2]}"

    def _call(self, name: str, uri: str, answer: Callable[[], T]) -> T:
        began = time.monotonic()
        self.hook(name, uri)
        time.sleep(self.round_trip)
        try:
            return answer()
        finally:
            with self._lock:
                self.calls.append(Call(name, uri, began, time.monotonic()))

    def date_back(self) -> None:
        """Let all files be so old that each change since would have another time."""
        for path in self._directory.rglob("*"):
            os.utime(path, (path.stat().st_atime, path.stat().st_mtime - 60))

    def open(self, uri: str) -> BinaryIO:
        stream = self._call("getBlockLocations", uri, lambda: self._local.open(self._path(uri)))
        try:
            self._call(TRANSFER, uri, lambda: None)
        except OSError:
            stream.close()
            raise
        return stream

    def stat(self, uri: str) -> FileStatus | None:
        return self._call("getFileInfo", uri, lambda: self._stat(uri))

    def _stat(self, uri: str) -> FileStatus | None:
        status = self._local.stat(self._path(uri))
        return None if status is None else status._replace(uri=uri)

    def list(self, uri: str) -> list[FileStatus]:
        children = self._call("getListing", uri, lambda: self._local.list(self._path(uri)))
        return [child._replace(uri=uris.join(uri, child.name)) for child in children]

    def write_new(self, uri: str, content: Content) -> int:
        pieces: Iterable[bytes] = content()
        self._call("create", uri, lambda: None)
        data = b"".join(pieces)
        if data:
            self._call("addBlock", uri, lambda: None)
            self._call(TRANSFER, uri, lambda: None)
        return self._call(
            "complete", uri, lambda: self._local.write_new(self._path(uri), lambda: [data])
        )

    def rename(self, uri: str, new_uri: str, replace: bool) -> bool:
        paths = self._path(uri), self._path(new_uri)
        return self._call("rename2", new_uri, lambda: self._local.rename(*paths, replace))

    def delete_path(self, uri: str) -> bool:
        return self._call("delete", uri, lambda: self._deleted(self._path(uri)))

    def _deleted(self, path: str) -> bool:
        return self._local.delete(path) if not Path(path[5:]).is_dir() else self._local.rmdir(path)


def counted(calls: Sequence[Call], filesystem: str = "") -> Counter[str]:
    """Return how often each method of a NameNode was called."""
    return Counter(
        call.name for call in calls if call.name != TRANSFER and call.uri.startswith(filesystem)
    )


def rounds(calls: Iterable[Call]) -> int:
    """Return the length of the longest chain: calls of which each began after another had ended."""
    count, ended = 0, 0.0
    for call in sorted(calls, key=lambda call: call.ended):
        if call.began >= ended:
            count, ended = count + 1, call.ended
    return count


def calls_of_sync(directory: Path, source: str = "", round_trip: float = 0.0) -> list[Call]:
    """Return the calls of a sync that copies one file of twenty, and deletes another.

    `source` is what follows the job's directory in SOURCE.
    """
    far = FarHdfs(directory)
    with serving("hdfs", Retrying(far, 60.0)):
        stage(far)
        far.round_trip = round_trip
        replicate(source)
        calls = list(far.calls)
        far.round_trip = 0.0
        report = verified()
    assert report.restorable
    assert (report.checkpoint_id, report.files) == (2, len(CHANGED))
    return calls


def stage(far: FarHdfs) -> None:
    """Replicate a first checkpoint, and complete the next one. It is all some time ago."""
    put_checkpoint(Side(), SOURCE, 1, FILES)
    replicate()
    put_checkpoint(Side(), SOURCE, 2, CHANGED)
    far.date_back()
    far.calls.clear()


def replicate(source: str = "") -> Report:
    """Replicate the job, or a checkpoint of it."""
    execution = ExecutionOptions(runner="inline")
    request = SyncRequest(f"{SOURCE}/{JOB}{source}", TARGET, sides=Sides(), execution=execution)
    return sync(request, silent)


def verified() -> Verification:
    """Compare what the replica's newest checkpoint needs, with its content."""
    return verify(f"{TARGET}/{JOB}", None, ALL, silent, Side())
