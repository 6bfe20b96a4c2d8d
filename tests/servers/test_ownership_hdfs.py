"""On real HDFS, what Flink or another replication keeps is refused and left as it is, and a
replica's own upkeep works.
"""

from __future__ import annotations

import signal
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from cpreplicate.protocol import journal
from cpreplicate.storage import Side
from tests.support.commandline import Ended, run
from tests.support.hdfs import Clusters, HdfsCluster
from tests.support.jobs import JOB, put_checkpoint, write_checkpoint
from tests.support.killing import started
from tests.support.untimed import untimed

pytestmark = pytest.mark.xdist_group("hdfs-sync")

REFUSED = 6
NOT_THERE = 10
FILES = {"shared/a": 1000, "shared/b": 2000, "chk-1/own": 30}
NEXT = {"shared/b": 2000, "shared/c": 500, "chk-2/own": 40}
FOREIGN = {"shared/z": 700, "chk-7/own": 50}


class Standby:
    """A job in cluster A, below `/…/checkpoints`, and the target roots it may have in cluster B."""

    def __init__(self, clusters: Clusters, client: str) -> None:
        self.clusters, self._client = clusters, client
        self.here = f"/test/{uuid.uuid4().hex}"
        self.source = f"{self.at_a('checkpoints')}/{JOB}"
        self.root = self.at_b("replicas")
        self.replica = f"{self.root}/{JOB}"

    def at_a(self, path: str) -> str:
        return f"{self.clusters.a.uri}{self.here}/{path}"

    def at_b(self, path: str) -> str:
        return f"{self.clusters.b.uri}{self.here}/{path}"

    def complete(self, number: int, files: Mapping[str, int], root: str = "") -> None:
        """Complete a checkpoint of a job, in A unless elsewhere."""
        put_checkpoint(Side(), root or self.at_a("checkpoints"), number, files)

    def run(self, verb: str, *words: object) -> Ended:
        return run(verb, *words, "--hdfs-client", self._client)

    def sync(self, *words: object, source: str = "", root: str = "") -> Ended:
        return self.run(
            "sync",
            source or self.source,
            root or self.root,
            "--runner",
            "inline",
            "--output",
            "json",
            *words,
        )

    def trees(self) -> list[Mapping[str, bytes | None]]:
        """Every path and byte in both clusters."""
        trees: list[Mapping[str, bytes | None]] = []
        for cluster in self.clusters:
            cluster.mkdirs(self.here)
            trees.append(cluster.tree(self.here))
        return trees


@pytest.fixture(params=["native", "hadoop"])
def standby(
    request: pytest.FixtureRequest, clusters: Clusters, monkeypatch: pytest.MonkeyPatch
) -> Standby:
    monkeypatch.setenv("HADOOP_USER_NAME", clusters.a.superuser)
    return Standby(clusters, request.param)


def assert_refused(done: Ended, *named: str) -> None:
    assert done.code == REFUSED, done
    for text in named:
        assert text in done.message, done.message


