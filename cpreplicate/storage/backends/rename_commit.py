"""The base of filesystems that can rename.

A file is written under a temporary name, then renamed.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import secrets
import uuid
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterator

from cpreplicate.core import uri as uris
from cpreplicate.storage.base import TEMPORARY, Content, Storage
from cpreplicate.storage.statuses import Attributes

_REMOVED_AT_ONCE = 8  # temporary files that one write removes behind others


class RenamingStorage(Storage):
    """A filesystem whose atomic rename either replaces a file or fails if there is one."""

    @abstractmethod
    def write_new(self, uri: str, content: Content) -> int:
        """Write a whole new file under a temporary name, and create its directories.

        May leave a part of it on failure.
        """

    @abstractmethod
    def rename(self, uri: str, new_uri: str, replace: bool) -> bool:
        """Rename a file atomically, and return whether it was there.

        Raises `FileExistsError` if the new name is taken, unless `replace`.
        """

    def set_attributes(self, uri: str, attributes: Attributes) -> None:
        """Set attributes of a file. Do nothing if the filesystem has none."""

    def put(
        self,
        uri: str,
        content: Content,
        expect: Callable[[int], None] | None = None,
        attributes: Attributes | None = None,
        replace: bool = True,
    ) -> int:
        with self.temporary(uri) as temporary:
            length = self.write_new(temporary, content)
            if expect is not None:
                expect(length)
            if attributes is not None:
                self.set_attributes(temporary, attributes)
            self._let_appear(temporary, uri, replace)
        return length

    def _let_appear(self, temporary: str, uri: str, replace: bool = True) -> None:
        if not self.rename(temporary, uri, replace):
            raise FileNotFoundError(
                f"{temporary} went before it could be renamed; did a sweep run beside this run?"
            )

    def create_exclusive(self, uri: str, data: bytes) -> bool:
        with self.temporary(uri) as temporary:
            self.write_new(temporary, lambda: [data])
            try:
                return self.rename(temporary, uri, replace=False)
            except FileExistsError:
                self.delete(temporary)
                return False

    def take_over(self, uri: str, seen: bytes, data: bytes) -> bool:
        """Move the file to a name derived from its content, then create it anew.

        It stays under that name, so no second contender can move what replaced it. If it turns out
        to have another content, it is moved back.
        """
        aside = f"{uri}-{hashlib.sha256(seen).hexdigest()[:32]}"
        try:
            if not self.rename(uri, aside, replace=False):
                return False
        except FileExistsError:
            return False
        with self.open(aside) as stream:
            as_seen = stream.read(len(seen) + 1) == seen
        if not as_seen:
            with contextlib.suppress(FileExistsError):
                self.rename(aside, uri, replace=False)
            return False
        return self.create_exclusive(uri, data)

    def withdraw(
        self, uri: str, aside: str, check: Callable[[], None], keeps_aside: bool = False
    ) -> bool:
        """Rename the file to `aside`, and delete it there.

        No rename replaces a directory by a file, so the directory that `fence` makes stops it. The
        delete cannot remove that directory, because it is not empty.
        """
        check()
        try:
            was_there = self.rename(uri, aside, replace=True)
        except OSError:
            check()  # a lost lease is the better reason
            raise
        if was_there and not keeps_aside:
            self.removed(aside)  # what stays is a temporary file, which a later run removes
        return was_there

    def fence(self, aside: str) -> None:
        """Put a directory that is not empty under the name `aside`.

        A file that is there was withdrawn, and is of no use.
        """
        while True:
            try:
                self.write_new(uris.join(aside, TEMPORARY + uuid.uuid4().hex), lambda: [])
                return
            except OSError:
                if not self.removed(aside):
                    raise

    def removed(self, uri: str) -> bool:
        """Return whether there was a file, which is deleted now. No error is raised."""
        with contextlib.suppress(OSError):
            return self.delete(uri)
        return False

    def move(self, uri: str, new_uri: str) -> bool:
        return self.rename(uri, new_uri, replace=False)

    @contextlib.contextmanager
    def temporary(self, uri: str) -> Iterator[str]:
        """Provide a name beside `uri` for a file that is not complete yet.

        If the block raises, a file with this name is deleted. If that fails, too, as where the
        connection broke, it is tried again after a later block has ended well. An error of the
        block names the file that was to be written.
        """
        temporary = temporary_name(uri)
        try:
            with blaming(uri, temporary):
                yield temporary
        except BaseException:
            self._remove(temporary)
            raise
        for _ in range(min(_REMOVED_AT_ONCE, len(self._left))):
            with contextlib.suppress(IndexError):  # another thread was faster
                self._remove(self._left.popleft())

    def _remove(self, temporary: str) -> None:
        try:
            self.delete(temporary)
        except OSError:  # what failed before matters more
            self._left.append(temporary)

    @functools.cached_property
    def _left(self) -> deque[str]:
        """The temporary files that this process could not delete. What stays is left to others."""
        return deque()


def temporary_name(uri: str) -> str:
    """Return a new name beside `uri` for a file that is not complete yet."""
    return uris.join(uris.parent(uri), TEMPORARY + secrets.token_hex(16))


@contextlib.contextmanager
def blaming(uri: str, temporary: str) -> Iterator[None]:
    """Let an error of the block name the file that is to be written, not its temporary one."""
    try:
        yield
    except OSError as error:
        if isinstance(error.filename, str):
            error.filename = error.filename.replace(uris.name(temporary), uris.name(uri))
        raise
