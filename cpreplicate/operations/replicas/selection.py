"""Select a replica below a TARGET_ROOT by the name of its job, or by the beginning of its id."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from cpreplicate.core import uri
from cpreplicate.core.lag import Newest
from cpreplicate.core.placement import OWN
from cpreplicate.errors import NotThere, Refused, UsageError
from cpreplicate.operations.change.change import some
from cpreplicate.operations.replicas.lives import (
    Life,
    Named,
    life_of,
    name_of,
    newest_at_sources,
    read_names,
)
from cpreplicate.protocol.job_record import recorded_name
from cpreplicate.protocol.marker import is_replica
from cpreplicate.protocol.replica import Replica
from cpreplicate.storage import Side
from cpreplicate.storage.reading import is_file

_SHOWN = 5  # names in a message
_FEWEST = 4  # characters of an id that select a job: one or two are those of a few jobs by chance
_looks_like_id = re.compile(r"[0-9a-fA-F]{4,}").fullmatch


class Selected(NamedTuple):
    """The replica that was selected, and why this one.

    `others` are the replicas of the same name that were not. `warnings` name what could not be
    read: it may have the same name.
    """

    replica: str
    why: str
    others: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def select(
    target_root: str, side: Side, job: str, source: Side | None = None, option: str = "--job"
) -> Selected:
    """Return the replica of the job of this name, or whose id is `job` or begins with it.

    The whole URI of a replica selects that. Messages name the `option` that gave `job`.

    Of several replicas of a name, whose job restarted, the one with the newest checkpoint is
    selected. By the side `source`, their sources are asked then whether the others ran on. Costs
    one listing, and a small read for each replica. Raises `NotThere` if there is none, `UsageError`
    if `job` may be several ids, or an id and a name, and `Refused` if jobs of one name are not one
    after the other.
    """
    places = _places(target_root, side, option)
    whole = next((place for place in places if job in (place, uri.local_path(place))), None)
    if whole is not None and is_replica(Replica(whole, side)):
        return Selected(whole, "its URI is given")
    exact = uri.join(target_root, job)
    if exact in places and is_replica(Replica(exact, side)):
        _refuse_same_id(exact, places, side, option)
        return Selected(exact, f"the id is {job}")
    known = read_names(places, side)
    name = recorded_name(job)  # as it is recorded
    of_name = [each for each in known if each.record is not None and each.record.name == name]
    of_id = [each for each in known if job and each.job.startswith(job)]
    of_id = [each for each in of_id if is_replica(Replica(each.replica, side))]
    warnings = tuple(f"{each.replica}: {each.problem}" for each in known if each.problem)
    if of_id and {each.replica for each in of_id} != {each.replica for each in of_name}:
        return _of_prefix(job, of_id, of_name, option)._replace(warnings=warnings)
    if not of_name:
        raise _none(target_root, job, known)
    seen = (
        newest_at_sources(of_name, side, source) if source is not None and len(of_name) > 1 else {}
    )
    return newest_of_name(of_name, side, seen)._replace(warnings=warnings)


def _refuse_same_id(exact: str, places: Sequence[str], side: Side, option: str) -> None:
    """Raise `UsageError` if the id that is the name of a replica is that of other jobs, too."""
    longer = [place for place in places if place.startswith(f"{exact}-")]
    same = [place for place in longer if is_replica(Replica(place, side))]
    if same:
        raise UsageError(
            f"{option} {uri.name(exact)} is the id of {len(same) + 1} jobs. Nothing was done. Give"
            f" the whole URI of one of their replicas, such as {option} {exact} or {option}"
            f" {same[0]}"
        )


def newest_of_name(
    candidates: Sequence[Named], side: Side, seen: Mapping[str, Newest] | None = None
) -> Selected:
    """Return the replica with the newest checkpoint, of those of jobs of one name.

    `seen` are the newest checkpoints of their sources, by replica, as far as these were seen.
    Raises `Refused` if they are not of one job that restarted: their sources have different roots,
    or two of them completed checkpoints at the same time, be these replicated or not. Costs nothing
    if there is one only.
    """
    name = name_of(candidates[0])
    if len(candidates) == 1:
        return Selected(candidates[0].replica, f"the job {name} has the id {candidates[0].job}")
    lives = [
        life_of(each, side)._replace(at_source=(seen or {}).get(each.replica))
        for each in candidates
    ]
    lives.sort(key=lambda life: life.end)
    _refuse_other_jobs(name, lives)
    *earlier, newest = lives
    others = [str(life) for life in reversed(earlier)]
    return Selected(
        newest.named.replica,
        f"of {len(lives)} replicas of the job {name}, {newest} has the newest checkpoint. The"
        f" others are {some(others)}",
        tuple(life.named.replica for life in reversed(earlier)),
    )


def _refuse_other_jobs(name: str, lives: Sequence[Life]) -> None:
    """Raise unless the jobs of one name, the one with the newest checkpoint last, are one job."""
    newest = lives[-1]
    advice = f"Nothing was done. Give the id of one: {some([str(life) for life in lives[::-1]])}"
    if newest.checkpoint is None:
        raise NotThere(f"no replica of the job {name} holds a committed checkpoint. {advice}")
    if any(not life.roots & newest.roots for life in lives):
        raise Refused(f"{name} is the name of jobs of different sources. {advice}")
    began = [life for life in lives if life.checkpoint is not None]
    began.sort(key=lambda life: life.begin)
    latest = began[0]
    for other in began[1:]:
        if other.begin <= latest.last:
            raise Refused(
                f"{name} is the name of jobs that ran at the same time, {latest.named.job} and"
                f" {other.named.job}. {advice}"
            )
        latest = max(latest, other, key=lambda life: life.last)


def _places(target_root: str, side: Side, option: str) -> list[str]:
    """Return the directories that may be replicas. Raise if TARGET_ROOT is none, or a replica."""
    storage = side.storage(target_root)
    try:
        children = storage.list(target_root)
    except NotADirectoryError as error:
        raise _is_file(target_root, option) from error
    if not children and is_file(target_root, storage):  # an object store lists nothing
        raise _is_file(target_root, option)
    if any(child.name == OWN for child in children):
        raise UsageError(
            f"{target_root} is a replica, and {option} selects one below a TARGET_ROOT. Give the"
            f" replica without {option}, or the directory above it"
        )
    names = [child.name for child in children if child.is_directory and child.name[:1] != "."]
    if not names:
        raise NotThere(
            f"{target_root} is not there or holds no replica. TARGET_ROOT is the directory that"
            " `sync` was given"
        )
    return [uri.join(target_root, name) for name in sorted(names)]


def _is_file(target_root: str, option: str) -> NotThere:
    return NotThere(f"{target_root} is a file. Give the TARGET_ROOT with {option}")


def _of_prefix(job: str, of_id: Sequence[Named], of_name: Sequence[Named], option: str) -> Selected:
    """Return the only replica whose id begins so. Raise `UsageError` if `job` may mean others."""
    candidates = {each.replica: each for each in (*of_id, *of_name)}
    if of_name:
        raise UsageError(
            f"{option} {job} is the name of a job, and an id begins so, too. Nothing was done. Give"
            f" the whole id of one of them: {_titles(list(candidates.values()))}"
        )
    if len(job) < _FEWEST:
        raise UsageError(
            f"{option} {job}: an id is selected by {_FEWEST} of its characters or more. Nothing was"
            f" done. Give more of it: {_titles(of_id)}"
        )
    if len(of_id) > 1:
        raise UsageError(
            f"{option} {job}: {len(of_id)} ids begin so. Nothing was done. Give more of one of"
            f" them: {_titles(of_id)}"
        )
    return Selected(of_id[0].replica, f"the id {_title(of_id[0])} begins with {job}")


def _none(target_root: str, job: str, known: Sequence[Named]) -> NotThere:
    """Return the error for a name that no replica has, with those that are most like it."""
    names = {each.record.name for each in known if each.record is not None}
    is_id = _looks_like_id(job) is not None
    words = sorted(names | {each.job for each in known if is_id or each.record is None})
    similar = difflib.get_close_matches(job, words, _SHOWN, cutoff=0.0)
    more = f" and {len(words) - len(similar)} more" if len(words) > len(similar) else ""
    unnamed = "" if names else ". No name is recorded there: give the id of a job"
    return NotThere(
        f"no replica below {target_root} is of a job {job!r}. There are"
        f" {', '.join(map(repr, similar))}{more}{unnamed}"
    )


def _titles(candidates: Sequence[Named]) -> str:
    return some([_title(each) for each in candidates])


def _title(named: Named) -> str:
    return named.job if named.record is None else f"{named.job} ({named.record.name})"
