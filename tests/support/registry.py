"""For tests: another storage for a scheme."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from cpreplicate.storage.base import Storage
from cpreplicate.storage.sides import STORAGES


@contextlib.contextmanager
def serving(scheme: str, storage: Storage) -> Iterator[None]:
    """Serve a scheme with another storage for a while, in this process only."""
    replaced = STORAGES.get(scheme)
    STORAGES[scheme] = lambda _filesystem, _side: storage
    try:
        yield
    finally:
        if replaced is None:
            del STORAGES[scheme]
        else:
            STORAGES[scheme] = replaced
