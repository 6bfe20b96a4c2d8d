"""A change of a replica: what it writes is recorded in a journal, what it deletes is its own.

Nothing is written or deleted through a symbolic link, and only while the lease is held.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from cpreplicate.core import uri
from cpreplicate.core.notify import Notify
from cpreplicate.core.packs import is_written
from cpreplicate.core.path_columns import without
from cpreplicate.errors import Refused
from cpreplicate.protocol import publication
from cpreplicate.protocol.journal import JournalRow, JournalWriter
from cpreplicate.protocol.lease import Lease
from cpreplicate.protocol.ledger import Ledger
from cpreplicate.protocol.manifest import Manifest
from cpreplicate.protocol.replica import Replica
from cpreplicate.protocol.replica_state import State
from cpreplicate.runners import Copy, Delete, Outcome, Runner

FILES_PER_CHECK = 20_000  # files that are deleted between two checks of the lease
_SHOWN = 5  # names in a message; the rest are counted


@dataclass(frozen=True)
class Change:
    """A change of one replica under its lease.

    `state` and `ledger` are what was there and what was recorded before. `runner` writes and
    deletes, and the `journal` of the change lists what is complete.
    """

    replica: Replica
    state: State
    ledger: Ledger
    lease: Lease
    runner: Runner
    notify: Notify
    journal: JournalWriter

    def take_over(self) -> None:
        """Let the journal list what those of runs that died list, and remove these.

        Their paths must be planned by now.
        """
        self.journal.take_over(self.ledger.journals, self.ledger.copied())

    def write(self, tasks: Sequence[Copy]) -> list[Outcome]:
        """Execute copies into the replica; the journal lists each file that is complete."""
        return self.runner.run(tasks, done=self._record)

    def _record(self, outcome: Outcome) -> None:
        path = uri.below(outcome.target, self.replica.root)
        if outcome.error is not None or outcome.crc32c is None or path is None:
            return
        pack = uri.below(outcome.pack, self.replica.root) if outcome.pack is not None else None
        offset = outcome.offset if pack is not None else None
        self.journal.done(JournalRow(path, outcome.bytes, outcome.crc32c, pack, offset))

    def delete(self, targets: Sequence[str]) -> list[str]:
        """Delete files of the replica, and return what failed. Raises as `delete`."""
        return delete(targets, self.replica, self.runner, self.lease)

    def forget(self, names: Iterable[str]) -> list[str]:
        """Remove what is recorded of checkpoints that are not committed; return what failed."""
        try:
            for name in names:
                publication.forget(self.replica, name)
        except OSError as error:
            return [str(error)]
        return []

    def end(self, left: Collection[str], manifests: Iterable[Manifest]) -> None:
        """Remove the journal, unless runs that died left files that only it lists.

        `left` are the paths that they wrote, `manifests` those that are there now. A journal that
        stays does no harm: the next run that commits takes it over. Raises `OSError` and `Refused`
        if the files cannot be listed.
        """
        if left and self._are_there(left, manifests):
            return
        with suppress(OSError):
            self.journal.remove()

    def _are_there(self, left: Collection[str], manifests: Iterable[Manifest]) -> bool:
        present = self.replica.present(uri.directories(left)).paths
        unknown = without(present, *(each.entries.paths for each in manifests)).to_pylist()
        return any(is_written(path, left) for path in unknown)


def refuse_links(directories: Iterable[str], replica: Replica) -> None:
    """Raise `Refused` if a directory of the replica is reached through a link below its root."""
    storage = replica.storage
    root = storage.real(replica.root)
    for directory in sorted(set(directories)):
        if storage.real(replica.uri_of(directory)) != uri.join(root, directory):
            raise Refused(
                f"{replica.uri_of(directory)} is reached through a symbolic link: what would be"
                " written or deleted there may not belong to the replica. Nothing was done. Replace"
                " the link by a directory, or sync into another TARGET_ROOT"
            )


def delete(
    targets: Sequence[str] | Mapping[str, str],
    replica: Replica,
    runner: Runner,
    lease: Lease,
    files_per_check: int = FILES_PER_CHECK,
) -> list[str]:
    """Delete files of the replica, or move each to the path that it is mapped to.

    Returns what failed, and why. The lease is checked before each `files_per_check` files. Raises
    `LeaseHeld`, having deleted a part, once this run no longer holds the lease.
    """
    failed: list[str] = []
    waiting = list(targets)
    if waiting and runner.is_elsewhere:
        lease.delegate()
    while waiting:
        lease.check()
        part, rest = waiting[:files_per_check], waiting[files_per_check:]
        outcomes = _outcomes(part, targets, replica, runner, lease.until())
        late = [target for target in part if outcomes[target].late]
        if late == part:
            return failed + [
                f"{outcomes[target].error}: {replica.uri_of(target)}" for target in (*late, *rest)
            ]
        failed += [
            f"{replica.uri_of(target)}: {outcome.error}"
            for target, outcome in outcomes.items()
            if outcome.error and not outcome.late
        ]
        waiting = late + rest
    return failed


def some(texts: Sequence[str], shown: int = _SHOWN) -> str:
    """Return the first few of many texts, and how many more there are."""
    more = f" and {len(texts) - shown} more" if len(texts) > shown else ""
    return "; ".join(texts[:shown]) + more


def _outcomes(
    part: Sequence[str],
    targets: Sequence[str] | Mapping[str, str],
    replica: Replica,
    runner: Runner,
    until: float,
) -> dict[str, Outcome]:
    moves = targets if isinstance(targets, Mapping) else {}
    tasks = []
    for target in part:
        moved_to = replica.uri_of(moves[target]) if target in moves else None
        tasks.append(Delete(replica.uri_of(target), until, moved_to))
    outcomes = {outcome.target: outcome for outcome in runner.run(tasks)}
    return {target: outcomes[replica.uri_of(target)] for target in part}
