"""Find the files under a replica that no checkpoint needs.

Nothing is changed here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timezone

from cpreplicate.core import uri
from cpreplicate.core.packs import is_written
from cpreplicate.core.path_columns import Texts, chosen, rows_of, texts
from cpreplicate.core.placement import (
    BEFORE_RELOCATE,
    METADATA,
    OWN,
    checkpoint_of,
    is_replica_path,
)
from cpreplicate.core.plan import Action
from cpreplicate.core.sizes import counted, plural
from cpreplicate.core.tables import Lengths
from cpreplicate.errors import MetadataError, Refused, described
from cpreplicate.operations.change.change import they_are
from cpreplicate.operations.upkeep.tree import LAID_OUT, NOT_OURS, Tree, tree_of
from cpreplicate.protocol import (
    fingerprint_record,
    journal,
    json_files,
    lease,
    manifest,
    needed,
    ownership,
    replica_state,
    seal,
)
from cpreplicate.protocol.checkpoint_record import RECORD_SUFFIX
from cpreplicate.protocol.journal import Journal
from cpreplicate.protocol.ledger import Ledger
from cpreplicate.protocol.readiness import nothing_there
from cpreplicate.protocol.replica import Replica
from cpreplicate.protocol.replica_state import State
from cpreplicate.storage import TEMPORARY, FileStatus, Transient
from cpreplicate.storage.base import room_of

TRASH = f"{OWN}/trash"
STAMP = "%Y%m%dT%H%M%SZ"
CONTENTS = "contents.tsv"
OVER = "journal of a run that is over"
STALE_MANIFEST = "manifest of a checkpoint that is not committed"
STALE_RECORD = "record of a checkpoint that is not committed"
STALE_FINGERPRINTS = "fingerprints of a checkpoint that is not committed"
# These list other files as cpreplicate's, so they are removed after them.
LAST = (OVER, STALE_MANIFEST, STALE_RECORD)
_LATE = f"{OWN}/{journal.LATE}"
_PLANNED = "a run that died was about to write it, and nothing proves that it did"
_OTHER_LENGTH = "it has another length than cpreplicate wrote"


@dataclass(frozen=True)
class Found:
    """The orphans of a replica, and what else is under it.

    `files` is how many files it has in all but for `.cpreplicate/`, and `bytes` what all of them
    take. `left` is path to why it is not touched. `directories`
    hold only orphans.
    """

    checkpoints: tuple[str, ...]
    files: int
    orphans: tuple[Action, ...]
    trash: tuple[Action, ...]
    left: Mapping[str, str]
    directories: tuple[str, ...]
    bytes: int = 0


def find(replica: Replica, state: State, before: float, with_trash: bool) -> Found:
    """Return the orphans that were last modified `before`, in seconds since the epoch.

    Each directory is listed once. Raises `Refused` if it is not certain what the committed
    checkpoints need, or that nobody else writes here.
    """
    names = (*(checkpoint.name for checkpoint in state.ours), *state.adopted)
    tree = tree_of(replica, _needed(replica, state))
    ledger = Ledger(replica, state)
    written = ledger.written
    refuse_newer(replica, state, _unrecorded(tree, written), tree)
    unproven = _unproven(tree, ledger)
    tree.left.update(unproven)
    proven = {path: each for path, each in tree.files.items() if path not in unproven}
    orphans = _orphans(
        replace(tree, files=proven), lambda path: why_orphan(path, names, written), before
    )
    gone = {orphan.target for orphan in orphans}
    late = ledger.late_packs
    if late and any(is_written(path, late) for path in tree.files.keys() - gone):
        gone.discard(_LATE)  # only that record proves whose these packs are
        orphans = [orphan for orphan in orphans if orphan.target in gone]
    recorded = set(ledger.left_over(names).to_pylist())
    unneeded = {path for path in tree.files if is_written(path, recorded)}
    left = (
        unneeded.union(*_of_these(recorded, [each.paths for each in tree.needed.values()])) - gone
    )
    orphans += _journals_that_are_over(ledger.journals, left, tree, before)
    for path in tree.files:
        is_ours = is_written(path, written) or _is_known(path, names)
        if not is_ours and path not in tree.left and path not in gone:
            tree.left[path] = NOT_OURS
    trash = tuple(_old_trash(tree.files, before)) if with_trash else ()
    files_of_replica = sum(path.partition("/")[0] != OWN for path in tree.files)
    files_of_replica += sum(map(len, tree.needed.values()))
    emptied = tuple(_emptied(tree, {orphan.target for orphan in orphans}, trash))
    return Found(
        names, files_of_replica, tuple(orphans), trash, tree.left, emptied, _bytes_of(tree)
    )


def _bytes_of(tree: Tree) -> int:
    listed = sum(status.length for status in tree.files.values())
    return listed + sum(int(each.bytes.sum()) for each in tree.needed.values())


def has_traces(replica: Replica, before: float) -> bool:
    """Return whether `.cpreplicate/` shows that runs left files that a sweep may remove.

    These are journals while no run is at work, of whatever age, since each run writes those anew
    that it finds; and older journals, and records of checkpoints that are not there. Costs the
    listings of that directory, of the replica and of each checkpoint.
    """
    own = replica.own_files()
    journals = set(journal.names(own))
    if journals and lease.NAME not in own:
        return True
    names = tuple(replica.committed_names())
    return any(
        (name in journals or why_orphan(f"{OWN}/{name}", names, ()) is not None)
        and _is_older(f"{OWN}/{name}", status, before)
        for name, status in own.items()
    )


def _unproven(tree: Tree, ledger: Ledger) -> dict[str, str]:
    """Return the files that may be another program's although their paths are recorded, and why.

    A run that died may have planned to write there, or another program has replaced the file.
    """
    written = ledger.written
    recorded = Lengths.of(
        {
            path: status.length
            for path, status in tree.files.items()
            if is_replica_path(path) and is_written(path, written)
        }
    )
    return why_unproven(recorded, ledger)


def why_unproven(recorded: Lengths, ledger: Ledger) -> dict[str, str]:
    """Return those of some recorded files of which no record proves who wrote them, and why."""
    unproven = chosen(recorded.paths, ~ledger.are_proven(recorded))
    planned = set(ledger.planned_only(unproven).to_pylist())
    return {path: _PLANNED if path in planned else _OTHER_LENGTH for path in unproven.to_pylist()}


def _of_these(paths: Collection[str], columns: Iterable[Texts]) -> Iterator[list[str]]:
    """Yield those of some paths that are in a column, for each column."""
    if paths:
        asked = texts(paths)
        for column in columns:
            yield chosen(asked, rows_of(asked, column) >= 0).to_pylist()


def examine(replica: Replica, former: State | None = None) -> State:
    """Return the state of a replica that upkeep may change; `former` is as of `read`.

    Raises `Refused` if others keep checkpoints there, or a `_metadata` cannot be read. Raises
    `NotThere` if nothing is there, `Transient` if the storage cannot be reached.
    """
    state = read(replica, former)
    if state.is_empty:
        raise nothing_there(replica)
    ownership.refuse_foreign(state, replica)
    return state


def read(replica: Replica, former: State | None = None) -> State:
    """Return the state of a directory. Raise `Refused` if a `_metadata` cannot be read.

    What is the same as at a `former` examination is not read again: see `replica_state.examine`.
    """
    try:
        return replica_state.examine(replica, former)
    except Transient:
        raise
    except (OSError, MetadataError) as error:
        raise Refused(
            f"the checkpoints of {replica.root} cannot be read. Nothing was changed."
            f" {described(error)}"
        ) from error


def examine_unsealed(replica: Replica) -> State:
    """Return the state as `examine` does. Raise `Sealed` if the replica was promoted."""
    seal.refuse_sealed(replica)
    return examine(replica)


def refuse_newer_files(replica: Replica, state: State) -> None:
    """Raise `Refused` if there are unrecorded files that are newer than the newest checkpoint."""
    tree, unrecorded = _unrecorded_in(replica, state)
    refuse_newer(replica, state, unrecorded, tree)


def refuse_unrecorded_files(replica: Replica, state: State) -> None:
    """Raise `Refused` if there is any file of `strays`."""
    if found := strays(replica, state):
        raise Refused(_of_others(replica, found))


def strays(replica: Replica, state: State, ledger: Ledger | None = None) -> list[str]:
    """Return the files that cpreplicate did not record: a job may write its checkpoints here.

    In an adopted directory, these are only files newer than the newest checkpoint. What a
    checkpoint references that `--adopt` accepted is not among them.
    """
    tree, unrecorded = _unrecorded_in(replica, state, ledger)
    if state.marker is not None and state.marker.adopted:
        return _newer(state, unrecorded, tree)
    return unrecorded


def _unrecorded_in(
    replica: Replica, state: State, ledger: Ledger | None = None
) -> tuple[Tree, list[str]]:
    tree = tree_of(replica, needed.needed(replica, state))
    return tree, _unrecorded(tree, (ledger or Ledger(replica, state)).written)


def _unrecorded(tree: Tree, written: Container[str]) -> list[str]:
    """Return the files of checkpoints that are neither needed nor recorded as written."""
    return [
        path
        for path in tree.files
        if not is_written(path, written) and is_replica_path(path) and not is_unfinished(path)
    ]


def refuse_newer(replica: Replica, state: State, unrecorded: list[str], tree: Tree) -> None:
    """Raise `Refused` if one of the unrecorded files is newer than the newest checkpoint."""
    if newer := _newer(state, unrecorded, tree):
        raise Refused(_of_others(replica, newer))


def _newer(state: State, unrecorded: list[str], tree: Tree) -> list[str]:
    """Return the unrecorded files that are newer than the newest checkpoint, or may be."""
    names = [checkpoint.name for checkpoint in state.committed]
    published = [tree.files.get(f"{name}/{METADATA}") for name in names]
    since = max((status.modified for status in published if status is not None), default=0.0)
    times = {path: tree.files[path].dated for path in unrecorded}
    return [path for path, time in times.items() if time is None or time > since]


def _of_others(replica: Replica, paths: list[str]) -> str:
    return (
        f"{replica.root} holds {counted(len(paths), 'file')} that cpreplicate did not write: a job"
        " may write its checkpoints here. Nothing was changed. If no job uses the directory, remove"
        f" {plural(len(paths), 'it', 'them')}. {they_are(paths)}"
    )


def _orphans(tree: Tree, why: Callable[[str], str | None], before: float) -> list[Action]:
    """Return the old files that are not needed. Add younger ones to `tree.left`, with a reason."""
    orphans = []
    for path, status in tree.files.items():
        reason = why(path)
        if reason is not None and _is_older(path, status, before):
            orphans.append(Action("delete", None, path, status.length, reason))
        elif reason is not None and path != _LATE:
            tree.left[path] = "younger than --min-age" if status.dated else "its age is not known"
    return orphans


def _journals_that_are_over(
    journals: Iterable[Journal], left: set[str], tree: Tree, before: float
) -> list[Action]:
    """Return the old journals that name no file of those `left`.

    `left` are written files that no manifest names and that this sweep does not remove.
    """
    over = []
    for part in journals:
        path, status = f"{OWN}/{part.name}", tree.files.get(f"{OWN}/{part.name}")
        is_over = not any(is_written(path, part.paths) for path in left)
        if status is not None and is_over and _is_older(path, status, before):
            over.append(Action("delete", None, path, status.length, OVER))
    return over


def _needed(replica: Replica, state: State) -> Texts:
    """Return what the checkpoints reference. Raise `Refused` if that is not certain."""
    for committed in state.ours:
        if committed.outside:
            raise Refused(
                f"{replica.uri_of(committed.name)} references"
                f" {counted(len(committed.outside), 'file')} outside the replica, such as"
                f" {committed.outside[0]}: it was moved or is damaged. Nothing was removed."
                " `cpreplicate relocate` rewrites the paths of a replica that was moved"
            )
    paths = needed.needed(replica, state)
    if not len(paths):
        raise Refused(
            f"{replica.root}: no committed checkpoint references any file, so all would be orphans."
            " Nothing was removed. If the replica is of no use, run `cpreplicate forget`"
        )
    return paths


def is_unfinished(path: str) -> bool:
    """Return whether a file is a temporary one, which the next run that meets it removes."""
    return uri.name(path).startswith(TEMPORARY)


def why_orphan(path: str, committed: tuple[str, ...], written: Container[str]) -> str | None:
    """Return why an unreferenced file may be removed, or None if no sweep removes it."""
    directory, _, name = path.rpartition("/")
    if is_unfinished(path):
        return "half-written, left by a run that died"
    if directory.startswith(TRASH):
        return None
    if is_replica_path(path):
        return "no committed checkpoint references it" if is_written(path, written) else None
    if directory == BEFORE_RELOCATE:
        return "the way back of a relocate that is done"
    if path == room_of(lease.PATH):
        return None  # later leases use it
    if directory == OWN and name.startswith(f"{lease.NAME}-"):
        return "left of the lease of a run that died"
    if path == _LATE:
        return "of runs that died, whose executors are over"
    if directory == OWN and _is_uncommitted(name, manifest.SUFFIX, committed):
        return STALE_MANIFEST
    if directory == OWN and _is_uncommitted(name, RECORD_SUFFIX, committed):
        return STALE_RECORD
    if directory == OWN and _is_uncommitted(name, fingerprint_record.SUFFIX, committed):
        return STALE_FINGERPRINTS
    return None


def _is_uncommitted(name: str, suffix: str, committed: tuple[str, ...]) -> bool:
    checkpoint = checkpoint_of(name.removesuffix(suffix))
    return name.endswith(suffix) and checkpoint is not None and checkpoint not in committed


def _is_known(path: str, committed: tuple[str, ...]) -> bool:
    directory, _, name = path.rpartition("/")
    return path.partition("/")[0] == OWN or (directory in committed and name == METADATA)


def _is_older(path: str, status: FileStatus, before: float) -> bool:
    """Return whether a file is old enough to be removed.

    A file of a lease, which may be this run's own, must be older than any lease can be, and the
    record of executors that may go on older than it counts.
    """
    if path.startswith(f"{OWN}/{lease.NAME}-"):
        before = min(before, json_files.now() - 10 * lease.SECONDS)
    if path == _LATE:
        before = min(before, json_files.now() - journal.LATE_SECONDS)
    return 0 < status.modified < before


def _old_trash(files: Mapping[str, FileStatus], before: float) -> Iterator[Action]:
    for path, status in files.items():
        stamp = path.removeprefix(f"{TRASH}/").partition("/")[0]
        if path.startswith(f"{TRASH}/") and _time_of(stamp) < before:
            yield Action("delete", None, path, status.length, f"in the trash since {stamp}")


def _time_of(stamp: str) -> float:
    try:
        return datetime.strptime(stamp, STAMP).replace(tzinfo=timezone.utc).timestamp()
    except ValueError:
        return float("inf")


def _emptied(tree: Tree, orphans: set[str], trash: tuple[Action, ...]) -> Iterator[str]:
    """Yield the directories that hold only what is removed, the deepest first.

    Those that every replica has stay.
    """
    gone = orphans.union(action.target for action in trash)
    filled = {"", *LAID_OUT, OWN}
    for path in (*tree.files, *tree.left, *tree.needed):
        directory = path.rpartition("/")[0] if path not in gone else ""
        while directory not in filled:
            filled.add(directory)
            directory = directory.rpartition("/")[0]
    yield from (directory for directory in reversed(tree.directories) if directory not in filled)
