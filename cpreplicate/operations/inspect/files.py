"""The files of a checkpoint by the path that each has in a replica, to be compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cpreplicate.core.path_columns import Numbers, Texts, chosen, concatenated, rows_of, texts
from cpreplicate.core.placement import Placement, are_replica_paths
from cpreplicate.core.state_sizes import KEYED, SHARED
from cpreplicate.operations.inspect.checkpoint import Checkpoint
from cpreplicate.protocol.manifest import Manifest

NONE = -1


@dataclass(frozen=True, eq=False)
class Files:
    """Files in columns. `paths` are those that a replica has, or would have.

    Packed files have their logical path. `may_grow`: segments of several checkpoints are in the
    file, so its length is the extent that is needed. `operators` and `subtasks` are those whose
    state is in the file, -1 if several are. `is_compacted`: it is a file of an incremental
    checkpoint, which a compaction replaces.
    """

    paths: Texts
    lengths: Numbers
    may_grow: Numbers
    operators: Numbers
    subtasks: Numbers
    is_compacted: Numbers

    def rows_in(self, other: Files) -> Numbers:
        """Return the row of each file among those of another checkpoint, -1 if it is not there."""
        return rows_of(self.paths, other.paths)


def files_of(checkpoint: Checkpoint) -> Files:
    """Return the files of a checkpoint that was read."""
    held, files, members = checkpoint.sizes, checkpoint.needed.files, checkpoint.packed.members
    count = held.plain + len(members)
    operators, subtasks = (
        _only(held.file, column, count) for column in (held.operator, held.subtask)
    )
    is_compacted = np.zeros(count, np.bool_)
    is_state = (held.kind == KEYED) & (held.place == SHARED) & (held.file >= 0)
    is_compacted[held.file[is_state]] = True
    sources = files.sources.texts()
    paths = _replica_paths(sources.to_pylist(), checkpoint)
    is_no_pack = rows_of(sources, texts(checkpoint.packed.packs)) < 0
    is_file = np.concatenate([is_no_pack, np.ones(len(members), np.bool_)])
    lengths = [member.length for member in members.values()]
    return Files(
        chosen(concatenated([paths, texts(members)]), is_file),
        np.concatenate([files.costs, np.array(lengths, np.int64)])[is_file],
        np.concatenate([files.is_segment, np.zeros(len(members), np.bool_)])[is_file],
        operators[is_file],
        subtasks[is_file],
        is_compacted[is_file],
    )


def files_of_manifest(manifest: Manifest) -> Files:
    """Return the files that a manifest lists. Of which operators they are is not known."""
    entries = manifest.entries.without(manifest.members.used_packs)
    members = manifest.members
    count = len(entries) + len(members)
    nowhere = np.full(count, NONE, np.int64)
    return Files(
        concatenated([entries.paths, members.paths]),
        np.concatenate([entries.extents, members.bytes]),
        np.zeros(count, np.bool_),
        nowhere,
        nowhere,
        np.zeros(count, np.bool_),
    )


def _replica_paths(sources: Sequence[str], checkpoint: Checkpoint) -> Texts:
    """Return the paths that files have in a replica, or would have after a sync.

    Files of a job stay where they are below its directory, those of other places do not.
    """
    source = checkpoint.source
    name = f"chk-{checkpoint.file.metadata.checkpoint_id}"
    layout = Placement(source.checkpoint, source.job_root, name)
    root = f"{source.root}/"
    paths = [path.removeprefix(root) for path in sources]
    for row in np.flatnonzero(~are_replica_paths(texts(paths))).tolist():
        paths[row] = layout.place(sources[row])
    return texts(paths)


def _only(files: Numbers, values: Numbers, count: int) -> Numbers:
    """Return the value that all handles of a file have, -1 if they differ."""
    first, last = np.full(count, np.iinfo(np.int64).max), np.full(count, NONE, np.int64)
    is_named = files >= 0
    np.minimum.at(first, files[is_named], values[is_named])
    np.maximum.at(last, files[is_named], values[is_named])
    return np.where(first == last, last, NONE)
