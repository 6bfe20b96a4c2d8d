"""Which process holds a lease, told so that another process of the same host can see that it died."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path


def own_process() -> dict[str, object]:
    """This process: its number, since when it has had it, and the boot and the namespace in which that number means it."""
    return {"pid": os.getpid(), "birth": _birth(os.getpid()), "space": _space()}


def is_alive(told: Mapping[str, object]) -> bool:
    """Whether the process that `own_process` told of may be alive; surely not only if it was of this host and boot.

    Containers may share a host's name and have process numbers of their own, hence the namespace.
    """
    pid, space = told.get("pid"), _space()
    if told.get("host") != socket.gethostname() or space is None or told.get("space") != space:
        return True
    if not isinstance(pid, int) or not 0 < pid < 1 << 31:
        return True
    return _birth(pid) == told.get("birth")


def _space() -> str | None:
    try:
        return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:  # not Linux: such leases end by expiry only
        return None


def _birth(pid: int) -> int | None:
    """When a process was started, in clock ticks since the boot (proc(5), field 22); None if there is none."""
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return None if state in "ZX" else int(fields[18])  # a zombie has died already
    except (OSError, IndexError, ValueError):
        return None
