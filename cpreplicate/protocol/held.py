"""A replica whose lease this run holds: the only way to write and delete in it.

Before each verb that changes something the lease is checked, so no command can leave that out: what
has no lease has a `Replica`, through which nothing can be changed. Only files that runners copy and
delete do not pass through here; they look at the lease's time themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import chain
from operator import methodcaller

from cpreplicate.core import uri
from cpreplicate.core.placement import METADATA
from cpreplicate.protocol import manifest
from cpreplicate.protocol.lease import JUST_CHECKED, Lease
from cpreplicate.protocol.manifest import Manifest
from cpreplicate.protocol.pending import PendingPut
from cpreplicate.protocol.replica import Replica
from cpreplicate.storage import Side, Storage
from cpreplicate.storage.base import TEMPORARY, Content
from cpreplicate.storage.statuses import Listing
from cpreplicate.storage.wrappers.ahead import drop_answers
from cpreplicate.storage.wrappers.checked import Checked


class HeldReplica(Replica):
    """A replica that this run may change as long as it holds its `lease`.

    What would change it then raises `LeaseHeld`, or `TargetGone`: its directory is never made.
    """

    storage: Storage

    def __init__(self, root: str, side: Side, lease: Lease) -> None:
        super().__init__(root, side)
        self.lease = lease
        self.storage = Checked(side.storage(root, root), self.check)
        self._is_alone = False

    def check(self) -> None:
        """Raise `LeaseHeld` or `TargetGone` unless this run holds the lease now."""
        self.lease.check(JUST_CHECKED)

    def without_unfinished(self) -> bool:
        """Remove the unfinished files of other runs in the checkpoints just listed.

        From now on, those in other directories are removed when these are listed. A run that was
        held up, and still considers the lease its own, can then neither publish nor replace a
        merged file by its former, shorter content. Returns False if one of these files was
        published just before.
        """
        self._is_alone = True
        removed = [self._remove_unfinished(listed) for listed in self._listed.values()]
        return all(removed)

    def remove_unfinished(self, directories: Iterable[str]) -> None:
        """Remove the unfinished files of other runs in these directories, too.

        To be called before `keep_unfinished`.
        """
        for directory in directories:
            if directory not in self._listed:  # else they are removed already
                self._listing(directory)

    def keep_unfinished(self) -> None:
        """Remove no more unfinished files: from now on they may be this run's own."""
        self._is_alone = False

    def _listing(self, directory: str) -> Listing:
        if directory in self._listed or not self._is_alone:
            return super()._listing(directory)
        while True:
            listed = super()._listing(directory)
            if self._remove_unfinished(listed):
                return listed

    def _remove_unfinished(self, listed: Listing) -> bool:
        links = [other.name for other in listed.others if not other.is_directory]
        names = filter(methodcaller("startswith", TEMPORARY), chain(listed.names, links))
        unfinished = [uri.join(listed.uri, name) for name in names]
        deleted = [self.storage.delete(path, durable=True) for path in unfinished]
        return all(deleted)

    def publish(self, name: str, content: Content, check: Callable[[], None], replace: bool) -> int:
        """Commit: publish the `_metadata` of `name` atomically, and return its length.

        `check` is called when the file is written and about to appear, and may raise. Raises
        `FileExistsError` if there is one already and not `replace`.
        """
        return self.storage.publish(
            self.uri_of(f"{name}/{METADATA}"), content, lambda _length: check(), replace
        )

    def withdraw(self, path: str, keeps_aside: bool = False) -> bool:
        """Remove a file by `Storage.withdraw`: not what another run publishes meanwhile.

        The removal is durable. Returns False if the file was not there. `keeps_aside`: the caller
        calls `remove_withdrawn`, beside its other deletes.
        """
        try:
            return self.storage.withdraw(
                self.uri_of(path), self.lease.aside, self.check, keeps_aside
            )
        except OSError:
            drop_answers()
            self.lease.check()  # a fence of another run is in the way, perhaps
            raise

    def remove_withdrawn(self) -> None:
        """Remove what was withdrawn. If that fails, it is a temporary file of a former run."""
        if self.storage.has_directories:  # else nothing is renamed
            with suppress(OSError):
                self.storage.delete(self.lease.aside)

    def write_manifest(self, name: str, content: Manifest) -> None:
        """Write the manifest of a checkpoint, after the commit that it describes."""
        manifest.write(self.storage, self.root, name, content)

    def writing_manifest(self, name: str, content: Manifest) -> PendingPut:
        """Return the manifest of a checkpoint while it is written.

        The caller lets it appear after the commit that it describes.
        """
        return manifest.writing(self.storage, self.root, name, content)
