"""A long line between two network namespaces: `link.py`, or `Link` from a benchmark.

The kernel here has no netem, so this is a program between two TUN devices, one in each namespace.
It hands packets on after half of the round trip, at a rate, from a queue that drops what it cannot
hold. Both ends run the kernel's own TCP: slow start, congestion control and windows are real.
Packets are those that the kernel has not yet cut into segments (GSO), their headers counted for
each segment. The namespaces go when nobody is in them any more.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import select
import struct
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path

ADDRESSES = ("10.77.0.1", "10.77.0.2")
QUEUE = 0.1  # seconds that a packet may wait for its turn: a router's buffer
_CLONE_NEWNET = 0x40000000
_TUNSETIFF, _TUNSETOFFLOAD = 0x400454CA, 0x400454D0
_IFF_TUN, _IFF_NO_PI, _IFF_VNET_HDR = 0x0001, 0x1000, 0x4000
_CHECKSUM_AND_TSO4 = 1 | 2
_LARGEST = 1 << 17
_VNET_HEADER = 10
_LIBC = ctypes.CDLL(None, use_errno=True)


class Direction:
    """One way: a rate, a delay, a queue."""

    def __init__(self, source: int, sink: int, delay: float) -> None:
        self.source, self._sink, self._delay = source, sink, delay
        self.bytes_a_second = 0.0
        self._free = 0.0  # when the line has sent all that it has taken
        self._flying: deque[tuple[float, bytes]] = deque()

    def take(self) -> None:
        """Queue what has arrived, or drop it."""
        with contextlib.suppress(BlockingIOError):
            while True:
                packet = os.read(self.source, _LARGEST)
                now = time.monotonic()
                begin = max(now, self._free)
                if begin - now > QUEUE:
                    continue
                self._free = begin + _on_the_wire(packet) / self.bytes_a_second
                self._flying.append((self._free + self._delay, packet))

    def deliver(self) -> float | None:
        """Hand on what has come to the end of the line.

        The seconds until the next does, None where nothing is on it.
        """
        while self._flying:
            left = self._flying[0][0] - time.monotonic()
            if left > 0:
                return left
            with contextlib.suppress(OSError):  # the other end's queue is full
                os.write(self._sink, self._flying.popleft()[1])
        return None


def _on_the_wire(packet: bytes) -> int:
    """Its bytes when it is cut into segments, each with headers."""
    length = len(packet) - _VNET_HEADER
    kind, header, segment = struct.unpack_from("=xBHH", packet)
    return length + max(0, -(-(length - header) // segment) - 1) * header if kind else length


def main(round_trip: str) -> None:
    """Make the namespaces and forward until standard input closes.

    Each of its lines is a rate in bits a second.
    """
    first, second = (_end(address) for address in ADDRESSES)
    print(json.dumps({"pid": os.getpid(), "namespaces": [first[0], second[0]]}), flush=True)
    directions = [
        Direction(*pair, float(round_trip) / 2)
        for pair in ((first[1], second[1]), (second[1], first[1]))
    ]
    while line := os.read(0, 100):
        for direction in directions:
            direction.bytes_a_second = float(line.split()[-1]) / 8
        _forward(directions)


def _forward(directions: list[Direction]) -> None:
    """Until there is something to read on standard input."""
    while True:
        waits = [wait for direction in directions if (wait := direction.deliver()) is not None]
        ready = select.select(
            [0, *(each.source for each in directions)], [], [], min(waits, default=1.0)
        )[0]
        if 0 in ready:
            return
        for direction in directions:
            if direction.source in ready:
                direction.take()


def _end(address: str) -> tuple[int, int]:
    """A new namespace that this process enters, and its TUN device: descriptors of both."""
    _checked(_LIBC.unshare(_CLONE_NEWNET))
    namespace = os.open("/proc/self/ns/net", os.O_RDONLY)
    tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(
        tun, _TUNSETIFF, struct.pack("16sH22x", b"wan", _IFF_TUN | _IFF_NO_PI | _IFF_VNET_HDR)
    )
    fcntl.ioctl(tun, _TUNSETOFFLOAD, _CHECKSUM_AND_TSO4)
    for words in (
        "link set lo up",
        f"addr add {address}/24 dev wan",
        "link set wan txqueuelen 2000 up",
    ):
        subprocess.run(["ip", *words.split()], check=True)
    return namespace, tun


def _checked(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


class Link:
    """The line in a process of its own, which ends with the `with` block or with this process."""

    def __init__(self, round_trip: float) -> None:
        self.round_trip = round_trip
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(round_trip)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise OSError(
                "no network namespaces or TUN devices can be made here; they need CAP_NET_ADMIN and"
                " /dev/net/tun"
            )
        ready = json.loads(line)
        self.namespaces = [
            Path(f"/proc/{ready['pid']}/fd/{number}") for number in ready["namespaces"]
        ]

    @property
    def pid(self) -> int:
        return self._process.pid

    def __enter__(self) -> Link:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    def set_rate(self, bits_a_second: float) -> None:
        """Of each direction."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{bits_a_second}\n")
        self._process.stdin.flush()

    @contextlib.contextmanager
    def inside(self, end: int) -> Iterator[None]:
        """What this thread opens and starts in the block is at one end of the line, 0 or 1."""
        with open("/proc/thread-self/ns/net") as outside, open(self.namespaces[end]) as namespace:
            _checked(_LIBC.setns(namespace.fileno(), _CLONE_NEWNET))
            try:
                yield
            finally:
                _checked(_LIBC.setns(outside.fileno(), _CLONE_NEWNET))


if __name__ == "__main__":
    main(*sys.argv[1:])
