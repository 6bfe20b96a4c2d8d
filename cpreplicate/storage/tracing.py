"""For tests: a storage that is told of every call before it is made, and one that keeps a record of them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import BinaryIO

from cpreplicate.storage.base import FileStatus, Storage

READING = frozenset({"open", "stat", "list"})


class Wrapped(Storage):
    """Passes every verb on to another storage, after a look at it."""

    def __init__(self, inner: Storage) -> None:
        self._inner = inner

    @abstractmethod
    def before(self, verb: str, uri: str) -> None:
        """Called with the name and the place of each verb; may raise instead of it. `move` counts for both places."""

    def open(self, uri: str) -> BinaryIO:
        self.before("open", uri)
        return self._inner.open(uri)

    def stat(self, uri: str) -> FileStatus | None:
        self.before("stat", uri)
        return self._inner.stat(uri)

    def list(self, uri: str) -> list[FileStatus]:
        self.before("list", uri)
        return self._inner.list(uri)

    def put(self, uri: str, chunks: Iterable[bytes], expect: Callable[[int], None] | None = None) -> int:
        self.before("put", uri)
        return self._inner.put(uri, chunks, expect)

    def create_exclusive(self, uri: str, data: bytes) -> bool:
        self.before("create_exclusive", uri)
        return self._inner.create_exclusive(uri, data)

    def move(self, uri: str, new_uri: str) -> bool:
        self.before("move", uri)
        self.before("move", new_uri)
        return self._inner.move(uri, new_uri)

    def delete(self, uri: str, durable: bool = False) -> bool:
        self.before("delete", uri)
        return self._inner.delete(uri, durable)

    def rmdir(self, uri: str) -> bool:
        self.before("rmdir", uri)
        return self._inner.rmdir(uri)


class Tracing(Wrapped):
    """Keeps (verb, uri) of every call, in order; appending is atomic, so threads may share one."""

    def __init__(self, inner: Storage) -> None:
        super().__init__(inner)
        self.calls: list[tuple[str, str]] = []

    def before(self, verb: str, uri: str) -> None:
        self.calls.append((verb, uri))

    def changes(self) -> list[tuple[str, str]]:
        """The calls that may have changed something."""
        return [call for call in self.calls if call[0] not in READING]
