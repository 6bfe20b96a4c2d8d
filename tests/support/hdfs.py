"""Runs a real HDFS on loopback, NameNodes and DataNodes in one JVM: the Java side is `tests/hdfs`.

The Hadoop client is pyspark's own; the servers come in one more jar from Maven. A cluster's process
ends when its stdin closes, so none outlives the tests, and takes its directory with it.
"""

from __future__ import annotations

import contextlib
import getpass
import hashlib
import importlib.util
import json
import os
import queue
import re
import shutil
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from xml.sax.saxutils import escape

import pytest

from tests.support import building
from tests.support.ports import free_port
from tests.support.waiting import PATIENCE

PROJECT = Path(__file__).resolve().parent.parent / "hdfs"
BUILD_SECONDS = PATIENCE
START_SECONDS = PATIENCE
COMMAND_SECONDS = PATIENCE

_TARGET = PROJECT / "target"
_JAR = _TARGET / "minicluster.jar"
# the classes as the JVM maps them: less than half the time to start
_ARCHIVE = _TARGET / "minicluster.jsa"
# start quickly; not for measuring
_JVM = [
    "-Xmx512m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
]
_DEFAULTS = {"dfs.replication": "1", "dfs.heartbeat.interval": "1"}
_BEANS_SECONDS = 0.1  # how old a counter may be: tests/hdfs/conf/hadoop-metrics2.properties
_BETWEEN_SERVERS = """
    blockReceivedAndDeleted blockReport cacheReport commitBlockSynchronization endCheckpoint
    errorReport getBlockKeys getEditLogManifest getServiceStatus getTransactionID
    isRollingUpgrade isUpgradeFinalized monitorHealth registerDatanode
    registerSubordinateNamenode reportBadBlocks rollEditLog sendHeartbeat sendLifeline
    startCheckpoint transitionToActive transitionToObserver transitionToStandby versionRequest
"""
_NOT_BY_CLIENTS = frozenset(_BETWEEN_SERVERS.split())
_WEB = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class HdfsError(Exception):
    """A cluster, or the harness itself, failed."""


