"""Runs real Flink jobs that know what their state must be: the Java side is `tests/flink`.

`Flink` keeps one JVM a version that runs job after job, each on its own MiniCluster. `Flink.start`
gives a job of its own process that goes on until it is stopped. Each process ends when its stdin
closes, so none outlives the tests. Hadoop's client, pyspark's own, is on Flink's class path:
checkpoints may be at `hdfs://…` too.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import os
import queue
import shutil
import subprocess
import tempfile
import threading
import time
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pytest

from tests.support import building, parts
from tests.support.waiting import PATIENCE

PROJECT = Path(__file__).resolve().parent.parent / "flink"
VERSIONS: dict[str, str] = {"1": "1.20.5", "2.0": "2.0.1", "2.1": "2.1.1", "2": "2.3.0"}
SESSIONS: dict[str, str] = {"1.13": "1.13.6", "1.17": "1.17.2"}
"""Earlier ones, of which there are session clusters only."""
Version = Literal["1.13", "1.17", "1", "2.0", "2.1", "2"]
ClaimMode = Literal["NO_CLAIM", "CLAIM", "LEGACY"]
Event = dict[str, Any]
Place = Path | str
"""A path of the local disk, or a URI."""

BUILD_SECONDS = PATIENCE
RUN_SECONDS = PATIENCE
_OPENED = ("lang", "lang.reflect", "util", "util.concurrent", "net", "io", "nio", "text", "time")
_SHORT_RUNS = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]  # start quickly; not for measuring
_COPY = ("org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy", "-Dmdep.overWrite=false")
_JVM = [f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in _OPENED]


class FlinkError(Exception):
    """The harness itself, not the job, failed."""


class Plugin(NamedTuple):
    """A filesystem that Flink loads as a plugin, such as `s3-fs-hadoop`, and its configuration."""

    name: str
    configuration: Mapping[str, str]


@dataclass(frozen=True)
class Job:
    """What kind of state a run writes."""

    backend: str = "rocksdb"
    parallelism: int = 2
    retained: int = 3
    unaligned: bool = False
    file_merging: bool = False
    file_merging_across: bool = False
    disaggregated: bool = False  # ForSt works on files in the checkpoint directory
    changelog: Place | None = None  # the base path of the changelog's own files
    job_id: str | None = (
        None  # fixed, as in application mode with high availability; else a new one at each start
    )
    name: str | None = None  # by which the REST API reports it; None for Flink's own
    keys: int | None = None  # of its state; None for the harness's own number
    slow_micros: int = 0  # that it waits for each record, beside what `unaligned` sets
    rest_refresh_ms: int = 3000  # web.refresh-interval: how old an answer of the REST API may be

    def words(self) -> list[str]:
        """The options of this job for the harness."""
        flags = {
            "--unaligned": self.unaligned,
            "--file-merging": self.file_merging,
            "--file-merging-across": self.file_merging_across,
            "--disaggregated": self.disaggregated,
        }
        words = [
            "--backend",
            self.backend,
            "--parallelism",
            str(self.parallelism),
            "--retained",
            str(self.retained),
        ]
        words += [flag for flag, wanted in flags.items() if wanted]
        words += ["--job-id", self.job_id] if self.job_id else []
        words += ["--job-name", self.name] if self.name else []
        words += ["--rest-refresh-ms", str(self.rest_refresh_ms)]
        words += ["--keys", str(self.keys)] if self.keys else []
        words += ["--slow-micros", str(self.slow_micros)] if self.slow_micros else []
        return words + (["--changelog", _uri(self.changelog)] if self.changelog else [])


@dataclass(frozen=True)
class RunResult:
    """The events that a job reported."""

    events: list[Event] = field(repr=False)

    def _find(self, event: str) -> list[Event]:
        return [row for row in self.events if row["event"] == event]

    @property
    def job_id(self) -> str:
        return str(self._find("job")[-1]["jobId"])

    @property
    def rest_url(self) -> str:
        """The address of its JobManager's REST API."""
        return str(self._find("job")[-1]["rest"])

    @property
    def started(self) -> float:
        """When every task ran, in seconds since the epoch."""
        return float(self._find("running")[-1]["time"]) / 1000

    @property
    def completed(self) -> dict[str, float]:
        """When each checkpoint completed, by its URI, in seconds since the epoch."""
        return {str(row["path"]): row["time"] / 1000 for row in self._find("checkpoint")}

    @property
    def checkpoint_uris(self) -> list[str]:
        """Every checkpoint that completed, whether or not it is still there."""
        return [str(row["path"]) for row in self._find("checkpoint")]

    @property
    def newest_uri(self) -> str:
        return self.checkpoint_uris[-1]

    @property
    def directory_uri(self) -> str:
        """The job's."""
        return self.newest_uri.rpartition("/")[0]

    @property
    def checkpoints(self) -> list[Path]:
        """As `checkpoint_uris`, of a job whose checkpoints are on the local disk."""
        return [_local(uri) for uri in self.checkpoint_uris]

    @property
    def savepoint(self) -> Path:
        return _local(self._find("savepoint")[-1]["path"])

    @property
    def newest(self) -> Path:
        return self.checkpoints[-1]

    @property
    def retained(self) -> list[Path]:
        return [path for path in self.checkpoints if (path / "_metadata").exists()]

    @property
    def directory(self) -> Path:
        return self.newest.parent

    @property
    def failure(self) -> str | None:
        """Why the job failed or its state is not what it was."""
        failed = self._find("failed")
        return str(failed[-1]["why"]) if failed else None

    @property
    def exact(self) -> bool:
        """Whether the restored state is proved to be exactly that of the checkpoint."""
        return self.failure is None and [row["exact"] for row in self._find("restored")] == [True]

    @property
    def restored(self) -> Event:
        return self._find("restored")[-1]


