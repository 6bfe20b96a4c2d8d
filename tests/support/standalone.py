"""Runs a real Spark standalone cluster on loopback, a master and its workers, from pyspark's own
jars.

Each worker has an address of its own, as machines have: Spark counts failures by host too. The
kernel ends the daemons with the process that started them, executors end when they lose their
worker, and Python workers with their executor.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.support import processes
from tests.support.waiting import PATIENCE

START_SECONDS = PATIENCE
END_SECONDS = PATIENCE

_JVM = (
    "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData -XX:+UnlockDiagnosticVMOptions"
    " -XX:-BytecodeVerificationRemote"
)
QUICKLY = {"JAVA_TOOL_OPTIONS": _JVM}  # start in less time, executors too; not for measuring
# for tests of what executors do: the driver copies little files itself before they are there
EXECUTORS_ONLY = ("--conf", "spark.cpreplicate.driverCopies=false")
# in the environment; not for these processes
_OTHERS = (
    "SPARK_",
    "PYSPARK_",
    "HADOOP_",
    "JAVA_TOOL_OPTIONS",
)
_ANNOUNCED = re.compile(r"Starting Spark master at (spark://\S+:\d+)")
_REGISTERED = re.compile(r"Successfully registered with master (\S+)")

# Becomes the command, which the kernel kills when the process of the tests is gone.
_BOUND = """
import ctypes, os, resource, signal, sys
parent, limit, *command = sys.argv[1:]
PR_SET_PDEATHSIG = 1
ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
if limit != "none":
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), int(limit)))
if os.getppid() == int(parent):
    os.execvp(command[0], command)
"""


class StandaloneError(Exception):
    """A daemon did not start, or did not end."""


class StandaloneCluster:
    """One master and some workers of one core and 1 GiB each; what they write is in the
    directory.

    Workers are known by their number in the order of their start; a number is not used again.
    """

    def __init__(self, directory: Path, workers: int = 2) -> None:
        self.master = ""
        self._directory, self._count = directory, workers
        self._master: _Daemon | None = None
        self._workers: dict[int, _Daemon] = {}
        self._started = 0
        self._spoiled: set[int] = set()

    def __enter__(self) -> StandaloneCluster:
        try:
            self._master = _Daemon(self._directory / "master", "127.0.0.1", "master.Master")
            self.master = self._master.wait_for_line(_ANNOUNCED)
            self.repair()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends all of its processes, whatever they are doing."""
        for number in self.workers:
            self.kill_worker(number)
        if self._master is not None:
            self._master.kill()
            self._master = None

    @property
    def workers(self) -> list[int]:
        """The numbers of those that were not killed."""
        return list(self._workers)

    @property
    def environment(self) -> dict[str, str]:
        """What a driver needs in its environment to stay on loopback and in the directory."""
        return {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOCAL_DIRS": str(self._directory / "driver")}

    def start_worker(self, file_size_limit: int | None = None) -> int:
        """Start a worker and return its number.

        No process that it starts can make a file longer than the limit: that fails with EFBIG.

        A limit of less than a megabyte may keep executors from being started.
        """
        number = self._launch(file_size_limit)
        self._workers[number].wait_for_line(_REGISTERED)
        return number

    def kill_worker(self, number: int) -> None:
        """kill -9 of the worker, its executors and their Python workers."""
        self._workers.pop(number).kill()

    @contextlib.contextmanager
    def paused(self, number: int) -> Iterator[None]:
        """While the block runs, the executors of a worker and their Python workers stand still, as
        on a paused machine.
        """
        stopped = self._workers[number].children()
        try:
            for pid in stopped:
                with contextlib.suppress(ProcessLookupError, FileNotFoundError):  # it has ended
                    processes.stop(pid)
            yield
        finally:
            _signalled(stopped, signal.SIGCONT)

    def repair(self) -> None:
        """As many workers as at the start, all of them without limit, and no executor of a run that
        has ended.
        """
        for number in self._spoiled & set(self.workers):
            self.kill_worker(number)
        for number in self.workers[self._count :]:
            self.kill_worker(number)
        new = [self._launch() for _ in range(self._count - len(self.workers))]
        for number in new:
            self._workers[number].wait_for_line(_REGISTERED)
        _wait(
            lambda: not any(self.executors().values()),
            END_SECONDS,
            "executors go on after their run",
        )

    def executors(self) -> dict[int, list[int]]:
        """For each worker the processes that it started: executors and their Python workers."""
        return {number: worker.children() for number, worker in self._workers.items()}

    def opened(self, number: int, directory: Path) -> set[str]:
        """The files below a directory that processes of a worker have open: what it works on."""
        return {
            path
            for pid in self._workers[number].children()
            for path in _opened(pid)
            if path.startswith(f"{directory}/")
        }

    def written(self) -> dict[int, int]:
        """Return the bytes that each Python worker has written so far, by its process id."""
        # of those of this moment
        pids = [pid for worker in list(self._workers.values()) for pid in worker.children()]
        return {pid: count for pid in pids if (count := _written(pid)) is not None}

    def log(self, number: int) -> str:
        """Return the logs of a worker and its executors, killed or not."""
        files = sorted((self._directory / f"worker-{number}").rglob("std*"))
        return "".join(file.read_text(errors="replace") for file in files)

    def _launch(self, file_size_limit: int | None = None) -> int:
        number, self._started = self._started, self._started + 1
        if file_size_limit is not None:
            self._spoiled.add(number)
        host, directory = f"127.0.0.{number + 2}", self._directory / f"worker-{number}"
        words = [
            "--cores",
            "1",
            "--memory",
            "1g",
            "--work-dir",
            str(directory / "work"),
            self.master,
        ]
        self._workers[number] = _Daemon(
            directory, host, "worker.Worker", *words, file_size_limit=file_size_limit
        )
        return number


class _Daemon:
    """One JVM and all that it starts: a session of its own."""

    def __init__(
        self, directory: Path, host: str, name: str, *words: str, file_size_limit: int | None = None
    ) -> None:
        directory.mkdir(parents=True)
        self._log = directory / "stderr"
        limit = "none" if file_size_limit is None else str(file_size_limit)
        jars = f"{_spark()}/jars/*"
        java = [_java(), "-Xmx256m", "-cp", jars, f"org.apache.spark.deploy.{name}"]
        words = ("--host", host, "--port", "0", "--webui-port", "0", *words)
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _BOUND, str(os.getpid()), limit, *java, *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=directory,
                env=_environment(directory, host),
                start_new_session=True,
            )

    def wait_for_line(self, pattern: re.Pattern[str]) -> str:
        """Wait until its log has a line that matches, and return the first group of the match."""
        _wait(
            lambda: self._process.poll() is not None or bool(pattern.search(self._log_tail())),
            START_SECONDS,
            self._log_tail,
        )
        found = pattern.search(self._log_tail())
        if found is None:
            raise StandaloneError(
                f"Spark's daemon ended with {self._process.returncode}\n{self._log_tail()}"
            )
        return found[1]

    def _log_tail(self) -> str:
        return self._log.read_text(errors="replace")[-6000:]

    def children(self) -> list[int]:
        """What it has started, directly or not, and lives."""
        return [pid for pid in _session(self._process.pid) if pid != self._process.pid]

    def kill(self) -> None:
        """Ends all of the session, also what it starts meanwhile."""
        _wait(
            lambda: not _signalled(_session(self._process.pid), signal.SIGKILL),
            END_SECONDS,
            "a Spark daemon does not end",
        )
        self._process.wait(END_SECONDS)