class HdfsCluster:
    """One HDFS; with a `nameservice`, an HA pair of that name whose first NameNode is active.

    `conf` is configuration of the servers and of `.conf` alike. The process's user is the
    superuser, or whom `superuser` names: then the tests' own user is an ordinary one. A secure
    cluster is that of `tests/support/kerberos.py`.
    """

    def __init__(
        self,
        *,
        datanodes: int = 2,
        nameservice: str | None = None,
        conf: Mapping[str, str] | None = None,
        superuser: str | None = None,
        java_options: Sequence[str] = (),
    ) -> None:
        self.nameservice = nameservice
        self.superuser = superuser or getpass.getuser()
        self.active: int | None = 0  # the index of the active NameNode
        self._settings = {**_DEFAULTS, **(conf or {})}
        self._java_options = list(java_options)
        self._words = [
            "--datanodes",
            str(datanodes),
            *(["--ha", nameservice] if nameservice else []),
        ]
        self._words += [f"{key}={value}" for key, value in self._settings.items()]
        self._ports = 2 * (2 if nameservice else 1) + 3 * datanodes
        self._process: _Process | None = None
        self._asking = threading.Lock()
        self._ready: dict[str, Any] = {}

    def __enter__(self) -> HdfsCluster:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> HdfsCluster:
        """Starts it; all of its nodes are up and registered."""
        return self.start_many([self])[0]

    @staticmethod
    def start_many(clusters: Iterable[HdfsCluster]) -> list[HdfsCluster]:
        """Starts all of them at once; when one fails, none stays."""
        started = list(clusters)
        build()
        try:
            for cluster in started:
                cluster._launch(_options())
            for cluster in started:
                cluster._wait_until_ready()
        except BaseException:
            for cluster in started:
                cluster.close()
            raise
        return started

    def _launch(self, options: list[str]) -> None:
        ports = ",".join(str(free_port()) for _ in range(self._ports))
        words = ["--ports", ports, *self._words]
        self._process = _Process(options + self._java_options, words, self.superuser)

    def _wait_until_ready(self) -> None:
        while not self._is_ready():
            self._running.kill()
            self._launch(_options())

    def _is_ready(self) -> bool:
        """Wait for the start; return whether Hadoop waited for its DataNodes: it has 11 seconds."""
        try:
            self._ready = self._running.answer(START_SECONDS)
        except HdfsError as failure:
            if "Timed out waiting for Mini HDFS Cluster to start" not in str(failure):
                raise
            return False
        return True

    def close(self) -> None:
        """Ends the process, whatever it is doing, and removes its files."""
        if self._process is not None:
            self._process.kill()
            self._process = None

    @property
    def pid(self) -> int:
        return self._running.pid

    @property
    def uri(self) -> str:
        return str(self._ready["uri"])

    @property
    def namenodes(self) -> list[str]:
        """`host:port` of each NameNode's RPC."""
        return list(self._ready["rpc"])

    @property
    def http(self) -> list[str]:
        """`host:port` of each NameNode's HTTP."""
        return list(self._ready["http"])

    @property
    def datanodes(self) -> list[str]:
        """`host:port` where each DataNode takes and gives data."""
        return list(self._ready["datanodes"])

    @property
    def webhdfs_uri(self) -> str:
        """The active NameNode's."""
        return f"webhdfs://{self.http[self._active]}"

    @property
    def conf(self) -> dict[str, str]:
        """What a Hadoop client must be configured with to reach this cluster."""
        return {
            **self._settings,
            "fs.defaultFS": self.uri,
            **(self._ha_conf(self.nameservice) if self.nameservice else {}),
        }

    def _ha_conf(self, name: str) -> dict[str, str]:
        nodes = {f"nn{index}": index for index in range(len(self.namenodes))}
        return {
            "dfs.nameservices": name,
            f"dfs.ha.namenodes.{name}": ",".join(nodes),
            f"dfs.client.failover.proxy.provider.{name}": (
                "org.apache.hadoop.hdfs.server.namenode.ha.ConfiguredFailoverProxyProvider"
            ),
            **{
                f"dfs.namenode.rpc-address.{name}.{node}": self.namenodes[index]
                for node, index in nodes.items()
            },
            **{
                f"dfs.namenode.http-address.{name}.{node}": self.http[index]
                for node, index in nodes.items()
            },
        }

    def write_conf_dir(self, path: Path) -> Path:
        """Writes `core-site.xml` and `hdfs-site.xml`, as a HADOOP_CONF_DIR has them."""
        path.mkdir(parents=True, exist_ok=True)
        for file, wanted in (("core-site.xml", True), ("hdfs-site.xml", False)):
            chosen = {
                key: value
                for key, value in self.conf.items()
                if key.startswith(("fs.", "hadoop.")) is wanted
            }
            (path / file).write_text(site_xml(chosen))
        return path

    def stop_datanode(self, index: int, *, declared_dead: bool = False) -> None:
        """Breaks its connections.

        The NameNode goes on believing in it for ten minutes, unless it is `declared_dead`.
        """
        self._ask("stopdn", str(index), *(["dead"] if declared_dead else []))

    def start_datanode(self, index: int) -> None:
        """Starts the one that was stopped, under its address and with its blocks."""
        self._ask("startdn", str(index))

    def failover(self) -> int:
        """Make the other NameNode active, and return its index.

        The one that was becomes standby, if it runs.
        """
        self._ask("failover")
        return self._active

    def stop_namenode(self, index: int) -> None:
        """Breaks its connections; the other one takes over only by `failover`."""
        self._ask("stopnn", str(index))

    def start_namenode(self, index: int) -> None:
        """Start the stopped NameNode at its old addresses: as standby, unless none is active."""
        self._ask("startnn", str(index))

    def restart_namenode(self, index: int = 0) -> None:
        """Stops and starts it; its counters start anew."""
        self._ask("restartnn", str(index))

    def safemode(self, on: bool) -> None:
        """Makes the active NameNode refuse every change, or accept them again."""
        self._ask("safemode", "on" if on else "off")

    def quota(self, path: str, space: int | None) -> None:
        """Limits the bytes, times replication, under a directory that exists.

        `None` lifts the limit.
        """
        self._ask("quota", path, str(-1 if space is None else space))

    def chmod(self, path: str, mode: int) -> None:
        """As the superuser."""
        self._ask("chmod", path, f"{mode:o}")

    def chown(self, path: str, owner: str) -> None:
        """As the superuser."""
        self._ask("chown", path, owner)

    def mkdirs(self, path: str) -> None:
        """As the superuser, whose the directory is."""
        self._ask("mkdirs", path)

    def encrypt(self, path: str) -> None:
        """Make a directory that is not there an encryption zone, as the superuser."""
        self._ask("zone", path)

    def snapshot(self, path: str, name: str) -> None:
        """Make a directory snapshottable and take a snapshot, as the superuser."""
        self._web("PUT", path, {"op": "ALLOWSNAPSHOT"})
        self._web("PUT", path, {"op": "CREATESNAPSHOT", "snapshotname": name})

    def put(self, path: str, data: bytes, *, user: str | None = None) -> None:
        """Writes a file over what was there, and its directories with it, as `user` or the
        superuser.
        """
        try:
            self._put(path, data, user)
        except HdfsError as failure:
            if "java.io.EOFException" not in str(failure):
                raise
            # the DataNode's connection to a NameNode that was restarted since
            self._put(path, data, user)

    def _put(self, path: str, data: bytes, user: str | None) -> None:
        query = {"op": "CREATE", "overwrite": "true", "noredirect": "true"}
        where = json.loads(self._web("PUT", path, query, user))["Location"]
        _fetch(
            urllib.request.Request(
                where, data, {"Content-Type": "application/octet-stream"}, method="PUT"
            )
        )

    def damage(self, data: bytes) -> None:
        """Changes a byte of each replica of the blocks with just this content."""
        replicas = [
            replica
            for replica in self._running.scratch.rglob("blk_*")
            if replica.suffix != ".meta" and _bytes_of(replica) == data
        ]
        assert replicas, "no block has this content"
        middle = len(data) // 2
        for replica in replicas:
            replica.write_bytes(data[:middle] + bytes([data[middle] ^ 255]) + data[middle + 1 :])

    def write_on(self, path: str, data: bytes) -> None:
        """Writes at the end of a file and flushes it, as Flink does; the file stays open."""
        with tempfile.NamedTemporaryFile(dir=self._running.scratch) as content:
            content.write(data)
            content.flush()
            self._ask("write", path, content.name)

    def get(self, path: str, *, user: str | None = None) -> bytes:
        """A file's bytes."""
        return self._web("GET", path, {"op": "OPEN"}, user)

    def status(self, path: str) -> dict[str, Any]:
        """Return WebHDFS's FileStatus: `length`, `owner`, `permission`, `replication`, `type`, …"""
        return dict(json.loads(self._web("GET", path, {"op": "GETFILESTATUS"}))["FileStatus"])

    def names(self, path: str) -> list[str]:
        """The names in a directory, sorted."""
        rows = json.loads(self._web("GET", path, {"op": "LISTSTATUS"}))["FileStatuses"][
            "FileStatus"
        ]
        return sorted(row["pathSuffix"] for row in rows)

    def tree(self, path: str) -> dict[str, bytes | None]:
        """Every path below a directory, with a file's bytes; a directory has None."""
        rows = json.loads(self._web("GET", path, {"op": "LISTSTATUS"}))["FileStatuses"][
            "FileStatus"
        ]
        found: dict[str, bytes | None] = {}
        for row in rows:
            place = f"{path}/{row['pathSuffix']}"
            found[place] = None if row["type"] == "DIRECTORY" else self.get(place)
            if row["type"] == "DIRECTORY":
                found.update(self.tree(place))
        return found

    def rpc_counts(self, namenode: int | None = None) -> dict[str, int]:
        """How often clients have called each method since the NameNode started, all that was
        answered until now.

        Of one NameNode, or of all. Calls through WebHDFS count where they reach a DataNode: to
        create and to open.
        """
        self._ask("idle")  # a call counts after its answer
        time.sleep(2.5 * _BEANS_SECONDS)
        chosen = self.namenodes if namenode is None else [self.namenodes[namenode]]
        ports = {address.rsplit(":", 1)[1] for address in chosen}
        counts: Counter[str] = Counter()
        for bean in self._rpc_beans():
            if re.findall(r"ForPort(\d+)", bean["name"])[0] in ports:
                counts.update(_calls(bean))
        return {
            method: count
            for method, count in sorted(counts.items())
            if count and method not in _NOT_BY_CLIENTS
        }

    @contextlib.contextmanager
    def counted(self, namenode: int | None = None) -> Iterator[Counter[str]]:
        """The calls made inside of the block, known when it has ended."""
        calls: Counter[str] = Counter()
        before = self.rpc_counts(namenode)
        yield calls
        calls.update(self.rpc_counts(namenode))
        calls.subtract(before)
        for method in [method for method, count in calls.items() if count == 0]:
            del calls[method]

    def stderr(self) -> str:
        """What Hadoop has complained about, the end of it."""
        return self._running.stderr()

    @property
    def _running(self) -> _Process:
        if self._process is None:
            raise HdfsError("this cluster is not started")
        return self._process

    @property
    def _active(self) -> int:
        if self.active is None:
            raise HdfsError("no NameNode is active")
        return self.active

    def _ask(self, *words: str) -> None:
        with self._asking:
            self._running.send(*words)
            answer = self._running.answer(COMMAND_SECONDS)
        self.active = answer["active"] if answer["active"] >= 0 else None
        if not answer["ok"]:
            raise HdfsError(f"{' '.join(words)}: {answer['error']}\n{self.stderr()}")

    def _web(
        self, method: str, path: str, query: Mapping[str, str], user: str | None = None
    ) -> bytes:
        words = urllib.parse.urlencode({**query, "user.name": user or self.superuser})
        url = f"http://{self.http[self._active]}/webhdfs/v1{urllib.parse.quote(path)}?{words}"
        return _fetch(urllib.request.Request(url, method=method))

    def _rpc_beans(self) -> list[dict[str, Any]]:
        """Of every node in the process, whichever NameNode is asked."""
        query = "/jmx?qry=Hadoop:service=NameNode,name=RpcDetailedActivityForPort*"
        for address in self.http:
            with contextlib.suppress(HdfsError):
                return list(
                    json.loads(_fetch(urllib.request.Request(f"http://{address}{query}")))["beans"]
                )
        raise HdfsError("no NameNode answers")


