"""What lies under a replica and what of it no committed checkpoint needs. Nothing is changed here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone

from cpreplicate import lease, notes
from cpreplicate.deleting import refuse_links
from cpreplicate.errors import CpreplicateError, Refused
from cpreplicate.placement import BEFORE_RELOCATE, CHECKPOINT_NAME, FOREIGN, METADATA, OWN, is_replica_path
from cpreplicate.plan import Action
from cpreplicate.replica import Replica
from cpreplicate.storage import TEMPORARY, FileStatus

TRASH = f"{OWN}/trash"
STAMP = "%Y%m%dT%H%M%SZ"
CONTENTS = "contents.tsv"
_LAID_OUT = ("shared", "taskowned", FOREIGN)


@dataclass(frozen=True)
class Found:
    """`files` lie under the replica in all; `left` is path to why it is not touched; `directories` hold only orphans."""

    checkpoints: tuple[str, ...]
    files: int
    orphans: tuple[Action, ...]
    trash: tuple[Action, ...]
    left: Mapping[str, str]
    directories: tuple[str, ...]


@dataclass
class _Tree:
    """The files and directories under a replica, by their path in it; links are neither."""

    files: dict[str, FileStatus] = field(default_factory=dict)
    directories: list[str] = field(default_factory=list)
    left: dict[str, str] = field(default_factory=dict)


def find(replica: Replica, committed: Iterable[str], before: float, with_trash: bool) -> Found:
    """The orphans last modified `before`, in seconds since the epoch. Each directory is listed once.

    Raises `Refused` where what the committed checkpoints need cannot be told for sure.
    """
    names = tuple(committed)
    needed = _needed(replica, names)
    tree = _Tree()
    _walk(replica, "", tree)
    refuse_links(tree.directories, replica)
    orphans = []
    for path, status in tree.files.items():
        reason = None if path in needed else _why_orphan(path, names)
        if reason is not None and _is_older(path, status, before):
            orphans.append(Action("delete", None, path, status.length, reason))
        elif reason is not None:
            tree.left[path] = "younger than --min-age" if status.modified else "its age is not known"
        elif path not in needed and not _is_known(path, names):
            tree.left[path] = "not of cpreplicate's making"
    trash = tuple(_old_trash(tree.files, before)) if with_trash else ()
    held = sum(path.partition("/")[0] != OWN for path in tree.files)
    return Found(names, held, tuple(orphans), trash, tree.left, tuple(_emptied(tree, {each.target for each in orphans}, trash)))


def _needed(replica: Replica, names: tuple[str, ...]) -> set[str]:
    needed: set[str] = set()
    for name in names:
        try:
            held = replica.read(name)
        except (OSError, CpreplicateError) as error:
            raise Refused(f"what {replica.at(name)} needs cannot be read, so nothing was removed: {error}") from error
        if held.outside:
            raise Refused(
                f"{replica.at(name)} references {len(held.outside)} files outside the replica, such as {held.outside[0]}: it"
                " was moved or is damaged, so nothing was removed. `cpreplicate relocate` mends a replica that was moved"
            )
        needed.update(held.files)
    if not needed:
        raise Refused(f"{replica.root}: no committed checkpoint references any file, so all would be orphans; nothing was"
                      " removed. Delete the replica by hand if it is of no use")  # fmt: skip
    return needed


def _walk(replica: Replica, directory: str, tree: _Tree) -> None:
    for child in replica.storage.list(replica.at(directory) if directory else replica.root):
        path = f"{directory}/{child.name}" if directory else child.name
        if child.is_link:
            tree.left[path] = "a symbolic link"
        elif not child.is_directory:
            tree.files[path] = child
        elif path in (*_LAID_OUT, OWN) or CHECKPOINT_NAME.fullmatch(path) or directory:
            tree.directories.append(path)
            _walk(replica, path, tree)
        else:
            tree.left[path] = "not of cpreplicate's making"


def _why_orphan(path: str, committed: tuple[str, ...]) -> str | None:
    """Why a file that no committed checkpoint references may go; None for what no sweep removes."""
    directory, _, name = path.rpartition("/")
    if directory.startswith(TRASH):
        return None
    if name.startswith(TEMPORARY):
        return "half-written, left by a run that died"
    if is_replica_path(path):
        return "no committed checkpoint references it"
    if directory == BEFORE_RELOCATE:
        return "the way back of a relocate that is done"
    if directory == OWN and name.startswith(f"{lease.NAME}-"):
        return "left of the lease of a run that died"
    if directory == OWN and name.endswith(".parquet") and name.removesuffix(".parquet") not in committed:
        return "manifest of a checkpoint that is not committed"
    return None


def _is_known(path: str, committed: tuple[str, ...]) -> bool:
    directory, _, name = path.rpartition("/")
    return path.partition("/")[0] == OWN or (directory in committed and name == METADATA)


def _is_older(path: str, status: FileStatus, before: float) -> bool:
    """Old enough to go; what belongs to a lease, which may be this run's own, only when no lease lives so long."""
    if path.startswith(f"{OWN}/{lease.NAME}-"):
        before = min(before, notes.now() - 10 * lease.SECONDS)
    return 0 < status.modified < before


def _old_trash(files: Mapping[str, FileStatus], before: float) -> Iterator[Action]:
    for path, status in files.items():
        stamp = path.removeprefix(f"{TRASH}/").partition("/")[0]
        if path.startswith(f"{TRASH}/") and _moved_at(stamp) < before:
            yield Action("delete", None, path, status.length, f"in the trash since {stamp}")


def _moved_at(stamp: str) -> float:
    try:
        return datetime.strptime(stamp, STAMP).replace(tzinfo=timezone.utc).timestamp()
    except ValueError:
        return float("inf")


def _emptied(tree: _Tree, orphans: set[str], trash: tuple[Action, ...]) -> Iterator[str]:
    """Directories that hold nothing but what is removed, the deepest first; those that every replica has stay."""
    gone = orphans.union(each.target for each in trash)
    filled = {"", *_LAID_OUT, OWN}
    for path in (*tree.files, *tree.left):
        directory = path.rpartition("/")[0] if path not in gone else ""
        while directory not in filled:
            filled.add(directory)
            directory = directory.rpartition("/")[0]
    yield from (directory for directory in reversed(tree.directories) if directory not in filled)
