"""Compare files of a replica with the CRC32Cs that were recorded when they were copied.

The files are read in tasks of a runner; the members of a pack by one of them, which opens the pack
once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import NamedTuple

from cpreplicate.core import sizes
from cpreplicate.core.ledger import (
    LedgerTable,
    Member,
    MemberTable,
    Prefix,
    PrefixTable,
    crcs_by_place,
    shortest_prefixes,
)
from cpreplicate.core.notify import Notify
from cpreplicate.core.packs import is_written
from cpreplicate.core.path_columns import chosen, concatenated, rows_of, texts
from cpreplicate.core.tables import Lengths
from cpreplicate.operations.change.change import some
from cpreplicate.protocol import journal
from cpreplicate.protocol.digest import Digest
from cpreplicate.protocol.journal import Journal
from cpreplicate.protocol.manifest import Manifest, ManifestEntry, ManifestTable
from cpreplicate.protocol.replica import CommittedCheckpoint, Replica
from cpreplicate.runners import ExecutionOptions, Outcome, Read, Runner, choose_runner
from cpreplicate.storage import Side, Sides, Transient

_UNKNOWN_METADATA = Digest(0, 0)


class Comparison(NamedTuple):
    """The result of a comparison.

    `is_equal` maps the path of each compared file to whether its content is the recorded one.
    `unknown` are the files without a recorded CRC32C. `died`: journals explain that these have
    none, because the run that published the checkpoint died right after its commit.
    """

    is_equal: Mapping[str, bool] = {}
    unknown: tuple[str, ...] = ()
    died: bool = False


class Reader:
    """Reads files of one side by one runner: the `shared` one, or one that is chosen when the first
    files are to be read.
    """

    def __init__(
        self, side: Side, execution: ExecutionOptions, notify: Notify, shared: Runner | None = None
    ) -> None:
        self._sides, self._execution, self._notify = Sides(side, side), execution, notify
        self._resources = ExitStack()
        self._runner = shared

    def read(self, reads: Sequence[Read]) -> dict[str, Outcome]:
        """Return the outcomes by URI; that of a damaged file has no CRC32C.

        Raises `Transient` if the storage cannot be reached, and `OSError` if files cannot be read.
        """
        if not reads:
            return {}
        size = sum(read.extent for read in reads)
        if self._runner is None:
            chosen = choose_runner(self._execution, len(reads), size, self._sides)
            self._runner = self._resources.enter_context(chosen)
        of_packs = [read.pack for read in reads if read.pack not in (None, read.target)]
        packed = (
            f", {len(of_packs)} of them in {sizes.counted(len(set(of_packs)), 'pack')}"
            if of_packs
            else ""
        )
        self._notify(f"comparing {sizes.counted(len(reads), 'file')}{packed}, {sizes.size(size)}")
        outcomes = self._runner.run(reads)
        if unread := unread_of(outcomes):
            is_transient = any(outcome.has_been_retried for outcome in unread)
            raise (Transient if is_transient else OSError)(
                f"{len(unread)} of {sizes.counted(len(reads), 'file')} of the replica cannot be"
                f" read. {some(list(errors_of(unread)))}"
            )
        return {outcome.target: outcome for outcome in outcomes}

    def __enter__(self) -> Reader:
        self._resources.__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        self._resources.close()


def read_of(replica: Replica, path: str, length: int, member: Member | None = None) -> Read:
    """Return the read of a file of a replica, or of a member of one of its packs."""
    target = replica.uri_of(path)
    if member is None:
        return Read(target, length)
    return Read(target, member.length, replica.uri_of(member.pack), member.offset)


def unread_of(outcomes: Iterable[Outcome]) -> list[Outcome]:
    """Return the reads that failed for another reason than that what they read is damaged."""
    return [each for each in outcomes if each.error is not None and not each.damaged]


def errors_of(outcomes: Iterable[Outcome]) -> Iterator[str]:
    """Yield what failed, and why."""
    for outcome in outcomes:
        if outcome.error is not None:
            yield f"{outcome.target}: {outcome.error}"


def compare(
    replica: Replica,
    checkpoint: CommittedCheckpoint,
    present: Mapping[str, int],
    among: Callable[[Iterable[str]], Callable[[str], bool]],
    manifests: Collection[Manifest],
    reader: Reader,
) -> Comparison:
    """Compare the files of a checkpoint that are `present` and that are taken.

    `among` returns which of these are.
    Packed files count by their logical path. A pack that was copied whole, from a replica that was
    the source, has a CRC32C of its own. Of a merged file the extent is compared that the checkpoint
    needs: the file may have grown since, or be damaged behind it.
    """
    journals = _journals(replica, checkpoint, manifests)
    recorded = [*manifests, _as_manifest(journals)]
    crcs, of_members = _crcs(recorded), crcs_by_place(each.members for each in recorded)
    prefixes = _prefixes(checkpoint, present, recorded)
    packs = checkpoint.packs.difference(
        prefixes, (path for path in checkpoint.packs if (path, present.get(path)) in crcs)
    )
    asked: dict[str, tuple[Read, int | None]] = {}
    plain = [path for path in checkpoint.files if path in present and path not in packs]
    members = {
        path: member
        for path, member in checkpoint.members.items()
        if member.pack in present and member.pack in packs
    }
    takes = among([*plain, *members])
    for path in filter(takes, plain):
        if path in prefixes:
            asked[path] = _read_of_beginning(replica, path, prefixes[path], present[path])
            continue
        crc32c = crcs.get((path, present[path]))
        asked[path] = (read_of(replica, path, present[path]), crc32c)
    for path in filter(takes, members):
        crc32c = of_members.get(members[path][:3])
        asked[path] = (read_of(replica, path, members[path].length, members[path]), crc32c)
    known = {path: pair for path, pair in asked.items() if pair[1] is not None}
    outcomes = reader.read([read for read, _crc32c in known.values()])
    is_equal = {
        path: outcomes[read.target].crc32c == crc32c for path, (read, crc32c) in known.items()
    }
    unknown = tuple(path for path in asked if path not in known)
    return Comparison(is_equal, unknown, _are_planned(unknown, checkpoint, journals))


def _prefixes(
    checkpoint: CommittedCheckpoint, present: Mapping[str, int], recorded: Sequence[Manifest]
) -> PrefixTable:
    """Return the recorded beginnings of merged files that prove the extents of a checkpoint."""
    tables: list[LedgerTable | PrefixTable] = [each.prefixes for each in recorded]
    of_records = [table.paths for table in tables]
    growing = concatenated([*of_records, texts(checkpoint.growing or ())])
    files = checkpoint.files
    is_growing = rows_of(files.paths, growing) >= 0
    paths, extents = chosen(files.paths, is_growing), files.bytes[is_growing]
    tables += [each.entries.ledger for each in recorded]
    return shortest_prefixes(tables, paths, extents, Lengths.of(present).at(paths))


def _read_of_beginning(
    replica: Replica, path: str, prefix: Prefix, length: int
) -> tuple[Read, int]:
    target = replica.uri_of(path)
    pack = target if prefix.length < length else None
    return Read(target, prefix.length, pack), prefix.crc32c


def _journals(
    replica: Replica, checkpoint: CommittedCheckpoint, manifests: Collection[Manifest]
) -> list[Journal]:
    """Return the journals if no manifest describes the checkpoint.

    Its run may have died right after the commit. Then the journal of the run is there.
    """
    if any(manifest.metadata == checkpoint.metadata for manifest in manifests):
        return []
    names = journal.names(replica.own_files())
    return [journal.read(replica.storage, replica.root, name) for name in names]


def _are_planned(
    paths: Iterable[str], checkpoint: CommittedCheckpoint, journals: Sequence[Journal]
) -> bool:
    """Return whether journals name all these files, or their packs, as about to be written.

    Else it is not a run that died that explains why no CRC32C is recorded: the manifest was lost.
    """
    planned = frozenset[str]().union(*(part.planned for part in journals))
    members = checkpoint.members
    return bool(journals) and all(
        is_written(members[path].pack if path in members else path, planned) for path in paths
    )


def _as_manifest(journals: Iterable[Journal]) -> Manifest:
    """Return the complete files that journals list as a manifest lists them."""
    entries: dict[str, ManifestEntry] = {}
    members: dict[str, Member] = {}
    prefixes: dict[str, Prefix] = {}
    for row in (row for part in journals for row in part.copied.values()):
        if row.pack is not None and row.offset is not None:
            members[row.path] = Member(row.pack, row.offset, row.length, row.crc32c)
            continue
        entries[row.path] = ManifestEntry(row.length, row.length, row.crc32c)
        if row.prefix is not None and row.prefix_crc32c is not None:
            prefixes[row.path] = Prefix(row.prefix, row.prefix_crc32c)
    tables = ManifestTable.of(entries), MemberTable.of(members), PrefixTable.of(prefixes)
    return Manifest(0, _UNKNOWN_METADATA, *tables)


def _crcs(manifests: Iterable[Manifest]) -> dict[tuple[str, int], int]:
    """Return (path, length) to CRC32C, of all files whose CRC32C is known."""
    entries = (item for manifest in manifests for item in manifest.entries.items())
    return {
        (path, entry.length): entry.crc32c for path, entry in entries if entry.crc32c is not None
    }
