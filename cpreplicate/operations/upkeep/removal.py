"""Remove a replica whole: what its records prove to be cpreplicate's, and its marker last.

Its checkpoints are withdrawn first, so that nothing can be restored of which files are missing.
Manifests and journals, which prove whose the files are, go once these are gone. So a run that dies
anywhere is resumed by running again, and a sync that comes first replicates into what is left.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from cpreplicate.core import sizes
from cpreplicate.core.notify import Notify
from cpreplicate.core.packs import is_written
from cpreplicate.core.path_columns import chosen, concatenated, rows_of, texts
from cpreplicate.core.placement import (
    BEFORE_RELOCATE,
    METADATA,
    OWN,
    checkpoint_of,
    is_replica_path,
)
from cpreplicate.core.plan import Cap
from cpreplicate.core.sizes import counted, plural
from cpreplicate.core.tables import Lengths
from cpreplicate.errors import CopyFailed, LeaseHeld, Refused, Sealed, TooManyDeletes
from cpreplicate.operations.change.change import Change, opened, some, they_are
from cpreplicate.operations.change.probe import refuse_held, try_opened
from cpreplicate.operations.upkeep import orphans
from cpreplicate.operations.upkeep.tree import NOT_OURS, Tree, tree_of
from cpreplicate.protocol import (
    fingerprint_record,
    job_record,
    journal,
    lease,
    manifest,
    needed,
    ownership,
    point_summary,
    publication,
    retention_record,
    seal,
    switch_record,
    verification_record,
)
from cpreplicate.protocol.checkpoint_record import RECORD_SUFFIX
from cpreplicate.protocol.held import HeldReplica
from cpreplicate.protocol.ledger import Ledger
from cpreplicate.protocol.marker import MARKER
from cpreplicate.protocol.readiness import nothing_there
from cpreplicate.protocol.replica import Replica
from cpreplicate.protocol.replica_state import State
from cpreplicate.runners import ExecutionOptions, choose_runner
from cpreplicate.storage import Sides

_OF_A_SWITCH = f"{OWN}/{switch_record.LEASED}"
_WORKED_IN = (orphans.TRASH, BEFORE_RELOCATE, _OF_A_SWITCH)
# the name of the job is the last to go: it is how the replica is found again
_NAMED = (
    *(verification_record.NAME, retention_record.NAME, switch_record.NAME, job_record.NAME),
    *(point_summary.NAME, journal.LATE),
)
_OF_CHECKPOINTS = (manifest.SUFFIX, RECORD_SUFFIX, fingerprint_record.SUFFIX)
_NEEDED = "a checkpoint that another program wrote references it"


@dataclass(frozen=True)
class RemovalRequest:
    """Which replica to remove.

    With `leaves_others` what is not cpreplicate's in it stays there, else nothing is removed then.
    `max_delete` is how many files may be removed at most, None for any number.
    """

    replica: str
    leaves_others: bool = False
    max_delete: Cap | None = None
    lock_wait: float = 0.0
    sides: Sides = field(default=Sides())
    execution: ExecutionOptions = field(default=ExecutionOptions())


@dataclass(frozen=True)
class Removal:
    """A replica that was removed, or could be: its checkpoints, files and bytes.

    The files are those of checkpoints, `_metadata` included. `others` is path to why a file is not
    cpreplicate's and stays. `why` is why it may be removed. `runner` is None as long as nothing was
    removed. `refused` is why nothing is removed, None if that is not refused.
    """

    replica: str
    checkpoints: tuple[str, ...] = ()
    files: int = 0
    bytes: int = 0
    others: Mapping[str, str] = field(default_factory=dict)
    why: str = ""
    done: bool = False
    runner: str | None = None
    seconds: float = 0.0
    refused: str | None = None


@dataclass(frozen=True)
class _Content:
    """What is in a replica: `files` are those of checkpoints, `own` those in `.cpreplicate/`.

    `unfinished` are temporary files of runs that died. `others` is path to why a file stays.
    `directories` are all of them, the deepest last. The marker and the lease are not among them.
    """

    files: Lengths
    unfinished: tuple[str, ...]
    own: tuple[str, ...]
    others: Mapping[str, str]
    directories: tuple[str, ...]


Allow = Callable[[Replica, State], object]


def check(request: RemovalRequest, allow: Allow) -> Removal:
    """Return what would be removed. What a removal writes is tried, and nothing is changed.

    Raises what `remove` would raise.
    """
    started = time.monotonic()
    replica = Replica(request.replica, request.sides.target)
    state = _examine(replica, allow)
    if not request.lock_wait:
        refuse_held(replica)
    report = _report(replica, state, _checked(replica, state, request))
    _refuse_too_many(report, request)
    try_opened(replica, state, "forget", lambda _line: None, only_removes=True)
    return replace(report, seconds=time.monotonic() - started)


def remove(request: RemovalRequest, allow: Allow, notify: Notify) -> Removal:
    """Remove a replica under its lease, and then its directory if nothing is left in it.

    `allow` is called with the state before the lease and under it, and may raise. Raises `NotThere`
    if there is no replica, `Sealed` and `Refused` if it must stay, `LeaseHeld`, and `CopyFailed` if
    files could not be removed: what lists them then stays.
    """
    started = time.monotonic()
    replica = Replica(request.replica, request.sides.target)
    _examine(replica, allow)
    wait = request.lock_wait
    with opened(replica, lambda held: _examine(held, allow), wait, notify) as change:
        content = _checked(change.replica, change.state, request)
        report = _report(replica, change.state, content)
        _refuse_too_many(report, request)
        runner = _remove(change, content, request, report)
    _remove_directories(replica)
    return replace(report, done=True, runner=runner, seconds=time.monotonic() - started)


def _examine(replica: Replica, allow: Allow) -> State:
    """Return the state of a replica that may be removed, or of what is left of one.

    That is only a lease, or nothing, in its `.cpreplicate/`.
    """
    _refuse_used(replica)
    state = orphans.read(replica)
    if state.is_empty and not any(child.name == OWN for child in replica.children()):
        raise nothing_there(replica)
    ownership.refuse_foreign(state, replica)
    if state.derived:
        names = [each.name for each in state.derived]
        raise Refused(
            f"{replica.root} holds derived checkpoints, from which a job may run elsewhere."
            " Nothing was removed. Remove each first, if no job needs it, with `cpreplicate rebase"
            f" --forget NAME`. They are {some(names)}"
        )
    allow(replica, state)
    return state


def _refuse_used(replica: Replica) -> None:
    """Raise `Sealed`, `Refused` or `LeaseHeld` if a job or a switch may need the replica."""
    sealed = seal.describe(replica)
    if sealed is not None:
        raise Sealed(
            f"{replica.root} is sealed {sealed}: a job may use its files. Nothing was removed. Once"
            " that job has completed a checkpoint of its own, run `cpreplicate unseal`, and then"
            " this again"
        )
    found = switch_record.read_switch(replica.side, replica.root)
    if found is not None and found.is_open and not found.is_left_to_operator:
        raise Refused(
            f"a switch of the job {found.name} has begun and not ended, as {replica.root} records."
            " Nothing was removed. Run the switch again, or take it back, first"
        )
    refusal = lease.Lease(replica.uri_of(_OF_A_SWITCH), replica.side).refusal()
    if refusal is not None:
        raise LeaseHeld(refusal)


def _checked(replica: Replica, state: State, request: RemovalRequest) -> _Content:
    """Return the content of a replica. Raise `Refused` if others' files are in the way."""
    content = _content(replica, state)
    if content.others and not request.leaves_others:
        shown = [f"{path} ({why})" for path, why in sorted(content.others.items())]
        raise Refused(
            f"{replica.root} holds"
            f" {counted(len(shown), 'file or directory', 'files or directories')} of which nothing"
            f" proves that cpreplicate wrote {plural(len(shown), 'it', 'them')}. Nothing was"
            f" removed. Find out whose {plural(len(shown), 'it is', 'they are')}. With"
            " --leave-others the rest is removed, and"
            f" {plural(len(shown), 'it stays', 'they stay')}. {they_are(shown)}"
        )
    return content


