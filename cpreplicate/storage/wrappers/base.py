"""The base of all wrappers: a storage around another one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import BinaryIO, TypeVar

from cpreplicate.storage.base import Content, Storage
from cpreplicate.storage.statuses import Attributes, FileStatus, Listing, Space

T = TypeVar("T")
# the verbs that change nothing
READING = frozenset({"open", "read", "stat", "list", "known_crc32c"})


class StorageWrapper(Storage):
    """A storage that passes every verb on to another one through `carry_out`."""

    def __init__(self, inner: Storage) -> None:
        self._inner = inner
        self.streams, self.closers = inner.streams, inner.closers
        self.put_calls, self.closes_slowly = inner.put_calls, inner.closes_slowly
        self.has_directories, self.copies_within = inner.has_directories, inner.copies_within
        self.needs_conditions, self.keeps_uploads = inner.needs_conditions, inner.keeps_uploads
        self.unusable, self.counts_for_space = inner.unusable, inner.counts_for_space

    @property
    def unwrapped(self) -> Storage:
        return self._inner.unwrapped

    def carry_out(self, verb: str, uri: str, call: Callable[[], T]) -> T:
        """Carry out a verb. A subclass may act before it, raise instead of it, or repeat it."""
        self.before(verb, uri)
        return self._inner.carry_out(verb, uri, call)

    def before(self, verb: str, uri: str) -> None:
        """Act before each verb; an exception is raised instead of it."""

    def open(self, uri: str) -> BinaryIO:
        return self.carry_out("open", uri, lambda: self.unwrapped.open(uri))

    def read(self, uri: str, offset: int = 0, count: int | None = None) -> bytes:
        return self.carry_out("open", uri, lambda: self.unwrapped.read(uri, offset, count))

    def stat(self, uri: str) -> FileStatus | None:
        return self.carry_out("stat", uri, lambda: self.unwrapped.stat(uri))

    def list(self, uri: str) -> list[FileStatus]:
        return self.carry_out("list", uri, lambda: self.unwrapped.list(uri))

    def listing(self, uri: str) -> Listing:
        return self.carry_out("list", uri, lambda: self.unwrapped.listing(uri))

    def put(
        self,
        uri: str,
        content: Content,
        expect: Callable[[int], None] | None = None,
        attributes: Attributes | None = None,
        replace: bool = True,
    ) -> int:
        return self.carry_out(
            "put", uri, lambda: self.unwrapped.put(uri, content, expect, attributes, replace)
        )

    def create_exclusive(self, uri: str, data: bytes) -> bool:
        return self.carry_out(
            "create_exclusive", uri, lambda: self.unwrapped.create_exclusive(uri, data)
        )

    def take_over(self, uri: str, seen: bytes, data: bytes) -> bool:
        return self.carry_out("take_over", uri, lambda: self.unwrapped.take_over(uri, seen, data))

    def publish(
        self, uri: str, content: Content, check: Callable[[int], None], replace: bool
    ) -> int:
        return self.carry_out(
            "put", uri, lambda: self.unwrapped.publish(uri, content, check, replace)
        )

    def withdraw(self, uri: str, aside: str, check: Callable[[], None]) -> bool:
        return self.carry_out("delete", uri, lambda: self.unwrapped.withdraw(uri, aside, check))

    def fence(self, aside: str) -> None:
        self.carry_out("put", aside, lambda: self.unwrapped.fence(aside))

    def ignored_conditions(self, directory: str) -> Sequence[str]:
        return self.carry_out(
            "put", directory, lambda: self.unwrapped.ignored_conditions(directory)
        )

    def move(self, uri: str, new_uri: str) -> bool:
        return self.carry_out("move", uri, lambda: self.unwrapped.move(uri, new_uri))

    def file_id(self, uri: str) -> object | None:
        return self.unwrapped.file_id(uri)

    def are_in_one_mount(self, uri: str, other: str) -> bool:
        return self.unwrapped.are_in_one_mount(uri, other)

    def mounts_below(self, uri: str) -> Sequence[str]:
        return self.unwrapped.mounts_below(uri)

    def abort_uploads(self, directory: str, is_left: Callable[[str, float], bool]) -> Sequence[str]:
        return self.carry_out(
            "delete", directory, lambda: self.unwrapped.abort_uploads(directory, is_left)
        )

    def real(self, uri: str) -> str:
        return self.unwrapped.real(uri)

    def delete(self, uri: str, durable: bool = False) -> bool:
        return self.carry_out("delete", uri, lambda: self.unwrapped.delete(uri, durable))

    def rmdir(self, uri: str) -> bool:
        return self.carry_out("rmdir", uri, lambda: self.unwrapped.rmdir(uri))

    def known_crc32c(self, uri: str) -> int | None:
        return self.carry_out("known_crc32c", uri, lambda: self.unwrapped.known_crc32c(uri))

    def space(self, uri: str, briefly: bool) -> Sequence[Space]:
        return self.carry_out("stat", uri, lambda: self.unwrapped.space(uri, briefly))

    def copy_within(self, uri: str, new_uri: str) -> int | None:
        return self.carry_out("put", new_uri, lambda: self.unwrapped.copy_within(uri, new_uri))
