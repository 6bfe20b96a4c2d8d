"""For tests: a storage that keeps a record of every call, to prove what was never touched."""

from __future__ import annotations

from cpreplicate.storage.base import Storage
from cpreplicate.storage.wrappers.base import READING, StorageWrapper


class Tracing(StorageWrapper):
    """Keeps (verb, uri) of every call, in order; appending is atomic, so threads may share one."""

    def __init__(self, inner: Storage) -> None:
        super().__init__(inner)
        self.calls: list[tuple[str, str]] = []

    def before(self, verb: str, uri: str) -> None:
        self.calls.append((verb, uri))

    def changes(self) -> list[tuple[str, str]]:
        """The calls that may have changed something."""
        return [call for call in self.calls if call[0] not in READING]