def _options() -> list[str]:
    return [f"-XX:SharedArchiveFile={_ARCHIVE}"] if _ARCHIVE.exists() else []


class _Process:
    """One JVM: takes commands on stdin, answers with a line of JSON each on stdout."""

    def __init__(self, options: list[str], words: list[str], user: str) -> None:
        self.scratch = Path(tempfile.mkdtemp(prefix="cpreplicate-hdfs-"))
        self._log = (self.scratch / "stderr").open("w+b")
        self._process = subprocess.Popen(
            _java(options, self.scratch, words),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            cwd=self.scratch,
            text=True,
            env=_environment(user),
        )
        self.pid = self._process.pid
        self._answers: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, name="hdfs-answers", daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):  # the JVM itself may print a warning
                self._answers.put(json.loads(line))
        self._answers.put(None)

    def send(self, *words: str) -> None:
        """One command."""
        assert self._process.stdin is not None
        self._process.stdin.write("\t".join(words) + "\n")
        self._process.stdin.flush()

    def quit(self) -> None:
        """Lets the process end of itself."""
        self.send("quit")
        self._process.wait(timeout=BUILD_SECONDS)

    def answer(self, seconds: float) -> dict[str, Any]:
        """The next answer, or `HdfsError` when there is none in time or the process ends."""
        try:
            answer = self._answers.get(timeout=seconds)
        except queue.Empty:
            raise HdfsError(f"no word from HDFS in {seconds} s\n{self.stderr()}") from None
        if answer is None:
            raise HdfsError(f"the HDFS process ended\n{self.stderr()}")
        return answer

    def stderr(self) -> str:
        with contextlib.suppress(FileNotFoundError):  # removed when the process ends
            return Path(str(self._log.name)).read_text(errors="replace")[-6000:]
        return ""

    def kill(self) -> None:
        """Ends the process now, lets go of its pipes and removes its files."""
        self._process.kill()
        self._process.wait(timeout=PATIENCE)
        self._reader.join(timeout=PATIENCE)
        for stream in (self._process.stdin, self._process.stdout, self._log):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()
        shutil.rmtree(self.scratch, ignore_errors=True)


