"""Processes that stand still, as on a paused machine."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tests.support.waiting import wait_until


def stop(pid: int) -> None:
    """Stop a process, and return once all of its threads stand still: SIGSTOP alone returns while
    some of them go on for a moment.
    """
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: not _moving(pid), f"process {pid} stands still")


def _moving(pid: int) -> list[Path]:
    return [thread for thread in Path(f"/proc/{pid}/task").iterdir() if not _stands_still(thread)]


def _stands_still(thread: Path) -> bool:
    try:
        state = (thread / "stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):  # the thread has ended
        return True
    return state in "TZX"


def children(pid: int) -> list[int]:
    """Return the ids of the processes that a process has started, and that have not ended."""
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return sorted(int(child) for task in tasks for child in task.read_text().split())
