"""A check before everything that changes a storage."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from cpreplicate.storage.base import Content, Storage
from cpreplicate.storage.statuses import Attributes
from cpreplicate.storage.wrappers.base import READING, StorageWrapper

T = TypeVar("T")


class Checked(StorageWrapper):
    """A wrapper that calls `check` before each verb that writes or deletes, and it may raise.

    Of a file that is written, `check` is also called when all of it is and it is about to appear.
    """

    def __init__(self, inner: Storage, check: Callable[[], None]) -> None:
        super().__init__(inner)
        self._check = check

    @property
    def unwrapped(self) -> Storage:
        """The storage with its other wrappers: verbs that these have of their own are called."""
        return self._inner

    def carry_out(self, verb: str, uri: str, call: Callable[[], T]) -> T:  # noqa: ARG002  # all alike
        if verb not in READING:
            self._check()
        return call()

    def as_one(self, verb: str, uri: str, calls: Callable[[Storage], T]) -> T:
        return self.carry_out(verb, uri, lambda: self._inner.as_one(verb, uri, calls))

    def put(
        self,
        uri: str,
        content: Content,
        expect: Callable[[int], None] | None = None,
        attributes: Attributes | None = None,
        replace: bool = True,
    ) -> int:
        checked = self._after(expect)
        return super().put(uri, content, checked, attributes, replace)

    def publish(
        self, uri: str, content: Content, check: Callable[[int], None], replace: bool
    ) -> int:
        return super().publish(uri, content, self._after(check), replace)

    def _after(self, expect: Callable[[int], None] | None) -> Callable[[int], None]:
        def checked(length: int) -> None:
            if expect is not None:
                expect(length)
            self._check()

        return checked
