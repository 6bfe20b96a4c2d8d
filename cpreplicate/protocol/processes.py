"""Identify the process that holds a lease, so that another process of the same host can see that it
died.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple


def own_process() -> dict[str, object]:
    """Return this process's id and start time, and the boot and PID namespace in which the id is
    valid.
    """
    seen = _seen(os.getpid())
    return {
        "pid": os.getpid(),
        "start_time": seen and seen.start_time,
        "pid_namespace": _pid_namespace(),
    }


def is_alive(holder: Mapping[str, object]) -> bool:
    """Return False only if the process of `own_process` is provably dead: same host, same boot,
    same PID namespace.

    There it is dead if no process has its id, if it is a zombie, or if the process of that id
    started at another time. A process that cannot be seen, because /proc is mounted with `hidepid`,
    is not dead.
    """
    pid, pid_namespace = holder.get("pid"), _pid_namespace()
    if (
        holder.get("host") != socket.gethostname()
        or pid_namespace is None
        or holder.get("pid_namespace") != pid_namespace
    ):
        return True  # containers may share a host's name and have process ids of their own
    if not isinstance(pid, int) or not 0 < pid < 1 << 31:
        return True
    return _exists(pid) and not _is_other(pid, holder.get("start_time"))


class _Seen(NamedTuple):
    state: str
    start_time: int


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it belongs to another user
        return True
    return True


def _is_other(pid: int, start_time: object) -> bool:
    """Return whether what /proc shows under this id is a zombie, or not the process that started at
    `start_time`.
    """
    seen = _seen(pid)
    return seen is not None and (
        seen.state in "ZX" or (isinstance(start_time, int) and seen.start_time != start_time)
    )


def _pid_namespace() -> str | None:
    try:
        return (
            f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()}"
            f" {Path('/proc/self/ns/pid').readlink()}"
        )
    except OSError:  # not Linux: such leases end by expiry only
        return None


def _seen(pid: int) -> _Seen | None:
    """Return the state and the start time of a process, in clock ticks since the boot (proc(5)).

    None if it is hidden.
    """
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return _Seen(state, int(fields[18]))
    except (OSError, IndexError, ValueError):
        return None
