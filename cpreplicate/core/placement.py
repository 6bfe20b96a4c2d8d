"""Placement: where each file of a closure is in the replica.

It is a pure function of the URI that the file is read from.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import unquote

import numpy as np
import pyarrow.compute as pc

from cpreplicate.core import uri
from cpreplicate.core.closure import FileTable
from cpreplicate.core.path_columns import Numbers, Texts, are_few, are_plain, parts_of
from cpreplicate.core.tables import slices
from cpreplicate.errors import Refused

METADATA = "_metadata"
OWN = ".cpreplicate"
BEFORE_RELOCATE = f"{OWN}/before-relocate"
FOREIGN = "foreign"
PACKED = "packed"
REBASED = "rebased"
JOB_ID = re.compile(r"[0-9a-f]{32}")  # `JobID.toString()`, the name of a job's directory
CHECKPOINT_NAME = re.compile(r"chk-(\d+)")
# a derived checkpoint, by its path in the replica
DERIVED_NAME = re.compile(rf"{REBASED}/[A-Za-z0-9][A-Za-z0-9._-]{{0,99}}")
# bytes; HDFS and most local filesystems hold 255, and a prefix and a temporary name are added
_LONGEST_NAME = 200
# Directories in a replica. Flink nests a few. Each costs a listing, and the kernel's way to a file
# is as long as its path: the time to walk them grows with the third power.
DEEPEST = 100
# a name may be encoded ten thousand times over, and each round costs its length
_MOST_DECODINGS = 8


def job_root(source: str) -> str:
    """Return the directory of the job that a SOURCE argument names, or that of its savepoint.

    SOURCE may be a job's directory, a checkpoint, a savepoint, or the `_metadata` of either. Only
    names are looked at. The last component is the name of the replica.
    """
    path = source.rstrip("/")
    directory = uri.parent(path) if uri.name(path) == METADATA else path
    return uri.parent(directory) if CHECKPOINT_NAME.fullmatch(uri.name(directory)) else directory


def own_name(checkpoint: str) -> str:
    """Return what the names of a checkpoint's files in `.cpreplicate/` begin with."""
    return checkpoint.replace("/", "-")


def checkpoint_of(own: str) -> str | None:
    """Return the checkpoint whose `own_name` this is, or None if it is that of none."""
    checkpoint = own.replace("-", "/", 1) if own.startswith(f"{REBASED}-") else own
    return checkpoint if is_checkpoint(checkpoint) else None


def is_checkpoint(name: str) -> bool:
    """Return whether this is the name of a checkpoint in a replica, derived or not."""
    return is_derived(name) or CHECKPOINT_NAME.fullmatch(name) is not None


def is_derived(checkpoint: str) -> bool:
    """Return whether this is the name of a derived checkpoint: `rebased/…`."""
    return DERIVED_NAME.fullmatch(checkpoint) is not None


class Layout(Protocol):
    """Where the file of each URI is in a replica, as a path relative to the replica's root.

    `name` is the checkpoint's directory there.
    """

    @property
    def name(self) -> str: ...

    def place(self, source: str) -> str: ...

    def place_directory(self, source: str) -> str: ...


@dataclass(frozen=True)
class Placement:
    """The layout of one source checkpoint's files in its replica.

    `checkpoint` is the URI of the source checkpoint and `job_root` that of its job's directory,
    None for a savepoint, which is alone. `name` is the checkpoint's directory in the replica,
    `chk-N`.
    """

    checkpoint: str
    job_root: str | None
    name: str

    def place(self, source: str) -> str:
        """Return the path, relative to the replica's root, of a file read from `source`."""
        own = uri.below(source, self.checkpoint)
        if own is not None:
            return self._own(f"{self.name}/{own}", source)
        relative = uri.below(source, self.job_root) if self.job_root else None
        return self._own(relative, source) if relative is not None else _foreign(source)

    def place_directory(self, source: str) -> str:
        """Return the path in the replica of a directory that a type-17 handle names.

        Flink deletes such a directory recursively once it owns the checkpoint. A foreign one
        therefore gets a name that no file of the replica is below.
        """
        relative = uri.below(source, self.job_root) if self.job_root else None
        is_below_the_job = relative is not None and relative.startswith(("shared/", "taskowned/"))
        if relative is not None and is_below_the_job and is_replica_path(relative):
            return relative
        return f"{FOREIGN}/{_digest(source)}"

    def place_all(self, files: FileTable, plain: Container[str] = ()) -> FileTable:
        """Return files by their path in the replica, from files by the URI of their source.

        `plain` are directories in which all names are plain: all their files stay together in the
        replica. Raises `Refused` if two files would have the same path there.
        """
        sources = files.sources
        prefixes = [
            self.place(f"{prefix}x")[:-1] if prefix[:-1] in plain else None
            for prefix in sources.prefixes
        ]
        stays = np.array([prefix is not None for prefix in prefixes], np.bool_)
        is_single = ~stays[sources.codes] | has_special_name(sources.names)
        singles = sources.take(is_single).texts().to_pylist()
        parts = sources.moved(prefixes, is_single, map(self.place, singles))
        placed = FileTable(parts, sources, files.extents, files.sizes, files.is_segment)
        is_apart = len(set(parts.prefixes)) == len(prefixes) and not is_single.any()
        if is_apart and all(prefix.endswith("/") for prefix in parts.prefixes):
            return placed  # each directory stays one, so no two files can meet
        if pc.count_distinct(placed.paths).as_py() < len(files):
            raise self._collision(files)
        return placed

    def _collision(self, files: Iterable[str]) -> Refused:
        """Return the error that names the first two sources with the same path in the replica."""
        first_source: dict[str, str] = {}
        one, other = next(
            (source, earlier)
            for source in files
            if (earlier := first_source.setdefault(self.place(source), source)) != source
        )
        return Refused(
            f"{one} and {other} would both become {self.place(one)} in the replica."
            " Nothing was done"
        )

    @staticmethod
    def _own(relative: str, source: str) -> str:
        is_own = is_replica_path(relative) and not relative.startswith(f"{REBASED}/")
        return relative if is_own else _foreign(source)