def _content(replica: Replica, state: State) -> _Content:
    tree = tree_of(replica, needed.needed(replica, state))
    ledger = Ledger(replica, state)
    written, rest = ledger.written, set(tree.files)
    rest -= {f"{each.name}/{METADATA}" for each in state.ours}
    kept = {path for path in rest if _is_kept(path)}
    unfinished = {path for path in rest - kept if orphans.is_unfinished(path)}
    own = {path for path in rest - kept if _is_own(path, state)}
    rest -= kept | unfinished | own
    recorded = {path for path in rest if is_replica_path(path) and is_written(path, written)}
    files = _lengths(tree, recorded)
    unproven = {
        path: why if is_written(path, written) else NOT_OURS
        for path, why in orphans.why_unproven(files, ledger).items()
    }
    spared = dict.fromkeys(_needed_by_others(files, replica, state), _NEEDED)
    others = tree.left | dict.fromkeys(rest - recorded, NOT_OURS) | spared | unproven
    return _Content(
        files.without(texts([*unproven, *spared])),
        tuple(sorted(unfinished)),
        tuple(sorted(own)),
        others,
        tuple(tree.directories),
    )


def _lengths(tree: Tree, paths: Iterable[str]) -> Lengths:
    """Return the lengths of some files of a tree, and of all that a checkpoint needs."""
    some_of_them = Lengths.of({path: tree.files[path].length for path in paths})
    columns = [*tree.needed.values(), some_of_them]
    return Lengths(
        concatenated([each.paths for each in columns]),
        np.concatenate([each.bytes for each in columns]),
    )


