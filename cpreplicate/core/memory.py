"""Free memory, which allocators keep for the next large checkpoint."""

from __future__ import annotations

import ctypes
import sys
from contextlib import suppress

_MANY = 100_000  # files


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