@dataclass(frozen=True)
class ReplicaLayout:
    """The files of a replica by the paths in its `_metadata`, which are below one of `roots`."""

    name: str
    roots: tuple[str, ...]

    def place(self, source: str) -> str:
        return next(path for root in self.roots if (path := path_below(source, root)) is not None)

    def place_directory(self, source: str) -> str:
        return self.place(source)


def path_below(file_uri: str, root: str) -> str | None:
    """Return the path of a file of a replica that is below `root`, or None if it is none."""
    path = uri.below(file_uri, root)
    return path if path is not None and is_replica_path(path) else None


def has_special_name(names: Texts) -> Numbers:
    """Return which names change where a plain name would stay."""
    if are_few(names):
        return np.array([_is_special(name) for name in names.to_pylist()], np.bool_)
    is_long = pc.greater(pc.binary_length(names), _LONGEST_NAME)
    special: Numbers = pc.or_(is_long, pc.equal(names, METADATA)).to_numpy(zero_copy_only=False)
    return special


def _is_special(name: str) -> bool:
    # no character has more than four bytes
    return name == METADATA or (4 * len(name) > _LONGEST_NAME < len(name.encode()))


def is_replica_path(relative: str) -> bool:
    """Return whether a file of a closure may be at a path relative to a replica.

    No other path is ever deleted.
    """
    first, _, rest = relative.partition("/")
    is_checkpoint = CHECKPOINT_NAME.fullmatch(first) is not None
    if not is_checkpoint and first not in ("shared", "taskowned", FOREIGN, PACKED, REBASED):
        return False
    if first == REBASED and not is_derived(relative.rpartition("/")[0]):
        return False
    if not {"", ".", ".."}.isdisjoint(rest.split("/")) or _hides_a_step(relative):
        return False
    if relative.count("/") > DEEPEST:
        return False
    return uri.name(relative) != METADATA and f"/{OWN}" not in relative


def are_replica_paths(paths: Texts) -> Numbers:
    """Return of each path whether `is_replica_path`."""
    answers = [_are_replica_paths(paths[some]) for some in slices(len(paths))]
    return np.concatenate([np.zeros(0, np.bool_), *answers])


def _are_replica_paths(paths: Texts) -> Numbers:
    if are_few(paths):
        return _are_few_replica_paths(paths.to_pylist())
    parts = parts_of(paths)
    allowed = np.array([is_replica_path(f"{prefix}x") for prefix in parts.prefixes], np.bool_)
    is_single = ~are_plain(parts.names) | has_special_name(parts.names)
    answers: Numbers = allowed[parts.codes] if len(allowed) else np.zeros(0, np.bool_)
    singles = parts.take(is_single).texts().to_pylist()
    answers[is_single] = [is_replica_path(path) for path in singles]
    return answers


def _are_few_replica_paths(paths: Sequence[str]) -> Numbers:
    """Return of each path whether `is_replica_path`: that follows from its directory if its name is
    plain.
    """
    known, answers = dict[str, bool](), list[bool]()
    for path in paths:
        directory, slash, name = path.rpartition("/")
        if not uri.plain_name(name) or _is_special(name):
            answers.append(is_replica_path(path))
            continue
        if directory not in known:
            known[directory] = is_replica_path(f"{directory}{slash}x")
        answers.append(known[directory])
    return np.array(answers, np.bool_)


def _hides_a_step(path: str) -> bool:
    """Return whether a client that percent-decodes a path would see other components."""
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
    """Return the path of a file from outside the job's directory: all are in one directory.

    Entropy-injected paths give every file a directory of its own, and each would cost a listing.
    """
    name = uri.name(source)
    if len(name.encode()) > _LONGEST_NAME or _hides_a_step(name):
        name = hashlib.sha256(name.encode()).hexdigest()
    return f"{FOREIGN}/{_digest(uri.parent(source))}-{name}"


def _digest(directory: str) -> str:
    return hashlib.sha256(directory.encode()).hexdigest()[:16]
