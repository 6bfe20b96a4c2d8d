"""An object store in memory, whose every step can be watched, stopped or failed."""

from __future__ import annotations

import errno
import hashlib
from collections.abc import Callable, Mapping

from cpreplicate.core import uri as places
from cpreplicate.storage.base import Content, Storage
from cpreplicate.storage.statuses import Attributes, FileStatus
from tests.support.simulated import SimulatedDisk, files


class SimulatedStore(SimulatedDisk):
    """A `SimulatedDisk` as S3 is.

    A put is one step, "create", and so are the conditional ones. Directories are prefixes, without
    times: they go with their last object. Times are whole seconds. An object has a tag that is made
    of its content. `files_named` is a step "list" for each page.
    """

    has_directories = False
    has_tags = True
    page = 1_000  # objects of a listing that one call takes

    def put(
        self,
        uri: str,
        content: Content,
        expect: Callable[[int], None] | None = None,
        attributes: Attributes | None = None,  # noqa: ARG002  # as of S3
        replace: bool = True,
    ) -> int:
        data = b"".join(content())
        if expect is not None:
            expect(len(data))
        with self._step("create", uri), self._lock:
            if not replace and self._is_there(uri):
                raise FileExistsError(errno.EEXIST, "is there already", uri)
            self.place(uri, data)
        return len(data)

    def create_exclusive(self, uri: str, data: bytes) -> bool:
        try:
            self.put(uri, lambda: [data], replace=False)
        except FileExistsError:
            return False
        return True

    def take_over(self, uri: str, seen: bytes, data: bytes) -> bool:
        with self._step("create", uri), self._lock:
            if self.data(uri) != seen:
                return False
            self.place(uri, data)
            return True

    publish, withdraw, fence = Storage.publish, Storage.withdraw, Storage.fence

    def move(self, uri: str, new_uri: str) -> bool:
        data = self.data(uri)
        return data is not None and bool(self.put(new_uri, lambda: [data])) and self.delete(uri)

    def rmdir(self, uri: str) -> bool:  # noqa: ARG002  # it went with its last object
        return False

    def files_named(
        self, uri: str, prefix: str, name: str, most: int
    ) -> Mapping[str, FileStatus] | None:
        with self._lock:
            begin = f"{uri}/{prefix}"
            keys = [path for path in files(self.snapshot(), uri) if path.startswith(begin)]
        pages = max(1, -(-len(keys) // self.page))
        for _ in range(min(pages, most)):
            with self._step("list", uri):
                pass
        if pages > most:
            return None
        directories = [places.parent(key) for key in keys if places.name(key) == name]
        with self._lock:
            return {
                places.name(each): self._status(f"{each}/{name}", f"{each}/{name}")
                for each in directories
                if places.parent(each) == uri
            }

    def _status(self, uri: str, place: str) -> FileStatus:
        status = super()._status(uri, place)
        if status.is_directory:
            return status._replace(modified=0.0)
        tag = hashlib.md5(self._file(place).data).hexdigest() if self.has_tags else None
        return status._replace(modified=float(int(status.modified)), tag=tag)

    def _leave(self, uri: str) -> bool:
        super()._leave(uri)
        parent = places.parent(uri)
        if not self._tree[parent] and self._is_there(parent):
            del self._tree[parent]
            self._leave(parent)
        return True