def _needed_by_others(files: Lengths, replica: Replica, state: State) -> list[str]:
    """Return those of these files that checkpoints of other programs reference."""
    theirs = needed.needed(replica, state, [each.name for each in state.ours])
    spared: list[str] = chosen(files.paths, rows_of(files.paths, theirs) >= 0).to_pylist()
    return spared


def _is_kept(path: str) -> bool:
    """Return whether a file goes by itself at the end: the marker and the lease."""
    directory, _, name = path.rpartition("/")
    return directory == OWN and name in (MARKER, lease.NAME)


def _is_own(path: str, state: State) -> bool:
    """Return whether a file is one of those that cpreplicate writes in `.cpreplicate/`."""
    if path.startswith(tuple(f"{each}/" for each in _WORKED_IN)):
        return True
    directory, _, name = path.rpartition("/")
    if directory != OWN:
        return False
    if name in _NAMED or name in journal.names(state.own) or name.startswith(f"{lease.NAME}-"):
        return True
    suffix = next((each for each in _OF_CHECKPOINTS if name.endswith(each)), None)
    checkpoint = checkpoint_of(name.removesuffix(suffix)) if suffix else None
    return checkpoint is not None and checkpoint not in state.adopted


def _report(replica: Replica, state: State, content: _Content) -> Removal:
    names = tuple(each.name for each in state.ours)
    size = int(content.files.bytes.sum()) + sum(each.metadata.length for each in state.ours)
    return Removal(replica.root, names, len(content.files) + len(names), size, content.others)


def _refuse_too_many(report: Removal, request: RemovalRequest) -> None:
    cap = request.max_delete
    if cap is not None and not cap.allows(report.files, report.files):
        refused = too_many(report.files, report.files, cap)
        raise TooManyDeletes(refused, replace(report, refused=refused))


def too_many(files: int, of_files: int, cap: Cap) -> str:
    """Return the message of a refusal to remove so many files."""
    return (
        f"{files} of {counted(of_files, 'file')} would be removed, but --max-delete allows {cap}."
        " Nothing was removed. If that is right, give a higher --max-delete"
    )


def _remove(change: Change, content: _Content, request: RemovalRequest, report: Removal) -> str:
    """Remove a replica but for its directory and the lease. Return the name of the runner."""
    replica, names = change.replica, report.checkpoints
    change.abort_uploads()
    needed.refuse_later(replica, change.state, names)
    for name in reversed(names):  # what is there last is the newest
        publication.withdraw(replica, name)
    files = [*content.files, *content.unfinished]
    with change.running(choose_runner(request.execution, len(files), 0, request.sides)):
        runner = change.runner.name
        if files:
            amount = sizes.size(report.bytes)
            change.notify(f"removing {counted(report.files, 'file')}, {amount} (runner: {runner})")
        _refuse_failed(replica, change.delete(files))
    for directory in reversed(content.directories):
        if directory.partition("/")[0] != OWN:
            replica.storage.rmdir(replica.uri_of(directory))
    _remove_records(change, content)
    return runner


def _remove_records(change: Change, content: _Content) -> None:
    """Remove what is in `.cpreplicate/`, the name of the job and then the marker last.

    Where the storage can fence that, what another run writes stays even if this one is held up.
    """
    replica = change.replica
    change.lease.keep_no_room()
    first = [path for path in content.own if path.startswith(tuple(_WORKED_IN))]
    _refuse_failed(replica, change.delete(first))
    for directory in reversed(content.directories):
        if directory.startswith(f"{OWN}/"):
            replica.storage.rmdir(replica.uri_of(directory))
    last = [path for name in _NAMED if (path := f"{OWN}/{name}") in content.own]
    for path in [*(each for each in content.own if each not in (*first, *last)), *last]:
        if change.lease.token.token not in path:
            replica.withdraw(path)
    replica.withdraw(f"{OWN}/{MARKER}")


def _refuse_failed(replica: HeldReplica, failed: Sequence[str]) -> None:
    if failed:
        replica.lease.check()  # a lease that is lost is the better reason
        raise CopyFailed(
            f"{counted(len(failed), 'file')} of {replica.root} could not be removed. Its"
            " checkpoints are withdrawn, and what lists its files was left. Run again to resume."
            f" {some(failed)}"
        )


def _remove_directories(replica: Replica) -> None:
    """Remove the directory of a replica unless something is left in it."""
    storage = replica.side.storage(replica.root, replica.root)
    if storage.rmdir(replica.uri_of(OWN)) or not storage.has_directories:
        storage.rmdir(replica.root)