def _calls(bean: Mapping[str, Any]) -> dict[str, int]:
    """The calls of each method in a bean, without other views of the same calls and WebHDFS's own,
    `(external)`.

    A call that fails counts as one of its exception, such as `fileNotFoundException`, and not as
    one of its method.
    """
    found = {
        key.removesuffix("NumOps"): value for key, value in bean.items() if key.endswith("NumOps")
    }
    methods = [
        key for key in found if key.isidentifier() and not key.startswith(("Overall", "Deferred"))
    ]
    return {key[:1].lower() + key[1:]: found[key] for key in methods}


def _bytes_of(replica: Path) -> bytes | None:
    """Return the bytes of a block's replica, None if the DataNode has just deleted it."""
    with contextlib.suppress(FileNotFoundError):
        return replica.read_bytes()
    return None


def _fetch(request: urllib.request.Request) -> bytes:
    try:
        with _WEB.open(request, timeout=PATIENCE) as response:
            return bytes(response.read())
    except urllib.error.HTTPError as refused:
        with refused:
            raise HdfsError(
                f"{request.method} {request.full_url}: {refused.code} {refused.read().decode()}"
            ) from None
    except OSError as failure:
        raise HdfsError(f"{request.method} {request.full_url}: {failure}") from failure


def site_xml(conf: Mapping[str, str]) -> str:
    """Return the text of a file of Hadoop's configuration."""
    rows = [
        f"<property><name>{escape(key)}</name><value>{escape(value)}</value></property>"
        for key, value in conf.items()
    ]
    return "\n".join(['<?xml version="1.0"?>', "<configuration>", *rows, "</configuration>", ""])


