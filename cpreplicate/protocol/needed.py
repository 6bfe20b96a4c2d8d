"""What is needed: the files that any checkpoint in a replica's directory references.

Every operation that deletes or replaces files asks here: plans, `sweep`, deletes that were put off,
`relocate` and its unpacking.
"""

from __future__ import annotations

import errno
from collections.abc import Collection, Iterator, Sequence

import pyarrow as pa

from cpreplicate.core import uri
from cpreplicate.core.path_columns import Texts, texts
from cpreplicate.core.placement import METADATA, is_replica_path
from cpreplicate.errors import MetadataError, NotThere, Refused, described
from cpreplicate.protocol import ownership, point_summary
from cpreplicate.protocol.held import HeldReplica
from cpreplicate.protocol.replica import CommittedCheckpoint, Replica
from cpreplicate.protocol.replica_state import State, read_checkpoint
from cpreplicate.protocol.source import MetadataBytes, highest_first
from cpreplicate.storage import FileStatus, Transient

_FEW = 2  # checkpoints that are listed one by one, where all could be listed at once


def needed(replica: Replica, state: State, without: Collection[str] = ()) -> Texts:
    """Return the paths of the files and packs that a checkpoint in the directory references.

    The checkpoints are cpreplicate's own, derived ones included, but for those named by `without`,
    and those of other programs, accepted by `--adopt` or not. Raises `Refused` if one of the latter
    cannot be read: then it is not known what it needs. Raises `Transient` if one was deleted since
    the examination. A directory without any costs no call.
    """
    kept = [each for each in state.ours if each.name not in without]
    own = [each.files.paths for each in kept if each.name not in state.summarised]
    if state.summary is not None:  # at once, as they share most files
        names = [each.name for each in kept if each.name in state.summarised]
        own.append(state.summary.paths_of(names))
    others = [texts(_of_another(replica, name, data)) for name, data in state.others.items()]
    return pa.concat_arrays([texts(()), *own, *others])


def refuse_later(replica: Replica, state: State, published: Collection[str]) -> None:
    """Raise `Refused` if another program completed a checkpoint since `state` was read.

    It may reference files that were not needed then. `published` are the checkpoints that this run
    wrote or will look at itself. Costs a listing of the replica, and one of each other checkpoint
    whose directory may have changed, or one of many of these at once.
    """
    children = replica.children()
    listed = {child.name: child for child in children if child.is_directory and not child.is_link}
    unsure = [
        name
        for name in highest_first(listed)
        if name not in published and not _is_unchanged(state, listed[name])
    ]
    at_once = replica.metadata_at_once(len(unsure)) if len(unsure) > _FEW else {}
    for name in unsure:
        if _is_later(state, name, at_once.get(name) or replica.metadata_status(name)):
            raise Refused(
                f"{replica.uri_of(name)}/{METADATA} was created by another program during the run:"
                " a job writes its checkpoints here, and may need what was to be deleted. Nothing"
                f" was deleted. {ownership.advice(state, name)}"
            )


def refuse_unproven(replica: HeldReplica, state: State, gone: Collection[str]) -> None:
    """Raise `Refused` unless the points next to those that go are as the summary has them.

    A file that only some points need is needed by points in a row. So the points before and behind
    those that go would need what is about to be deleted, if one did of which the summary is wrong.
    Their records and `_metadata` are read. A summary that is wrong is removed. Costs nothing where
    none was used.
    """
    summary = state.summary
    names = [] if summary is None else _next_to(gone, [each.name for each in state.committed])
    for name in names:
        if summary is None or name not in state.summarised:
            continue
        found = read_checkpoint(replica, name, has_own=True)
        if found is None or not summary.agrees(
            replica.committed_checkpoint(name, found.data), found.record
        ):
            place = point_summary.summary_uri(replica)
            replica.storage.delete(place)
            raise Refused(
                f"{place} did not have what {name} needs, and was removed. Nothing was deleted. The"
                " next run reads every checkpoint"
            )


def _next_to(gone: Collection[str], names: Sequence[str]) -> list[str]:
    """Return the names that stay, and are beside names that go."""
    last = len(names) - 1
    return [
        name
        for at, name in enumerate(names)
        if name not in gone
        and ((at and names[at - 1] in gone) or (at < last and names[at + 1] in gone))
    ]


def _is_unchanged(state: State, directory: FileStatus) -> bool:
    """Return whether the time of a directory shows that it is as it was examined."""
    examined = state.directories.get(directory.name)
    is_settled = state.is_settled(directory.name)
    return is_settled and examined is not None and directory.modified == examined.modified


def _is_later(state: State, name: str, now: FileStatus | None) -> bool:
    before = state.metadata_files.get(name)
    if before is None or now is None:
        return now is not None
    is_same = (now.length, now.modified, now.tag) == (before.length, before.modified, before.tag)
    return not is_same


def unreadable(replica: Replica, state: State) -> Iterator[str]:
    """Yield why checkpoints must not be adopted: it is not known what they need.

    Every later sync would be refused because of them.
    """
    for name in state.unrecorded:
        try:
            _decoded(replica, name, state.others[name])
        except Refused as error:
            yield described(error)


def _of_another(replica: Replica, name: str, data: MetadataBytes) -> Iterator[str]:
    """Yield the paths of the files in the replica that a checkpoint of another program needs."""
    checkpoint = _decoded(replica, name, data)
    yield from checkpoint.files
    for path in checkpoint.outside:
        yield from _under_another_name(replica, path)


def _decoded(replica: Replica, name: str, data: MetadataBytes) -> CommittedCheckpoint:
    """Return what another program's checkpoint references. Raises `Refused`, `Transient`."""
    try:
        return replica.decoded_checkpoint(name, data)
    except NotThere as error:  # the job has subsumed it since the directory was examined
        raise Transient(
            errno.EIO,
            "was deleted by another program while it was read. Nothing was deleted. Run again",
            f"{replica.uri_of(name)}/{METADATA}",
        ) from error
    except MetadataError as error:
        raise Refused(
            f"{replica.uri_of(name)}/{METADATA} is another program's and cannot be read, so it is"
            " not known which files it needs. Nothing was deleted. Sync into another TARGET_ROOT."
            f" Move {name} out of the replica only if nobody needs it any more: the next sync"
            f" deletes the files that it references. {error}"
        ) from error


def _under_another_name(replica: Replica, file_uri: str) -> Iterator[str]:
    """Yield the path of a file that a job may have recorded under another name of the cluster.

    One cluster may have many names (a nameservice, an address, a view). So only the end of the path
    is compared: the replica's name and the path of a file in it. If it is another file after all,
    a file is kept for longer than necessary.
    """
    inner = file_uri.rpartition(f"/{uri.name(replica.root)}/")[2]
    if inner != file_uri and is_replica_path(inner):
        yield inner
