"""What manifests and journals record: the files that cpreplicate wrote, and their lengths."""

from __future__ import annotations

import math
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cpreplicate.core import uri
from cpreplicate.core.lazy import lazy
from cpreplicate.core.ledger import (
    LedgerEntry,
    LedgerTable,
    Member,
    MemberTable,
    Prefix,
    PrefixTable,
    crcs_by_place,
    shortest_prefixes,
)
from cpreplicate.core.packs import extents, is_pack, is_written, stem_of
from cpreplicate.core.path_columns import (
    Numbers,
    Texts,
    begin_with,
    chosen,
    concatenated,
    rows_of,
    texts,
    without,
)
from cpreplicate.core.placement import CHECKPOINT_NAME, PACKED, checkpoint_of, own_name
from cpreplicate.core.tables import Lengths
from cpreplicate.protocol import journal, manifest
from cpreplicate.protocol.journal import Journal, JournalRow
from cpreplicate.protocol.manifest import Manifest, ManifestTable
from cpreplicate.protocol.point_summary import Recorded
from cpreplicate.protocol.replica import CommittedCheckpoint, Replica
from cpreplicate.protocol.replica_state import State
from cpreplicate.storage.statuses import FileStatus


class Ledger:
    """The files of a replica that manifests and journals list, by their path in it.

    A file that is there is complete only if it has the listed length. It is cpreplicate's own only
    if it is listed as written. A path that a journal lists as planned is not: its run may have died
    before it wrote there, and another program may have written since.
    """

    def __init__(self, replica: Replica, state: State) -> None:
        self.journals: list[Journal] = []
        has_late = journal.LATE in state.own
        self.late = journal.read_late(replica.storage, replica.root) if has_late else ()
        self.manifests: dict[str, Manifest] = {}
        recorded = list(self._read(replica, state))
        self._recorded = [each.files for each in recorded]
        self._members = [each.members for each in recorded]
        self._prefixes = [each.prefixes for each in recorded]
        self._describing = {
            committed.name
            for committed in state.ours
            if committed.name in self.manifests
            and self.manifests[committed.name].metadata == committed.metadata
        }
        self._state = state
        # Where two of them list one file, the later one counts.
        self.files = LedgerTable.merged(self._recorded)
        self.members = MemberTable.merged(self._members)
        self._unlisted = _unlisted(state, self.manifests)

    def _read(self, replica: Replica, state: State) -> Iterator[Recorded]:
        """Yield what manifests and journals list, in the order in which they were written."""
        known = {committed.name: committed.listed for committed in state.ours}
        order = _in_order(state)
        grouped = _in_a_row(order, state)
        for name in order:
            if name.startswith(journal.PREFIX):
                part = journal.read(replica.storage, replica.root, name)
                self.journals.append(part)
                yield Recorded(_files_of(part), _members_of(part), _prefixes_of(part))
                continue
            checkpoint = checkpoint_of(name.removesuffix(manifest.SUFFIX))
            assert checkpoint is not None, "only manifests of checkpoints are read"
            # what the state was read from is not read again: it was listed together with it
            listed = known.get(checkpoint) or replica.manifest(checkpoint)
            if listed is None:
                continue
            self.manifests[checkpoint] = listed
            if checkpoint not in grouped:
                yield Recorded(listed.entries.ledger, listed.members, listed.prefixes)
            elif checkpoint == grouped[0] and state.summary is not None:
                yield from state.summary.recorded(grouped)

    @lazy
    def _growing(self) -> Texts:
        """The paths of the files that may be merged ones, which grow.

        Of a checkpoint that was read from its manifest alone, any file may be one.
        """
        summary, summarised = self._state.summary, self._state.summarised
        of_checkpoints = [
            committed.files.paths if committed.growing is None else texts(committed.growing)
            for committed in self._state.ours
            if committed.name not in summarised
        ]
        if summary is not None:
            of_checkpoints.append(summary.growing_of(summarised))
        of_records = [table.paths for table in self._prefixes]
        return concatenated([*of_checkpoints, *of_records])

    def copied(self) -> list[JournalRow]:
        """Return the complete files of the journals, except where another record counts by now."""
        rows = (row for part in self.journals for row in part.copied.values())
        return [row for row in rows if self._counts(row)]

    def _counts(self, row: JournalRow) -> bool:
        if row.pack is None or row.offset is None:
            return self.files.get(row.path) == LedgerEntry(row.length, row.crc32c, row.written)
        return self.members.get(row.path) == Member(row.pack, row.offset, row.length, row.crc32c)

    def distrust(self, paths: Collection[str]) -> None:
        """Forget the content of these files, which are damaged.

        They stay recorded as written.
        """
        self.files = self.files.distrusting(paths)
        self.members = self.members.without(paths)

    def whole_members(self, present: Mapping[str, int]) -> MemberTable:
        """Return the packed files whose pack is present with its recorded length.

        A pack that only a journal names has no recorded length: it must reach the members' ends.
        """
        members = self.members
        lengths = {
            pack: present[pack] for pack in members.used_packs if self._is_whole(pack, present)
        }
        return members.take((members.crcs >= 0) & (members.ends <= members.by_pack(lengths)))

    def _is_whole(self, pack: str, present: Mapping[str, int]) -> bool:
        if pack not in present or not is_pack(pack):
            return False
        entry = self.files.get(pack)
        return entry is None or entry.length == present[pack]

    def prove(self, files: Mapping[str, LedgerEntry]) -> None:
        """Record what a comparison of the content of these files proved."""
        table = LedgerTable.of(files)
        self.files = LedgerTable.merged([self.files, table])
        self._recorded.append(table)

    def journal_rows(self, paths: Iterable[str]) -> list[JournalRow]:
        """Return what is recorded of those of these files whose CRC32C is known."""
        table = self.files.at(texts(paths))
        growing = self._among_growing(table.paths)
        prefixes = self.prefixes_of(growing, np.zeros(len(growing), np.int64))
        return [
            JournalRow(path, length, crc32c, None, None, written, *prefixes.get(path, (None, None)))
            for path, (length, crc32c, written) in table.items()
            if crc32c is not None
        ]

    def prefixes_of(
        self, paths: Texts, extents: Numbers, *others: LedgerTable | PrefixTable
    ) -> PrefixTable:
        """Return the recorded beginnings of merged files that prove these extents of them.

        `others` are recorded, too.
        """
        return shortest_prefixes([*others, *self._prefixes, *self._recorded], paths, extents)

    def _among_growing(self, paths: Texts) -> Texts:
        return chosen(paths, rows_of(paths, self._growing) >= 0)

    def manifest_of(self, checkpoint: CommittedCheckpoint) -> Manifest:
        """Return what is recorded of the files of a checkpoint that has no manifest of its own.

        Of others nothing is recorded. Members of packs are those that its `_metadata` references:
        another checkpoint may have the same files at another place.
        """
        needed, located = checkpoint.files, self._located(checkpoint.members)
        ledger = LedgerTable.merged([self._packs(), self.files]).at(needed.paths)
        entries = ManifestTable.of_ledger(ledger, needed.bytes)
        entries = entries.take(entries.bytes >= 0)
        growing = self._among_growing(entries.paths)
        prefixes = self.prefixes_of(growing, needed.at(growing))
        return Manifest(checkpoint.checkpoint_id, checkpoint.metadata, entries, located, prefixes)

    def is_described(self, name: str) -> bool:
        """Return whether a checkpoint has a manifest that describes its `_metadata` as it is."""
        return name in self._describing

    def crcs_of_members(self) -> dict[tuple[str, int, int], int]:
        """Return (pack, offset, length) to CRC32C, of all packed files whose CRC32C is known."""
        return crcs_by_place(self._members)

    def _located(self, members: MemberTable) -> MemberTable:
        if not members:
            return members
        crcs = self.crcs_of_members()
        return MemberTable.of(
            {path: row._replace(crc32c=crcs.get(row[:3])) for path, row in members.items()}
        )

    def _packs(self) -> LedgerTable:
        """Return the packs that journals alone name: each ends where its last member ends."""
        ends = extents(MemberTable.joined(self._members)) if self.journals else {}
        return LedgerTable.of({pack: LedgerEntry(end, None, True) for pack, end in ends.items()})

    def left_over(self, committed: Iterable[str]) -> Texts:
        """Return the recorded paths that no manifest of the named checkpoints lists.

        They were written by cpreplicate, or about to be, or a journal lists that they were not.
        """
        summary, summarised = self._state.summary, self._state.summarised
        names = [name for name in committed if self.is_described(name)]
        listed = [self.manifests[name].entries.paths for name in names if name not in summarised]
        if summary is not None:
            listed.append(summary.paths_of([name for name in names if name in summarised]))
        of_others = texts(row.path for row in self.copied() if not row.written)
        recorded = [self._written_files(), texts(self._planned()), of_others]
        left = without(concatenated(recorded), *listed)
        return left.unique() if sum(map(bool, map(len, recorded))) > 1 else left

    @property
    def written(self) -> Container[str]:
        """The paths that cpreplicate wrote, or was about to write.

        Of packs it has the beginnings of their paths, too: see `packs.is_written`.
        """
        files = self._written_files()
        packs = chosen(files, begin_with(files, f"{PACKED}/")).to_pylist()
        planned = self._planned().union(map(stem_of, packs), self.late_packs)
        return _Written(self.files, planned)

    def are_proven(self, files: Lengths) -> Numbers:
        """Return whether each of these files, of which these are the lengths, was written by
        cpreplicate.

        A record must list it as written with its length, or as a merged file that was shorter. The
        name of a pack is proof: it ends in random digits.
        """
        paths, lengths = files.paths, files.bytes
        is_growing = rows_of(paths, self._growing) >= 0
        proven = np.zeros(len(paths), np.bool_)
        for table in self._recorded:
            recorded = table.at(paths)
            is_equal = recorded.bytes == lengths
            is_shorter = is_growing & (recorded.bytes >= 0) & (recorded.bytes < lengths)
            proven |= recorded.is_written & (is_equal | is_shorter)
        proven &= self.files.at(paths).is_written
        written = self.written
        for row in np.flatnonzero(~proven).tolist():
            path = paths[row].as_py()
            proven[row] = is_pack(path) and is_written(path, written)
        return proven

    def planned_only(self, paths: Texts) -> Texts:
        """Return those of these paths of which it is only known that a run was about to write."""
        planned = without(texts(self._planned()), self.files.paths)
        return chosen(paths, rows_of(paths, planned) >= 0)

    def of_others(self, paths: Texts) -> Texts:
        """Return those of these paths at which a file, if there is one, may be another program's.

        cpreplicate's own are what manifests and journals list as written, and, unless the directory
        was adopted, what a checkpoint references whose manifest was lost.
        """
        is_ours = self.files.at(paths).is_written
        for referenced in self._unlisted:
            is_ours |= rows_of(paths, without(referenced, self.files.paths)) >= 0
        others = chosen(paths, ~is_ours)
        stems = self.written
        late = [path for path in others.to_pylist() if is_pack(path) and is_written(path, stems)]
        return without(others, texts(late)) if late else others

    def _written_files(self) -> Texts:
        return chosen(self.files.paths, self.files.is_written)

    def _planned(self) -> frozenset[str]:
        return frozenset().union(*(part.paths for part in self.journals))

    @property
    def late_packs(self) -> set[str]:
        """What the paths of packs begin with that executors of runs that died may write late."""
        return {each.packs for each in self.late if each.packs is not None}

    @property
    def directories(self) -> set[str]:
        """The directories in which runs that died, or their executors, may have left files."""
        late = (each.directories for each in self.late)
        return uri.directories(self._planned()).union(*late)

    def of_dead_runs(self) -> list[Journal]:
        """Return the journals of runs that died, not of those that put deletes off."""
        newest = self._state.committed[0].name if self._state.committed else None
        names = unfinished(self._state.own, newest)
        return [part for part in self.journals if part.name in names]