@pytest.mark.rest
class TestWhatAJobKeepsInTheTarget:
    """Exit 6, and every path and byte of both clusters is as before."""

    def test_is_never_changed_when_it_has_the_same_id(self, standby: Standby) -> None:
        standby.complete(1, FILES)
        standby.complete(7, FOREIGN, standby.at_b("checkpoints"))
        before = standby.trees()
        done = standby.sync(root=standby.at_b("checkpoints"))
        assert_refused(done, standby.at_b(f"checkpoints/{JOB}"), "chk-7", "TARGET_ROOT", "--adopt")
        assert standby.trees() == before

    def test_is_never_changed_when_source_and_target_are_swapped(self, standby: Standby) -> None:
        standby.complete(1, FILES)
        assert standby.sync().code == 0
        standby.complete(2, NEXT)
        before = standby.trees()
        done = standby.sync(source=standby.replica, root=standby.at_a("checkpoints"))
        assert_refused(done, standby.source, "chk-2", "TARGET_ROOT")
        assert standby.trees() == before

    def test_is_never_changed_when_it_appears_in_a_replica(self, standby: Standby) -> None:
        standby.complete(1, FILES)
        assert standby.sync().code == 0
        standby.complete(2, NEXT)
        standby.complete(7, FOREIGN, standby.root)
        before = standby.trees()
        for done in (standby.sync(), *self.upkeep(standby, standby.replica)):
            assert_refused(done, f"{standby.replica}/chk-7")
        assert standby.trees() == before

    def test_is_never_changed_by_upkeep(self, standby: Standby) -> None:
        standby.complete(1, FILES)
        before = standby.trees()
        for done in self.upkeep(standby, standby.source):
            assert_refused(done, standby.source, "chk-1")
        assert standby.trees() == before

    @staticmethod
    def upkeep(standby: Standby, replica: str) -> list[Ended]:
        sweep = standby.run(
            "sweep", replica, "--min-age", "0s", "--max-delete", "100%", "--runner", "inline"
        )
        return [
            sweep,
            standby.run("relocate", replica, "--paths", "absolute"),
            standby.run("promote", replica),
        ]


def test_a_replica_is_kept_synced_swept_relocated_promoted_and_unsealed(standby: Standby) -> None:
    standby.complete(1, FILES)
    assert standby.sync().json()["copy"]["files"] == 3
    assert not standby.sync().json()["committed"]
    standby.complete(2, NEXT)
    again = standby.sync().json()
    assert (again["copy"]["files"], again["keep"]["files"], again["delete"]["files"]) == (2, 1, 2)
    assert standby.run("sweep", standby.replica, "--min-age", "0s", "--runner", "inline").code == 0
    assert standby.run("relocate", standby.replica, "--paths", "absolute").code == 0
    assert standby.sync("--paths", "absolute").json()["committed"] is False
    assert standby.run("promote", standby.replica, "--content").code == 0
    assert_refused(standby.sync(), "unseal")
    assert standby.run("unseal", standby.replica, "--no-job-uses-it").code == 0
    standby.complete(3, {"shared/c": 500, "chk-3/own": 40})
    assert standby.sync().json()["committed"]
    assert standby.run("verify", standby.replica, "--content").code == 0
    cluster = standby.clusters.b
    assert cluster.names(f"{standby.here}/replicas/{JOB}") == [".cpreplicate", "chk-3", "shared"]
    assert cluster.names(f"{standby.here}/replicas/{JOB}/.cpreplicate") == [
        "chk-3.json",
        "chk-3.parquet",
        "replica.json",
    ]


@pytest.mark.rest
class TestAnAdoptedDirectory:
    def test_keeps_what_was_there_and_what_equals_the_source(self, standby: Standby) -> None:
        standby.complete(1, FILES)
        root = standby.at_b("checkpoints")
        standby.complete(7, {**FOREIGN, "shared/a": FILES["shared/a"]}, root)
        directory = f"{standby.here}/checkpoints"
        foreign = standby.clusters.b.tree(directory)
        first = standby.sync("--adopt", root=root).json()
        assert (first["copy"]["files"], first["keep"]["files"]) == (2, 1)
        assert not standby.sync(root=root).json()["committed"]
        standby.complete(2, NEXT)
        assert standby.sync(root=root).json()["committed"]
        found = standby.clusters.b.tree(directory)
        assert {path: found.get(path) for path in foreign} == foreign
        assert standby.run("verify", f"{root}/{JOB}", "--content").code == 0

    def test_is_refused_if_a_file_of_the_source_differs_there(self, standby: Standby) -> None:
        standby.complete(1, FILES)
        root = standby.at_b("checkpoints")
        standby.complete(7, FOREIGN, root)
        directory = f"{standby.here}/checkpoints"
        standby.clusters.b.put(f"{directory}/{JOB}/shared/b", bytes(FILES["shared/b"]))
        foreign = standby.clusters.b.tree(directory)
        assert_refused(standby.sync("--adopt", root=root), "shared/b")
        found = standby.clusters.b.tree(directory)
        assert {path: found.get(path) for path in foreign} == foreign
        assert f"{directory}/{JOB}/chk-1" not in found


