"""Refuse a replica and a source that are one place, or of which one lies in the other."""

from __future__ import annotations

from collections.abc import Iterator

from cpreplicate.core import uri
from cpreplicate.core.placement import CHECKPOINT_NAME, OWN
from cpreplicate.errors import Refused
from cpreplicate.protocol import json_files, lease
from cpreplicate.protocol.replica import Replica
from cpreplicate.storage import Side, Storage


def refuse_nested(replica: Replica, source_side: Side, source: str) -> None:
    """Raise `Refused` where the replica and its source are one directory, or one lies in the other,
    under whatever names.

    Only where the storage can say so without anything being written, as local filesystems can.
    """
    storage = source_side.storage(source)
    here, there = storage.file_id(source), replica.storage.file_id(replica.root)
    around_target = {
        replica.storage.file_id(place) for place in uri.upwards(replica.storage.real(replica.root))
    }
    around_source = {storage.file_id(place) for place in uri.upwards(storage.real(source))}
    # a directory of the source may be mounted there
    if here is not None and there is None and around_target != {None}:
        around_target &= {
            here,
            *(storage.file_id(place) for place in _directories_below(storage, source)),
        }
        here = next(iter(around_target - {None}), here)
    if (here is not None and here in around_target) or (
        there is not None and there in around_source
    ):
        raise Refused(f"the replica {replica.root} would lie in its own source {source}, or the source in it, under another"
                      " name. Nothing was done. Give another TARGET_ROOT")  # fmt: skip


def _directories_below(storage: Storage, place: str) -> Iterator[str]:
    for child in storage.list(place):
        if child.is_directory and not child.is_link:
            yield child.uri
            yield from _directories_below(storage, child.uri)


def refuse_same_place(
    replica: Replica, taken: lease.LeaseToken, source_side: Side, source: str, is_new: bool
) -> None:
    """Raise `Refused` if the lease just taken can be read at the source: both are one directory, or
    it lies in the source.

    Whether it lies in the source is looked for only when the replica `is_new`: by each end of its
    path, below the source and below the directories there.
    """
    places = [source, *(_where_it_may_lie(replica, source_side, source) if is_new else ())]
    for place in places:
        note = json_files.parse(
            json_files.read(source_side.storage(place), uri.join(place, f"{OWN}/{lease.NAME}"))
        )
        if note and note.get("token") == taken.token:
            raise Refused(
                f"the replica {replica.root} can be seen at {place}: it is its own source, or lies"
                " in it, under another name. Nothing was done. Give another TARGET_ROOT"
            )


def _where_it_may_lie(replica: Replica, source_side: Side, source: str) -> Iterator[str]:
    names = (replica.root, replica.side.behind_view(replica.root))
    ends = dict.fromkeys(end for name in names for end in _ends(uri.local_path(name)))
    children = [child for child in source_side.storage(source).list(source) if child.is_directory]
    others = [child.name for child in children if not CHECKPOINT_NAME.fullmatch(child.name)]
    for base in (source, *(uri.join(source, name) for name in others)):
        yield from (uri.join(base, end) for end in ends)


def _ends(path: str) -> Iterator[str]:
    steps = path.strip("/").split("/")
    return ("/".join(steps[at:]) for at in range(len(steps)))
