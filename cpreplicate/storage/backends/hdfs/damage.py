"""Whether a file of HDFS that no DataNode returns is damaged, or its DataNodes are not reached.

No client reports it. A client of Hadoop does not even report damage to the NameNode if it meets it
at each DataNode: the fault might be its own (`DFSInputStream.reportCheckSumFailure`).
"""

from __future__ import annotations

import contextlib
import itertools
import math
import socket
import threading
import time
from collections.abc import Iterable, Iterator
from typing import TypeAlias

from cpreplicate.core import uri as uris
from cpreplicate.storage.base import Storage
from cpreplicate.storage.statuses import FileStatus

Node: TypeAlias = tuple[str, int]
"""The host and the port for data of a DataNode."""

_RECENT = 600.0  # seconds
_CONNECT_SECONDS = 5.0
_ASKED_AGAIN = 60.0  # seconds until other files are read again of which none arrived
_OTHERS = 8  # files that are read, and directories that are listed to find them


class Arrivals:
    """The data that arrived from the DataNodes of one filesystem, in this process."""

    def __init__(self, storage: Storage) -> None:
        """`storage` is that of the filesystem, without wrappers."""
        self._storage = storage
        self._last = self._none_came = -math.inf
        self._asking = threading.Lock()

    def note(self) -> None:
        """Record that data of a file arrived."""
        self._last = time.monotonic()

    def prove_damage(self, uri: str, nodes: Iterable[Node]) -> bool:
        """Return whether a file is damaged whose blocks are on these DataNodes.

        Every read of it failed for long. It is, if each DataNode accepts a connection, or none has
        its blocks, and data of other files arrives. Else this process may not be let in: by the
        protection of data transfers, or because a DataNode has too many connections.
        """
        return all(map(_accepts, set(nodes))) and (self._is_recent() or self._comes_beside(uri))

    def _is_recent(self) -> bool:
        return time.monotonic() - self._last < _RECENT

    def _comes_beside(self, uri: str) -> bool:
        """Return whether data arrives of a file in the vicinity of one that cannot be read."""
        with self._asking:
            if self._is_recent():
                return True
            if time.monotonic() - self._none_came < _ASKED_AGAIN:
                return False
            with contextlib.suppress(OSError):  # of the listings
                for other in itertools.islice(_beside(self._storage, uri), _OTHERS):
                    with contextlib.suppress(OSError):
                        if self._storage.read(other, 0, 1):
                            self.note()
                            return True
            self._none_came = time.monotonic()
            return False


def node_of(name: str) -> Node:
    """Return the DataNode of a name as Hadoop's `BlockLocation.getNames` has it."""
    host, _, port = name.rpartition(":")
    return host, int(port)


def _accepts(node: Node) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(node, _CONNECT_SECONDS):
        return True
    return False


def _beside(storage: Storage, uri: str) -> Iterator[str]:
    """Yield files that are not empty: of the directory of a file, of those beside it, and above."""
    directory = uris.parent(uri)
    yield from (other for other in _files(storage.list(directory)) if other != uri)
    children = storage.list(uris.parent(directory))
    beside = (child.uri for child in children if child.is_directory and child.uri != directory)
    for each in itertools.islice(beside, _OTHERS):
        yield from _files(storage.list(each))
    yield from _files(children)


def _files(children: Iterable[FileStatus]) -> Iterator[str]:
    return (child.uri for child in children if not child.is_directory and child.length)
