"""What faults of real HDFS clusters make of a sync: it completes, or ends with a documented exit
code and one clear line.

Where it ended, the old replica is whole, and running again, once the fault is over, completes.
"""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

import pytest

from cpreplicate.errors import CopyFailed, CpreplicateError, SourceBroken, SourceMovedOn
from cpreplicate.operations.sync import sync as sync_operation
from cpreplicate.operations.sync.report import Report
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.operations.verify.verify import ALL, verify
from cpreplicate.runners import ExecutionOptions
from cpreplicate.storage import Side, Sides, Storage, WriteSettings
from cpreplicate.storage.wrappers.base import StorageWrapper
from tests.support import parts
from tests.support.hdfs import HdfsCluster
from tests.support.jobs import JOB, put_checkpoint
from tests.support.registry import serving
from tests.support.waiting import PATIENCE, wait_until

pytestmark = pytest.mark.xdist_group("hdfs-sync")

USER = "flink"  # who syncs, not the superuser
CLIENTS = ["native", parts.rest("hadoop")]
KIB, MIB = 1 << 10, 1 << 20
OLD = {f"shared/old-{number}": 2000 + number for number in range(4)}
NARRATION = ("comparing ", "runner: ", "copying ", "committed ", "deleting ", "reading back ")
RETRIES = "; trying again for up to "


def new(count: int, size: int) -> dict[str, int]:
    """The files of a checkpoint that shares one with the old."""
    return {
        "shared/old-3": OLD["shared/old-3"],
        **{f"shared/new-{number:03}": size for number in range(count)},
    }


FILES = new(12, 256 * KIB)


@pytest.fixture(scope="module")
def cluster() -> Iterator[HdfsCluster]:
    with HdfsCluster(datanodes=4, superuser="hdfs") as started:
        yield started


@pytest.fixture
def here(cluster: HdfsCluster) -> str:
    """A directory of the test's own."""
    return directory_on(cluster)


def directory_on(cluster: HdfsCluster) -> str:
    path = f"/test/{uuid.uuid4().hex}"
    cluster.mkdirs(path)
    cluster.chown(path, USER)
    cluster.chmod(path, 0o755)
    return path


def side_of(cluster: HdfsCluster, **settings: Any) -> Side:
    return Side((("", (*cluster.conf.items(), ("hadoop.user.name", USER))),), **settings)


class Datanodes:
    """Stops DataNodes of a cluster, which the NameNode goes on believing in."""

    def __init__(self, cluster: HdfsCluster) -> None:
        self._cluster = cluster
        self._stopped: list[int] = []

    def stop(self, *indexes: int) -> None:
        for index in indexes:
            self._cluster.stop_datanode(index)
            self._stopped.append(index)

    def start(self) -> None:
        while self._stopped:
            self._cluster.start_datanode(self._stopped.pop())


@pytest.fixture
def datanodes(cluster: HdfsCluster) -> Iterator[Datanodes]:
    stopping = Datanodes(cluster)
    yield stopping
    stopping.start()


@dataclass(frozen=True)
class Job:
    """A job that writes its checkpoints to `source`, and its replica below `target`."""

    source: str
    target: str
    sides: Sides

    @property
    def replica(self) -> str:
        return f"{self.target}/{JOB}"

    def checkpoint(self, number: int, files: Mapping[str, int]) -> None:
        put_checkpoint(self.sides.source, self.source, number, files)

    def sync(self) -> Report:
        """The newest checkpoint, by threads of this process."""
        request = SyncRequest(
            f"{self.source}/{JOB}",
            self.target,
            sides=self.sides,
            execution=ExecutionOptions(runner="inline"),
        )
        return sync_operation.sync(request, silent)

    def assert_restorable(self, number: int) -> None:
        found = verify(self.replica, f"chk-{number}", ALL, silent, self.sides.target)
        assert found.restorable, found

    def new_names(self) -> list[str]:
        """The files of the new checkpoint that the replica has."""
        directory = f"{self.replica}/shared"
        return [
            each.name
            for each in self.sides.target.storage(directory).list(directory)
            if each.name.startswith("new-")
        ]


def silent(_line: str) -> None:
    pass


