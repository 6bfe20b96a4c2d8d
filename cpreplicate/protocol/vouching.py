"""What manifests and journals vouch for: the files that cpreplicate wrote, and their lengths."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from cpreplicate.core.packs import is_pack, stem_of
from cpreplicate.core.placement import CHECKPOINT_NAME
from cpreplicate.core.plan import Member, Vouch
from cpreplicate.protocol import journal, manifest
from cpreplicate.protocol.journal import Copied, Journal
from cpreplicate.protocol.manifest import Manifest
from cpreplicate.protocol.replica import Replica
from cpreplicate.protocol.replica_state import State


class Vouched:
    """The files of a replica that manifests and journals list, by their path in it.

    A file that is there is complete only if it has the listed length.
    """

    def __init__(self, replica: Replica, state: State) -> None:
        self.journals: list[Journal] = []
        self.manifests: dict[str, Manifest] = {}
        self.files: dict[str, Vouch] = {}
        self.members: dict[str, Member] = {}
        # Where two of them list one file, the later one counts.
        for name in _in_order(state):
            if name.startswith(journal.PREFIX):
                self._add_journal(journal.read(replica.storage, replica.root, name))
            else:
                checkpoint = name.removesuffix(manifest.SUFFIX)
                self._add_manifest(checkpoint, replica.manifest(checkpoint))

    def _add_journal(self, part: Journal) -> None:
        self.journals.append(part)
        for path, length, crc32c, pack, offset in part.copied.values():
            if pack is None or offset is None:
                self.files[path] = Vouch(length, crc32c, True)
            else:
                self.members[path] = Member(pack, offset, length, crc32c)

    def _add_manifest(self, checkpoint: str, listed: Manifest | None) -> None:
        if listed is None:
            return
        self.manifests[checkpoint] = listed
        for path, entry in listed.entries.items():
            self.files[path] = Vouch(entry.length, entry.crc32c, entry.written)
        self.members.update(listed.members)

    def copied(self) -> list[Copied]:
        """Return the complete files of the journals, except where another record counts by now."""
        rows = (row for part in self.journals for row in part.copied.values())
        return [row for row in rows if self._counts(row)]

    def _counts(self, row: Copied) -> bool:
        if row.pack is None or row.offset is None:
            return self.files.get(row.path) == Vouch(row.length, row.crc32c, True)
        return self.members.get(row.path) == Member(row.pack, row.offset, row.length, row.crc32c)

    def distrust(self, paths: Iterable[str]) -> None:
        """Vouch no longer for the content of these files, which are damaged.

        They stay recorded as written.
        """
        for path in paths:
            if path in self.files:
                self.files[path] = self.files[path]._replace(crc32c=None)
            self.members.pop(path, None)

    def whole_members(self, present: Mapping[str, int]) -> dict[str, Member]:
        """Return the packed files whose pack is present with its recorded length.

        A pack that only a journal names has no recorded length: it must reach the members' ends.
        """
        return {
            path: member
            for path, member in self.members.items()
            if member.crc32c is not None and self._is_whole(member, present.get(member.pack))
        }

    def _is_whole(self, member: Member, length: int | None) -> bool:
        if length is None or not is_pack(member.pack):
            return False
        vouch = self.files.get(member.pack)
        return (vouch is None or vouch.length == length) and length >= member.offset + member.length

    def left_over(self, committed: Iterable[str]) -> set[str]:
        """Return the written paths that no manifest of the named checkpoints lists."""
        listed = (self.manifests[name].entries for name in committed if name in self.manifests)
        return self._recorded().difference(*listed)

    @property
    def written(self) -> set[str]:
        """The paths that cpreplicate wrote, or was about to write.

        Of packs it has the beginnings of their paths, too: see `packs.is_written`.
        """
        return self._recorded().union(stem_of(path) for path in self.files if is_pack(path))

    def _recorded(self) -> set[str]:
        paths = {path for path, vouch in self.files.items() if vouch.written}
        return paths.union(*(part.paths for part in self.journals))


def _vouching(own: Iterable[str]) -> list[str]:
    """Return the names of manifests and journals among the files of `.cpreplicate/`."""
    manifests = [name for name in own if name.endswith(manifest.SUFFIX)]
    of_checkpoints = [
        name for name in manifests if CHECKPOINT_NAME.fullmatch(name.removesuffix(manifest.SUFFIX))
    ]
    return [*of_checkpoints, *journal.names(own)]


def _in_order(state: State) -> list[str]:
    """Return the names of manifests and journals, in the order in which they were written.

    A manifest comes after the journal of its own run if the storage's clock is coarse. `relocate`
    writes manifests anew: that of a checkpoint counts as no later than those of the checkpoints
    that were published after it.
    """
    times = {name: state.own[name].modified for name in _vouching(state.own)}
    ranks: dict[str, int] = {}
    latest = math.inf
    for rank, checkpoint in enumerate(state.committed):
        name = f"{checkpoint.name}{manifest.SUFFIX}"
        if name in times:
            latest = times[name] = min(times[name], latest)
            ranks[name] = -rank

    def key(name: str) -> tuple[float, bool, float, str]:
        is_manifest = not name.startswith(journal.PREFIX)
        return times[name], is_manifest, ranks.get(name, -math.inf), name

    return sorted(times, key=key)
