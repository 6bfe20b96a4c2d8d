"""Merged files of Flink on HDFS, which their writer has open when a checkpoint needs them."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from cpreplicate.storage.backends.jvm import launcher
from tests.support.commandline import Ended, run
from tests.support.hdfs import HdfsCluster
from tests.support.jobs import JOB, write_merged

pytestmark = [pytest.mark.hdfs, pytest.mark.xdist_group("open-files"), pytest.mark.rest]

BLOCK = 1 << 20
FIRST, THEN = os.urandom(3000), os.urandom(2000)
MERGED = "taskowned/merged"


@pytest.fixture(scope="module")
def cluster() -> Iterator[HdfsCluster]:
    with HdfsCluster(datanodes=1, conf={"dfs.blocksize": str(BLOCK)}) as started:
        yield started


class Source:
    """A job whose merged file is on HDFS, and what its checkpoints need of it."""

    def __init__(self, cluster: HdfsCluster, scratch: Path, client: str) -> None:
        self._cluster, self._scratch = cluster, scratch
        self._place = f"/{uuid.uuid4().hex}"
        filesystem = cluster.webhdfs_uri if client == "webhdfs" else cluster.uri
        self.root = f"{filesystem}{self._place}/{JOB}"
        self.target = f"file:{scratch}/target"
        self.copy = scratch / "target" / JOB / MERGED
        self._options = [
            "--remap", f"file:{scratch}/dcA={filesystem}{self._place}",
            *(["--hdfs-client", client] if client == "hadoop" else []),
        ]  # fmt: skip

    def flush(self, data: bytes) -> None:
        """Flushes twice: the NameNode may know of the first one."""
        for part in (data[:7], data[7:]):
            self._cluster.write_on(f"{self._place}/{JOB}/{MERGED}", part)

    def complete(self, number: int, offset: int, size: int) -> None:
        """Completes a checkpoint that needs some bytes of the merged file."""
        made = write_merged(self._scratch / "dcA", number, {}, {MERGED: (offset, size)})
        data = (made / "_metadata").read_bytes()
        self._cluster.put(f"{self._place}/{JOB}/chk-{number}/_metadata", data)

    def close(self) -> None:
        """Writes the merged file anew, with what was flushed, and closes it."""
        self._cluster.put(f"{self._place}/{JOB}/{MERGED}", FIRST)

    def run(self, verb: str, *words: str) -> Ended:
        runner = ["--runner", "inline"] if verb == "sync" else []
        return run(verb, self.root, self.target, *self._options, *runner, *words)


@pytest.fixture(params=["native", "hadoop", "webhdfs"])
def source(request: pytest.FixtureRequest, cluster: HdfsCluster, tmp_path: Path) -> Source:
    return Source(cluster, tmp_path, request.param)


@pytest.mark.parametrize("behind", [0, BLOCK], ids=["one block", "several"])
def test_what_is_flushed_of_an_open_file_is_replicated(source: Source, behind: int) -> None:
    content = bytes(behind) + FIRST
    source.flush(content)
    source.complete(1, behind, len(FIRST))
    assert [source.run(verb).code for verb in ("doctor", "diff", "sync")] == [0, 0, 0]
    assert source.copy.read_bytes() == content
    assert run("verify", source.copy.parents[1], "--content").code == 0


def test_an_open_file_is_copied_again_once_a_checkpoint_needs_more_of_it(source: Source) -> None:
    source.flush(FIRST)
    source.complete(1, 0, len(FIRST))
    source.run("sync")
    source.complete(2, 0, len(FIRST))
    assert source.run("sync").code == 0
    source.flush(THEN)
    source.complete(3, len(FIRST), len(THEN))
    assert source.run("sync", "--check-content").code == 0
    assert source.copy.read_bytes() == FIRST + THEN


def test_a_beginning_of_an_open_file_that_another_program_copied_is_kept(source: Source) -> None:
    source.flush(FIRST)
    source.complete(1, 0, len(FIRST))
    source.flush(THEN)
    source.copy.parent.mkdir(parents=True)
    source.copy.write_bytes(FIRST)
    assert source.run("sync", "--adopt").code == 0
    assert source.copy.read_bytes() == FIRST


def test_an_open_file_that_lacks_what_a_checkpoint_needs_is_too_short(source: Source) -> None:
    source.flush(FIRST)
    source.complete(1, 0, len(FIRST) + 1)
    for verb in ("doctor", "diff", "sync"):
        ended = source.run(verb)
        assert ended.code == 10
        assert "cannot be restored from there" in ended.message + ended.out


@pytest.fixture
def without_java(cluster: HdfsCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Source:
    """A source that is read by hdfs-native, on a host without Java."""
    monkeypatch.setattr(launcher, "_current", None)
    monkeypatch.setattr(launcher, "executable", lambda: None)
    source = Source(cluster, tmp_path, "native")
    source.flush(FIRST)
    return source


def test_without_java_the_native_client_names_what_it_needs(without_java: Source) -> None:
    without_java.complete(1, 0, len(FIRST))
    for verb in ("diff", "sync"):
        ended = without_java.run(verb)
        assert ended.code == 2
        assert "Install Java 17" in ended.message
        assert "=webhdfs://NAMENODE:9870" in ended.message


def test_without_java_a_file_that_is_cut_short_is_too_short(without_java: Source) -> None:
    without_java.close()
    without_java.complete(1, 0, len(FIRST) + 1)
    for verb in ("doctor", "diff", "sync"):
        assert without_java.run(verb).code == 10
