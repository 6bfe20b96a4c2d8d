"""The files and directories under a replica, as they are listed. Nothing is changed here."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from cpreplicate.core.path_columns import Texts, chosen, prefixed, rows_of, texts_among
from cpreplicate.core.placement import CHECKPOINT_NAME, DEEPEST, FOREIGN, OWN, PACKED, REBASED
from cpreplicate.core.tables import Lengths
from cpreplicate.errors import Refused
from cpreplicate.operations.change.change import refuse_links
from cpreplicate.protocol.replica import Replica
from cpreplicate.storage import FileStatus
from cpreplicate.storage.statuses import Listing

LAID_OUT = ("shared", "taskowned", FOREIGN, PACKED, REBASED)
NOT_OURS = "not recorded as written by cpreplicate"
_IN_TRASH = 3  # directories around what was moved to the trash
_SHOWN = 80  # characters of a path that has thousands


@dataclass
class Tree:
    """The files and directories under a replica, by their path in it. Links are neither.

    `files` are those that no committed checkpoint needs, and `needed` the others, which may be
    many: columns for each directory that has some. `left` is path to why it is not touched.
    """

    files: dict[str, FileStatus] = field(default_factory=dict)
    needed: dict[str, Lengths] = field(default_factory=dict)
    directories: list[str] = field(default_factory=list)
    left: dict[str, str] = field(default_factory=dict)


def tree_of(replica: Replica, needed: Texts) -> Tree:
    """Return what is under a replica. Each directory is listed once.

    `needed` are the paths of which only the lengths are kept. Raises `Refused` if a directory is
    reached through a link.
    """
    tree = Tree()
    waiting = [""]
    while waiting:
        waiting += _look_into(replica, waiting.pop(), tree, needed)
    refuse_links(tree.directories, replica)
    return tree


def _look_into(replica: Replica, directory: str, tree: Tree, needed: Texts) -> list[str]:
    """Add what one directory holds to `tree`. Return the directories in it to look into.

    Raises `Refused` if it is nested too deeply.
    """
    if directory.count("/") > DEEPEST + _IN_TRASH:
        raise Refused(
            f"{replica.uri_of(directory[:_SHOWN])}… is nested more than {DEEPEST} directories deep:"
            " neither Flink nor cpreplicate makes that. It was not searched. Find out who made it,"
            " and remove it"
        )
    below = []
    prefix = f"{directory}/" if directory else ""
    listed = replica.storage.listing(replica.uri_of(directory) if directory else replica.root)
    _add_files(listed, prefix, tree, needed)
    below += _stand_for_directories(replica, tree)
    for child in listed.others:
        path = f"{prefix}{child.name}"
        if child.is_link:
            tree.left[path] = "a symbolic link"
        elif not child.is_directory:
            tree.files[path] = child
        elif _is_laid_out(path) or directory:
            below.append(path)
        else:
            tree.left[path] = NOT_OURS
    tree.directories += below
    return below


def _is_laid_out(path: str) -> bool:
    return path in (*LAID_OUT, OWN) or CHECKPOINT_NAME.fullmatch(path) is not None


def _stand_for_directories(replica: Replica, tree: Tree) -> list[str]:
    """Take the empty objects that stand for directories out of the files, and return them."""
    if replica.storage.has_directories:
        return []
    found = [path for path, each in tree.files.items() if not each.length and _is_laid_out(path)]
    for path in found:
        del tree.files[path]
    return found


def _add_files(listed: Listing, prefix: str, tree: Tree, needed: Texts) -> None:
    names, is_text = texts_among(listed.names)
    paths = prefixed(prefix, names)
    is_needed = np.zeros(len(is_text), np.bool_)
    is_needed[is_text] = rows_of(paths, needed) >= 0
    if is_needed.any():
        lengths = np.array(listed.lengths, np.int64)[is_needed]
        tree.needed[prefix] = Lengths(chosen(paths, is_needed[is_text]), lengths)
    for row in np.flatnonzero(~is_needed).tolist():
        status = listed.status(row)
        tree.files[f"{prefix}{status.name}"] = status
