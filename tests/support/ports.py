"""Ports of the loopback interface for servers that are started by number, or once more at it.

They are outside of the range from which the kernel takes a port for a connection and for a server
that names none. A port of that range is free only now: before the server listens, or while it is
stopped, a connection of any process may begin there. It is given only where no other one is left:
there are machines whose kernel takes all.
"""

from __future__ import annotations

import random
import socket
from pathlib import Path

_KERNELS = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST, _END = 10_000, 65_536
given: dict[int, int] = {}
"""Those that this process was given, each with the descriptor of its name."""


def free_port() -> int:
    """Return a port at which nothing listens, and which no other test is given.

    That holds for the tests of other processes, too, as of a second run on the same machine. Raises
    `OSError` if there is none.
    """
    for port in _ports():
        if port not in given and (name := _name_of(port)) is not None:
            given[port] = name
            return port
    raise OSError("no port is free")


def kernels_range() -> range:
    """Return the ports from which the kernel chooses."""
    first, last = map(int, _KERNELS.read_text().split())
    return range(first, last + 1)


def _ports() -> list[int]:
    """Return all in no order, the kernel's last."""
    ports = list(range(_LOWEST, _END))
    random.shuffle(ports)
    by_kernel = kernels_range()
    return sorted(ports, key=lambda port: port in by_kernel)  # stable


def _name_of(port: int) -> int | None:
    """Return the descriptor of a free port's name, None if the port is in use.

    One process has the name until it ends.
    """
    with socket.socket(socket.AF_UNIX) as name:
        try:
            name.bind(f"\0cpreplicate-tests-{port}")  # abstract: no file of it stays behind
        except OSError:
            return None
        return name.detach() if _is_free(port) else None


def _is_free(port: int) -> bool:
    """Return whether no socket has it, at any address of this machine."""
    with socket.socket() as tried:
        try:
            tried.bind(("", port))
        except OSError:
            return False
    return True