@dataclass(frozen=True)
class _Written(Container[str]):
    """The paths of the written ones among `files`, and `others`."""

    files: LedgerTable
    others: frozenset[str]

    def __contains__(self, path: object) -> bool:
        if path in self.others:
            return True
        return isinstance(path, str) and path in self.files and self.files[path].written


@dataclass
class Examined:
    """A replica and its state, as who holds its lease has just examined it."""

    replica: Replica
    state: State

    @lazy
    def ledger(self) -> Ledger:
        """What manifests and journals record, read when it is first asked for."""
        return Ledger(self.replica, self.state)


def unfinished(own: Mapping[str, FileStatus], newest: str | None) -> list[str]:
    """Return the parts of journals that runs which died left: a run that completes removes its own.

    Those of a run of which none is later than the manifest of the `newest` checkpoint were left by
    a run that completed, or that a later one made up for. They name files that are kept for others.
    """
    listed = own.get(f"{newest}{manifest.SUFFIX}")
    completed = listed.modified if listed is not None else 0.0
    parts = journal.names(own)
    dead = {journal.run_of(name) for name in parts if own[name].modified > completed}
    return [name for name in parts if journal.run_of(name) in dead]


def lone_manifests(state: State) -> list[str]:
    """Return the names of checkpoints of which a run that died left the manifest alone."""
    names = [name.removesuffix(manifest.SUFFIX) for name in _manifests(state.own)]
    known = {*map(own_name, state.metadata_files), *map(own_name, state.stale)}
    return [name for name in names if CHECKPOINT_NAME.fullmatch(name) and name not in known]


