"""Stock Flink goes on from a replica of a job with a sink of files: with the part files that are
listed, or without them from a derived checkpoint.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cpreplicate.storage import Side
from tests.support import commandline, parts
from tests.support.hdfs import HdfsCluster
from tests.support.sink_flink import SinkJob, is_committed, numbers

pytestmark = pytest.mark.xdist_group("sinks")

UNTIL, HALT_AT = 4000, 3


def run(*words: object, code: int = 0) -> dict[str, Any]:
    ended = commandline.run(*words, "--output", "json")
    assert ended.code == code, ended
    return dict(json.loads(ended.out))


class Disk:
    """The storage that a sink writes to."""

    def __init__(self, root: Path) -> None:
        self.root = f"file:{root}"

    def tree(self, place: str) -> dict[str, bytes]:
        """Return the files below a directory, by their URIs."""
        files = Path(place.removeprefix("file:")).rglob("*")
        return {f"file:{each}": each.read_bytes() for each in files if each.is_file()}

    def remove(self, place: str) -> None:
        shutil.rmtree(place.removeprefix("file:"), ignore_errors=True)

    def put(self, uri: str, data: bytes) -> None:
        Side().storage(uri).put(uri, lambda: [data])


class Hdfs(Disk):
    """The same in HDFS, where a file in progress is open and longer than it is listed."""

    def __init__(self, cluster: HdfsCluster) -> None:
        self.root, self._cluster = f"{cluster.uri}/sinks", cluster

    def _path(self, uri: str) -> str:
        return uri.removeprefix(self._cluster.uri)

    def tree(self, place: str) -> dict[str, bytes]:
        parent, _, name = self._path(place).rpartition("/")
        if name not in self._cluster.names(parent):
            return {}
        tree = self._cluster.tree(self._path(place))
        return {
            f"{self._cluster.uri}{path}": data for path, data in tree.items() if data is not None
        }

    def remove(self, place: str) -> None:
        for each in self.tree(place):
            Side().storage(each).delete(each)


class Handover:
    """A job that died at A, its replica, and what it had written there, which is gone at B."""

    def __init__(
        self, version: str, sink: str, directory: Path, storage: Disk, size: int = 500
    ) -> None:
        self.job, self.directory, self.storage = SinkJob(version), directory, storage
        self.version = version
        self.sink, self.size, self.out = sink, size, f"{storage.root}/out"
        halted = self._run("dcA", self.out, haltAt=HALT_AT, perCheckpoint=300)
        assert halted == {"event": "halted", "checkpoint": HALT_AT}
        (source,) = (directory / "dcA").iterdir()
        self.source = source / f"chk-{HALT_AT}"
        run("sync", self.source, directory / "dcB", "--runner", "inline", "-q")
        self.replica = directory / "dcB" / source.name
        self.listed = run("inspect", self.source, "--with-files")["files"]
        assert {each["presence"] for each in self.listed} == {"there"}
        tree = storage.tree(self.out)
        self.contents = {
            each["place"]: tree[each["place"]][: each["length"]] for each in self.listed
        }
        named = {each["target"] for each in self.listed}
        self.before = numbers(
            data for path, data in tree.items() if is_committed(path) and path not in named
        )
        storage.remove(self.out)

    def _run(self, checkpoints: str, out: str, **arguments: object) -> dict[str, Any]:
        return self.job.run(
            out=out,
            checkpoints=f"file:{self.directory / checkpoints}",
            until=UNTIL,
            sink=self.sink,
            size=self.size,
            **arguments,
        )

    def restored(self, start: Path, out: str, parallelism: int = 2) -> str | None:
        """Run the job to its end from a checkpoint, and return why it failed.

        It takes checkpoints on the way: earlier Flinks commit what was restored at one.
        """
        words = {"from_": f"file:{start}", "parallelism": parallelism, "perCheckpoint": 300}
        ended = self._run("flinkB", out, **words)
        failure: str | None = ended["failure"]
        return failure

    def copy(self) -> None:
        """Copy the part files that are listed to where the state names them, until committed."""
        for each in self.listed:
            self.storage.put(each["path"], self.contents[each["place"]] + b"behind the checkpoint")

    def written(self, out: str) -> Counter[int]:
        """Return how often each number was written, at A before what is listed, and at B.

        A StreamingFileSink does not commit its last files where its input ends, and Flink before
        1.14 takes no checkpoint then.
        """
        tree = self.storage.tree(out)
        files = (data for path, data in tree.items() if self._counts(path))
        return self.before + numbers(files)

    def _counts(self, path: str) -> bool:
        return is_committed(path) or self.sink == "streaming" or self.version == "1.13"


def goes_on(at_a: Handover) -> None:
    refused = run("promote", at_a.replica, "--with-files", code=6)
    assert {each["presence"] for each in refused["files"]} == {"missing"}
    assert [each["path"] for each in refused["files"]] == [each["path"] for each in at_a.listed]
    checkpoint = at_a.replica / f"chk-{HALT_AT}"
    failure = at_a.restored(checkpoint, at_a.out)
    assert failure is not None
    assert "FileNotFoundException" in failure

    derived = run("rebase", at_a.replica, "--drop-pending")
    dropped = [each for each in derived["dropped_files"] if each["kind"] != "to-remove"]
    assert [each["path"] for each in dropped] == [each["path"] for each in at_a.listed]
    elsewhere = f"{at_a.storage.root}/elsewhere"
    start = at_a.replica / derived["derived"]
    assert at_a.restored(start, elsewhere, parallelism=3) is None  # lists without elements, too
    written = at_a.written(elsewhere)
    assert Counter(range(UNTIL)) - written == numbers(at_a.contents.values())
    assert set(written.values()) == {1}
    assert not any(map(is_committed, at_a.storage.tree(at_a.out)))

    at_a.storage.remove(at_a.out)
    at_a.copy()
    assert run("promote", at_a.replica, "--with-files")["promoted"]
    assert at_a.restored(checkpoint, at_a.out) is None
    assert at_a.written(at_a.out) == Counter(range(UNTIL))


@pytest.mark.parametrize(
    ("version", "sink"),
    [
        parts.rest("2", "row"),
        parts.rest("1", "row"),
        parts.rest("1", "streaming"),
        parts.rest("1.17", "streaming"),
        parts.rest("1.13", "streaming"),
        parts.rest("1.13", "row"),
        parts.rest("2", "compacting"),
    ],
)
def test_a_job_with_a_sink_of_files_goes_on_elsewhere(version, sink, tmp_path):
    at_a = Handover(version, sink, tmp_path, Disk(tmp_path / "storage"))
    assert {each["kind"] for each in at_a.listed} == {"in-progress", "pending"}
    goes_on(at_a)


@pytest.fixture
def cluster() -> Iterator[HdfsCluster]:
    with HdfsCluster(datanodes=1) as started:
        yield started


@pytest.mark.rest
@pytest.mark.hdfs
def test_a_job_that_writes_part_files_to_hdfs_goes_on_elsewhere(cluster, tmp_path):
    size = 100_000  # so that each checkpoint flushes the same file: HDFS lists what the first did
    at_a = Handover("2", "row", tmp_path, Hdfs(cluster), size)
    assert {each["kind"] for each in at_a.listed} == {"in-progress"}
    goes_on(at_a)
