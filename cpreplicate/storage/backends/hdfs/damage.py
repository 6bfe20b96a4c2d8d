"""Whether a file of HDFS that no DataNode returns is damaged, or its DataNodes are not reached.

No client reports it. A client of Hadoop does not even report damage to the NameNode if it meets it
at each DataNode: the fault might be its own (`DFSInputStream.reportCheckSumFailure`).
"""

from __future__ import annotations

import contextlib
import math
import socket
import time
from collections.abc import Iterable
from typing import TypeAlias

Node: TypeAlias = tuple[str, int]
"""The host and the port for data of a DataNode."""

_RECENT = 600.0  # seconds
_CONNECT_SECONDS = 5.0


class Arrivals:
    """The data that arrived from the DataNodes of one filesystem, in this process."""

    def __init__(self) -> None:
        self._last = -math.inf

    def note(self) -> None:
        """Record that data of a file arrived."""
        self._last = time.monotonic()

    def prove_damage(self, nodes: Iterable[Node]) -> bool:
        """Return whether a file is damaged whose blocks are on these DataNodes.

        Every read of it failed for long. It is, if each DataNode accepts a connection, or none has
        its blocks, and data of other files arrived. Else this process may not be let in: by the
        protection of data transfers, or because a DataNode has too many connections.
        """
        return time.monotonic() - self._last < _RECENT and all(map(_accepts, set(nodes)))


def node_of(name: str) -> Node:
    """Return the DataNode of a name as Hadoop's `BlockLocation.getNames` has it."""
    host, _, port = name.rpartition(":")
    return host, int(port)


def _accepts(node: Node) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(node, _CONNECT_SECONDS):
        return True
    return False
