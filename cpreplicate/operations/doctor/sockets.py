"""Whether addresses, as `host:port`, resolve and answer."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterable

_SECONDS = 3.0  # to connect


def resolves(address: str) -> bool:
    """Return whether the host of an address can be resolved."""
    host, _, port = address.rpartition(":")
    try:
        socket.getaddrinfo(host, port)
    except OSError:
        return False
    return True


def unanswered(addresses: Iterable[str]) -> list[str]:
    """Return the addresses at which nobody accepts a connection."""
    return [address for address in addresses if not _accepts(address)]


def _accepts(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        with contextlib.closing(socket.create_connection((host, int(port)), timeout=_SECONDS)):
            return True
    except (OSError, ValueError):
        return False