def synced(source: str, target: str, sides: Sides, files: Mapping[str, int] = FILES) -> Job:
    """A job whose first checkpoint was replicated, and that has made the next one."""
    job = Job(source, target, sides)
    job.checkpoint(1, OLD)
    assert job.sync().committed
    job.checkpoint(2, files)
    return job


def assert_completes(job: Job) -> None:
    assert job.sync().committed
    job.assert_restorable(2)
    assert job.sync().plan.empty


def assert_ends(job: Job, kind: type[CpreplicateError], code: int, *words: str) -> None:
    """A sync of the second checkpoint ends so, with one line that has these words, and the old
    replica is whole.
    """
    with pytest.raises(kind) as ended:
        job.sync()
    assert ended.value.exit_code == code
    assert_clear(str(ended.value), *words)
    job.assert_restorable(1)


def assert_clear(line: str, *words: str) -> None:
    assert "\n" not in line
    for word in words:
        assert word in line
    assert "traceback" not in line.lower()


class Halfway(StorageWrapper):
    """Does something once, when `count` new files were read to their half.

    Their readers wait until it is done.
    """

    def __init__(
        self, inner: Storage, files: Mapping[str, int], action: Callable[[], None]
    ) -> None:
        super().__init__(inner)
        sizes = [size for name, size in files.items() if "/new-" in name]
        self._piece = sizes[0] // 4
        self._gate = threading.Barrier(len(sizes), self._act, timeout=PATIENCE)
        self._action = action
        self.happened = False

    def _act(self) -> None:
        self._action()
        self.happened = True

    def open_extent(self, uri: str, extent: int) -> BinaryIO:
        stream = super().open_extent(uri, extent)
        if "/new-" not in uri or self.happened:
            return stream
        return cast(BinaryIO, _Halting(stream, self._piece, self._gate))


class _Halting(io.RawIOBase):
    """Gives a file piece by piece, and waits before the third one."""

    def __init__(self, stream: BinaryIO, piece: int, gate: threading.Barrier) -> None:
        self._stream, self._piece, self._gate, self._pieces = stream, piece, gate, 0

    def read(self, _size: int = -1) -> bytes:
        self._pieces += 1
        if self._pieces == 3:
            self._gate.wait()
        return self._stream.read(self._piece)

    def close(self) -> None:
        self._stream.close()
        super().close()


@contextlib.contextmanager
def halfway(job: Job, files: Mapping[str, int], action: Callable[[], None]) -> Iterator[None]:
    """While the block runs, `action` is done in the middle of reading the new files from the
    source.
    """
    storage = Halfway(job.sides.source.storage(job.source), files, action)
    with serving(job.source.partition(":")[0], storage):
        yield
    assert storage.happened


class Opened(StorageWrapper):
    """Keeps every stream that was opened."""

    def __init__(self, inner: Storage) -> None:
        super().__init__(inner)
        self.opened: list[BinaryIO] = []

    def open_extent(self, uri: str, extent: int) -> BinaryIO:
        self.opened.append(super().open_extent(uri, extent))
        return self.opened[-1]


class Ended(NamedTuple):
    """How a process ended: its exit code and its one line of error, or none."""

    code: int
    line: str


# Eight tries of a call take 17 seconds else.
_IMPATIENT = """
from cpreplicate.cli import main
from cpreplicate.storage.wrappers import retry
retry.PAUSES = retry.Pauses(first=0.2, longest=0.2)
main()
"""


def run(
    job: Job,
    cluster: HdfsCluster,
    scratch: Path,
    *words: str,
    meanwhile: Callable[[], None] = lambda: None,
) -> Ended:
    """`cpreplicate sync` to a cluster."""
    return run_sync(
        job,
        "--target-conf",
        str(cluster.write_conf_dir(scratch / "conf")),
        *words,
        meanwhile=meanwhile,
    )


