"""Refuse a replica and a source that are one directory, or of which one is in the other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from cpreplicate.core import uri
from cpreplicate.core.placement import CHECKPOINT_NAME, OWN
from cpreplicate.errors import Refused
from cpreplicate.protocol import json_files, lease
from cpreplicate.protocol.replica import Replica
from cpreplicate.storage import Side
from cpreplicate.storage.reading import Reading


def refuse_nested(replica: Replica, source_side: Side, source: str) -> None:
    """Raise `Refused` if replica and source are one directory, or one is in the other.

    Links and mounts are followed. Nothing is written, so only storages that identify their files,
    such as local filesystems, can be checked. The source is walked only if the replica does not
    exist yet, the storage of the target identifies files, and a mount is between the two or in
    the source.
    """
    storage = source_side.storage(source)
    source_id = storage.file_id(source)
    replica_id = replica.storage.file_id(replica.root)
    around_replica = _ids(replica.storage, uri.upwards(replica.storage.real(replica.root)))
    around_source = _ids(storage, uri.upwards(storage.real(source)))
    in_source = {source_id}
    is_new = replica_id is None and bool(around_replica)
    if source_id is not None and is_new and not storage.are_in_one_mount(source, replica.root):
        # A directory of the source may be mounted above the replica.
        in_source |= _ids(storage, _directories_below(storage, source))
    if in_source & around_replica or replica_id in around_source:
        raise Refused(
            f"the replica {replica.root} would be in its own source {source}, or the source in it,"
            " under another name. Nothing was done. Give another TARGET_ROOT"
        )


def _ids(storage: Reading, directories: Iterable[str]) -> set[object]:
    """Return the ids of those directories that have one."""
    return {storage.file_id(directory) for directory in directories} - {None}


def _directories_below(storage: Reading, directory: str) -> Iterator[str]:
    waiting = [directory]
    while waiting:
        listed = storage.list(waiting.pop())
        below = [child.uri for child in listed if child.is_directory and not child.is_link]
        yield from below
        waiting += below


def refuse_same_place(
    replica: Replica, token: lease.LeaseToken, source_side: Side, source: str, is_new: bool
) -> None:
    """Raise `Refused` if the lease just taken can be read at the source, or in it.

    Only if the replica `is_new`, it is also looked for in the source: by each end of its path,
    below the source and below the directories there.
    """
    candidates = _where_it_may_lie(replica, source_side, source) if is_new else ()
    for base, directory in ((source, source), *candidates):
        lease_uri = uri.join(directory, f"{OWN}/{lease.NAME}")
        try:
            content = json_files.read(source_side.storage(directory), lease_uri)
        except NotADirectoryError:  # a file of the source is named like a step of the path
            continue
        except PermissionError as error:
            reason = f"{error.strerror}, so it is not known whether the replica is in it"
            raise PermissionError(error.errno, reason, base) from error
        fields = json_files.parse(content)
        if fields and fields.get("token") == token.token:
            raise Refused(
                f"the replica {replica.root} can be read at {directory}: it is its own source, or"
                " is in it, under another name. Nothing was done. Give another TARGET_ROOT"
            )


def _where_it_may_lie(
    replica: Replica, source_side: Side, source: str
) -> Iterator[tuple[str, str]]:
    """Yield the directories to look in, each with what the source itself has on the way to it."""
    names = (replica.root, replica.side.behind_view(replica.root))
    ends = dict.fromkeys(end for name in names for end in _ends(uri.local_path(name)))
    children = [child for child in source_side.storage(source).list(source) if child.is_directory]
    others = [child.name for child in children if not CHECKPOINT_NAME.fullmatch(child.name)]
    for base in (source, *(uri.join(source, name) for name in others)):
        yield from ((base, uri.join(base, end)) for end in ends)


def _ends(path: str) -> Iterator[str]:
    steps = path.strip("/").split("/")
    return ("/".join(steps[index:]) for index in range(len(steps)))
