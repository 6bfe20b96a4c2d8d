"""Ports of the loopback interface for servers that are started by number, or once more at it.

They are outside of the range from which the kernel takes a port for a connection and for a server
that names none. A port of that range is free only now: before the server listens, or while it is
stopped, a connection of any process may begin there. It is given only where no other one is left:
there are machines whose kernel takes all.
"""

from __future__ import annotations

import os
import random
import socket
from pathlib import Path

_KERNELS = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST, _END = 10_000, 65_536
_WORKERS = 16  # more than a suite has; two of them never take the same port
given: set[int] = set()
"""Those that this process was given."""


def free_port() -> int:
    """Return a port at which nothing listens, and which no other test is given.

    Raises `OSError` if there is none.
    """
    for port in _ports_of_this_worker():
        if port not in given and _is_free(port):
            given.add(port)
            return port
    raise OSError("no port is free")


def kernels_range() -> range:
    """Return the ports from which the kernel chooses."""
    first, last = map(int, _KERNELS.read_text().split())
    return range(first, last + 1)


def _ports_of_this_worker() -> list[int]:
    """Return them in no order, the kernel's last."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    ports = list(range(_LOWEST + worker % _WORKERS, _END, _WORKERS))
    random.shuffle(ports)
    by_kernel = kernels_range()
    return sorted(ports, key=lambda port: port in by_kernel)  # stable


def _is_free(port: int) -> bool:
    """Return whether no socket has it, at any address of this machine."""
    with socket.socket() as tried:
        try:
            tried.bind(("", port))
        except OSError:
            return False
    return True