def _unlisted(state: State, manifests: Mapping[str, Manifest]) -> list[Texts]:
    """Return the paths of the committed checkpoints that no manifest describes.

    In an adopted directory these may be files of others. It has no marker before it is claimed.
    """
    if state.marker is None or state.marker.adopted:
        return []
    return list(_paths_without_manifest(state, manifests))


def _paths_without_manifest(state: State, manifests: Mapping[str, Manifest]) -> Iterator[Texts]:
    for committed in state.ours:
        listed = manifests.get(committed.name)
        if listed is None or listed.metadata != committed.metadata:
            yield committed.files.paths


def _files_of(part: Journal) -> LedgerTable:
    plain = (row for row in part.copied.values() if row.pack is None or row.offset is None)
    return LedgerTable.of(
        {row.path: LedgerEntry(row.length, row.crc32c, row.written) for row in plain}
    )


def _prefixes_of(part: Journal) -> PrefixTable:
    return PrefixTable.of(
        {
            row.path: Prefix(row.prefix, row.prefix_crc32c)
            for row in part.copied.values()
            if row.prefix is not None and row.prefix_crc32c is not None
        }
    )


def _members_of(part: Journal) -> MemberTable:
    return MemberTable.of(
        {
            row.path: Member(row.pack, row.offset, row.length, row.crc32c)
            for row in part.copied.values()
            if row.pack is not None and row.offset is not None
        }
    )


