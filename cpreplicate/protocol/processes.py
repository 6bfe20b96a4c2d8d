"""Identify the process that holds a lease, so that others on the same host can see that it died."""

from __future__ import annotations

import functools
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple


def own_process() -> dict[str, object]:
    """Return this process's id and start time, and the PID namespace in which the id is valid."""
    return dict(_fields_of(os.getpid()))


@functools.lru_cache(maxsize=1)  # a process keeps them, and each lease has them
def _fields_of(pid: int) -> Mapping[str, object]:
    process = _process(pid)
    return {
        "pid": pid,
        "start_time": process and process.start_time,
        "pid_namespace": _pid_namespace(),
    }


def is_alive(holder: Mapping[str, object]) -> bool:
    """Return False only if the process is provably dead: same host, same boot, same PID namespace.

    `holder` holds what `own_process` returned. The process is dead if no process has its id, if it
    is a zombie, or if the process of that id started at another time. A process that cannot be
    seen, because /proc is mounted with `hidepid`, is not dead.
    """
    pid, pid_namespace = holder.get("pid"), _pid_namespace()
    is_of_this_host = holder.get("host") == socket.gethostname()
    if not is_of_this_host or pid_namespace is None:
        return True
    if holder.get("pid_namespace") != pid_namespace:
        return True  # containers may share a host name, and have process ids of their own
    if not isinstance(pid, int) or not 0 < pid < 1 << 31:
        return True
    return _exists(pid) and not _is_other(pid, holder.get("start_time"))


class _Process(NamedTuple):
    state: str
    start_time: int


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # the process belongs to another user
        return True
    return True


def _is_other(pid: int, start_time: object) -> bool:
    """Return whether the process of this id is a zombie, or did not start at `start_time`."""
    process = _process(pid)
    if process is None:
        return False
    started_at_another = isinstance(start_time, int) and process.start_time != start_time
    return process.state in "ZX" or started_at_another


def _pid_namespace() -> str | None:
    """Return the boot and the PID namespace of this process, or None if they are not known."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:  # not Linux: such leases end by expiry only
        return None


def _process(pid: int) -> _Process | None:
    """Return the state of a process and its start time in clock ticks since the boot (proc(5)).

    Return None if it does not exist or is hidden.
    """
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return _Process(state, int(fields[18]))
    except (OSError, IndexError, ValueError):
        return None
