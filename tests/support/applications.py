"""Real standalone clusters in application mode: a JobManager that runs one job, and a TaskManager.

Both run Flink's own entry points. The JobManager ends with its job.
"""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import requests

from tests.support.flink import Flink
from tests.support.ports import free_port
from tests.support.sessions import Session
from tests.support.waiting import PATIENCE, wait_until

_JOBMANAGER = "org.apache.flink.container.entrypoint.StandaloneApplicationClusterEntryPoint"
_TASKMANAGER = "org.apache.flink.runtime.taskexecutor.TaskManagerRunner"
_CLASS = "cpreplicate.SessionJob"
_START = ["standalone-job.sh", "start"]
# what `taskmanager.sh` works out before it starts a TaskManager
_RESOURCES = {
    "taskmanager.cpu.cores": "1.0",
    "taskmanager.memory.framework.heap.size": "128mb",
    "taskmanager.memory.framework.off-heap.size": "128mb",
    "taskmanager.memory.jvm-metaspace.size": "128mb",
    "taskmanager.memory.jvm-overhead.min": "64mb",
    "taskmanager.memory.jvm-overhead.max": "64mb",
    "taskmanager.memory.task.heap.size": "128mb",
    "taskmanager.memory.task.off-heap.size": "0b",
    "taskmanager.memory.managed.size": "32mb",
    "taskmanager.memory.network.min": "16mb",
    "taskmanager.memory.network.max": "16mb",
    "taskmanager.memory.segment-size": "4kb",
    "taskmanager.numberOfTaskSlots": "2",
}


class Application(Session):
    """A cluster that runs one job, the program of the jar in its `usrlib`."""

    def __init__(
        self, flink: Flink, words: Sequence[str], home: Path, options: Mapping[str, str]
    ) -> None:
        ports = {name: free_port() for name in ("rest", "rpc")}
        self.jar, self.url = flink.jar(), f"http://127.0.0.1:{ports['rest']}"
        lib, conf = home / "lib", home / "conf"
        for place in (lib, conf, home / "usrlib"):
            place.mkdir(parents=True)
        (home / "usrlib" / "job.jar").write_bytes(self.jar.read_bytes())
        (conf / "config.yaml").write_text("parallelism.default: 1\n")
        environment = {"FLINK_LIB_DIR": str(lib)}
        addresses = {
            "jobmanager.rpc.address": "127.0.0.1",
            "jobmanager.rpc.port": str(ports["rpc"]),
            "rest.port": str(ports["rest"]),
            "rest.bind-address": "127.0.0.1",
            "taskmanager.host": "127.0.0.1",
            "io.tmp.dirs": str(home),
            **options,
        }
        common = ["--configDir", str(conf), *_dynamic(addresses)]
        # its answers about a job are as old as by default: they are not needed to see the end
        programs = [[_JOBMANAGER, *common, *words], [_TASKMANAGER, *common, *_dynamic(_RESOURCES)]]
        self._starts = [
            partial(flink.process, "cpreplicate.Supervised", *each, **environment)
            for each in programs
        ]
        self._process, self._taskmanager = (start() for start in self._starts)

    def job(self) -> str:
        """Return the id of its job, once that has completed a checkpoint."""
        wait_until(lambda: bool(self._jobs()))
        (job_id,) = self._jobs()
        self.wait_for_checkpoints(job_id, 1)
        return job_id

    def _jobs(self) -> list[str]:
        assert self._process.alive, self._process.stderr()
        with contextlib.suppress(requests.RequestException, ValueError, KeyError):
            return [each["id"] for each in self.get("jobs")["jobs"]]
        return []

    def running(self) -> list[str]:
        """Return the ids of the jobs that have not ended: none without a JobManager that leads."""
        with contextlib.suppress(requests.ConnectionError, KeyError):
            return super().running()
        return []

    def cancel(self, job_id: str) -> None:
        """Cancel its job, and wait until its JobManager has ended."""
        requests.patch(f"{self.url}/jobs/{job_id}?mode=cancel", timeout=PATIENCE)
        self.wait_until_gone()

    def wait_until_gone(self) -> None:
        """Wait until its JobManager has ended."""
        wait_until(lambda: not self._process.alive)

    def start_again(self) -> None:
        """Start its processes again once its JobManager has ended, as systemd does.

        A TaskManager that has run the job before would find that its records are repeated.
        """
        self.wait_until_gone()
        self.close()
        self._process, self._taskmanager = (start() for start in self._starts)

    def close(self) -> None:
        """End its processes."""
        for each in (self._process, self._taskmanager):
            each.kill()


def _dynamic(options: Mapping[str, str]) -> list[str]:
    return [f"-D{name}={value}" for name, value in options.items()]


@contextlib.contextmanager
def application(
    flink: Flink,
    home: Path,
    arguments: Sequence[str],
    command: str | None = None,
    configuration: Mapping[str, str] | None = None,
) -> Iterator[Application]:
    """Run an application while the block lasts.

    `command` is the line by which an operator starts it, without one it begins with empty state.
    `configuration` has what differs from that of the others.
    """
    options = [] if command is None else shlex.split(command.replace("CLASS", _CLASS))
    assert options[: len(_START)] == (_START if options else []), command
    words = options[len(_START) :] or ["-j", _CLASS]
    started = Application(flink, [*words, *arguments], home, configuration or {})
    try:
        yield started
    finally:
        started.close()