def _java() -> str:
    """Return the Java of the daemons, which executors run on, too."""
    return os.environ.get("TESTS_EXECUTORS_JAVA") or "java"


def _spark() -> Path:
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


def _scala() -> str:
    """A worker that does not know Scala's version looks for the directory in which Spark was built,
    and starts no executor.
    """
    return next((_spark() / "jars").glob("spark-core_*.jar")).name.split("_")[1].split("-")[0]


def _environment(directory: Path, host: str) -> dict[str, str]:
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith(_OTHERS)},
        **QUICKLY,
        "SPARK_HOME": str(_spark()),
        "SPARK_SCALA_VERSION": _scala(),
        "SPARK_LOCAL_IP": host,
        "SPARK_LOCAL_DIRS": str(directory / "local"),
        "PYSPARK_PYTHON": sys.executable,
    }


def _session(leader: int) -> list[int]:
    """The processes of a session that live, by proc(5)."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # just gone
            state, _parent, _group, session, *_ = (
                (entry / "stat").read_text().rpartition(")")[2].split()
            )
            if int(session) == leader and state not in "ZX":
                found.append(int(entry.name))
    return found


def _opened(pid: int) -> Iterator[str]:
    with contextlib.suppress(OSError):  # just gone
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                yield str(descriptor.readlink())


def _written(pid: int) -> int | None:
    """By proc(5); None of what is no Python or is gone."""
    with contextlib.suppress(OSError):
        process = Path(f"/proc/{pid}")
        if (process / "comm").read_text().startswith("python"):
            return int(re.findall(r"wchar: (\d+)", (process / "io").read_text())[0])
    return None


def _signalled(pids: list[int], number: int) -> list[int]:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
    return pids


def _wait(
    condition: Callable[[], bool], seconds: float, complaint: str | Callable[[], str]
) -> None:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise StandaloneError(
                f"not within {seconds} s:"
                f" {complaint if isinstance(complaint, str) else complaint()}"
            )
        time.sleep(0.05)
