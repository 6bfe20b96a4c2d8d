"""The source as a sync reads it, and the place of its replica.

Nothing is changed here.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TypeVar

from cpreplicate.core import uri
from cpreplicate.core.closure import Closure, FileTable, closure
from cpreplicate.core.memory import return_after
from cpreplicate.core.path_columns import Texts, chosen, contain
from cpreplicate.core.placement import CHECKPOINT_NAME, Placement, job_root
from cpreplicate.core.sizes import counted
from cpreplicate.errors import CpreplicateError, NotThere, Refused, SourceMovedOn, described
from cpreplicate.operations.sync.place import likely_root, named_source, replica_root
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.operations.sync.source import incomplete
from cpreplicate.operations.sync.source.incomplete import Search
from cpreplicate.operations.sync.source.savepoint import OwnJob, has_replicas, job_of_savepoint
from cpreplicate.protocol import json_files, ownership, replica_state, same_place
from cpreplicate.protocol.marker import Marker, SourceName, ask_marker, read_marker, source_name
from cpreplicate.protocol.replica import Replica
from cpreplicate.protocol.replica_name import Named, find_replica, is_distinctive, namesake, word_of
from cpreplicate.protocol.savepoints import LastSavepoint, newest_savepoint
from cpreplicate.protocol.source import (
    MetadataFile,
    Source,
    ask_newest,
    ask_source,
    find,
    is_named,
    newest,
    read_metadata,
    read_newest,
)
from cpreplicate.storage import Side, Sides

T = TypeVar("T")
MOST_GONE = 8  # checkpoints in a row that are gone before they are read


@dataclass(frozen=True)
class SourceState:
    """What a request names, as it was read: a checkpoint, its closure, and where that is placed.

    `name` is that of the source's root, and `own_job` the job of a savepoint that has a replica:
    then it is that of this job. `marker` is set if the source is a replica itself. `needed` are the
    files of the closure by their path in the replica.
    """

    request: SyncRequest
    source: Source
    name: SourceName
    marker: Marker | None
    file: MetadataFile
    closure: Closure
    placement: Placement
    needed: FileTable
    own_job: OwnJob | None = None


def read_source(request: SyncRequest, known: Source | None = None) -> SourceState:
    """Return the state of the source: find the checkpoint, read it, and place its closure.

    `known` is a checkpoint of it that was found already. Where the source is followed, one whose
    `_metadata` is cut short gives way to the one before. Raises `MetadataError`, `Refused` and as
    `of_newest`.
    """
    if known is not None:
        return _read(request, known, is_known=True)
    return of_newest(request, lambda source_state: source_state, asks_target=False)


def of_newest(request: SyncRequest, use: Callable[[SourceState], T], asks_target: bool = True) -> T:
    """Return what is made of the checkpoint that a request names, before anything is copied.

    Where the source is followed and the checkpoint is gone meanwhile, the newest one is used.
    With `asks_target`, what the replica is asked next is asked meanwhile. Raises `NotThere`, and
    `SourceMovedOn` if two looks in a row find no other checkpoint.
    """
    _ask_next(request, asks_target)
    source = _found(request)
    for _ in range(MOST_GONE):
        try:
            return use(_read(request, source))
        except SourceMovedOn:
            other = _other(request, source.checkpoint) if is_followed(request, source) else None
            if other is None:
                raise
            source = other
    return use(_read(request, source))


def _read(request: SyncRequest, source: Source, is_known: bool = False) -> SourceState:
    side = request.sides.source
    try:
        if is_known or not is_followed(request, source):
            file = read_metadata(source.checkpoint, side)
        else:
            source, file = read_newest(source, side, request.allow_older)
    except NotThere as error:
        raise SourceMovedOn(
            f"{source.checkpoint} was subsumed before it was read. Nothing was done. Run again with"
            " the job's directory to take its newest checkpoint"
        ) from error
    files = closure(file.metadata, request.remaps)
    _refuse_other_roots(files, source, request)
    _refuse_unusable_sources(files, side)
    return_after(len(files.files))
    own_job = job_of_savepoint(request, source, file.metadata)
    root = source.job_root if own_job is None else own_job.source.given
    placement = Placement(source.checkpoint, root, f"chk-{file.metadata.checkpoint_id}")
    return SourceState(
        request=request,
        source=source,
        name=source_name(side, source.root) if own_job is None else own_job.source,
        marker=_source_marker(source, side),
        file=file,
        closure=files,
        placement=placement,
        needed=placement.place_all(files.files, files.plain),
        own_job=own_job,
    )


def ask_first(request: SyncRequest) -> None:
    """Begin what a request asks first: its source, and the directory where its replica may be."""
    sides, root = request.sides, job_root(request.source)
    if _is_source_far(request):
        ask_source(request.source.rstrip("/"), sides.source)
        ask_marker(sides.source, root)
    if _is_target_far(request):
        replica = Replica(likely_root(request), sides.target)
        ask_marker(sides.target, replica.root, times=2)  # for its name, and for its state
        replica.ask()


def _ask_next(request: SyncRequest, asks_target: bool) -> None:
    """Begin what a request asks after the answers that `ask_first` waited for."""
    if _is_source_far(request):
        ask_newest(request.source.rstrip("/"), request.sides.source)
    if asks_target and _is_target_far(request):
        replica_state.ask_listed(Replica(likely_root(request), request.sides.target))


def _is_source_far(request: SyncRequest) -> bool:
    return request.sides.source.storage(request.source).answers_ahead


def _is_target_far(request: SyncRequest) -> bool:
    return request.sides.target.storage(request.target_root).answers_ahead


def is_followed(request: SyncRequest, source: Source) -> bool:
    """Return whether a newer checkpoint of the job may replace the one that is copied.

    A checkpoint that the operator names is the one that is wanted, and a savepoint has no newer
    ones.
    """
    if source.job_root is None or request.repair:
        return False
    return request.follows or not is_named(request.source, source)


def _found(request: SyncRequest) -> Source:
    """Return the checkpoint that a request names. Raise `NotThere`, of a repair with its reason."""
    try:
        return find(request.source, request.sides.source, request.allow_older)
    except NotThere as error:
        is_known = request.follows and CHECKPOINT_NAME.fullmatch(uri.name(request.source))
        if is_known and (other := _other(request, request.source)) is not None:
            return other
        if not request.repair:
            raise _ended(error, request) from error
        raise NotThere(
            f"{request.source} is not there any more, so what a replica keeps of it cannot be"
            " repaired. Nothing was done. `cpreplicate list` shows the other points of the replica."
            f" The reason: {described(error)}"
        ) from error


def _ended(error: NotThere, request: SyncRequest) -> NotThere:
    """Return the error of a directory without a checkpoint, with the savepoint that is known."""
    root = request.source.rstrip("/")
    if type(error) is not NotThere or job_root(root) != root:
        return error
    stopped = stopped_with(request, root)
    if stopped is None:
        return NotThere(
            f"{error}. Flink deletes the checkpoints of a job that has ended or was stopped with a"
            " savepoint: then give the savepoint as SOURCE. Its JobManager, or the output of `flink"
            " stop`, names it: `cpreplicate promote --flink URL REPLICA` asks the JobManager"
        )
    savepoint, command = stopped
    return NotThere(
        f"{error}. Flink deletes the checkpoints of a job that was stopped with a savepoint."
        f" {savepoint.path}, completed {json_files.clock(savepoint.completed)}, has the"
        f" beginning of its id: to replicate that, run `{command}`"
    )


def stopped_with(
    request: SyncRequest, root: str, reported: LastSavepoint | None = None
) -> tuple[LastSavepoint, str] | None:
    """Return the savepoint that may have ended the job of a directory, and what replicates it.

    That is the one which its JobManager reported, else one that is seen; None without either.
    """
    roots = [*request.source_roots, *(remap.actual for remap in request.remaps)]
    within = roots if request.source_roots else ()
    savepoint = reported or newest_savepoint(root, request.sides.source, within)
    if savepoint is None:
        return None
    places = shlex.join([savepoint.path, request.target_root])
    return savepoint, f"cpreplicate sync {places}{_to_replica_of(request, root)}"


def _to_replica_of(request: SyncRequest, root: str) -> str:
    """Return the option by which a savepoint becomes a point of the replica of a job."""
    with suppress(CpreplicateError, OSError):
        replica = replica_root(replace(request, source=root))
        if read_marker(request.sides.target, replica) is None:
            return ""
        return f" --job {shlex.quote(word_of(replica))}"
    return "" if is_distinctive(uri.name(root)) else " --job JOB"


def _other(request: SyncRequest, gone: str) -> Source | None:
    """Return the newest checkpoint of a job of which one is gone, None if two looks find none."""
    for seconds in (0.0, request.subsumption_wait):
        time.sleep(seconds)
        with suppress(NotThere):
            found = newest(uri.parent(gone), request.sides.source, request.allow_older)
            if found.checkpoint != gone:
                return found
    return None


def _source_marker(source: Source, side: Side) -> Marker | None:
    with suppress(Refused):  # a damaged marker at the source does not concern this run
        return read_marker(side, source.root)
    return None


def target_replica(source_state: SourceState) -> Replica:
    """Return the replica of this source. Raise `Refused` if one is in the other."""
    source, request = source_state.source, source_state.request
    sides, root = request.sides, replica_root_of(source_state)
    # a source at or below the directory of its own name is no source, whoever has that
    for place in dict.fromkeys((uri.join(request.target_root, source.job), root)):
        _refuse_overlap(source, place, sides)
        replica = Replica(place, sides.target)
        same_place.refuse_nested(replica, sides.source, source.root)
    _refuse_unusable_targets(source_state.needed.paths, replica)
    return replica


def replica_root_of(source_state: SourceState) -> str:
    """Return the URI of the replica of this source, there or not."""
    if source_state.own_job is not None:
        return source_state.own_job.replica
    request = source_state.request
    return find_replica(naming(source_state), request.target_root, request.sides.target)


def naming(source_state: SourceState) -> Named:
    """Return what decides about the name of the replica."""
    source, marker = source_state.source, source_state.marker
    named = named_source(source_state.request, source.root, source.job_root is None)
    return named if marker is None else named._replace(replica_id=marker.replica_id)


def warnings_of_name(source_state: SourceState, replica: Replica) -> Iterator[str]:
    """Yield, of a new replica, that one of another source has a name that it would have had.

    Of a savepoint, yield that it may be that of a job which has a replica.
    """
    other = namesake(naming(source_state), replica.root, replica.side)
    if other is not None:
        root, marker = other
        yield (
            f"{replica.root} is a new replica, of {source_state.name.given}: {root} is that of"
            f" {ownership.known_sources(marker)}. If both are names of the same source, such as a"
            f" renamed nameservice, remove {replica.root}, and sync with --same-source, which takes"
            f" {root}"
        )
    if source_state.source.job_root is None and has_replicas(source_state.request):
        yield (
            f"{replica.root} is a new replica, of this savepoint alone: it is not known whose"
            " savepoint it is. If its job has a replica here, sync with --job and the name or the"
            " id of the job, which makes the savepoint its newest point"
        )


def warnings_of_unfinished(source: Source) -> Iterator[str]:
    """Yield that newer checkpoints were passed over, if any were."""
    if source.unfinished:
        names = ", ".join(source.unfinished)
        yield (
            f"{source.root}: {names} has not completed: its _metadata is empty or ends too early."
            f" Either it is being written, or its JobManager died meanwhile."
            f" {uri.name(source.checkpoint)} is taken, the newest one before"
        )


def _refuse_overlap(source: Source, root: str, sides: Sides) -> None:
    """Raise `Refused` if a replica and its source are in each other, by their names."""
    for directory in (source.checkpoint, source.job_root):
        if directory is not None and sides.overlap(directory, root):
            raise Refused(
                f"the replica {root} would be in its own source {directory}. Nothing was done."
                " Give another TARGET_ROOT"
            )


def _refuse_unusable_sources(files: Closure, side: Side) -> None:
    """Raise `Refused` if the client of a source's storage would read another file instead."""

    def is_unusable(path: str) -> bool:
        unusable = side.storage(path).unusable
        return unusable is not None and unusable in path

    found = list(filter(is_unusable, _with_text(files.files.paths, "?")))
    if found:
        raise Refused(
            f"{_named(found)}: the client of this storage would read another file, because it takes"
            f" what follows {side.storage(found[0]).unusable} in a name for the version of an"
            " object. Nothing was copied. Copy the files to another storage with another tool, and"
            " read them there with --remap FROM=TO"
        )