def run_sync(job: Job, *words: str, meanwhile: Callable[[], None] = lambda: None) -> Ended:
    """`cpreplicate sync`, patient for three seconds with what may pass."""
    command = [
        "sync",
        f"{job.source}/{JOB}",
        job.target,
        "--retry-for",
        "3s",
        "--runner",
        "inline",
        "--progress",
        "none",
    ]
    with subprocess.Popen(
        [sys.executable, "-c", _IMPATIENT, *command, *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "HADOOP_USER_NAME": USER},
    ) as process:
        try:
            meanwhile()
            _, output = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
    *lines, last = [
        line
        for line in output.splitlines()
        if not line.startswith(NARRATION) and RETRIES not in line
    ] or [""]
    assert lines == [], output
    assert last == "" or last.startswith("cpreplicate: error: "), output
    return Ended(process.returncode, last)


SLOWLY = ("--bandwidth", "100KB/s")  # one file after the other, 30 seconds for the new ones
PATIENT = {"retry_for": PATIENCE}  # what passes may last as long as the machine takes for it


@pytest.fixture
def job(cluster: HdfsCluster, here: str, tmp_path: Path) -> Job:
    """From local disk to the cluster."""
    sides = Sides(Side(), side_of(cluster, write=WriteSettings(block_size=MIB)))
    return synced(f"file:{tmp_path}/source", cluster.uri + here, sides)


class TestADatanodeThatDied:
    """And is not declared dead: the NameNode names it to writers for ten minutes more."""

    @pytest.mark.rest
    @pytest.mark.parametrize("client", CLIENTS)
    def test_while_files_were_written_costs_time_only(
        self, cluster: HdfsCluster, here: str, tmp_path: Path, datanodes: Datanodes, client: str
    ) -> None:
        sides = Sides(
            Side(),
            side_of(cluster, hdfs_client=client, write=WriteSettings(replication=2), **PATIENT),
        )
        files = new(12, MIB)
        job = synced(f"file:{tmp_path}/source", cluster.uri + here, sides, files)
        with halfway(job, files, lambda: datanodes.stop(0)):
            assert_completes(job)

    @pytest.mark.parametrize("client", CLIENTS)
    def test_while_files_were_read_costs_time_only(
        self, cluster: HdfsCluster, here: str, tmp_path: Path, datanodes: Datanodes, client: str
    ) -> None:
        sides = Sides(
            side_of(
                cluster,
                hdfs_client=client,
                write=WriteSettings(replication=2, block_size=MIB),
                **PATIENT,
            ),
            Side(),
        )
        files = new(8, 4 * MIB)
        job = synced(cluster.uri + here, f"file:{tmp_path}/target", sides, files)
        with halfway(job, files, lambda: datanodes.stop(0)):
            assert_completes(job)

    @pytest.mark.rest
    def test_with_the_only_replica_of_a_file_is_reported_until_it_is_back(
        self, cluster: HdfsCluster, here: str, tmp_path: Path, datanodes: Datanodes
    ) -> None:
        everywhere, once = (
            side_of(cluster, retry_for=1, write=WriteSettings(replication=count))
            for count in (4, 1)
        )
        job = synced(cluster.uri + here, f"file:{tmp_path}/target", Sides(everywhere, Side()), OLD)
        for number in range(8):
            place = f"{job.source}/{JOB}/shared/new-{number:03}"
            once.storage(place).put(place, lambda: [bytes(1000)])
        job.checkpoint(3, new(8, 1000))
        datanodes.stop(1, 2, 3)
        assert_ends(job, CopyFailed, 3, "/shared/new-", "Running again copies only what is missing")
        datanodes.start()
        # it reports its blocks after it has registered
        patient = Sides(side_of(cluster, **PATIENT), Side())
        assert Job(job.source, job.target, patient).sync().committed
        job.assert_restorable(3)

    @pytest.mark.rest
    @pytest.mark.parametrize("replication", [parts.rest(1), 2])
    @pytest.mark.parametrize("client", CLIENTS)
    def test_does_not_keep_200_files_from_being_written(
        self,
        cluster: HdfsCluster,
        here: str,
        tmp_path: Path,
        datanodes: Datanodes,
        client: str,
        replication: int,
    ) -> None:
        """With Hadoop's client from HDFS, as no byte passes through Python then."""
        everywhere = side_of(
            cluster, hdfs_client=client, write=WriteSettings(replication=3), **PATIENT
        )
        source = f"file:{tmp_path}/source" if client == "native" else f"{cluster.uri}{here}/source"
        files = new(200, 64 * KIB)
        reading = Side() if client == "native" else everywhere
        before = synced(source, f"{cluster.uri}{here}/target", Sides(reading, everywhere), files)
        writing = side_of(
            cluster, hdfs_client=client, write=WriteSettings(replication=replication), **PATIENT
        )
        job = Job(before.source, before.target, Sides(reading, writing))
        datanodes.stop(0)
        with cluster.counted() as calls:
            assert_completes(job)
        # one a file, and one more each time that the dead one was among those named
        assert calls["addBlock"] > 220
        written = cluster.status(f"{here}/target/{JOB}/shared/new-000")
        assert written["replication"] == replication

    @pytest.mark.rest
    def test_and_is_offered_for_every_block_is_left_out_by_hadoops_client(
        self, cluster: HdfsCluster, here: str, tmp_path: Path, datanodes: Datanodes
    ) -> None:
        """As many replicas as DataNodes. hdfs-native cannot write here:
        docs/adr/0002-a-jvm-client-beside-it.md.
        """
        sides = Sides(
            Side(),
            side_of(cluster, hdfs_client="hadoop", write=WriteSettings(replication=4), **PATIENT),
        )
        job = synced(f"file:{tmp_path}/source", cluster.uri + here, sides)
        datanodes.stop(0)
        assert_completes(job)


