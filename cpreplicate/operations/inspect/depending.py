"""The jobs whose files a checkpoint still needs, besides those of its own job."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from cpreplicate.core import uri
from cpreplicate.core.closure import job_directory
from cpreplicate.core.placement import FOREIGN as FOREIGN_DIRECTORY
from cpreplicate.core.placement import JOB_ID
from cpreplicate.core.state_sizes import FOREIGN, sums
from cpreplicate.operations.inspect.checkpoint import Checkpoint
from cpreplicate.protocol.job_record import read_job_record

_CHANGELOG = "dstl"  # Flink's directory for it, in one that is named after the job


class Dependency(NamedTuple):
    """Files of another job, or of a place that is laid out like no job's.

    `jobs` are the ids of the jobs, none if they are not known. `is_own`: it is the changelog of the
    job itself, which Flink keeps elsewhere. `is_in_replica`: the files are in this replica, so that
    the directory of the other job is not needed.
    """

    directory: str
    jobs: tuple[str, ...]
    files: int
    bytes: int
    is_own: bool = False
    is_in_replica: bool = False


def dependencies(checkpoint: Checkpoint) -> Iterator[Dependency]:
    """Yield what a checkpoint depends on, in the order in which its `_metadata` names it.

    A replica holds files of earlier jobs in one directory. Their ids are those that it recorded.
    """
    root = checkpoint.source.root
    own = uri.join(root, FOREIGN_DIRECTORY)
    for directory, (files, size) in _groups(checkpoint, own).items():
        if directory == own:
            record = read_job_record(checkpoint.file.side, root)
            follows = () if record is None else record.follows
            yield Dependency(directory, follows, files, size, is_in_replica=True)
        else:
            jobs = _jobs(directory)
            yield Dependency(directory, jobs, files, size, is_own=jobs == (uri.name(root),))


def _jobs(directory: str) -> tuple[str, ...]:
    """Return the id of the job that a directory is named after, also that of its changelog."""
    own = uri.parent(directory) if uri.name(directory) == _CHANGELOG else directory
    name = uri.name(own)
    return (name,) if JOB_ID.fullmatch(name) else ()


def _groups(checkpoint: Checkpoint, own: str) -> dict[str, tuple[int, int]]:
    """Return how many files and bytes of other jobs there are, by the directory of the job."""
    held, files = checkpoint.sizes, checkpoint.needed.files
    rows = np.unique(held.file[(held.place == FOREIGN) & (held.file >= 0)])
    plain, packed = rows[rows < held.plain], rows[rows >= held.plain] - held.plain
    codes = files.sources.codes[plain]
    counts, sizes = sums(codes, np.ones(len(codes), np.int64)), sums(codes, files.sizes[plain])
    lengths = np.array([each.length for each in checkpoint.packed.members.values()], np.int64)
    found = [(own, len(packed), sum(lengths[packed].tolist()))] if len(packed) else []
    for code in dict.fromkeys(codes.tolist()):  # in the order of the `_metadata`
        place = f"{files.sources.prefixes[code]}x"
        directory = own if uri.below(place, own) is not None else job_directory(place)
        found.append((directory, counts[code], sizes[code]))
    groups: dict[str, tuple[int, int]] = {}
    for directory, count, size in found:
        files_before, size_before = groups.get(directory, (0, 0))
        groups[directory] = files_before + count, size_before + size
    return groups