def _pyspark_jars() -> Path:
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "jars"


def _environment(user: str) -> dict[str, str]:
    hadoop = [name for name in os.environ if name.startswith("HADOOP_")]
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in [*hadoop, "JAVA_TOOL_OPTIONS"]
    }
    return {**kept, "HADOOP_USER_NAME": user}


def _java(options: list[str], directory: Path, words: list[str]) -> list[str]:
    classpath = f"{_JAR}:{_pyspark_jars()}/*"
    quiet = ["-Xlog:disable", "-Xlog:all=error:stderr", f"-Djava.io.tmpdir={directory}"]
    return [
        "java",
        *_JVM,
        *options,
        *quiet,
        "-cp",
        classpath,
        "MiniCluster",
        "--dir",
        str(directory),
        *words,
    ]


def build() -> None:
    """Prepares the jar and the archive of its classes, unless that was done since its sources last
    changed.
    """
    with building.alone():
        _TARGET.mkdir(exist_ok=True)
        stamp = _TARGET / "stamp"
        wanted = _digest_of_sources()
        if not (stamp.exists() and stamp.read_text() == wanted):
            _ARCHIVE.unlink(missing_ok=True)
            _maven()
            _write_jar(_TARGET / "hadoop-client-minicluster.jar")
            _write_archive()
            stamp.write_text(wanted)


