"""Which storage serves a place."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from cpreplicate.errors import UsageError
from cpreplicate.storage.base import Storage
from cpreplicate.storage.local import LocalStorage

_STORAGES: dict[str, Storage] = {"file": LocalStorage()}


def storage_for(uri: str) -> Storage:
    """The storage that holds a place; never the environment's default one. Raises `UsageError` for a scheme not served."""
    scheme = uri.partition(":")[0]
    storage = _STORAGES.get(scheme)
    if storage is None:
        raise UsageError(f"{uri}: no storage for the scheme {scheme}:; only file: is served by this version")
    return storage


@contextlib.contextmanager
def serving(scheme: str, storage: Storage) -> Iterator[None]:
    """Serve a scheme with another storage for a while, in this process only; for tests."""
    before = _STORAGES.get(scheme)
    _STORAGES[scheme] = storage
    try:
        yield
    finally:
        if before is None:
            del _STORAGES[scheme]
        else:
            _STORAGES[scheme] = before
