"""What manifests and journals record: the files that cpreplicate wrote, and their lengths."""

from __future__ import annotations

import math
from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from cpreplicate.core.ledger import LedgerEntry, LedgerTable, Member, MemberTable
from cpreplicate.core.packs import is_pack, is_written, stem_of
from cpreplicate.core.path_columns import Texts, chosen, rows_of, texts, without
from cpreplicate.core.placement import PACKED, checkpoint_of, own_name
from cpreplicate.protocol import journal, manifest
from cpreplicate.protocol.journal import Journal, JournalRow
from cpreplicate.protocol.manifest import Manifest
from cpreplicate.protocol.replica import Replica
from cpreplicate.protocol.replica_state import State


class Ledger:
    """The files of a replica that manifests and journals list, by their path in it.

    A file that is there is complete only if it has the listed length.
    """

    def __init__(self, replica: Replica, state: State) -> None:
        self.journals: list[Journal] = []
        self.manifests: dict[str, Manifest] = {}
        known = {committed.name: committed.listed for committed in state.ours}
        files: list[LedgerTable] = []
        members: list[MemberTable] = []
        for name in _in_order(state):
            if name.startswith(journal.PREFIX):
                part = journal.read(replica.storage, replica.root, name)
                self.journals.append(part)
                files.append(_files_of(part))
                members.append(_members_of(part))
                continue
            checkpoint = checkpoint_of(name.removesuffix(manifest.SUFFIX))
            assert checkpoint is not None, "only manifests of checkpoints are read"
            # what the state was read from is not read again: it was listed together with it
            listed = known.get(checkpoint) or replica.manifest(checkpoint)
            if listed is not None:
                self.manifests[checkpoint] = listed
                files.append(listed.entries.ledger)
                members.append(listed.members)
        # Where two of them list one file, the later one counts.
        self.files = LedgerTable.merged(files)
        self.members = MemberTable.merged(members)
        self._unlisted = _unlisted(state, self.manifests)

    def copied(self) -> list[JournalRow]:
        """Return the complete files of the journals, except where another record counts by now."""
        rows = (row for part in self.journals for row in part.copied.values())
        return [row for row in rows if self._counts(row)]

    def _counts(self, row: JournalRow) -> bool:
        if row.pack is None or row.offset is None:
            return self.files.get(row.path) == LedgerEntry(row.length, row.crc32c, True)
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

    def left_over(self, committed: Iterable[str]) -> Texts:
        """Return the written paths that no manifest of the named checkpoints lists."""
        listed = [
            self.manifests[name].entries.paths for name in committed if name in self.manifests
        ]
        recorded = pa.concat_arrays([self._written_files(), texts(self._planned())])
        return without(recorded, *listed).unique()

    @property
    def written(self) -> Container[str]:
        """The paths that cpreplicate wrote, or was about to write.

        Of packs it has the beginnings of their paths, too: see `packs.is_written`.
        """
        files = self._written_files()
        packs = files.filter(pc.starts_with(files, f"{PACKED}/")).to_pylist()
        planned = self._planned().union(map(stem_of, packs))
        return _Written(self.files, planned)

    def of_others(self, paths: Texts) -> Texts:
        """Return those of these paths at which a file, if there is one, is another program's.

        cpreplicate's own are what manifests and journals list as written or about to be, and,
        unless the directory was adopted, what a checkpoint references whose manifest was lost.
        """
        is_ours = self.files.at(paths).is_written
        is_ours |= rows_of(paths, texts(self._planned())) >= 0
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


@dataclass(frozen=True)
class _Written(Container[str]):
    """The paths of the written ones among `files`, and `others`."""

    files: LedgerTable
    others: frozenset[str]

    def __contains__(self, path: object) -> bool:
        if path in self.others:
            return True
        return isinstance(path, str) and path in self.files and self.files[path].written


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
    return LedgerTable.of({row.path: LedgerEntry(row.length, row.crc32c, True) for row in plain})


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
    manifests = [name for name in own if name.endswith(manifest.SUFFIX)]
    of_checkpoints = [
        name for name in manifests if checkpoint_of(name.removesuffix(manifest.SUFFIX)) is not None
    ]
    return [*of_checkpoints, *journal.names(own)]


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
