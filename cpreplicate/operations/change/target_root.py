"""Check what TARGET_ROOT names, the directory of replicas, and what REPLICA names, one of them."""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Sequence
from contextlib import suppress
from itertools import islice

from cpreplicate.core import uri
from cpreplicate.core.placement import CHECKPOINT_NAME, JOB_ID, OWN
from cpreplicate.errors import NotThere, Refused, UsageError
from cpreplicate.protocol.marker import MARKER, Marker
from cpreplicate.protocol.replica_name import word_of
from cpreplicate.protocol.source import highest_first
from cpreplicate.storage import FileStatus, Side
from cpreplicate.storage.reading import Reading, is_file, is_stored

_REPLICA = "REPLICA is <target root>/<job-id>"
_LOOKED_AT = 200  # directories below a path that may be a TARGET_ROOT
_SHOWN = 5  # names in a message


def refuse_replica_as_root(target_root: str, job: str, storage: Reading) -> None:
    """Raise `UsageError` if TARGET_ROOT is a replica, is in one, or is a job's directory.

    The new replica would be nested in it. Costs a stat of each directory above TARGET_ROOT, and one
    listing more if TARGET_ROOT has the name of the job. On an object store, only TARGET_ROOT itself
    is looked at: rights may begin there.
    """
    directories = islice(uri.upwards(target_root), None if storage.has_directories else 1)
    replica = next((path for path in directories if _is_replica(path, storage)), None)
    if replica is not None:
        problem, instead = f"a replica, or in one: {replica} holds {OWN}", uri.parent(replica)
    elif uri.name(target_root) == job and _holds_checkpoints(target_root, storage):
        problem = "the directory of this job: it holds checkpoints"
        instead = "a directory that only cpreplicate writes"
    else:
        return
    raise UsageError(
        f"TARGET_ROOT {target_root} is {problem}. The replica is created inside TARGET_ROOT, in"
        f" {job}/. Give {instead} instead"
    )


def refuse_no_replica(root: str, side: Side) -> None:
    """Raise if REPLICA names something else, with what the command needs instead.

    Raises `NotThere` for a TARGET_ROOT, a path in a replica, a file, and the name of a replica with
    a mistake, and `Refused` for a directory that another program keeps. A directory that is empty,
    or not there and like none, passes, and one with symbolic links: the checks of the command
    report these. Costs one stat for a replica.
    """
    storage = side.storage(root)
    if _is_replica(root, storage):
        return
    status = storage.stat(root)
    if status is not None and not status.is_directory:
        raise NotThere(f"{root} is a file. Nothing was done. {_inside(root, storage) or _REPLICA}")
    if (advice := _inside(root, storage)) is not None:
        raise NotThere(f"{root} is not a replica. Nothing was done. {advice}")
    try:
        children = storage.list(root)
    except NotADirectoryError as error:
        raise _below_a_file(root) from error
    if not children and any(is_file(each, storage) for each in islice(uri.upwards(root), 1, 2)):
        raise _below_a_file(root)  # an object store lists nothing
    if any(child.name == OWN for child in children):
        return  # its marker is damaged, lost, or behind a link
    _refuse_target_root(root, children, storage)
    if status is None and not children:
        _refuse_misspelled(root, storage)
    if children:
        raise Refused(
            f"{root} is not a replica of cpreplicate's making: it {_content(children)}. Nothing was"
            f" done. {_REPLICA}. `cpreplicate inspect` shows what a checkpoint of Flink holds"
        )


def _below_a_file(root: str) -> NotThere:
    return NotThere(f"{root} is not there: a file is above it. {_REPLICA}")


def inside_replica(path: str, side: Side) -> str | None:
    """Return which replica to give instead of a path in it, or None if it is in none."""
    return _inside(path, side.storage(path))


def _inside(path: str, storage: Reading) -> str | None:
    above = islice(uri.upwards(path), 1, None)
    replica = None
    with suppress(PermissionError):  # rights may begin below
        replica = next((each for each in above if _is_replica(each, storage)), None)
    return None if replica is None else f"It is in the replica {replica}: give that"


def _refuse_target_root(root: str, children: Sequence[FileStatus], storage: Reading) -> None:
    """Raise `NotThere` if there are replicas in a directory, and name them."""
    names = sorted(
        child.name
        for child in children[:_LOOKED_AT]
        if child.is_directory and _is_replica(uri.join(root, child.name), storage)
    )
    if names:
        raise NotThere(
            f"{root} holds replicas and is none itself. Nothing was done. Give one of them, such as"
            f" {uri.join(root, names[0])}. They are {_some(names)}"
        )


def _refuse_misspelled(root: str, storage: Reading) -> None:
    """Raise `NotThere` for what is not there, and name the replicas beside it that are like it."""
    name, above = uri.name(root), uri.parent(root)
    children: Sequence[FileStatus] = ()
    with suppress(OSError):  # the command reports that `root` is not there
        children = storage.list(above)
    names = sorted(child.name for child in children if child.is_directory)
    near = [each for each in names if name and each.startswith(name)]
    near += difflib.get_close_matches(name, names, _SHOWN)
    found = [
        each for each in dict.fromkeys(near[:_SHOWN]) if _is_replica(f"{above}/{each}", storage)
    ]
    if found:
        raise NotThere(
            f"{root} is not there or is empty. Nothing was done. {above} holds the replica"
            f"{'s' if len(found) > 1 else ''} {', '.join(found)}: correct the name"
        )


def _content(children: Sequence[FileStatus]) -> str:
    """Return what a directory holds that another program keeps, most likely Flink."""
    names = [child.name for child in children if child.is_directory]
    if checkpoints := highest_first(names):
        return f"holds {_some(checkpoints)}, most likely of a Flink job that writes here"
    if jobs := sorted(filter(JOB_ID.fullmatch, names)):
        return f"holds directories of jobs, {_some(jobs)}, and none of them is a replica"
    return f"holds {_some(sorted(child.name for child in children))}"


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{', '.join(names[:_SHOWN])}{more}"


def _is_replica(directory: str, storage: Reading) -> bool:
    return is_stored(uri.join(directory, f"{OWN}/{MARKER}"), storage)


def _holds_checkpoints(directory: str, storage: Reading) -> bool:
    return any(CHECKPOINT_NAME.fullmatch(child.name) for child in storage.list(directory))


def sync_of_savepoint(
    replica_root: str, savepoint: str, marker: Marker | None, *options: str
) -> str:
    """Return the command that syncs a savepoint again of which a replica holds the point.

    It names the job, unless the replica is that of the savepoint alone.
    """
    is_alone = marker is not None and marker.sources[-1].given == savepoint
    job = [] if is_alone else ["--job", word_of(replica_root)]
    places = (savepoint, uri.parent(replica_root))
    return shlex.join(["cpreplicate", "sync", *options, *places, *job])
