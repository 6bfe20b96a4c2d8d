"""What the filesystems that can rename have in common: a file is written under a temporary name,
then renamed.
"""

from __future__ import annotations

import contextlib
import hashlib
import uuid
from abc import abstractmethod
from collections.abc import Callable, Iterator

from cpreplicate.core import uri as places
from cpreplicate.storage.base import TEMPORARY, Attributes, Content, Storage


class RenamingStorage(Storage):
    """A filesystem whose rename is atomic and, as asked, replaces a file or fails where one is."""

    @abstractmethod
    def write_new(self, uri: str, content: Content) -> int:
        """Write a file that nobody looks for, with its directories, to its last byte.

        May leave a part of it on failure.
        """

    @abstractmethod
    def rename(self, uri: str, new_uri: str, replace: bool) -> bool:
        """Rename a file atomically; False if it is gone.

        Raises `FileExistsError` if not to `replace` one that is there.
        """

    def set_attributes(self, uri: str, attributes: Attributes) -> None:
        """Give a file what another one has; nothing where the filesystem has no attributes."""

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
            if not self.rename(temporary, uri, replace):
                raise FileNotFoundError(
                    f"{temporary} went before it could be renamed; did a sweep run beside this run?"
                )
        return length

    def create_exclusive(self, uri: str, data: bytes) -> bool:
        with self.temporary(uri) as temporary:
            self.write_new(temporary, lambda: [data])
            try:
                return self.rename(temporary, uri, replace=False)
            except FileExistsError:
                self.delete(temporary)
                return False

    def take_over(self, uri: str, seen: bytes, data: bytes) -> bool:
        """By moving it to a name made of what was seen, where it stays: no second contender can
        move what replaced it.

        What turns out to be another file is put back.
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

    def move(self, uri: str, new_uri: str) -> bool:
        return self.rename(uri, new_uri, replace=False)

    @contextlib.contextmanager
    def temporary(self, uri: str) -> Iterator[str]:
        """A name beside `uri` for a file that is not whole yet; gone afterwards, unless renamed."""
        temporary = places.join(places.parent(uri), TEMPORARY + uuid.uuid4().hex)
        try:
            yield temporary
        except BaseException:
            # the failure itself is what counts; a sweep finds what is left
            with contextlib.suppress(OSError):
                self.delete(temporary)
            raise
