"""Where each file of a closure lies in the replica: a pure function of the place that it is read
from.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeVar
from urllib.parse import unquote

from cpreplicate.core import uri
from cpreplicate.errors import Refused

_File = TypeVar("_File")
METADATA = "_metadata"
OWN = ".cpreplicate"
BEFORE_RELOCATE = f"{OWN}/before-relocate"
FOREIGN = "foreign"
JOB_ID = re.compile(r"[0-9a-f]{32}")  # `JobID.toString()`, the name of a job's directory
CHECKPOINT_NAME = re.compile(r"chk-(\d+)")
# bytes; HDFS and most local filesystems hold 255, and a prefix and a temporary name are added
_LONGEST_NAME = 200
_MOST_DECODINGS = (
    8  # a name may be encoded ten thousand times over, and each round costs its length
)


class Layout(Protocol):
    """Where each place lies in a replica, by its path relative to the root.

    `name` is the checkpoint's directory there.
    """

    @property
    def name(self) -> str: ...

    def place(self, source: str) -> str: ...

    def place_directory(self, source: str) -> str: ...


@dataclass(frozen=True)
class Placement:
    """Lays the files of one source checkpoint into its replica.

    `checkpoint` is the place of the source checkpoint, `job_root` that of its job (None for a
    savepoint, which lies alone), `name` the checkpoint's directory in the replica, `chk-N`.
    """

    checkpoint: str
    job_root: str | None
    name: str

    def place(self, source: str) -> str:
        """The path in the replica, relative to its root, of a file read from `source`."""
        own = uri.below(source, self.checkpoint)
        if own is not None:
            return self._own(f"{self.name}/{own}", source)
        relative = uri.below(source, self.job_root) if self.job_root else None
        return self._own(relative, source) if relative is not None else _foreign(source)

    def place_directory(self, source: str) -> str:
        """The path in the replica of a directory that a type-17 handle names.

        Flink deletes such a directory recursively once it owns the checkpoint, so a foreign one
        gets a name that no file of the replica lies below.
        """
        relative = uri.below(source, self.job_root) if self.job_root else None
        if (
            relative is not None
            and relative.startswith(("shared/", "taskowned/"))
            and is_replica_path(relative)
        ):
            return relative
        return f"{FOREIGN}/{_digest(source)}"

    def place_all(self, files: Mapping[str, _File], plain: Container[str] = ()) -> dict[str, _File]:
        """Files by their path in the replica, from files by their source. Raises `Refused` if two
        would meet there.

        `plain` are directories in which all names are plain: where one of them lies, the others lie
        beside it.
        """
        placed: dict[str, _File] = {}
        near: (
            str | tuple[()]
        ) = ()  # most lie beside the one before, in `near`, placed at `there`. () begins none
        there = ""
        for source, file in files.items():
            if not source.startswith(near) or source.find("/", len(near)) >= 0:
                directory = uri.parent(source)
                near, there = (
                    (f"{directory}/", self.place(f"{directory}/x")[:-1])
                    if directory in plain
                    else ((), "")
                )
            name = source[len(near) :]
            is_as_there = near and len(name) <= _LONGEST_NAME and name != METADATA
            placed[there + name if is_as_there else self.place(source)] = file
        if len(placed) < len(files):
            raise self._meeting(files)
        return placed

    def _meeting(self, files: Iterable[str]) -> Refused:
        """Of the first two that would meet."""
        seen: dict[str, str] = {}
        both = next(
            (source, other)
            for source in files
            if (other := seen.setdefault(self.place(source), source)) != source
        )
        return Refused(
            f"{both[0]} and {both[1]} would both become {self.place(both[0])} in the replica;"
            " nothing was done"
        )

    @staticmethod
    def _own(relative: str, source: str) -> str:
        return relative if is_replica_path(relative) else _foreign(source)


def is_replica_path(relative: str) -> bool:
    """Whether a path relative to a replica is one where a file of a closure may lie.

    Nothing else is ever deleted.
    """
    first, _, rest = relative.partition("/")
    is_laid_out = first in ("shared", "taskowned", FOREIGN) or bool(
        CHECKPOINT_NAME.fullmatch(first)
    )
    is_plain = not {"", ".", ".."}.intersection(rest.split("/")) and not _hides_a_step(relative)
    return is_laid_out and is_plain and uri.name(relative) != METADATA and f"/{OWN}" not in relative


def _hides_a_step(path: str) -> bool:
    """Whether a path would have other components were it percent-decoded, as some client on the way
    might do.
    """
    decoded = path
    for _ in range(_MOST_DECODINGS):
        if "%" not in decoded or (further := unquote(decoded)) == decoded:
            break
        decoded = further
    else:
        return True
    parts = decoded.split("/")
    return len(parts) != path.count("/") + 1 or not {"", ".", ".."}.isdisjoint(parts)


def _foreign(source: str) -> str:
    """Flat, since entropy-injected paths give every file a directory of its own, and each would
    cost a listing.
    """
    name = uri.name(source)
    if len(name.encode()) > _LONGEST_NAME or _hides_a_step(name):
        name = hashlib.sha256(name.encode()).hexdigest()
    return f"{FOREIGN}/{_digest(uri.parent(source))}-{name}"


def _digest(directory: str) -> str:
    return hashlib.sha256(directory.encode()).hexdigest()[:16]
