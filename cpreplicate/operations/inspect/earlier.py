"""What a checkpoint added to the one before it, if that is there to be compared."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

import numpy as np

from cpreplicate.core import uri
from cpreplicate.core.placement import CHECKPOINT_NAME, METADATA
from cpreplicate.errors import CpreplicateError
from cpreplicate.operations.inspect.checkpoint import Checkpoint, read_found
from cpreplicate.operations.inspect.files import Files, files_of, files_of_manifest
from cpreplicate.protocol import manifest
from cpreplicate.protocol.replica import Replica
from cpreplicate.protocol.source import Source, highest_first
from cpreplicate.storage import Side


class Increment(NamedTuple):
    """The files that a checkpoint has and the one `since` which it is has not.

    `bytes` are those of these files, and those by which merged files grew.
    """

    since: str
    files: int
    bytes: int


def increment(checkpoint: Checkpoint, side: Side, remaps: Sequence[uri.Remap]) -> Increment | None:
    """Return what a checkpoint added to the newest one before it in the same directory.

    None without such a one, and if it cannot be read. In a replica the manifest suffices.
    """
    source = checkpoint.source
    match = CHECKPOINT_NAME.fullmatch(uri.name(source.checkpoint))
    if match is None or source.job_root is None:
        return None
    replica = Replica(source.job_root, side)
    with suppress(CpreplicateError, OSError):
        for name in _before(replica, int(match[1])):
            before = _files(replica, name, remaps)
            if before is not None:
                return _since(name, before, files_of(checkpoint))
    return None


def _before(replica: Replica, number: int) -> list[str]:
    """Return the names of the checkpoints before a number of which something is there."""
    own = replica.own_files()
    names = {child.name for child in replica.children() if child.is_directory}
    names |= {name.removesuffix(manifest.SUFFIX) for name in own if name.endswith(manifest.SUFFIX)}
    return [name for name in highest_first(names) if int(name.removeprefix("chk-")) < number]


def _files(replica: Replica, name: str, remaps: Sequence[uri.Remap]) -> Files | None:
    listed = manifest.read(replica.storage, replica.root, name)
    if listed is not None:
        return files_of_manifest(listed)
    directory = uri.join(replica.root, name)
    if replica.storage.stat(uri.join(directory, METADATA)) is None:
        return None
    source = Source(directory, uri.name(replica.root), replica.root)
    return files_of(read_found(source, replica.side, remaps))


def _since(name: str, before: Files, after: Files) -> Increment:
    place = after.rows_in(before)
    is_new = place < 0
    grown = np.maximum(after.lengths[~is_new] - before.lengths[place[~is_new]], 0)
    grows = after.may_grow[~is_new]
    size = sum(after.lengths[is_new].tolist()) + sum(grown[grows].tolist())
    return Increment(name, int(is_new.sum()), size)
