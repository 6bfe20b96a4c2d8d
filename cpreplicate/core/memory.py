"""What is kept in memory of small files, and what allocators keep for the next large checkpoint.

A service reads the same small files turn after turn, most of which it has written itself. What
follows from nothing but the bytes of a file, and from where it is, need not be made again of the
same bytes. They are recognised by their SHA-256: so what is in use follows from what was read.
"""

from __future__ import annotations

import ctypes
import hashlib
import sys
import threading
from collections import OrderedDict
from contextlib import suppress
from typing import Generic, TypeVar

_MANY = 100_000  # files
T = TypeVar("T")
LONGEST_KEPT = 64 << 10  # bytes: what is made of a larger file takes much memory
_MOST = 16 << 20  # bytes of the files: about 1,500 jobs of 20 files
_OBJECTS = 1 << 10  # bytes that the objects of a value take beside what the file has


class Memo(Generic[T]):
    """Values by the bytes that they follow from, and by the names that decide with these.

    What was used least recently goes first. Values are shared by all who ask, in any thread: nobody
    may change them.
    """

    def __init__(self, most: int = _MOST) -> None:
        self._most, self._size = most, 0
        self._values: OrderedDict[tuple[bytes, ...], tuple[int, T]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, data: bytes, *names: str) -> T | None:
        """Return what was put for these bytes and names, None if it is not known."""
        if len(data) > LONGEST_KEPT:
            return None
        key = _key(data, names)
        with self._lock:
            found = self._values.get(key)
            if found is None:
                return None
            self._values.move_to_end(key)
            return found[1]

    def put(self, data: bytes, value: T, *names: str) -> None:
        """Keep a value, unless its bytes are many."""
        if len(data) > LONGEST_KEPT:
            return
        key, size = _key(data, names), len(data) + _OBJECTS
        with self._lock:
            if key not in self._values:
                self._size += size
            self._values[key] = size, value
            while self._size > self._most:
                _, (gone, _) = self._values.popitem(last=False)
                self._size -= gone


def _key(data: bytes, names: tuple[str, ...]) -> tuple[bytes, ...]:
    return hashlib.sha256(data).digest(), *(name.encode(errors="surrogatepass") for name in names)


def return_after(files: int) -> None:
    """Return free memory if so many files were handled that it is worth the time."""
    if files >= _MANY:
        return_unused()


def return_unused() -> None:
    """Return free memory to the system. Takes some milliseconds, and the next use of it longer."""
    if (arrow := sys.modules.get("pyarrow")) is not None:
        arrow.default_memory_pool().release_unused()
    with suppress(OSError, AttributeError):  # the C library is not glibc
        ctypes.CDLL(None).malloc_trim(0)  # each thread of glibc has a heap that only grows else