def _sources(own: Iterable[str]) -> list[str]:
    """Return the names of manifests and journals among the files of `.cpreplicate/`."""
    return [*_manifests(own), *journal.names(own)]


def _manifests(own: Iterable[str]) -> list[str]:
    manifests = [name for name in own if name.endswith(manifest.SUFFIX)]
    return [
        name for name in manifests if checkpoint_of(name.removesuffix(manifest.SUFFIX)) is not None
    ]


def _in_a_row(order: Sequence[str], state: State) -> list[str]:
    """Return the points that the summary has, if their manifests were written one after the other.

    Else none: which of two entries counts is then a question of single manifests.
    """
    names = [name.removesuffix(manifest.SUFFIX) for name in order]
    places = [place for place, name in enumerate(names) if name in state.summarised]
    if not places or places[-1] - places[0] + 1 != len(places):
        return []
    return [names[place] for place in places]


def _in_order(state: State) -> list[str]:
    """Return the names of manifests and journals, in the order in which they were written.

    A manifest comes after the journal of its own run if the storage's clock is coarse. `relocate`
    writes manifests anew: that of a checkpoint counts as no later than those of the checkpoints
    that were published after it, and that of a derived one as no later than all of these.
    """
    times = {name: state.own[name].modified for name in _sources(state.own)}
    ranks: dict[str, int] = {}
    latest = math.inf
    for rank, checkpoint in enumerate(state.ours):
        name = f"{own_name(checkpoint.name)}{manifest.SUFFIX}"
        if name in times:
            latest = times[name] = min(times[name], latest)
            ranks[name] = -rank

    def key(name: str) -> tuple[float, bool, float, str]:
        is_manifest = not name.startswith(journal.PREFIX)
        return times[name], is_manifest, ranks.get(name, -math.inf), name

    return sorted(times, key=key)
