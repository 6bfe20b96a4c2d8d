"""HDFS and Spark on the machines of a network, and runs of cpreplicate on its driver."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from scripts.bench.clusters import FarCluster
from scripts.bench.measured import environment
from scripts.network.machines import Machine
from tests.support import standalone
from tests.support.waiting import PATIENCE

ROOT = Path(__file__).resolve().parent.parent.parent
MASTER_PORT = 7077
CLOCK = "NETWORK_CLOCK"  # in the environment of a worker: the seconds by which it is off


class Hdfs(FarCluster):
    """A cluster on a machine, under its name. A directory holds how Java is started there."""

    def __init__(self, machine: Machine, directory: Path) -> None:
        super().__init__(machine.name)
        java = directory / machine.name / "java"
        java.parent.mkdir(parents=True)
        command = shlex.join(machine.words([shutil.which("java") or "java"]))
        java.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        java.chmod(0o755)
        self._path = f"{java.parent}{os.pathsep}{os.environ['PATH']}"

    def _launch(self, options: list[str]) -> None:
        former, os.environ["PATH"] = os.environ["PATH"], self._path
        try:
            super()._launch(options)
        finally:
            os.environ["PATH"] = former


class Spark:
    """A master and workers of one core each, on machines; their directories are in `directory`."""

    def __init__(self, master: Machine, workers: list[Machine], directory: Path) -> None:
        self._machine, self._workers, self._directory = master, workers, directory
        self.url = f"spark://{master.address}:{MASTER_PORT}"
        self._daemons: dict[str, Daemon] = {}

    def __enter__(self) -> Spark:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Start what does not run."""
        if "master" not in self._daemons:
            self._start("master", self._machine, "master.Master", "--port", str(MASTER_PORT))
            self._daemons["master"].wait_for(r"I have been elected leader|New state: ALIVE")
        for worker in self._workers:
            if worker.name not in self._daemons:
                self.start_worker(worker)

    def start_worker(
        self, machine: Machine, work: Path | None = None, added: Mapping[str, str] | None = None
    ) -> None:
        """Start a worker whose files are in `work`, with variables added to its environment."""
        work = work or self._directory / machine.name / "work"
        words = ("--cores", "1", "--memory", "1g", "--work-dir", str(work), self.url)
        self._start(machine.name, machine, "worker.Worker", *words, added=added)
        self._daemons[machine.name].wait_for("Successfully registered with master")

    def kill(self, name: str) -> None:
        """Kill `master` or the worker on a machine, with its executors."""
        self._daemons.pop(name).kill()

    def log(self, name: str) -> str:
        """Return what a daemon printed so far."""
        return self._daemons[name].log()

    def close(self) -> None:
        """Kill all of them."""
        for name in list(self._daemons):
            self.kill(name)

    def _start(
        self,
        name: str,
        machine: Machine,
        main: str,
        *words: str,
        added: Mapping[str, str] | None = None,
    ) -> None:
        directory = self._directory / machine.name
        directory.mkdir(parents=True, exist_ok=True)
        java = ["java", "-Xmx256m", "-cp", f"{standalone._spark()}/jars/*"]
        main = f"org.apache.spark.deploy.{main}"
        command = [*java, main, "--host", machine.address, "--webui-port", "0", *words]
        own = {**standalone._environment(directory, machine.address), **(added or {})}
        self._daemons[name] = Daemon(machine, command, own, directory / f"{name}.log")


class Daemon:
    """A command on a machine, with all that it starts."""

    def __init__(
        self, machine: Machine, words: list[str], environment: Mapping[str, str], log: Path
    ) -> None:
        self._log = log
        with log.open("wb") as output:
            self._process = machine.start(words, environment, output, log.parent)

    def log(self) -> str:
        """Return what it printed so far."""
        return self._log.read_text(errors="replace")

    def wait_for(self, pattern: str) -> None:
        """Return once it has printed a line that matches."""
        wait_until(
            lambda: bool(re.search(pattern, self.log())) or self._process.poll() is not None,
            pattern,
        )
        if not re.search(pattern, self.log()):
            raise RuntimeError(f"it ended with {self._process.returncode}: {self.log()[-3000:]}")

    @property
    def code(self) -> int | None:
        """Its exit code, None while it runs."""
        return self._process.poll()

    def kill(self) -> None:
        """Kill its session: Spark starts executors in it."""
        wait_until(lambda: not _kill_session(self._process.pid), "the end of a daemon")
        self._process.wait(PATIENCE)


def _kill_session(leader: int) -> list[int]:
    processes = standalone._session(leader)
    return standalone._signalled(processes, signal.SIGKILL)


class Run:
    """A run of cpreplicate on the driver."""

    def __init__(self, driver: Machine, directory: Path, number: int, *words: str) -> None:
        own = {
            **environment(),
            **standalone.QUICKLY,
            "SPARK_LOCAL_IP": driver.address,
            "SPARK_LOCAL_DIRS": str(directory / "driver"),
            "PYTHONPATH": str(ROOT),
        }
        command = [sys.executable, "-m", "cpreplicate", *words]
        directory.mkdir(parents=True, exist_ok=True)
        self.began = time.monotonic()
        self._daemon = Daemon(driver, command, own, directory / f"run-{number}.log")

    def copied(self) -> int:
        """Return how many files it has reported as copied."""
        counts = re.findall(r'"files": (\d+)', self._daemon.log())
        return max(map(int, counts), default=0)

    def wait_for_copies(self, files: int) -> None:
        """Return once so many files are copied and the run goes on."""
        wait_until(lambda: self.copied() >= files or self._daemon.code is not None, "the copies")
        if self._daemon.code is not None:
            raise RuntimeError(f"it ended first, with {self._daemon.code}: {self.messages()}")

    def ended(self) -> int:
        """Wait until it has ended, and return its exit code."""
        wait_until(lambda: self._daemon.code is not None, "the end of the run")
        code = self._daemon.code
        assert code is not None
        return code

    def messages(self) -> str:
        """Return the lines that are neither progress nor the result."""
        lines = self._daemon.log().splitlines()
        return "\n".join(line for line in lines if not line.startswith('{"event": "progress"'))

    def kill(self) -> None:
        """Kill it, if it runs."""
        self._daemon.kill()


def write_python(directory: Path) -> Path:
    """Write a Python whose time of day is off by `CLOCK` of its environment, and return its path.

    Spark's JVMs read no clock for cpreplicate.
    """
    library, python = directory / "clock.so", directory / "python"
    source = Path(__file__).with_name("clock.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    command = f'LD_PRELOAD={library} exec {sys.executable} "$@"'
    python.write_text(f"#!/bin/sh\n{command}\n")
    python.chmod(0o755)
    return python


def wait_until(is_so: Callable[[], object], what: str, seconds: float = PATIENCE) -> None:
    """Return once the condition holds."""
    end = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > end:
            raise RuntimeError(f"{what} did not happen within {seconds:.0f} s")
        time.sleep(0.1)