@pytest.mark.rest
def test_a_copy_that_was_killed_is_resumed_from_its_journal(
    clusters: Clusters, tmp_path: Path
) -> None:
    """A part of the journal is written after 2,000 files or 30 s: those are not copied again."""
    cluster = clusters.b
    files = {f"shared/{number:05}": 100 for number in range(2600)}
    source = write_checkpoint(tmp_path, 1, files)
    here = killed_once_it_has_a_part(cluster, source)
    root, own = f"{cluster.uri}{here}", f"{here}/{JOB}/.cpreplicate"
    storage, place = Side().storage(root), f"{root}/{JOB}"
    written = journal.names(cluster.names(own))
    recorded = sum(len(journal.read(storage, place, name).copied) for name in written)
    assert recorded > 0
    with untimed(), cluster.counted() as calls:
        done = run("sync", source, root, "--runner", "inline", "--output", "json").json()
    assert done["committed"]
    assert done["keep"]["files"] >= recorded
    assert calls["create"] <= len(files) - recorded + 20
    assert run("verify", f"{root}/{JOB}", "--content").code == 0
    assert not [name for name in cluster.names(own) if name.startswith("copied-")]


def killed_once_it_has_a_part(cluster: HdfsCluster, source: Path) -> str:
    """The directory of a target to which a sync was killed that had written a part of its journal.

    It is tried with slower ones where one ended first.
    """
    for calls_a_second in (None, 500, 100):
        here = f"/test/{uuid.uuid4().hex}"
        replica, own = f"{here}/{JOB}", f"{here}/{JOB}/.cpreplicate"
        cluster.mkdirs(own)
        cluster.chown(here, cluster.superuser)
        slowly = ("--max-rps", calls_a_second) if calls_a_second else ()
        words = ("sync", source, f"{cluster.uri}{here}", "--parallelism", 128, *slowly)
        with started(*words, "--runner", "inline") as victim:
            while victim.code is None and not has_a_part(cluster.names(own)):
                time.sleep(0.01)
            if victim.kill() and not is_committed(cluster, replica):
                return here
            assert victim.code in (0, -signal.SIGKILL), victim.messages()
    raise AssertionError("it ends first, however slow it is")


def is_committed(cluster: HdfsCluster, replica: str) -> bool:
    """Whether the first checkpoint is committed: its directory is made early."""
    has_directory = "chk-1" in cluster.names(replica)
    return has_directory and "_metadata" in cluster.names(f"{replica}/chk-1")


def has_a_part(names: Sequence[str]) -> bool:
    """Whether a journal has a part with files that were copied."""
    return any(name.endswith("-000001.parquet") for name in names)


@pytest.mark.rest
def test_a_replica_is_forgotten_whole_and_a_file_of_another_program_keeps_it(
    standby: Standby,
) -> None:
    standby.complete(1, FILES)
    assert standby.sync().code == 0
    cluster, theirs = standby.clusters.b, f"{standby.replica}/shared/theirs"
    storage = Side().storage(theirs)
    storage.put(theirs, lambda: [b"of a job"])
    before = standby.trees()
    words = ("forget", standby.replica, "--last-point", "--yes", "--runner", "inline")
    assert_refused(standby.run(*words), "shared/theirs")
    assert standby.trees() == before
    storage.delete(theirs)
    assert standby.run(*words).code == 0
    assert set(cluster.tree(standby.here)) == {f"{standby.here}/replicas"}
    assert standby.run(*words).code == NOT_THERE
    assert standby.sync().json()["committed"]
