"""Which storage serves a place."""

from __future__ import annotations

from cpreplicate.errors import UsageError
from cpreplicate.storage.base import Storage
from cpreplicate.storage.local import LocalStorage

_LOCAL = LocalStorage()


def storage_for(uri: str) -> Storage:
    """The storage that holds a place; never the environment's default one. Raises `UsageError` for a scheme not served."""
    scheme = uri.partition(":")[0]
    if scheme == "file":
        return _LOCAL
    raise UsageError(f"{uri}: no storage for the scheme {scheme}:; only file: is served by this version")
