"""Builds what is in Java: one at a time."""

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """While the block runs no other process builds.

    Maven's processes share its repository, and `clean` spares no lock file.
    """
    with Path(__file__).open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
