"""Real session clusters, each in a process of its own, that take jars by their REST API."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import requests

from tests.support.flink import RUN_SECONDS, Flink, Place, Process
from tests.support.waiting import PATIENCE, wait_until

QUICK = 100  # milliseconds for which an answer of the REST API may be old


class Session:
    """A session cluster, and a client of its REST API that knows nothing of cpreplicate."""

    def __init__(self, process: Process, jar: Path) -> None:
        started = process.until("session", RUN_SECONDS)[-1]
        self.url = str(started["rest"])
        self.jar = jar
        self._process = process
        # it answers 503 until it has elected a leader
        wait_until(lambda: requests.get(f"{self.url}/jobs", timeout=PATIENCE).ok, "a leader")

    def get(self, path: str) -> Any:
        """Return what it answers to GET."""
        return requests.get(f"{self.url}/{path}", timeout=PATIENCE).json()

    def upload(self) -> str:
        """Upload the jar, and return its id."""
        with self.jar.open("rb") as file:
            files = {"jarfile": (self.jar.name, file, "application/x-java-archive")}
            answer = requests.post(f"{self.url}/jars/upload", files=files, timeout=PATIENCE)
        answer.raise_for_status()
        return str(answer.json()["filename"].rpartition("/")[2])

    def start(
        self,
        checkpoints: Place,
        *words: object,
        name: str = "orders",
        restored: str | None = None,
    ) -> str:
        """Start the job with a checkpoint each second, wait for its first one; return its id."""
        arguments = arguments_of(checkpoints, *words, name=name)
        body = {"programArgsList": arguments, "savepointPath": restored}
        url = f"{self.url}/jars/{self.upload()}/run"
        answer = requests.post(url, json=body, timeout=PATIENCE)
        assert answer.ok, answer.text
        job_id = str(answer.json()["jobid"])
        self.wait_for_checkpoints(job_id, 1)
        return job_id

    def wait_for_checkpoints(self, job_id: str, more: int) -> None:
        """Wait until so many more checkpoints of a job have completed."""
        wanted = self._completed(job_id) + more
        wait_until(lambda: self._completed(job_id) >= wanted)

    def _completed(self, job_id: str) -> int:
        assert self.state(job_id) not in ("FAILED", "FAILING"), self.failure(job_id)
        counts = self.get(f"jobs/{job_id}/checkpoints").get("counts", {})
        return int(counts.get("completed", 0))

    def state(self, job_id: str) -> str | None:
        """Return the state of a job, None if it is not known."""
        states = {each["id"]: str(each["status"]) for each in self.get("jobs")["jobs"]}
        return states.get(job_id)

    def running(self) -> list[str]:
        """Return the ids of the jobs that have not ended."""
        ended = ("CANCELED", "FINISHED", "FAILED")
        return [each["id"] for each in self.get("jobs")["jobs"] if each["status"] not in ended]

    def cancel(self, job_id: str) -> None:
        """Cancel a job, and wait for its end."""
        requests.patch(f"{self.url}/jobs/{job_id}?mode=cancel", timeout=PATIENCE)
        wait_until(lambda: self.state(job_id) in ("CANCELED", "FAILED", "FINISHED"))

    def delete_jars(self) -> None:
        """Delete the jars that it has."""
        for each in self.get("jars")["files"]:
            requests.delete(f"{self.url}/jars/{each['id']}", timeout=PATIENCE).raise_for_status()

    def failure(self, job_id: str) -> str:
        """Return why a job failed."""
        return str(self.get(f"jobs/{job_id}/exceptions"))[:3000]

    def restored(self, job_id: str) -> str | None:
        """Return the path from which a job was restored."""
        latest = self.get(f"jobs/{job_id}/checkpoints")["latest"]["restored"]
        return None if latest is None else str(latest["external_path"])

    def kill(self) -> None:
        """Kill its process."""
        self._process.kill()


def arguments_of(checkpoints: Place, *words: object, name: str = "orders") -> list[str]:
    """Return the arguments of the program of a job."""
    root = checkpoints if isinstance(checkpoints, str) else f"file:{checkpoints}"
    fixed = ["--checkpoints", root, "--job-name", name, "--interval-ms", "1000"]
    return [*fixed, *map(str, words)]


@contextlib.contextmanager
def session(flink: Flink, *words: object, slots: int = 4) -> Iterator[Session]:
    """Run a session cluster while the block lasts; `words` are options of its program."""
    fixed = ("--slots", str(slots), "--rest-refresh-ms", str(QUICK))
    process = flink.process("cpreplicate.Session", *fixed, *map(str, words))
    try:
        yield Session(process, flink.jar())
    finally:
        process.kill()