class Process:
    """One JVM: takes commands on stdin, answers with events on stdout."""

    def __init__(
        self, command: Sequence[str], scratch: Path, environment: Mapping[str, str]
    ) -> None:
        self._log = (scratch / f"stderr-{time.monotonic_ns()}").open("w+b")
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            cwd=scratch,
            text=True,
            env=environment,
        )
        self._events: queue.Queue[Event | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, name="flink-events", daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            # the JVM itself may print a warning, and be killed within a line
            if line.startswith("{") and line.endswith("\n"):
                self._events.put(json.loads(line))
        self._events.put(None)

    def send(self, *words: str) -> None:
        """One command."""
        assert self._process.stdin is not None
        self._process.stdin.write("\t".join(words) + "\n")
        self._process.stdin.flush()

    def next_event(self, deadline: float) -> Event:
        """The next event, or `FlinkError` at the deadline or when the process ends."""
        try:
            event = self._events.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            raise FlinkError(f"no word from Flink in time\n{self.stderr()}") from None
        if event is None:
            raise FlinkError(f"the Flink process ended\n{self.stderr()}")
        return event

    def until(self, name: str, seconds: float) -> list[Event]:
        """The events up to and with the first of that name."""
        deadline = time.monotonic() + seconds
        events = [self.next_event(deadline)]
        while events[-1]["event"] != name:
            events.append(self.next_event(deadline))
        return events

    def left(self) -> list[Event]:
        """The events that nobody has taken, of a process that was killed."""
        events = [self._events.get_nowait() for _ in range(self._events.qsize())]
        return [event for event in events if event is not None]

    @property
    def pid(self) -> int:
        return self._process.pid

    def stderr(self) -> str:
        """What Flink has complained about, the end of it."""
        self._log.flush()
        return Path(str(self._log.name)).read_text(errors="replace")[-4000:]

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        """Ends the process now, and lets go of its pipes."""
        self._process.kill()
        self._process.wait(timeout=PATIENCE)
        self._reader.join(timeout=PATIENCE)
        for stream in (self._process.stdin, self._process.stdout, self._log):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()


class RunningJob:
    """A job that goes on taking checkpoints until `stop` or `kill`."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._events: list[Event] = []
        self.stopped = False

    @property
    def so_far(self) -> RunResult:
        return RunResult(list(self._events))

    def wait_for_checkpoints(self, count: int, seconds: float = RUN_SECONDS) -> RunResult:
        """Waits until so many more checkpoints have completed."""
        return self._wait_for("checkpoint", count, seconds)

    def wait_until_running(self, seconds: float = RUN_SECONDS) -> RunResult:
        """Waits until every task runs, and the state is proved if it was restored."""
        return self._wait_for("running", 1, seconds)

    def _wait_for(self, name: str, count: int, seconds: float) -> RunResult:
        deadline = time.monotonic() + seconds
        while count > 0:
            event = self._process.next_event(deadline)
            self._events.append(event)
            if event["event"] in ("failed", "end"):
                raise FlinkError(f"the job ended: {event}\n{self._process.stderr()}")
            count -= event["event"] == name
        return self.so_far

    def take_checkpoints(self, count: int, seconds: float = RUN_SECONDS) -> RunResult:
        """Has the job take so many now, and waits until they have completed."""
        for _ in range(count):
            self._process.send("checkpoint")
        return self.wait_for_checkpoints(count, seconds)

    def stop(self, seconds: float = RUN_SECONDS) -> RunResult:
        """Cancels the job; its newest checkpoints stay."""
        self._process.send("stop")
        self._events += self._process.until("end", seconds)
        self.stopped = True
        return self.so_far

    @property
    def pid(self) -> int:
        """That of the process of its JobManager and TaskManager."""
        return self._process.pid

    def kill(self) -> RunResult:
        """Kill its process, and return all that it had reported by then."""
        self._process.kill()
        self._events += self._process.left()
        return self.so_far


class Flink:
    """Flink of one version.

    `hadoop_conf` is the directory with the configuration of its Hadoop, if that needs any. It loads
    `plugin` from Flink's own release.
    """

    def __init__(
        self, version: Version, hadoop_conf: Path | None = None, plugin: Plugin | None = None
    ) -> None:
        self.version = version
        self.release = {**VERSIONS, **SESSIONS}[version]
        self._hadoop_conf, self._plugin = hadoop_conf, plugin
        self._target = PROJECT / f"target-{version}"
        self._scratch = Path(tempfile.mkdtemp(prefix=f"cpreplicate-flink-{version}-"))
        self._server: Process | None = None

    def __enter__(self) -> Flink:
        self.build()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the server and removes its temporary files."""
        if self._server is not None:
            self._server.kill()
            self._server = None
        shutil.rmtree(self._scratch, ignore_errors=True)

    def build(self) -> None:
        """Compiles the harness, unless that was done since its sources last changed."""
        with building.alone():
            stamp = self._target / "stamp"
            wanted = _digest_of_sources()
            if not (stamp.exists() and stamp.read_text() == wanted):
                _maven(self.version, "clean", "compile")
                stamp.write_text(wanted)
            if self._plugin is not None:
                self._load(self._plugin)

    def _load(self, plugin: Plugin) -> None:
        """Put a plugin of this release, and its configuration, where this Flink looks for them."""
        place, name = self._target / "plugins" / plugin.name, f"flink-{plugin.name}"
        jar = place / f"{name}-{self.release}.jar"
        if not jar.exists():
            artifact = f"org.apache.flink:{name}:{self.release}"
            _maven(self.version, *_COPY, f"-Dartifact={artifact}", f"-DoutputDirectory={place}")
        used = self._scratch / "plugins" / plugin.name
        used.mkdir(parents=True)
        (used / jar.name).symlink_to(jar)
        lines = [f"{key}: {json.dumps(value)}" for key, value in plugin.configuration.items()]
        conf = self._scratch / "conf"
        conf.mkdir()
        (conf / "config.yaml").write_text("\n".join(lines) + "\n")

    def run(
        self,
        checkpoint_root: Place,
        job: Job | None = None,
        *,
        checkpoints: int = 4,
        restore: Place | None = None,
        claim_mode: ClaimMode = "NO_CLAIM",
        savepoint: Place | None = None,
        until_gone: Path | None = None,
        seconds: float = RUN_SECONDS,
    ) -> RunResult:
        """One job from its start (or restore) to its cancellation.

        It takes `checkpoints`, and more until Flink has deleted `until_gone`.
        """
        words = _run_words(checkpoint_root, job or Job(), checkpoints, restore, claim_mode)
        if savepoint is not None:
            words += ["--savepoint", _uri(savepoint)]
        if until_gone is not None:
            words += ["--until-gone", str(until_gone)]
        return RunResult(self._ask(words, seconds))

    @contextlib.contextmanager
    def start(
        self,
        checkpoint_root: Place,
        job: Job | None = None,
        *,
        interval_ms: int = 0,
        restore: Place | None = None,
        claim_mode: ClaimMode = "NO_CLAIM",
        takes_first: bool = True,
    ) -> Iterator[RunningJob]:
        """A job in its own process, with a checkpoint every `interval_ms`, if not 0; killed when
        the block ends.

        With `takes_first`, it has completed a checkpoint when the block begins.

        Once it is stopped, its process serves the runs that follow: a JVM that has run a job starts
        the next one sooner.
        """
        process = self._spawn()
        running = RunningJob(process)
        try:
            first = int(takes_first)
            words = _run_words(checkpoint_root, job or Job(), first, restore, claim_mode)
            process.send(*words, "--keep-running", "--interval-ms", str(interval_ms))
            running.wait_until_running()
            running.wait_for_checkpoints(first)
            yield running
        finally:
            if running.stopped and self._server is None:
                self._server = process
            else:
                process.kill()

    def refs(self, checkpoint: Place) -> list[Event]:
        """What Flink's own loader reads in a checkpoint: its handles in order, then a summary."""
        events = self._ask(["refs", str(checkpoint)], RUN_SECONDS)
        if any(row.get("event") == "failed" for row in events):
            raise FlinkError(str(events[-1]))
        return [row for row in events if "event" not in row]

    def load_bench(
        self, files: Sequence[Path], heap: str = "4g", seconds: float = 600
    ) -> dict[Path, float]:
        """Seconds that Flink's own loader needs for each `_metadata` file, warm."""
        command = self._java("cpreplicate.LoaderBench", *map(str, files), options=[f"-Xmx{heap}"])
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
        if done.returncode != 0:
            raise FlinkError(done.stderr[-4000:])
        rows = [json.loads(line) for line in done.stdout.splitlines()]
        return {Path(row["path"]): float(row["seconds"]) for row in rows}

    def _ask(self, words: Sequence[str], seconds: float) -> list[Event]:
        if self._server is None or not self._server.alive:
            self._server = self._spawn()
        try:
            self._server.send(*words)
            return self._until_end(self._server, seconds)
        except FlinkError:
            self._server.kill()
            self._server = None
            raise

    @staticmethod
    def _until_end(process: Process, seconds: float) -> list[Event]:
        deadline = time.monotonic() + seconds
        events = [process.next_event(deadline)]
        while events[-1].get("event") != "end":
            events.append(process.next_event(deadline))
        return events[:-1]

    def process(self, main: str, *words: str, **environment: str) -> Process:
        """Start a process of a program of the harness. The caller kills it."""
        command = self._java(main, *words, options=["-Xmx768m", *_SHORT_RUNS])
        return Process(command, self._scratch, {**self._environment(), **environment})

    def jar(self) -> Path:
        """Return the jar of the program that a session cluster runs, which is made anew."""
        path = self._scratch / "session-job.jar"
        classes = self._target / "classes"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("META-INF/MANIFEST.MF", "Main-Class: cpreplicate.SessionJob\n")
            for each in sorted(classes.rglob("*.class")):
                archive.write(each, each.relative_to(classes))
        return path

    def _spawn(self) -> Process:
        return self.process("cpreplicate.Harness", "serve")

    def _environment(self) -> dict[str, str]:
        """Return an environment in which the only configuration is its own.

        This machine may have a Hadoop or a Flink of its own.
        """
        others = ("HADOOP_", "FLINK_")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(others)}
        conf, plugins = self._scratch / "conf", self._scratch / "plugins"
        own = {"FLINK_CONF_DIR": str(conf), "FLINK_PLUGINS_DIR": str(plugins)}
        hadoop = {"HADOOP_CONF_DIR": str(self._hadoop_conf)} if self._hadoop_conf else {}
        return {**kept, **hadoop, **(own if self._plugin is not None else {})}

    def _java(self, main: str, *words: str, options: Sequence[str]) -> list[str]:
        flink = (self._target / "classpath.txt").read_text().strip()
        # a plugin has a Hadoop of its own, which would read the defaults of this one
        hadoop = hadoop_client() if self._plugin is None else []
        classpath = ":".join([str(self._target / "classes"), flink, *map(str, hadoop)])
        temporary = f"-Djava.io.tmpdir={self._scratch}"
        return ["java", *options, *_JVM, temporary, "-cp", classpath, main, *words]


