"""For tests: a storage that fails where a test wants it to."""

from __future__ import annotations

from collections.abc import Callable

from cpreplicate.storage.base import Storage
from cpreplicate.storage.wrappers.base import StorageWrapper


class Faulty(StorageWrapper):
    """Raises what `fault` returns for a verb and its place, before anything is done.

    Passes on what it has none for.
    """

    def __init__(self, inner: Storage, fault: Callable[[str, str], OSError | None]) -> None:
        super().__init__(inner)
        self._fault = fault

    def before(self, verb: str, uri: str) -> None:
        error = self._fault(verb, uri)
        if error is not None:
            raise error