@pytest.mark.rest
class TestANamenode:
    @pytest.mark.parametrize("client", CLIENTS)
    def test_restarted_during_a_sync_costs_time_only(
        self, cluster: HdfsCluster, here: str, tmp_path: Path, client: str
    ) -> None:
        sides = Sides(Side(), side_of(cluster, hdfs_client=client, **PATIENT))
        job = synced(f"file:{tmp_path}/source", cluster.uri + here, sides)
        restart = threading.Thread(target=cluster.restart_namenode)
        with halfway(job, FILES, restart.start):
            assert_completes(job)
        restart.join()

    def test_that_stays_down_during_a_sync_is_reported_and_its_lease_is_taken_over_later(
        self, job: Job, cluster: HdfsCluster, tmp_path: Path
    ) -> None:
        def stop() -> None:
            wait_until(lambda: len(job.new_names()) >= 2)
            cluster.stop_namenode(0)

        ended = run(job, cluster, tmp_path, *SLOWLY, meanwhile=stop)
        cluster.start_namenode(0)
        assert_clear(ended.line, job.replica)
        job.assert_restorable(1)
        assert run(job, cluster, tmp_path).code == 0
        job.assert_restorable(2)
        assert ended.code == 3

    @pytest.mark.parametrize("client", CLIENTS)
    def test_that_hands_over_during_a_sync_is_not_noticed(
        self, ha_cluster: HdfsCluster, tmp_path: Path, client: str
    ) -> None:
        job = self.on_the_pair(ha_cluster, tmp_path, client)
        with halfway(job, FILES, lambda: cast(None, ha_cluster.failover())):
            assert_completes(job)

    @pytest.mark.parametrize("client", CLIENTS)
    def test_of_a_pair_killed_during_a_sync_costs_the_time_until_the_other_takes_over(
        self, hdfs_cluster: Callable[..., HdfsCluster], tmp_path: Path, client: str
    ) -> None:
        pair = hdfs_cluster(datanodes=1, nameservice="nameservice1")
        job = self.on_the_pair(pair, tmp_path, client)
        takes_over = threading.Timer(3, pair.failover)

        def kill() -> None:
            pair.stop_namenode(0)
            takes_over.start()

        with halfway(job, FILES, kill):
            assert_completes(job)
        takes_over.join()

    @staticmethod
    def on_the_pair(pair: HdfsCluster, tmp_path: Path, client: str) -> Job:
        sides = Sides(Side(), side_of(pair, hdfs_client=client, **PATIENT))
        return synced(f"file:{tmp_path}/source", pair.uri + directory_on(pair), sides)