def hadoop_client() -> list[Path]:
    """Hadoop's client with all that it needs, from pyspark's jars."""
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    return sorted((Path(spec.origin).parent / "jars").glob("hadoop-client-*.jar"))


def _run_words(
    root: Place, job: Job, checkpoints: int, restore: Place | None, claim_mode: ClaimMode
) -> list[str]:
    words = [
        "run",
        "--checkpoints",
        _uri(root),
        "--checkpoint-count",
        str(checkpoints),
        *job.words(),
    ]
    if restore is not None:
        words += ["--restore", _uri(restore), "--claim-mode", claim_mode]
    return words


def _uri(place: Place) -> str:
    return place if isinstance(place, str) else f"file:{place}"


def _local(uri: str) -> Path:
    if not uri.startswith("file:"):
        raise FlinkError(f"{uri} is not on the local disk")
    return Path(uri.removeprefix("file:"))


def _digest_of_sources() -> str:
    digest = hashlib.sha256()
    for path in [PROJECT / "pom.xml", *sorted((PROJECT / "src").rglob("*"))]:
        if path.is_file():
            digest.update(str(path.relative_to(PROJECT)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def _maven(version: Version, *goals: str) -> None:
    """Offline where everything is cached, which takes seconds; else with the network."""
    for offline in (["--offline"], []):
        earlier = ["-Dearlier"] if version in SESSIONS else []
        command = ["mvn", "-q", "-B", *offline, *earlier, f"-Pflink{version}", *goals]
        done = subprocess.run(
            command,
            cwd=PROJECT,
            capture_output=True,
            text=True,
            timeout=BUILD_SECONDS,
            stdin=subprocess.DEVNULL,
            check=False,
        )
        if done.returncode == 0:
            return
    raise FlinkError(f"{' '.join(command)}\n{done.stdout[-4000:]}{done.stderr[-4000:]}")


def state_rows(refs: Sequence[Mapping[str, Any]]) -> list[Event]:
    """The rows of Flink's loader in the words of `cpreplicate inspect --refs`."""
    return [_state_row(row) for row in refs if "type" in row]


_STATES = {
    "coordinator": "coordinator",
    "op-managed": "operator",
    "op-raw": "operator-raw",
    "keyed": "keyed",
    "keyed-raw": "keyed-raw",
    "chan-in": "channel-in",
    "chan-out": "channel-out",
}
_HANDLES = {1: "inline", 2: "file", 6: "relative", 15: "segment", 16: "empty"}


def _state_row(row: Mapping[str, Any]) -> Event:
    return {
        "operator": row["op"],
        "subtask": None if row["subtask"] < 0 else row["subtask"],
        "state": _STATES[row["kind"].split("/")[0]],
        "handle": _HANDLES[row["type"]],
        "path": row.get("relative", row.get("path")),
        "uri": row.get("path"),
        "size": row["size"],
        "position": row.get("startPos"),
    }


@pytest.fixture(scope="session", params=[parts.rest("1"), "2"], ids=["flink-1.20", "flink-2.3"])
def flink(request: pytest.FixtureRequest) -> Iterator[Flink]:
    """Each supported line of Flink, or the one that a test names; all tests share its JVM."""
    with Flink(request.param) as started:
        yield started
