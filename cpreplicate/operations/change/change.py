"""A change of a replica: what it writes is recorded in a journal, what it deletes is its own.

Nothing is written or deleted through a symbolic link, and only while the lease is held.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass

from cpreplicate.core import uri
from cpreplicate.core.lazy import lazy
from cpreplicate.core.ledger import LedgerEntry
from cpreplicate.core.notify import Notify
from cpreplicate.core.packs import is_written
from cpreplicate.core.path_columns import without
from cpreplicate.core.sizes import counted, plural
from cpreplicate.errors import Refused, described
from cpreplicate.protocol import json_files, lease_safety, publication, uploads
from cpreplicate.protocol.held import HeldReplica
from cpreplicate.protocol.journal import (
    Journal,
    JournalRow,
    JournalWriter,
    LateRun,
    late_runs,
    write_late,
)
from cpreplicate.protocol.lease import Lease, acquire
from cpreplicate.protocol.ledger import Ledger
from cpreplicate.protocol.manifest import Manifest
from cpreplicate.protocol.pending import PendingPut
from cpreplicate.protocol.replica import CommittedCheckpoint, Replica
from cpreplicate.protocol.replica_state import State
from cpreplicate.runners import (
    Copy,
    Delete,
    EngineLost,
    JobCancelled,
    Outcome,
    Runner,
    Wanted,
    dropping,
)
from cpreplicate.runners.base import Done
from cpreplicate.runners.inline import InlineRunner
from cpreplicate.storage import Sides
from cpreplicate.storage.transfer import appearing_after

FILES_PER_CHECK = 20_000  # files that are deleted between two checks of the lease
_NEARLY = 0.8  # of the time for which a check of the lease counts: a call later, it does not
_SHOWN = 5  # names in a message; the rest are counted


@contextmanager
def opened(
    replica: Replica,
    examine: Callable[[HeldReplica], State],
    wait: float = 0.0,
    notify: Notify = lambda _line: None,
    absent: Sequence[str] = (),
    will_record: bool = False,
) -> Iterator[Change]:
    """Take the lease of a replica, and provide the change of it while the block runs.

    `examine` gets the replica under the lease: it returns the state of the directory, or raises if
    it must not be changed. So does this, if the storage cannot hold a lease. Who may be refused
    checks that before, too, so that no lease is written where none belongs. `wait` and `absent` are
    as of `acquire`: what is not `absent` is not made. `will_record`: the journal is begun beside
    the examination.
    """
    makes_root = replica.root in absent
    with acquire(replica.root, replica.side, wait, notify, absent, makes_root=makes_root) as lease:
        held = HeldReplica(replica.root, replica.side, lease)
        journal = JournalWriter(held.storage, held.root)
        with journal.begun() if will_record else nullcontext():
            state = lease_safety.proven(held, examine(held), notify)
            if state.marker is not None:
                lease.keep_room()
            yield Change(held, state, lease, notify, threads(held), journal)


def threads(replica: Replica) -> Runner:
    """Return the runner of a change for which no other was chosen."""
    return InlineRunner(Sides(replica.side, replica.side))


@dataclass
class Change:
    """A change of one replica under its lease.

    `state` and `ledger` are what was there and what was recorded before. `runner` writes and
    deletes: threads of this process, or what `running` provides. The `journal` lists what is about
    to be written or deleted, and what is complete.
    """

    replica: HeldReplica
    state: State
    lease: Lease
    notify: Notify
    runner: Runner
    journal: JournalWriter

    @lazy
    def _part(self) -> PendingPut | None:
        """The part of the journal that is on its way, None once it is there."""
        return None

    @lazy
    def _proved(self) -> dict[str, LedgerEntry]:
        return {}

    @lazy
    def ledger(self) -> Ledger:
        """What manifests and journals recorded, read when it is first asked for."""
        return Ledger(self.replica, self.state)

    @contextmanager
    def running(self, runner: Runner) -> Iterator[None]:
        """Let a runner write and delete while the block runs, and end it."""
        former = self.runner
        with runner:
            self.runner = runner
            try:
                yield
            finally:
                self.runner = former

    @contextmanager
    def recording(
        self,
        paths: Sequence[str],
        left: Collection[str] = (),
        claim: Callable[[], object] = lambda: None,
        is_beside: bool = False,
    ) -> Iterator[None]:
        """Record that the block may write or delete these paths, and what it completes.

        `left` are other paths that runs which died wrote, or were about to. What is recorded of
        them, and of files of other programs that were proved to be equal, is kept. `claim` is
        called while that is written, and before it appears. Journals of runs that died are removed
        then: what they list is among the paths, and in this journal. `is_beside`: the block only
        copies files from the source before it calls `recorded`. Where a close is slow, they are
        written beside the record then, and wait for it before they appear.
        """
        left = sorted(left)
        known = self.ledger.journal_rows([*left, *self._proved])
        is_beside = is_beside and not (left or self.runner.is_elsewhere or self.ledger.journals)
        with ExitStack() as resources:
            if paths or left or known:
                part = self.journal.planning([*paths, *left], known)
                resources.enter_context(part)
                claim()
                part.let_appear()
                self._part = part
                if not is_beside:
                    self.recorded()
            else:
                claim()
            with self._taking_over():
                yield
                self.recorded()

    def recorded(self) -> None:
        """Wait until it is recorded what this change may write. Raise if it cannot be."""
        if self._part is not None:
            self._part.wait_until_there()
            self._part = None

    @contextmanager
    def _taking_over(self) -> Iterator[None]:
        """Replace the journals of runs that died by this one, and go on with it in the block."""
        self.lease.keep_room()  # it is a replica now
        if self.ledger.journals:
            self.abort_uploads()
        if dead := self.ledger.of_dead_runs():
            self._record_late(dead)
        self.journal.take_over(self.ledger.journals, self.ledger.copied())
        with self.journal.writing():
            yield

    def _record_late(self, dead: Iterable[Journal]) -> None:
        """Record where executors of runs that died may still write.

        If that fails, what they write late is left to a sweep: it is no reason to stop.
        """
        try:
            self._write_late([*self.ledger.late, *late_runs(dead)])
        except OSError as error:
            self.notify(f"where runs that died may still write is not recorded: {described(error)}")

    def forget_late(self) -> None:
        """Remove from the record the runs that died a day ago: this sync has looked once more, and
        has found nothing.
        """
        late, now = self.ledger.late, json_files.now()
        going_on = [each for each in late if not each.is_over(now)]
        if len(going_on) < len(late) and not self.ledger.of_dead_runs():
            with suppress(OSError):  # the next sync does it
                self._write_late(going_on)

    def _write_late(self, runs: Sequence[LateRun]) -> None:
        write_late(self.replica.storage, self.replica.root, runs)

    def abort_uploads(self) -> None:
        """Abort the uploads that runs which died left incomplete.

        That needs rights of its own, and not every service has such calls. So what fails is
        narrated: it is no reason to stop.
        """
        if not self.replica.storage.keeps_uploads:
            return
        try:
            aborted = uploads.abort_left(self.replica, self.state, self.ledger)
        except OSError as error:
            self.notify(
                f"incomplete uploads of runs that died were not looked for: {described(error)}"
            )
            return
        if aborted:
            count = counted(len(aborted), "incomplete upload")
            self.notify(f"aborted {count} of runs that died")

    def write(
        self,
        tasks: Sequence[Copy],
        done: Done = lambda _outcome: None,
        wanted: Wanted | None = None,
    ) -> list[Outcome]:
        """Execute copies into the replica; the journal lists each file that is complete.

        `done` is as of `Runner.run`. What is not `wanted` any more is dropped.
        """

        def record(outcome: Outcome) -> None:
            self._record(outcome)
            done(outcome)

        wait = None if self._part is None else self._part.wait_until_there
        with dropping(wanted), appearing_after(wait):
            outcomes = self.runner.run(tasks, done=record)
        self.recorded()  # if it failed, that is why copies did
        return outcomes

    def _record(self, outcome: Outcome) -> None:
        path = uri.below(outcome.target, self.replica.root)
        if outcome.error is not None or outcome.crc32c is None or path is None:
            return
        pack = uri.below(outcome.pack, self.replica.root) if outcome.pack is not None else None
        offset = outcome.offset if pack is not None else None
        prefix = outcome.prefix, outcome.prefix_crc32c
        self.journal.done(
            JournalRow(path, outcome.bytes, outcome.crc32c, pack, offset, True, *prefix)
        )

    def complete_journal(self) -> None:
        """Let the journal list every file that is complete, not only those of its last part."""
        self.journal.flush()

    def prove(self, files: Mapping[str, LedgerEntry]) -> None:
        """Record in the ledger, and later in the journal, what a check of these files proved."""
        self._proved.update(files)
        self.ledger.prove(files)

    def delete(
        self, targets: Sequence[str] | Mapping[str, str], files_per_check: int = FILES_PER_CHECK
    ) -> list[str]:
        """Delete files of the replica, or move each to the path that it is mapped to.

        Returns what failed, and why. The lease is checked before each `files_per_check` files.
        Raises `LeaseHeld`, having deleted a part, once this run no longer holds the lease,
        `EngineLost` once executors do not answer, and `JobCancelled` if somebody ended their work.
        As these may still delete, the lease then stays until it expires.
        """
        self.recorded()
        moves = targets if isinstance(targets, Mapping) else {}
        failed: list[str] = []
        waiting = list(targets)
        if waiting and self.runner.is_elsewhere:
            self.lease.delegate()
        while waiting:
            self.lease.check(self.lease.counts)
            part, rest = waiting[:files_per_check], waiting[files_per_check:]
            try:
                outcomes = self._deleted(part, moves)
            except (EngineLost, JobCancelled):
                self.lease.leave()
                raise
            late = [target for target in part if outcomes[target].late]
            if late == part:
                error = outcomes[part[0]].error
                return failed + [f"{error}: {self.replica.uri_of(path)}" for path in late + rest]
            failed += [
                f"{outcome.target}: {outcome.error}"
                for outcome in outcomes.values()
                if outcome.error and not outcome.late
            ]
            waiting = late + rest
        return failed

    def _deleted(self, paths: Sequence[str], moves: Mapping[str, str]) -> dict[str, Outcome]:
        """Return the outcome of the delete or move of each path, none begun too late."""
        uris = {path: self.replica.uri_of(path) for path in paths}
        until = self.lease.until()
        tasks = [
            Delete(uris[path], until, self.replica.uri_of(moves[path]) if path in moves else None)
            for path in paths
        ]
        outcomes = {outcome.target: outcome for outcome in self.runner.run(tasks)}
        return {path: outcomes[uris[path]] for path in paths}

    def forget(self, names: Iterable[str]) -> list[str]:
        """Remove what is recorded of checkpoints that are not committed; return what failed."""
        try:
            for name in names:
                publication.forget(self.replica, name, self.state.own)
        except OSError as error:
            return [str(error)]
        return []

    def unrecord(self, names: Iterable[str]) -> list[str]:
        """Remove what is recorded of checkpoints of which nothing else is left, as `forget`."""
        try:
            for name in names:
                publication.unrecord(self.replica, name, self.state.own)
        except OSError as error:
            return [str(error)]
        return []

    def described(self, names: Iterable[str] | None = None) -> list[Manifest]:
        """Return the manifests that describe committed checkpoints as they are.

        `names` are those that are asked for, by default all. Where a run died before it wrote the
        manifest of what it committed, what is recorded of its files becomes its manifest, if that
        is all of them: journals, which have it, are removed.
        """
        asked = [each for each in self.state.ours if names is None or each.name in set(names)]
        return [manifest for each in asked if (manifest := self._described(each)) is not None]

    def _described(self, checkpoint: CommittedCheckpoint) -> Manifest | None:
        if self.ledger.is_described(checkpoint.name):
            return self.ledger.manifests[checkpoint.name]
        manifest = self.ledger.manifest_of(checkpoint)
        if len(manifest.entries) < len(checkpoint.files) or (manifest.members.crcs < 0).any():
            return None
        self.lease.check()
        self.replica.write_manifest(checkpoint.name, manifest)
        return manifest

    def end(self, left: Collection[str], manifests: Iterable[Manifest]) -> None:
        """Remove the journal, unless runs that died left files that only it lists.

        `left` are the paths that they wrote, `manifests` those that are there now. A journal that
        stays does no harm: the next run that commits takes it over. Raises `OSError` and `Refused`
        if the files cannot be listed.
        """
        if left and self._are_there(left, manifests):
            return
        self.lease.ask(_NEARLY * self.lease.counts)  # it is given back next
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


def some(texts: Sequence[str], shown: int = _SHOWN) -> str:
    """Return the first few of many texts, and how many more there are."""
    more = f" and {len(texts) - shown} more" if len(texts) > shown else ""
    return "; ".join(texts[:shown]) + more


def orphaned(failed: Sequence[str]) -> str:
    """Return the message of files that could not be deleted."""
    are = plural(len(failed), "is an orphan", "are orphans")
    return f"{counted(len(failed), 'file')} could not be deleted and {are} now: {some(failed)}"


def they_are(texts: Sequence[str]) -> str:
    """Return the sentence that names the first few of what the sentence before counts."""
    return f"{plural(len(texts), 'It is', 'They are')} {some(texts)}"