class TestSafeMode:
    def test_before_a_sync_is_named(self, job: Job, cluster: HdfsCluster, tmp_path: Path) -> None:
        cluster.safemode(True)
        try:
            ended = run(job, cluster, tmp_path)
        finally:
            cluster.safemode(False)
        assert ended.code == 7
        assert_clear(
            ended.line, f"{job.replica}/.cpreplicate/", "safe mode", "wait until it leaves it"
        )
        job.assert_restorable(1)
        assert_completes(job)

    @pytest.mark.rest
    def test_during_a_sync_is_named(self, job: Job, cluster: HdfsCluster, tmp_path: Path) -> None:
        def begin() -> None:
            wait_until(lambda: len(job.new_names()) >= 2)
            cluster.safemode(True)

        try:
            ended = run(job, cluster, tmp_path, *SLOWLY, meanwhile=begin)
            job.assert_restorable(1)
        finally:
            cluster.safemode(False)
        assert_clear(ended.line, job.replica, "safe mode", "wait until it leaves it")
        assert run(job, cluster, tmp_path).code == 0
        job.assert_restorable(2)
        assert ended.code == 3

    @pytest.mark.rest
    @pytest.mark.parametrize("client", CLIENTS)
    def test_that_ends_soon_costs_time_only(
        self, cluster: HdfsCluster, here: str, tmp_path: Path, client: str
    ) -> None:
        sides = Sides(Side(), side_of(cluster, hdfs_client=client, **PATIENT))
        job = synced(f"file:{tmp_path}/source", cluster.uri + here, sides)
        ends = threading.Timer(2, cluster.safemode, [False])

        def begin() -> None:
            cluster.safemode(True)
            ends.start()

        try:
            with halfway(job, FILES, begin):
                assert_completes(job)
        finally:
            ends.join()


class TestASpaceQuota:
    """HDFS counts a block as full while it is written."""

    @pytest.mark.rest
    def test_that_is_too_small_for_a_sync_ends_it_before_it_copies(
        self, job: Job, cluster: HdfsCluster, here: str, tmp_path: Path
    ) -> None:
        self.leave(2 * MIB, job, cluster, here)
        ended = run(job, cluster, tmp_path, "--block-size", "1MiB")
        assert ended.code == 3
        assert_clear(ended.line, "the space quota of", "Nothing was copied, committed or deleted")
        job.assert_restorable(1)
        cluster.quota(here, None)
        assert_completes(job)

    @pytest.mark.rest
    def test_that_has_no_room_for_the_lease_is_named(
        self, job: Job, cluster: HdfsCluster, here: str, tmp_path: Path
    ) -> None:
        self.leave(1, job, cluster, here)
        ended = run(job, cluster, tmp_path)
        assert ended.code == 3
        assert_clear(ended.line, f"{job.replica}/.cpreplicate/", "space quota is used up")
        job.assert_restorable(1)
        cluster.quota(here, None)
        assert_completes(job)

    @pytest.mark.parametrize("client", CLIENTS)
    def test_is_reported_by_each_client(
        self, cluster: HdfsCluster, here: str, tmp_path: Path, client: str
    ) -> None:
        side = side_of(cluster, hdfs_client=client, write=WriteSettings(block_size=MIB))
        job = synced(f"file:{tmp_path}/source", cluster.uri + here, Sides(Side(), side))
        # this process has seen no quota there, and does not look again
        self.leave(2 * MIB, job, cluster, here)
        assert_ends(job, CopyFailed, 3, "/shared/new-", "space quota is used up")
        cluster.quota(here, None)
        assert_completes(job)

    def test_leaves_no_source_file_open(self, job: Job, cluster: HdfsCluster, here: str) -> None:
        self.leave(2 * MIB, job, cluster, here)
        storage = Opened(job.sides.source.storage(job.source))
        with serving("file", storage):
            assert_ends(job, CopyFailed, 3)
        assert [stream for stream in storage.opened if not stream.closed] == []

    @staticmethod
    def leave(left: int, job: Job, cluster: HdfsCluster, here: str) -> None:
        """So many bytes beyond those that the replica has."""
        storage = job.sides.target.storage(job.replica)
        directories = [
            job.replica,
            *(f"{job.replica}/{name}" for name in ("shared", "chk-1", ".cpreplicate")),
        ]
        used = sum(each.length for directory in directories for each in storage.list(directory))
        cluster.quota(here, used + left)


