"""Two data centres on the local disk: Flink's own directories, cpreplicate's beside them, and its
commands as processes.
"""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from tests.support import checker
from tests.support.waiting import PATIENCE, wait_until

CLI_SECONDS = PATIENCE
Report = dict[str, Any]


@dataclass(frozen=True)
class DataCentre:
    """Where Flink keeps its checkpoints, and a TARGET_ROOT that only cpreplicate writes."""

    side: Path

    @property
    def checkpoints(self) -> Path:
        """Flink's `execution.checkpointing.dir`."""
        return self.side / "flink" / "checkpoints"

    @property
    def replicas(self) -> Path:
        return self.side / "flink" / "replicas"

    def replica(self, job_id: str) -> Path:
        """The replica of a job: of a fixed id, the name has more behind it."""
        return next(self.replicas.glob(f"{job_id}*"), self.replicas / job_id)


def cli(*words: str | Path, codes: Sequence[int] = (0,)) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, with one of these exit codes."""
    done = subprocess.run(
        _command(words), capture_output=True, text=True, timeout=CLI_SECONDS, check=False
    )
    assert done.returncode in codes, (
        f"{words} ended with {done.returncode}\n{done.stdout}{done.stderr}"
    )
    return done


def was_subsumed(error: str) -> bool:
    """Whether a checkpoint that an error calls incomplete was being deleted, and is gone now.

    On a busy machine, Flink takes longer for that than a sync waits.
    """
    found = re.search(r"file:(\S+) is incomplete at the source", error)
    if found is None:
        return False
    metadata = Path(found[1]) / "_metadata"
    wait_until(lambda: not metadata.exists(), f"the removal of {metadata}")
    return True


def _command(words: Sequence[str | Path]) -> list[str]:
    return [sys.executable, "-m", "cpreplicate", *map(str, words)]


class Watch:
    """`cpreplicate watch` as a process."""

    def __init__(self, process: subprocess.Popen[bytes], output: Path, errors: Path) -> None:
        self._process, self._output, self._errors = process, output, errors

    def wait_for(self, checkpoint: str) -> Report:
        """Wait until that checkpoint was reported; its report."""
        found: list[Report] = []

        def is_reported() -> bool:
            assert self._process.poll() is None, self._errors.read_text()
            lines = self._output.read_text().splitlines(keepends=True)
            reports = [json.loads(line) for line in lines if line.endswith("\n")]
            found.extend(report for report in reports if report["checkpoint"] == checkpoint)
            return bool(found)

        wait_until(is_reported, f"the replication of {checkpoint}")
        return found[0]


@contextlib.contextmanager
def watching(source: Path, target_root: Path, scratch: Path) -> Iterator[Watch]:
    """Run `cpreplicate watch` until the block ends."""
    scratch.mkdir(parents=True)
    output, errors = scratch / "stdout", scratch / "stderr"
    words = (
        "watch",
        source,
        target_root,
        "--interval",
        "0.2s",
        "--runner",
        "inline",
        "--output",
        "json",
    )
    with output.open("wb") as stdout, errors.open("wb") as stderr:
        process = subprocess.Popen(_command(words), stdout=stdout, stderr=stderr)
        try:
            yield Watch(process, output, errors)
        finally:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=PATIENCE)
            process.kill()
            process.wait()


class Round(NamedTuple):
    """One run of `cpreplicate fleet`: when it began, and what it reported of each job."""

    began: float
    jobs: list[Report]


class Fleet:
    """`cpreplicate fleet` over and over, a run a second, from `start` until the block ends."""

    def __init__(self, scratch: Path, roots: Sequence[tuple[Path, Path]]) -> None:
        self.rounds: list[Round] = []
        self._configuration = scratch / "fleet.toml"
        self._configuration.write_text(
            "".join(f'[[root]]\nsource = "{source}"\ntarget = "{to}"\n' for source, to in roots)
        )
        self._ended = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="fleet", daemon=True)

    def __enter__(self) -> Fleet:
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(CLI_SECONDS)
        self._refuse_failure()

    def start(self) -> None:
        """Begin, if it has not begun."""
        if not self._thread.is_alive():
            self._thread.start()

    @property
    def seconds(self) -> float:
        """For how long it has been running."""
        return time.monotonic() - self.rounds[0].began if self.rounds else 0.0

    def wait_for_replications(self, source: Path, count: int) -> None:
        """Wait until the job in that directory was replicated so many more times."""
        before = len(self.rounds)

        def is_enough() -> bool:
            self._refuse_failure()
            done = [
                job
                for each in self.rounds[before:]
                for job in each.jobs
                if job["source"] == f"file:{source}"
            ]
            return len([job for job in done if job["status"] == "replicated"]) >= count

        wait_until(is_enough, f"{count} replications of {source}")

    def next_round(self) -> Round:
        """Wait for a run that begins after now."""
        now = time.monotonic()

        def is_there() -> bool:
            self._refuse_failure()
            return any(each.began > now for each in self.rounds)

        wait_until(is_there, "a run of fleet")
        return next(each for each in self.rounds if each.began > now)

    def _refuse_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            while not self._ended.is_set():
                began = time.monotonic()
                words = ("fleet", self._configuration, "--runner", "inline", "--output", "json")
                done = cli(*words, codes=(0, 3, 6, 10, 12))
                assert done.stdout, done.stderr
                self.rounds.append(Round(began, json.loads(done.stdout)["jobs"]))
                self._ended.wait(max(0.0, began + 1 - time.monotonic()))
        except BaseException as error:  # noqa: BLE001  # raised where the block ends
            self._failure = error


class Print(NamedTuple):
    """By what a file is recognised as the same, never written again."""

    size: int
    modified: int
    inode: int
    crc32: int


class Guard:
    """Watches what Flink keeps: no file that a retained checkpoint references may vanish or change.

    A checkpoint is recorded as it completes. Flink itself deletes those that it no longer retains:
    their `_metadata` goes with their files.
    """

    def __init__(self, patience: float = PATIENCE) -> None:
        self.faults: list[str] = []
        self._patience = patience
        self._directories: list[Path] = []
        self._files: dict[str, Print] = {}
        self._checkpoints: dict[Path, list[str]] = {}
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="guard", daemon=True)

    def __enter__(self) -> Guard:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(PATIENCE)

    def follow(self, job: Path) -> None:
        """Watch the directory of a job of Flink's."""
        with self._lock:
            self._directories.append(job)

    def retained(self) -> list[Path]:
        """Every checkpoint that is there now.

        Each has been recorded, with the files that it references now.
        """
        self._look()
        return sorted(metadata.parent for metadata in self._checkpoints if metadata.exists())

    def _run(self) -> None:
        while not self._ended.wait(0.1):
            self._look()

    def _look(self) -> None:
        with self._lock:
            for directory in self._directories:
                for metadata in directory.glob("chk-*/_metadata"):
                    self._look_at(metadata)

    def _look_at(self, metadata: Path) -> None:
        """Compare with what was there first; what is missing must be on its way out."""
        fault = self._fault(metadata)
        deadline = time.monotonic() + self._patience
        while fault and metadata.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
            fault = self._fault(metadata)
        if fault and metadata.exists():
            self.faults.append(fault)

    def _fault(self, metadata: Path) -> str | None:
        try:
            known = self._checkpoints.get(metadata)
            files = known or [
                str(metadata),
                *sorted({need.path for need in checker.needs(metadata, False)}),
            ]
            for file in files:
                now = _print_of(Path(file))
                if self._files.setdefault(file, now) != now:
                    return f"{file} of {metadata.parent} was changed: {self._files[file]} is {now}"
        except FileNotFoundError as error:
            return f"{metadata.parent}: {error}"
        self._checkpoints[metadata] = files
        return None


def _print_of(path: Path) -> Print:
    content = path.read_bytes()
    stat = path.stat()
    return Print(stat.st_size, stat.st_mtime_ns, stat.st_ino, zlib.crc32(content))
