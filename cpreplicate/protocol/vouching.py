"""What manifests and journals vouch for: the files that cpreplicate wrote, and their lengths."""

from __future__ import annotations

from collections.abc import Iterable

from cpreplicate.core.placement import CHECKPOINT_NAME
from cpreplicate.core.plan import Vouch
from cpreplicate.protocol import journal, manifest
from cpreplicate.protocol.journal import Journal
from cpreplicate.protocol.manifest import Manifest
from cpreplicate.protocol.replica import Replica
from cpreplicate.protocol.replica_state import State
from cpreplicate.storage import FileStatus


class Vouched:
    """What manifests and journals say of the files of a replica: which are cpreplicate's, and how
    long each must be.
    """

    def __init__(self, replica: Replica, state: State) -> None:
        self.journals: list[Journal] = []
        self.manifests: dict[str, Manifest] = {}
        self.files: dict[str, Vouch] = {}
        # of two the later one holds
        for name in sorted(_vouching(state.own), key=lambda name: _moment(state.own[name])):
            if name.startswith(journal.PREFIX):
                part = journal.read(replica.storage, replica.root, name)
                self.journals.append(part)
                self.files.update(
                    (path, Vouch(each.length, each.crc32c, True))
                    for path, each in part.copied.items()
                )
            elif (found := replica.manifest(name.removesuffix(manifest.SUFFIX))) is not None:
                self.manifests[name.removesuffix(manifest.SUFFIX)] = found
                self.files.update(
                    (path, Vouch(*entry[1:])) for path, entry in found.entries.items()
                )

    def left_over(self, committed: Iterable[str]) -> set[str]:
        """Return the paths that cpreplicate wrote, or was about to, and that no manifest of these
        checkpoints names.
        """
        known = (self.manifests[name].entries for name in committed if name in self.manifests)
        return self.written.difference(*known)

    @property
    def written(self) -> set[str]:
        """The paths that cpreplicate wrote, or was about to."""
        paths = {path for path, vouch in self.files.items() if vouch.written}
        return paths.union(*(part.paths for part in self.journals))


def _vouching(own: Iterable[str]) -> list[str]:
    """Return the names of manifests and journals among those in `.cpreplicate/`."""
    manifests = [name for name in own if name.endswith(manifest.SUFFIX)]
    of_checkpoints = [
        name for name in manifests if CHECKPOINT_NAME.fullmatch(name.removesuffix(manifest.SUFFIX))
    ]
    return [*of_checkpoints, *journal.names(own)]


def _moment(status: FileStatus) -> tuple[float, bool, str]:
    """When it was written.

    A manifest after the journal of its own run, where the storage's clock is coarse.
    """
    return status.modified, not status.name.startswith(journal.PREFIX), status.name
