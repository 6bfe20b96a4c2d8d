"""For tests: another storage for a scheme."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from cpreplicate.storage.base import Storage
from cpreplicate.storage.sides import _overrides


@contextlib.contextmanager
def serving(scheme: str, storage: Storage) -> Iterator[None]:
    """Serve a scheme with another storage for a while, in this process only."""
    before = _overrides.get(scheme)
    _overrides[scheme] = storage
    try:
        yield
    finally:
        if before is None:
            del _overrides[scheme]
        else:
            _overrides[scheme] = before
