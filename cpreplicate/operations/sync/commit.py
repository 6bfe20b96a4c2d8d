"""Steps 2 and 5 of the commit protocol: claim the directory, publish and record the checkpoint."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace

import numpy as np

from cpreplicate.core import uri
from cpreplicate.core.ledger import LedgerEntry, LedgerTable, Prefix, PrefixTable
from cpreplicate.core.path_columns import chosen, rows_of, texts, without
from cpreplicate.core.placement import PACKED
from cpreplicate.core.plan import Plan
from cpreplicate.core.reuse import ids_of_earlier_jobs
from cpreplicate.core.tables import Lengths
from cpreplicate.operations.sync.copy import SyncChange, Written
from cpreplicate.operations.sync.plan import is_adopted, rewritten
from cpreplicate.protocol import json_files, manifest, publication
from cpreplicate.protocol.digest import Digest
from cpreplicate.protocol.job_record import JobRecord, record_job
from cpreplicate.protocol.marker import add_source, create_marker
from cpreplicate.protocol.publication import Publication
from cpreplicate.protocol.retention_record import record_retention
from cpreplicate.storage.base import Content

_HELD_IN_MEMORY = 64 << 20  # bytes of a rewritten `_metadata`


class Committing:
    """Step 5, and what is written for it early.

    On HDFS each close may wait half a second. So the files of the protocol are written and closed
    beside other work, and appear in their order. All that overlaps is here: the plan of the journal
    is written beside the marker, record and `_metadata` beside the copies.
    """

    def __init__(self, run: SyncChange, resources: ExitStack) -> None:
        self.run, self._resources = run, resources
        self._early = self._publication() if _is_known_before_copies(run.plan) else None

    def publish(self, written: Written) -> manifest.Manifest:
        """Commit the checkpoint, and return its manifest."""
        run = self.run
        commit = self._early or self._publication()
        current = run.state.metadata_of(run.plan.checkpoint)
        digest = commit.digest if commit is not None else current
        assert digest is not None, "what is not published is committed"
        listed = manifest_of(run, written, digest)
        pending = run.replica.writing_manifest(run.plan.checkpoint, listed)
        self._resources.enter_context(pending)
        if commit is None:
            pending.appear()
            return listed
        if commit.replaces:  # until the new manifest is there, the journal lists the CRC32Cs
            with suppress(OSError):
                run.complete_journal()
        commit.publish(run.lease.check, pending)
        run.notify(f"committed {run.replica.uri_of(run.plan.checkpoint)}")
        return listed

    def _publication(self) -> Publication | None:
        """Begin to write the record and the `_metadata`, if the plan publishes any."""
        run, plan = self.run, self.run.plan
        if not plan.publish:
            return None

        def content() -> Iterable[bytes]:
            return rewritten(run.source_state, run.replica, plan.paths, plan.members)

        is_small = run.source_state.file.metadata.length <= _HELD_IN_MEMORY
        written = _held(content) if is_small else content
        completed = run.source_state.source.completed
        record = run.state.records.get(plan.checkpoint) if plan.repairs else None
        return self._resources.enter_context(
            Publication(run.replica, plan.checkpoint, written, run.state, completed, record)
        )


@contextmanager
def committing(run: SyncChange) -> Iterator[Committing]:
    """Claim the directory, record what is about to change, and prepare the commit.

    What has not appeared when the block ends is removed.
    """
    run.replica.keep_unfinished()
    paths = list(_changed_paths(run.plan, run.journal.pack_stem))
    claiming = run.recording(paths, run.left_over(), lambda: claim(run))
    with claiming, ExitStack() as resources:
        yield Committing(run, resources)


def claim(run: SyncChange) -> None:
    """Make the directory a replica of this source, before anything else is written there."""
    state, name = run.state, run.source_state.name
    marker = state.marker
    if marker is None:
        adopted = is_adopted(state, run.request)
        marker = create_marker(
            run.replica, run.source_state.source.job, name, adopted, state.has_conditional_puts
        )
    elif not marker.names(name):
        marker = add_source(run.replica, marker, name)
    for checkpoint in state.unrecorded:
        publication.adopt(run.replica, checkpoint)
    _record_job(run)
    _record_retention(run)
    adopted_too = state.adopted + state.unrecorded
    run.state = replace(state, marker=marker, adopted=adopted_too, unrecorded=())


def _record_retention(run: SyncChange) -> None:
    """Record the policy that the run states, before it keeps more or withdraws anything."""
    policy = run.plan.policy
    if policy.stated is not None and policy.is_to_be_recorded:
        record_retention(run.replica, policy.stated)


def _record_job(run: SyncChange) -> None:
    """Record the name of the job, if it is known, and the earlier jobs that it follows."""
    name, source = run.request.name, run.source_state.source
    if name is None:
        return
    since = json_files.now() if source.completed is None else source.completed
    follows = ids_of_earlier_jobs(run.source_state.needed, source.job)
    record_job(run.replica, run.state.own, JobRecord(name, since, follows))


def _is_known_before_copies(plan: Plan) -> bool:
    """Return whether the copies do not decide what the `_metadata` holds, as packs do."""
    return not plan.packed and not plan.repacks


def _held(content: Content) -> Content:
    """Return the same content, made once for its digest and for the file."""
    pieces = list(content())
    return lambda: pieces


def _changed_paths(plan: Plan, pack_stem: str) -> Iterator[str]:
    """Yield the paths that the plan writes or deletes; of packs what their paths begin with."""
    for action in plan.copies:
        if action.target not in plan.packed:
            yield action.target
    for action in plan.deletes:
        yield action.target
    if plan.packed or plan.repacks:
        yield pack_stem


def manifest_of(run: SyncChange, written: Written, digest: Digest) -> manifest.Manifest:
    """Return the manifest of the checkpoint, after its files were copied."""
    plan, needed = run.plan, run.source_state.needed
    keeps = plan.keeps.without(plan.members.paths).files
    lengths = {**_lengths_of_kept_packs(run), **written.packs}
    whole = {pack: LedgerEntry(length, None, True) for pack, length in lengths.items()}
    copied = LedgerTable.of(_as_written(plan, written))
    plain = LedgerTable.joined([run.ledger.files.at(keeps.paths), copied])
    packs = LedgerTable.of(whole)
    extents = [Lengths(needed.paths, needed.extents).at(plain.paths), packs.bytes]
    ledger = LedgerTable.joined([plain, packs])
    entries = manifest.ManifestTable.of_ledger(ledger, np.concatenate(extents))
    prefixes = _prefixes(run, written, entries)
    return manifest.Manifest(plan.checkpoint_id, digest, entries, plan.members, prefixes)


def _prefixes(run: SyncChange, written: Written, entries: manifest.ManifestTable) -> PrefixTable:
    """Return what proves the extents of merged files: as they were copied, else as recorded."""
    needed = run.source_state.needed
    is_merged = rows_of(entries.paths, chosen(needed.paths, needed.is_segment)) >= 0
    merged = entries.take(is_merged)
    uris = {path: written.files.get(uri.join(run.replica.root, path)) for path in merged}
    copied = PrefixTable.of(
        {
            path: Prefix(outcome.prefix, outcome.prefix_crc32c)
            for path, outcome in uris.items()
            if outcome is not None
            and outcome.prefix is not None
            and outcome.prefix_crc32c is not None
        }
    )
    return run.ledger.prefixes_of(merged.paths, merged.extents, copied, merged.ledger)


def _as_written(plan: Plan, written: Written) -> dict[str, LedgerEntry]:
    """Return what was copied, but for members of packs."""
    copied: dict[str, LedgerEntry] = {}
    for target in without(texts(row.target for row in plan.copies), plan.members.paths).to_pylist():
        outcome = written.files[uri.join(plan.replica, target)]
        copied[target] = LedgerEntry(outcome.bytes, outcome.crc32c, True)
    return copied


def _lengths_of_kept_packs(run: SyncChange) -> dict[str, int]:
    """Return the length of each pack that had members before: as recorded, else as listed."""
    plan = run.plan
    is_kept = rows_of(plan.members.paths, plan.keeps.files.paths) >= 0
    packs = plan.members.take(is_kept).used_packs
    recorded = run.ledger.files.at(texts(packs)).bytes
    if (recorded >= 0).all():
        return dict(zip(packs, recorded.tolist(), strict=True))
    present = run.replica.present([PACKED])
    return {pack: present[pack] for pack in packs}
