"""Break this process's connections to a server that is silent.

hdfs-native waits for its connection without a limit, and has no call that closes it. Broken, it
fails at once: calls that were left behind return, and the next one makes a new connection, or turns
to the other NameNode of a pair.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from collections.abc import Iterable, Iterator, Set
from pathlib import Path

_TABLES = ("/proc/self/net/tcp", "/proc/self/net/tcp6")


def break_connections(addresses: Iterable[str]) -> None:
    """Shut down all connections of this process to servers, named `host:port`.

    Also those that are being made. Does nothing where the system has no table of connections.
    """
    with contextlib.suppress(OSError):
        inodes = set(_inodes(_remotes(addresses)))
        for link in Path("/proc/self/fd").iterdir():
            with contextlib.suppress(OSError):
                if str(link.readlink()) in inodes:
                    _shut_down(int(link.name), inodes)


def _shut_down(descriptor: int, inodes: Set[str]) -> None:
    """Shut down a socket. Its number may have become another file's: then do nothing."""
    duplicate = os.dup(descriptor)
    if str(Path(f"/proc/self/fd/{duplicate}").readlink()) in inodes:
        with socket.socket(fileno=duplicate) as connection:
            connection.shutdown(socket.SHUT_RDWR)
    else:
        os.close(duplicate)


def _remotes(addresses: Iterable[str]) -> set[str]:
    """Return addresses as the kernel's tables write them, for both versions of IP."""
    remotes = set()
    for address in addresses:
        host, _, port = address.rpartition(":")
        with contextlib.suppress(OSError, ValueError):
            for family, *_, name in socket.getaddrinfo(host.strip("[]"), int(port)):
                packed = socket.inet_pton(family, str(name[0]))
                end = f":{int(port):04X}"
                remotes.add(_words(packed) + end)
                if family == socket.AF_INET:
                    remotes.add(_words(b"\0" * 10 + b"\xff\xff" + packed) + end)
    return remotes


def _words(packed: bytes) -> str:
    """Return an address as words of the machine's byte order, in hexadecimal digits."""
    words = (packed[start : start + 4] for start in range(0, len(packed), 4))
    return "".join(f"{int.from_bytes(word, sys.byteorder):08X}" for word in words)


def _inodes(remotes: Set[str]) -> Iterator[str]:
    """Yield the sockets of the machine that are connected to one of these addresses."""
    for table in _TABLES:
        with contextlib.suppress(FileNotFoundError), open(table) as lines:
            for line in lines:
                fields = line.split()
                if len(fields) > 9 and fields[2] in remotes:
                    yield f"socket:[{fields[9]}]"