def _digest_of_sources() -> str:
    jars = sorted(path.name for path in _pyspark_jars().iterdir())
    digest = hashlib.sha256("\0".join([*_JVM, str(_pyspark_jars()), *jars]).encode())
    for path in [
        PROJECT / "pom.xml",
        PROJECT / "MiniCluster.java",
        *sorted((PROJECT / "conf").iterdir()),
    ]:
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def _maven() -> None:
    """Offline where everything is cached, which takes seconds; else with the network."""
    for offline in (["--offline"], []):
        command = ["mvn", "-q", "-B", *offline, "process-resources"]
        done = _run(command)
        if done.returncode == 0:
            return
    raise HdfsError(f"{' '.join(command)}\n{done.stdout[-4000:]}{done.stderr[-4000:]}")


def _write_jar(hadoop: Path) -> None:
    """Ours and Hadoop's classes in one jar, not compressed: its web servers read all of it each
    time they start.
    """
    with tempfile.TemporaryDirectory(dir=_TARGET) as classes:
        done = _run(
            [
                "javac",
                "-d",
                classes,
                "-cp",
                f"{hadoop}:{_pyspark_jars()}/*",
                str(PROJECT / "MiniCluster.java"),
            ]
        )
        if done.returncode != 0:
            raise HdfsError(done.stderr)
        written = Path(classes) / _JAR.name
        with zipfile.ZipFile(hadoop) as source, zipfile.ZipFile(written, "w") as jar:
            for path in [*Path(classes).glob("*.class"), *(PROJECT / "conf").iterdir()]:
                jar.write(path, path.name)
            for entry in source.infolist():
                jar.writestr(entry.filename, source.read(entry))
        written.replace(_JAR)  # a cluster that runs goes on with the old one
    hadoop.unlink()


def _write_archive() -> None:
    """The classes that a cluster loads until it has written and read a file."""
    cluster = HdfsCluster(datanodes=1, nameservice="archive")
    with contextlib.closing(cluster):
        cluster._launch([f"-XX:ArchiveClassesAtExit={_ARCHIVE}"])
        cluster._wait_until_ready()
        cluster.put("/file", b"data")
        cluster.get("/file")
        cluster.rpc_counts()
        cluster.failover()
        cluster._running.quit()


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=PROJECT,
        capture_output=True,
        text=True,
        timeout=BUILD_SECONDS,
        stdin=subprocess.DEVNULL,
        check=False,
    )


class Clusters(NamedTuple):
    """Two that know nothing of each other, as in two data centres."""

    a: HdfsCluster
    b: HdfsCluster


@pytest.fixture(scope="session")
def clusters() -> Iterator[Clusters]:
    """Two clusters of two DataNodes each; whoever stops a part of them starts it again."""
    started = Clusters(*HdfsCluster.start_many([HdfsCluster(), HdfsCluster()]))
    yield started
    for cluster in started:
        cluster.close()


@pytest.fixture(scope="session")
def ha_cluster() -> Iterator[HdfsCluster]:
    """An HA pair with the name that every vendor gives it; either NameNode may be active."""
    with HdfsCluster(datanodes=1, nameservice="nameservice1") as started:
        yield started


@pytest.fixture
def hdfs_cluster() -> Iterator[Callable[..., HdfsCluster]]:
    """Starts a cluster of the test's own, closed at its end; takes what `HdfsCluster` takes."""
    with contextlib.ExitStack() as stack:
        yield lambda **options: stack.enter_context(HdfsCluster(**options))
