"""The names of services, which Kubernetes' DNS answers: `SERVICE.NAMESPACE.svc.cluster.local`.

Here it answers the addresses of the pods behind a service, as for a headless one: nothing routes to
the address of another kind.
"""

from __future__ import annotations

import contextlib
import re
import socketserver
import threading
from collections.abc import Iterator
from ipaddress import IPv4Address

from scripts.kube.api import asked

DOMAIN = "cluster.local"
_SERVICE = re.compile(rf"([^.]+)\.([^.]+)\.svc\.{re.escape(DOMAIN)}")
_HEADER = 12  # bytes: RFC 1035, 4.1.1
_ADDRESS = 1  # a query for A records
_UNKNOWN = 3  # NXDOMAIN


@contextlib.contextmanager
def served(host: str) -> Iterator[None]:
    """Answer on port 53 of an address."""
    with socketserver.ThreadingUDPServer((host, 53), _Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield
        finally:
            server.shutdown()


class _Handler(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        message, socket = self.request
        socket.sendto(_answer(message), self.client_address)


def _answer(message: bytes) -> bytes:
    name, end = _name(message)
    kind = int.from_bytes(message[end : end + 2], "big")
    found = _addresses(name)
    known = (found or []) if kind == _ADDRESS else []
    code = _UNKNOWN if found is None else 0
    flags = (0x8580 | code).to_bytes(2, "big")  # an answer, authoritative; recursion as asked
    counts = b"".join(count.to_bytes(2, "big") for count in (1, len(known), 0, 0))
    # the name of the question, class IN, five seconds, four bytes
    records = [b"\xc0\x0c\0\1\0\1\0\0\0\5\0\4" + IPv4Address(each).packed for each in known]
    return message[:2] + flags + counts + message[_HEADER : end + 4] + b"".join(records)


def _name(message: bytes) -> tuple[str, int]:
    """Return the name that a query asks for, and where it ends."""
    at, labels = _HEADER, []
    while length := message[at]:
        labels.append(message[at + 1 : at + 1 + length].decode())
        at += 1 + length
    return ".".join(labels).lower(), at + 1


def _addresses(name: str) -> list[str] | None:
    """Return the addresses of a service, None if there is no such name."""
    service = _SERVICE.fullmatch(name)
    if service is None:
        return None
    try:
        found = asked("GET", f"/api/v1/namespaces/{service[2]}/endpoints/{service[1]}")
    except OSError:
        return None
    subsets = found.get("subsets") or ()
    return [each["ip"] for part in subsets for each in part.get("addresses") or ()]
