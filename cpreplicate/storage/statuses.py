"""What a storage answers about files, directories and what limits them."""

from __future__ import annotations

from array import array
from typing import NamedTuple

_TAGGED = 10_000  # files of a listing of which the tags are kept


class Attributes(NamedTuple):
    """The attributes that `--preserve` copies.

    `permission` is None where the storage has no permission bits. `modified` is in seconds since
    the epoch.
    """

    permission: int | None
    modified: float


class FileStatus(NamedTuple):
    """The status of a file or directory; that of its target for a symbolic link.

    `length` is in bytes, `modified` in seconds since the epoch; see `dated`. `tag` is what object
    stores give each content of a file, such as an ETag; None where it is not known.
    """

    uri: str
    name: str
    length: int
    is_directory: bool
    modified: float
    permission: int | None = None
    is_link: bool = False
    tag: str | None = None

    @property
    def dated(self) -> float | None:
        """When it was modified, None if that is not known.

        A storage without times answers 0, and so does a backup that was unpacked without them. No
        file of a checkpoint is from before 1970.
        """
        return self.modified if self.modified > 0 else None

    @property
    def attributes(self) -> Attributes:
        """The attributes that a copy of the file can get."""
        return Attributes(self.permission, self.modified)


class Listing(NamedTuple):
    """The children of a directory: the plain files in columns, and the `others` as objects.

    Each file costs a tenth of a `FileStatus` so. `others` are directories and symbolic links.
    `tags` are by name, of the first files that have one: those of a million would take 200 MB.
    """

    uri: str
    names: list[str]
    lengths: array[int]
    modified: array[float]
    others: list[FileStatus]
    tags: dict[str, str]

    def status(self, row: int) -> FileStatus:
        """Return a plain file as an object, without its permissions."""
        name = self.names[row]
        place = f"{self.uri.rstrip('/')}/{name}"
        length, modified, tag = self.lengths[row], self.modified[row], self.tags.get(name)
        return FileStatus(place, name, length, False, modified, tag=tag)

    def add(self, name: str, length: int, modified: float, tag: str | None = None) -> None:
        """Add a plain file."""
        self.names.append(name)
        self.lengths.append(length)
        self.modified.append(modified)
        if tag is not None and len(self.tags) < _TAGGED:
            self.tags[name] = tag


def new_listing(uri: str) -> Listing:
    """Return a listing without children."""
    return Listing(uri, [], array("q"), array("d"), [], {})


class Space(NamedTuple):
    """What may still be written below a directory, by one limit: a disk, a quota.

    `limit` names it. `bytes` is what files may still hold, and `files` how many more there may be;
    None if this does not limit them.
    """

    limit: str
    bytes: int | None
    files: int | None


class DeletePolicy(NamedTuple):
    """A setting that decides what becomes of deleted files; `keeps`: they go on using space."""

    text: str
    keeps: bool
