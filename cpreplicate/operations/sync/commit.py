"""Steps 2 and 5 of the commit protocol: claim the directory, publish and record the checkpoint."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from contextvars import copy_context
from dataclasses import replace
from functools import partial

import numpy as np

from cpreplicate.core import uri
from cpreplicate.core.ledger import LedgerEntry, LedgerTable, MemberTable, Prefix, PrefixTable
from cpreplicate.core.memory import LONGEST_KEPT, return_after
from cpreplicate.core.path_columns import chosen, rows_of, texts, without
from cpreplicate.core.placement import PACKED, are_replica_paths
from cpreplicate.core.plan import Plan, targets, total
from cpreplicate.core.reuse import ids_of_earlier_jobs
from cpreplicate.core.tables import Lengths
from cpreplicate.operations.sync.copy import Executed
from cpreplicate.operations.sync.plan.metadata import rewritten
from cpreplicate.operations.sync.plan.work import Work
from cpreplicate.protocol import json_files, manifest, point_summary, publication
from cpreplicate.protocol.digest import Digest
from cpreplicate.protocol.job_record import JobRecord, record_job
from cpreplicate.protocol.marker import add_source, create_marker
from cpreplicate.protocol.pending import PendingPut
from cpreplicate.protocol.point_summary import Fresh, NewSummary, Point, Summary
from cpreplicate.protocol.publication import Publication
from cpreplicate.protocol.replica import CommittedCheckpoint
from cpreplicate.protocol.replica_state import State
from cpreplicate.protocol.retention_record import record_retention
from cpreplicate.runners import Outcome
from cpreplicate.storage import Checksum
from cpreplicate.storage.base import RANGE
from cpreplicate.storage.transfer import copying_to

_FEW = 8  # copies beside which the manifest is written
_HELD_IN_MEMORY = 64 << 20  # bytes of a rewritten `_metadata`


class Committing:
    """Step 5, and what is written for it early.

    On HDFS each close may wait half a second. So the files of the protocol are written and closed
    beside other work, and appear in their order. All that overlaps is here: the plan of the journal
    is written beside the marker, record and `_metadata` beside the copies.
    """

    def __init__(self, work: Work, resources: ExitStack) -> None:
        self.work, self._resources = work, resources
        is_known = _is_known_before_copies(work.plan)
        self._content: Sequence[bytes] = ()
        self._early = self._publication(work.plan.members) if is_known else None
        self._listed = self._early_manifest()

    def publish(self, executed: Executed) -> manifest.Manifest:
        """Commit the checkpoint, and return its manifest."""
        work, change = self.work, self.work.change
        change.recorded()
        commit = self._early or self._publication(executed.members)
        current = change.state.metadata_of(work.plan.checkpoint)
        digest = commit.digest if commit is not None else current
        assert digest is not None, "what is not published is committed"
        listed = manifest_of(work, executed, digest)
        pending = self._manifest(executed, listed)
        if commit is None:
            pending.appear()
            return listed
        if commit.replaces:  # until the new manifest is there, the journal lists the CRC32Cs
            with suppress(OSError):
                change.complete_journal()

        commit.publish(lambda: change.lease.check(change.lease.counts), pending)
        if self._content and not executed.members and digest.length <= LONGEST_KEPT:
            _remember(work, digest, self._content)
        change.notify(f"committed {work.replica.uri_of(work.plan.checkpoint)}")
        return listed

    def _early_manifest(self) -> _EarlyManifest | None:
        """Begin to write the manifest beside a few copies, each of which is one plain file."""
        work, plan = self.work, self.work.plan
        is_far = work.replica.storage.answers_ahead and work.replica.storage.closes_slowly
        if self._early is None or self._early.replaces or not is_far or work.before.copied:
            return None
        if plan.reused or not 0 < len(plan.copies) <= _FEW or _are_merged(work):
            return None
        early = _EarlyManifest(work, self._early.digest)
        self._resources.enter_context(early.pending)
        self._resources.enter_context(copying_to(early.streamed))
        return early

    def copied(self, outcomes: Mapping[str, Outcome]) -> None:
        """Let record and manifest appear while the copies, which all are there, are looked at.

        They are true of what was copied. If that is not what is found, there is no commit.
        """
        if self._early is not None and self._listed is not None and self._listed.is_of(outcomes):
            self._early.let_record_appear()
            self._listed.pending.let_appear()

    def _manifest(self, executed: Executed, listed: manifest.Manifest) -> PendingPut:
        """Return the manifest while it is written."""
        if self._listed is not None:
            if self._listed.is_of(executed.files):
                return self._listed.pending
            self._listed.pending.close()
        pending = self.work.replica.writing_manifest(self.work.plan.checkpoint, listed)
        return self._resources.enter_context(pending)

    def _publication(self, members: MemberTable) -> Publication | None:
        """Begin to write the record and the `_metadata`, if the plan publishes any."""
        work, plan = self.work, self.work.plan
        if not plan.publish:
            return None

        def content() -> Iterable[bytes]:
            return rewritten(work.source_state, work.replica, plan.paths, members)

        is_small = work.source_state.file.metadata.length <= _HELD_IN_MEMORY
        if is_small:  # made once for its digest and for the file
            self._content = list(content())
        written = (lambda: self._content) if is_small else content
        source, state = work.source_state.source, work.change.state
        summary = summary_of(work)
        new_summary = self._written(summary) if isinstance(summary, NewSummary) else None
        record = state.records.get(plan.checkpoint) if plan.repairs else None
        return self._resources.enter_context(
            Publication(
                *(work.replica, plan.checkpoint, written, state),
                completed=source.completed,
                former=record,
                savepoint=source.savepoint,
                summary=None if summary is None else summary.digest,
                new_summary=new_summary,
            )
        )

    def _written(self, summary: NewSummary) -> PendingPut:
        """Begin to write a summary."""
        replica, content = self.work.replica, summary.content
        place = point_summary.summary_uri(replica)
        pending = PendingPut(replica.storage, place, lambda: [content])
        return self._resources.enter_context(pending)


class _EarlyManifest:
    """The manifest of a checkpoint, which is written as soon as all of its copies are read.

    It is begun with them, and lists what was read. Whether that is what appeared, `is_of` says.
    """

    def __init__(self, work: Work, digest: Digest) -> None:
        self._work, self._digest = work, digest
        self._context = copy_context()  # not that of the put: its end would end what is asked
        self._targets = {work.replica.uri_of(row.target) for row in work.plan.copies}
        self._lock, self._read = threading.Lock(), dict[str, Checksum]()
        self._listed: dict[str, Checksum] | None = None
        replica = work.replica
        self.pending = manifest.begun(replica.storage, replica.root, work.plan.checkpoint)

    def streamed(self, target: str, checksum: Checksum) -> None:
        """Record what was read of a copy. May be called from any thread."""
        with self._lock:
            self._read[target] = checksum
            if self._listed is None and self._read.keys() == self._targets:
                self._listed = dict(self._read)
                self.pending.fill(partial(self._content, self._listed))

    def is_of(self, outcomes: Mapping[str, Outcome]) -> bool:
        """Return whether this is the manifest of what was copied."""
        copied = {uri: (each.bytes, each.crc32c) for uri, each in outcomes.items()}
        return self._listed is not None and self._listed == copied

    def _content(self, read: Mapping[str, Checksum]) -> list[bytes]:
        self._context.run(self._work.change.lease.ask)  # what is written next needs it
        plan = self._work.plan
        outcomes = {uri: Outcome(uri, *checksum, 0.0) for uri, checksum in read.items()}
        executed = Executed(plan, plan.members, outcomes)
        return [manifest.encoded(manifest_of(self._work, executed, self._digest))]


def _are_merged(work: Work) -> bool:
    """Return whether a copy is packed, or may be of a merged file, which grows."""
    targets = texts(row.target for row in work.plan.copies)
    needed = work.source_state.needed
    is_merged = needed.take(rows_of(targets, needed.paths)).is_segment
    return bool(work.plan.packed) or bool(is_merged.any())


def summary_of(work: Work) -> Summary | NewSummary | None:
    """Return the summary of the points that stay beside the one that is published.

    That which the replica has stays true as long as its points do. A new one is made once enough
    others can be summarised: those that have not changed for some seconds.
    """
    state, former = work.change.state, work.change.state.summary
    marker, kept = state.marker, set(work.kept_beside())
    if marker is None or marker.adopted:
        return None
    summarised = [name for name in state.summarised if name in kept]
    names = [each.name for each in state.committed if each.name in kept.difference(summarised)]
    fresh = [each for name in names if (each := _fresh(work, name)) is not None]
    if len(fresh) < point_summary.WORTH:
        return former if summarised else None
    if former is None:
        return point_summary.summarised(work.replica.root, fresh)
    return former.with_points(work.replica.root, summarised, fresh)


def _fresh(work: Work, name: str) -> Fresh | None:
    """Return a point that is to be summarised, None if it cannot be."""
    state, ledger = work.change.state, work.change.ledger
    checkpoint = next(each for each in state.committed if each.name == name)
    listed, mark, record = ledger.manifests.get(name), state.mark(name), state.records[name]
    if listed is None or mark is None or record.sequence < 0:
        return None
    if not point_summary.is_summarisable(checkpoint, listed):
        return None
    point = Point(
        *(name, checkpoint.checkpoint_id, mark, checkpoint.metadata),
        state.metadata_files[name].modified,
        point_summary.bare(record),
        checkpoint.growing is not None,
    )
    return Fresh(point, checkpoint, listed)


@contextmanager
def claiming(work: Work) -> Iterator[None]:
    """Claim the directory and record what is about to change, before anything is changed."""
    change, plan = work.change, work.plan
    return_after(len(work.source_state.needed))
    left = work.left_over(plan.members)
    work.replica.remove_unfinished(uri.directories(left))
    work.replica.keep_unfinished()
    paths = list(_changed_paths(plan, change.journal.pack_stem))
    is_new = change.state.marker is None
    is_plain = not (is_new or plan.packed or plan.repacks or plan.reused)
    is_beside = is_plain and total(plan.copies) < RANGE  # no copy is split into ranges
    with change.recording(paths, left, lambda: claim(work), is_beside):
        yield


@contextmanager
def committing(work: Work) -> Iterator[Committing]:
    """Prepare the commit. What has not appeared when the block ends is removed."""
    with ExitStack() as resources:
        yield Committing(work, resources)


def record_turn(work: Work, former: Work) -> None:
    """Record what is about to change beside what the former work of this run changes."""
    stem = work.change.journal.pack_stem
    paths = dict.fromkeys(_changed_paths(work.plan, stem))
    for path in _changed_paths(former.plan, stem):
        paths.pop(path, None)
    work.change.recorded()
    if paths:
        work.change.journal.plan(list(paths))


def claim(work: Work) -> None:
    """Make the directory a replica of this source, before anything else is written there."""
    state, name = work.change.state, work.source_state.name
    marker = state.marker
    if marker is None:
        adopted = _is_adopted(state, adopts=work.request.adopt)
        job, has_conditions = work.source_state.source.job, state.has_conditional_puts
        marker = create_marker(work.replica, job, name, adopted, has_conditions)
    elif not marker.records(name):
        marker = add_source(work.replica, marker, name)
    for checkpoint in state.unrecorded:
        publication.adopt(work.replica, checkpoint)
    _record_job(work)
    _record_retention(work)
    adopted_too = state.adopted + state.unrecorded
    work.change.state = replace(state, marker=marker, adopted=adopted_too, unrecorded=())


def _is_adopted(state: State, *, adopts: bool) -> bool:
    """Return whether files of others were there when the directory became a replica, or will be."""
    if state.marker is not None:
        return state.marker.adopted
    return adopts and not state.is_empty


def _record_retention(work: Work) -> None:
    """Record the policy that the run states, before it keeps more or withdraws anything."""
    policy = work.plan.policy
    if policy.stated is not None and policy.is_to_be_recorded:
        record_retention(work.replica, policy.stated)


def _record_job(work: Work) -> None:
    """Record the name of the job, if it is known, and the earlier jobs that it follows."""
    name, source = work.request.name, work.source_state.source
    if name is None:
        return
    since = json_files.now() if source.completed is None else source.completed
    follows = ids_of_earlier_jobs(work.source_state.needed, source.job)
    record = JobRecord(name, since, follows, work.request.reported_by)
    record_job(work.replica, work.change.state.own, record)


def _is_known_before_copies(plan: Plan) -> bool:
    """Return whether the copies do not decide what the `_metadata` holds, as packs do."""
    return not plan.packed and not plan.repacks


def _remember(work: Work, digest: Digest, content: Sequence[bytes]) -> None:
    """Keep what the `_metadata` references that is published with this content, without members.

    A service reads it at its next turn. Kept is what is certain to be decoded then: paths in
    directories of plain names, which are resolved as they are spelled, and no segments.
    """
    source_state, replica = work.source_state, work.replica
    files, needed = source_state.closure, source_state.needed
    root = replica.uri_of("x")
    is_certain = not (files.directories or source_state.file.metadata.file_merging)
    if not is_certain or files.plain != files.parents or uri.absolute(root, "/") != root:
        return
    lengths = Lengths(needed.paths, needed.extents)
    if are_replica_paths(lengths.paths).all():
        number = source_state.file.metadata.checkpoint_id
        found = (work.plan.checkpoint, number, digest, lengths, (), frozenset[str]())
        replica.remember(b"".join(content), CommittedCheckpoint(*found))


def _changed_paths(plan: Plan, pack_stem: str) -> Iterator[str]:
    """Yield the paths that the plan writes or deletes; of packs what their paths begin with."""
    yield from without(targets(plan.copies), texts(plan.packed)).to_pylist()
    yield from targets(plan.deletes).to_pylist()
    if plan.packed or plan.repacks:
        yield pack_stem


def manifest_of(work: Work, executed: Executed, digest: Digest) -> manifest.Manifest:
    """Return the manifest of the checkpoint, after its files were copied."""
    plan, needed, members = work.plan, work.source_state.needed, executed.members
    keeps = plan.keeps.without(members.paths).files
    lengths = {**_lengths_of_kept_packs(work, members), **executed.packs}
    whole = {pack: LedgerEntry(length, None, True) for pack, length in lengths.items()}
    copied = LedgerTable.of(_as_written(executed))
    plain = LedgerTable.joined([work.change.ledger.files.at(keeps.paths), copied])
    packs = LedgerTable.of(whole)
    extents = [Lengths(needed.paths, needed.extents).at(plain.paths), packs.bytes]
    ledger = LedgerTable.joined([plain, packs])
    entries = manifest.ManifestTable.of_ledger(ledger, np.concatenate(extents))
    prefixes = _prefixes(work, executed, entries)
    return manifest.Manifest(plan.checkpoint_id, digest, entries, members, prefixes)


def _prefixes(work: Work, executed: Executed, entries: manifest.ManifestTable) -> PrefixTable:
    """Return what proves the extents of merged files: as they were copied, else as recorded."""
    needed = work.source_state.needed
    is_merged = rows_of(entries.paths, chosen(needed.paths, needed.is_segment)) >= 0
    merged = entries.take(is_merged)
    uris = {path: executed.files.get(uri.join(work.replica.root, path)) for path in merged}
    copied = PrefixTable.of(
        {
            path: Prefix(outcome.prefix, outcome.prefix_crc32c)
            for path, outcome in uris.items()
            if outcome is not None
            and outcome.prefix is not None
            and outcome.prefix_crc32c is not None
        }
    )
    return work.change.ledger.prefixes_of(merged.paths, merged.extents, copied, merged.ledger)


def _as_written(executed: Executed) -> dict[str, LedgerEntry]:
    """Return what was copied, but for members of packs."""
    plan, copied = executed.plan, dict[str, LedgerEntry]()
    for target in without(targets(plan.copies), executed.members.paths).to_pylist():
        outcome = executed.files[uri.join(plan.replica, target)]
        copied[target] = LedgerEntry(outcome.bytes, outcome.crc32c, True)
    return copied


def _lengths_of_kept_packs(work: Work, members: MemberTable) -> dict[str, int]:
    """Return the length of each pack that had members before: as recorded, else as listed."""
    is_kept = rows_of(members.paths, work.plan.keeps.files.paths) >= 0
    packs = members.take(is_kept).used_packs
    recorded = work.change.ledger.files.at(texts(packs)).bytes
    if (recorded >= 0).all():
        return dict(zip(packs, recorded.tolist(), strict=True))
    present = work.replica.present([PACKED])
    return {pack: present[pack] for pack in packs}
