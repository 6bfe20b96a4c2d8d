"""Running a command, and what it took: time, the memory and CPU of its whole process tree, whether
a JVM was among it.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

_EVERY = 0.1  # seconds between two looks at the process tree
_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICK = os.sysconf("SC_CLK_TCK")
_CORES = os.cpu_count() or 1
_QUIET = 0.15  # of the machine's CPU: what may be in use when it is called quiet


class CommandFailed(Exception):
    """A command that was to be measured ended with an error."""


class Took(NamedTuple):
    """What a command took; `peak` in bytes, summed over its processes, so what they share counts
    several times.

    `cpu` is its own, in seconds; `others` the share of the machine that neither it nor the servers
    used, but somebody did. `own_peak` is that of the command's first process alone, `worker_peak`
    that of the largest Python process below it, both as the kernel recorded them.
    """

    seconds: float
    peak: int
    cpu: float
    others: float
    jvm: bool
    output: str
    own_peak: int = 0
    worker_peak: int = 0


def run(command: Sequence[str], timeout: float, servers: Iterable[int] = ()) -> Took:
    """Run to the end. Raise `CommandFailed` with the end of its output; a timeout kills it."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        known = [os.getpid(), *servers]
        busy, ours = _machine(), _cpu(known)
        started = time.perf_counter()
        process = subprocess.Popen(
            command, stdout=out, stderr=err, stdin=subprocess.DEVNULL, env=environment()
        )
        watch = _Watch(process.pid)
        try:
            code = process.wait(timeout)
        except BaseException:
            process.kill()
            process.wait()
            raise
        finally:
            seconds = time.perf_counter() - started
            watch.stop()
        out.seek(0)
        err.seek(0)
        if code != 0:
            raise CommandFailed(
                f"{' '.join(command)[:300]} ended with"
                f" {code}\n{out.read()[-2000:]}\n{err.read()[-4000:]}"
            )
        foreign = _machine() - busy - (_cpu(known) - ours) - watch.cpu
        return Took(
            seconds,
            watch.peak,
            watch.cpu,
            max(0.0, foreign / seconds / _CORES),
            watch.jvm,
            out.read(),
            watch.own_peak,
            watch.worker_peak,
        )


def end_tidily() -> None:
    """Let an interrupt and a SIGTERM unwind, so that what was started is stopped.

    A shell may have had us ignore the first.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


def add_patience(parser: argparse.ArgumentParser, default: int = 60) -> None:
    """Add `--patience`, for `wait_until_quiet`."""
    parser.add_argument(
        "--patience",
        type=float,
        default=default,
        metavar="SECONDS",
        help="how long to wait for a quiet machine before each run; default: %(default)s",
    )


def wait_until_quiet(patience: float) -> None:
    """Wait until the machine has been quiet for a second, no longer than `patience` seconds."""
    until = time.monotonic() + patience
    while time.monotonic() < until:
        busy, began = _machine(), time.monotonic()
        time.sleep(1)
        if (_machine() - busy) / (time.monotonic() - began) / _CORES < _QUIET:
            return


def environment() -> dict[str, str]:
    """Ours, without a Hadoop's that may be configured there."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("HADOOP_", "CPREPLICATE_"))
    }


class _Watch:
    """Looks at a process and its descendants until stopped."""

    def __init__(self, pid: int) -> None:
        self.peak = self.own_peak = self.worker_peak = 0
        self.jvm = False
        self._pid = pid
        self._cpu: dict[int, float] = {}
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._look_until_done, daemon=True)
        self._thread.start()

    @property
    def cpu(self) -> float:
        """Seconds of all processes, as last seen."""
        return sum(self._cpu.values())

    def stop(self) -> None:
        self._done.set()
        self._thread.join()

    def _look_until_done(self) -> None:
        while not self._done.wait(_EVERY):
            pids = _tree(self._pid)
            self.peak = max(self.peak, sum(map(_resident, pids)))
            commands = {pid: _text(Path(f"/proc/{pid}/comm")).strip() for pid in pids}
            self.jvm = self.jvm or "java" in commands.values()
            self.own_peak = max(self.own_peak, _most_resident(self._pid))
            workers = [
                pid
                for pid, command in commands.items()
                if pid != self._pid and command.startswith("python")
            ]
            self.worker_peak = max([self.worker_peak, *map(_most_resident, workers)])
            self._cpu.update({pid: seconds for pid in pids if (seconds := _cpu([pid]))})


def _tree(pid: int) -> list[int]:
    found, left = [], [pid]
    while left:
        pid = left.pop()
        found.append(pid)
        with contextlib.suppress(OSError):  # it has ended meanwhile
            # Path.iterdir is half as fast, ten times a second
            for task in os.listdir(  # noqa: PTH208  # of names alone
                f"/proc/{pid}/task"
            ):
                left += map(int, _text(Path(f"/proc/{pid}/task/{task}/children")).split())
    return found


def _resident(pid: int) -> int:
    fields = _text(Path(f"/proc/{pid}/statm")).split()
    return int(fields[1]) * _PAGE if fields else 0


def _most_resident(pid: int) -> int:
    """Return the most memory that a process ever had, in bytes."""
    for line in _text(Path(f"/proc/{pid}/status")).splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) << 10
    return 0


def _cpu(pids: Iterable[int]) -> float:
    """What these processes themselves have used."""
    stats = [_text(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split() for pid in pids]
    return sum(int(fields[11]) + int(fields[12]) for fields in stats if fields) / _TICK


def _machine() -> float:
    """Seconds of CPU that the machine has used: all but idle and waiting for the disk."""
    fields = list(map(int, _text(Path("/proc/stat")).partition("\n")[0].split()[1:9]))
    return (sum(fields) - fields[3] - fields[4]) / _TICK


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""  # it has ended meanwhile
