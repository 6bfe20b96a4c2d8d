"""The tasks of a plan, as a runner executes them."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from cpreplicate.core.closure import FileTable
from cpreplicate.core.memory import return_after
from cpreplicate.core.path_columns import Numbers, begin_with, rows_of
from cpreplicate.core.plan import Plan, targets, without_targets
from cpreplicate.operations.sync.source.state import SourceState
from cpreplicate.protocol.lease import LeaseToken
from cpreplicate.protocol.replica import Replica
from cpreplicate.runners import Copies, Copy, Part, Planned


def copies(
    plan: Plan,
    source_state: SourceState,
    replica: Replica,
    token: LeaseToken,
    pack_stem: str,
    copied: Collection[str] = (),
) -> Copies:
    """Return the copies from the source as tasks for a runner, but for those that are `copied`.

    Paths of packs begin with `pack_stem`.
    """
    rows = without_targets(without_targets(plan.copies, plan.reused.keys()), copied)
    files = source_state.needed
    if len(rows) < len(files):
        files = files.take(rows_of(files.paths, targets(rows)) >= 0)
    files = files.take(soonest_first(files, source_state.placement.name))
    return_after(len(files))
    origin = f"{source_state.source.job_root}/" if source_state.source.job_root else ""
    root, stem = replica.uri_of("x")[:-1], replica.uri_of(pack_stem)
    return Copies(Planned(origin, root, files, token, stem, plan.packed))


def soonest_first(files: FileTable, checkpoint: str) -> Numbers:
    """Return the order in which files are copied: those first that no other checkpoint needs.

    They go with their checkpoint. If it is subsumed while the others are copied, these may still be
    there for the next one, and it can be completed: docs/lab/turns.md.
    """
    return np.argsort(~is_own(files, checkpoint), kind="stable")


def is_own(files: FileTable, checkpoint: str) -> Numbers:
    """Return which files are in the directory of their checkpoint."""
    return begin_with(files.paths, f"{checkpoint}/")


def repack_tasks(plan: Plan, replica: Replica, pack_stem: str) -> list[Copy]:
    """Return the tasks that move members of sparse packs into packs of this run."""
    return [
        Copy(
            replica.uri_of(member.pack),
            replica.uri_of(path),
            member.length,
            pack=replica.uri_of(pack_stem),
            part=Part(member.offset, member.crc32c),
            inside=replica.root,
        )
        for path, member in plan.moving.items()
        if member.crc32c is not None
    ]