def _refuse_unusable_targets(paths: Texts, replica: Replica) -> None:
    """Raise `Refused` if the client of the target's storage would write another file instead."""
    unusable = replica.storage.unusable
    found = _with_text(paths, unusable) if unusable is not None else []
    if found:
        raise Refused(
            f"{_named([replica.uri_of(path) for path in found])}: the client of this storage would"
            f" write another file, because it takes what follows {unusable} in a name for the"
            " version of an object. Nothing was copied. Give a TARGET_ROOT on another storage"
        )


def _with_text(paths: Texts, text: str) -> list[str]:
    """Return the paths that contain a text."""
    found: list[str] = chosen(paths, contain(paths, text)).to_pylist()
    return found


def _named(found: Sequence[str]) -> str:
    """Return the first of some files, and how many there are."""
    return found[0] if len(found) == 1 else f"{len(found)} files, such as {found[0]}"


def _refuse_other_roots(files: Closure, source: Source, request: SyncRequest) -> None:
    """Raise `Refused` if the `_metadata` names files elsewhere than a source may have its files.

    It is not trusted: files may only be read below the allowed roots, or on the source's own
    filesystem.
    """
    allowed = _allowed_roots(source, request)

    def is_outside(path: str) -> bool:
        return not any(uri.within(path, root) for root in allowed)

    if not any(is_outside(f"{directory}/x") for directory in files.parents):
        return
    outside = [path for path in files.files if is_outside(path)]
    if not outside:
        return
    remaps = _search(source, request).suggest(outside, files.files.sources.texts())
    hint = (
        "Files of the same names exist at the source: to read these, add"
        f" {incomplete.options(remaps)}. "
        if remaps
        else ""
    )
    raise Refused(
        f"{source.checkpoint} references {counted(len(outside), 'file')} outside the source's"
        f" roots, such as {outside[0]}. Nothing was read from there. {hint}If they belong to this"
        " job, name their directory with --source-root. If they can be read elsewhere, give"
        " --remap FROM=TO"
    )


def search(source_state: SourceState) -> Search:
    """Return how to look for files that the source lacks."""
    return _search(source_state.source, source_state.request)


def _search(source: Source, request: SyncRequest) -> Search:
    return Search(source, request.remaps, _allowed_roots(source, request), request.sides.source)


def _allowed_roots(source: Source, request: SyncRequest) -> list[str]:
    allowed = [
        source.job_root or source.checkpoint,
        *(remap.actual for remap in request.remaps),
        *request.source_roots,
    ]
    filesystem = uri.filesystem(source.checkpoint)
    own = filesystem if "://" in filesystem else f"{filesystem}/"
    return allowed if request.source_roots else [*allowed, own]