class TestPermissionDenied:
    def test_where_files_are_written_ends_the_sync(
        self, job: Job, cluster: HdfsCluster, here: str, tmp_path: Path
    ) -> None:
        shared = f"{here}/{JOB}/shared"
        cluster.chown(shared, cluster.superuser)
        ended = run(job, cluster, tmp_path)
        assert ended.code == 3
        assert_clear(
            ended.line,
            f"{job.replica}/shared/",
            "permission denied",
            f"user={USER}",
            "nothing was deleted",
        )
        job.assert_restorable(1)
        cluster.chown(shared, USER)
        assert_completes(job)

    @pytest.mark.rest
    def test_where_the_lease_is_written_is_named(
        self, job: Job, cluster: HdfsCluster, here: str, tmp_path: Path
    ) -> None:
        own = f"{here}/{JOB}/.cpreplicate"
        cluster.chown(own, cluster.superuser)
        ended = run(job, cluster, tmp_path)
        assert ended.code == 1
        assert_clear(
            ended.line, f"{job.replica}/.cpreplicate/", "permission denied", f"user={USER}"
        )
        job.assert_restorable(1)
        cluster.chown(own, USER)
        assert_completes(job)

    @pytest.mark.rest
    @pytest.mark.parametrize("client", CLIENTS)
    def test_where_a_file_is_read_ends_the_sync(
        self, cluster: HdfsCluster, here: str, tmp_path: Path, client: str
    ) -> None:
        job = synced(
            cluster.uri + here,
            f"file:{tmp_path}/target",
            Sides(side_of(cluster, hdfs_client=client), Side()),
        )
        file = f"{here}/{JOB}/shared/new-003"
        cluster.chown(file, cluster.superuser)
        cluster.chmod(file, 0o600)
        assert_ends(job, CopyFailed, 3, "1 of 12 copies failed", file, "permission denied")
        cluster.chown(file, USER)
        assert_completes(job)


@pytest.mark.rest
class TestASourceFileThatVanishesWhileItIsRead:
    """Its blocks too: what a client has located it can no longer read."""

    FILES = new(6, 4 * MIB)

    @pytest.fixture(params=CLIENTS)
    def job(
        self, request: pytest.FixtureRequest, cluster: HdfsCluster, here: str, tmp_path: Path
    ) -> Job:
        source = side_of(cluster, hdfs_client=request.param, write=WriteSettings(block_size=MIB))
        return synced(
            cluster.uri + here, f"file:{tmp_path}/target", Sides(source, Side()), self.FILES
        )

    def test_with_its_checkpoint_was_subsumed(self, job: Job, cluster: HdfsCluster) -> None:
        with self.vanishing(job, cluster, "chk-2/_metadata", "shared/new-000"):
            assert_ends(
                job,
                SourceMovedOn,
                12,
                f"{job.source}/{JOB}/chk-2 was subsumed",
                "Run again with the job's directory",
            )
        self.assert_the_next_completes(job)

    def test_alone_leaves_a_broken_checkpoint(self, job: Job, cluster: HdfsCluster) -> None:
        with self.vanishing(job, cluster, "shared/new-000"):
            assert_ends(
                job,
                SourceBroken,
                10,
                f"{job.source}/{JOB}/chk-2 is incomplete at the source",
                f"{job.source}/{JOB}/shared/new-000",
            )
        self.assert_the_next_completes(job)

    @staticmethod
    def assert_the_next_completes(job: Job) -> None:
        job.checkpoint(3, new(3, 4 * MIB))
        assert job.sync().committed
        job.assert_restorable(3)

    def vanishing(self, job: Job, cluster: HdfsCluster, *names: str) -> Any:
        """While the block runs, these are deleted in the middle of reading.

        The last one's blocks go as well.
        """
        places = [f"{job.source}/{JOB}/{name}" for name in names]
        storage = side_of(cluster).storage(job.source)

        def vanish() -> None:
            with storage.open(places[-1]) as stream:
                for place in places:
                    assert storage.delete(place)
                wait_until(lambda: not readable(stream))

        return halfway(job, self.FILES, vanish)


def readable(stream: BinaryIO) -> bool:
    """Whether a file's last blocks still are."""
    try:
        for position in (2 * MIB, 3 * MIB):
            stream.seek(position)
            stream.read(1)
    except OSError:
        return False
    return True
