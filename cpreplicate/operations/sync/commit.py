"""Steps 2 and 5 of the commit protocol: claim the directory, publish and record the checkpoint."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace

import numpy as np

from cpreplicate.core import uri
from cpreplicate.core.ledger import LedgerEntry, LedgerTable
from cpreplicate.core.path_tables import Lengths, rows_of, texts, without
from cpreplicate.core.placement import PACKED
from cpreplicate.core.plan import Plan
from cpreplicate.core.reuse import ids_of_earlier_jobs
from cpreplicate.operations.sync.copy import (
    SyncChange,
    Written,
)
from cpreplicate.operations.sync.plan import (
    is_adopted,
    rewritten,
)
from cpreplicate.protocol import json_files, manifest, publication
from cpreplicate.protocol.digest import Digest
from cpreplicate.protocol.job_record import JobRecord, record_job
from cpreplicate.protocol.marker import add_source, create_marker
from cpreplicate.protocol.pending import PendingPut
from cpreplicate.protocol.publication import Publication
from cpreplicate.protocol.replica_state import State
from cpreplicate.storage.base import Content

_HELD_IN_MEMORY = 64 << 20  # bytes of a rewritten `_metadata`


def claim(run: SyncChange) -> State:
    """Make the directory a replica of this source, before anything else is written there."""
    state, name = run.state, run.source_state.name
    if state.marker is None:
        marker = create_marker(
            run.replica, run.source_state.source.job, name, is_adopted(state, run.request)
        )
    elif not state.marker.names(name):
        marker = add_source(run.replica, state.marker, name)
    else:
        marker = state.marker
    for checkpoint in state.unrecorded:
        publication.adopt(run.replica, checkpoint)
    _record_job(run)
    return replace(state, marker=marker, adopted=state.adopted + state.unrecorded, unrecorded=())


def _record_job(run: SyncChange) -> None:
    """Record the name of the job, if it is known, and the earlier jobs that it follows."""
    name, source = run.request.name, run.source_state.source
    if name is None:
        return
    since = json_files.now() if source.completed is None else source.completed
    follows = ids_of_earlier_jobs(run.source_state.needed, source.job)
    record_job(run.replica, run.state.own, JobRecord(name, since, follows))


def claim_and_plan(run: SyncChange, paths: Sequence[str]) -> State:
    """Claim the directory, then let the journal's plan of these paths appear, if there are any."""
    if not paths:
        return claim(run)
    with run.journal.planning(paths) as part:
        state = claim(run)
        part.appear()
    return state


def is_known_before_copies(plan: Plan) -> bool:
    """Return whether the copies do not decide what the `_metadata` holds, as packs do."""
    return not plan.packed and not plan.repacks


def publication_of(plan: Plan, run: SyncChange, stack: ExitStack) -> Publication | None:
    """Begin to write the record and the `_metadata`, if the plan publishes any."""
    if not plan.publish:
        return None

    def content() -> Iterable[bytes]:
        return rewritten(run.source_state, run.replica, plan.paths, plan.members)

    is_small = run.source_state.file.metadata.length <= _HELD_IN_MEMORY
    written = _held(content) if is_small else content
    completed = run.source_state.source.completed
    return stack.enter_context(
        Publication(run.replica, plan.checkpoint, written, run.state, completed)
    )


def _held(content: Content) -> Content:
    """Return the same content, made once for its digest and for the file."""
    pieces = list(content())
    return lambda: pieces


def changed_paths(plan: Plan, pack_stem: str) -> Iterator[str]:
    """Yield the paths that the plan writes or deletes; of packs what their paths begin with."""
    for action in plan.copies:
        if action.target not in plan.packed:
            yield action.target
    for action in plan.deletes:
        yield action.target
    if plan.packed or plan.repacks:
        yield pack_stem


def publish(plan: Plan, run: SyncChange, commit: Publication, listed: PendingPut) -> None:
    """Carry out step 5: commit the checkpoint. `listed` is its manifest."""
    commit.publish(run.lease.check, listed)
    run.notify(f"committed {run.replica.uri_of(plan.checkpoint)}")


def manifest_of(
    plan: Plan, run: SyncChange, written: Written, digest: Digest, files: LedgerTable
) -> manifest.Manifest:
    """Return the manifest of a checkpoint; `files` is what is recorded of those that it keeps."""
    keeps = plan.keeps.without(plan.members.paths).files
    copied = _as_written(plan, written)
    packs = {**_lengths_of_kept_packs(plan, run, files), **written.packs}
    whole = {pack: LedgerEntry(length, None, True) for pack, length in packs.items()}
    tables = [files.at(keeps.paths), LedgerTable.of(copied), LedgerTable.of(whole)]
    needed = run.source_state.needed
    extents = [
        keeps.extents,
        Lengths(needed.paths, needed.extents).at(tables[1].paths),
        tables[2].bytes,
    ]
    entries = manifest.ManifestTable(LedgerTable.merged(tables), np.concatenate(extents))
    return manifest.Manifest(plan.checkpoint_id, digest, entries, plan.members)


def _as_written(plan: Plan, written: Written) -> dict[str, LedgerEntry]:
    """Return what was copied, but for members of packs."""
    copied: dict[str, LedgerEntry] = {}
    for target in without(texts(row.target for row in plan.copies), plan.members.paths).to_pylist():
        outcome = written.files[uri.join(plan.replica, target)]
        copied[target] = LedgerEntry(outcome.bytes, outcome.crc32c, True)
    return copied


def _lengths_of_kept_packs(plan: Plan, run: SyncChange, files: LedgerTable) -> dict[str, int]:
    """Return the length of each pack that had members before: as recorded, else as listed."""
    is_kept = rows_of(plan.members.paths, plan.keeps.files.paths) >= 0
    packs = plan.members.take(is_kept).used_packs
    recorded = files.at(texts(packs)).bytes
    if (recorded >= 0).all():
        return dict(zip(packs, recorded.tolist(), strict=True))
    present = run.replica.present([PACKED])
    return {pack: present[pack] for pack in packs}
