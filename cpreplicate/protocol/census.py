"""The census of a replica: whose the checkpoints in its directory are, and which is the newest.

Every command, metric and alert asks here. A `_metadata` is cpreplicate's if the record of its
checkpoint lists it. Where that is lost or damaged, or lists others, the manifest decides (replicas
of 0.2.0 have records, and a run that was held up may have written its own over another one). A
record or manifest without a `_metadata` is no checkpoint.

A `_metadata` that was read is listed by its digest: that is the census of
`replica_state.examine`, which is asked by whatever changes or approves a replica. `take` reads
none and compares lengths. The two differ in one case: what another program wrote over a
`_metadata` that has just the same length counts as cpreplicate's in `take`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from cpreplicate.core.placement import is_derived
from cpreplicate.protocol.checkpoint_record import UNKNOWN_SEQUENCE, Record, matching_record
from cpreplicate.protocol.digest import Digest
from cpreplicate.protocol.replica import Replica
from cpreplicate.storage import FileStatus

T = TypeVar("T")


@dataclass(frozen=True)
class Census:
    """The names of the checkpoints in a replica's directory, each in one of four groups.

    `own` are those that cpreplicate replicated, the last published first. `derived` are those that
    `rebase` wrote beside them, by name. `adopted` are those of others that `--adopt` accepted, and
    `unrecorded` those that nobody accepted. `records` are those of all but the `unrecorded`.
    """

    own: tuple[str, ...] = ()
    derived: tuple[str, ...] = ()
    adopted: tuple[str, ...] = ()
    unrecorded: tuple[str, ...] = ()
    records: Mapping[str, Record] = field(default_factory=dict)

    @property
    def newest(self) -> str | None:
        """The checkpoint that was published last, None if there is none. It is never derived."""
        return self.own[0] if self.own else None

    @property
    def names(self) -> tuple[str, ...]:
        """All of them: the newest of cpreplicate's own first, derived ones last."""
        return self.own + self.others + self.derived

    @property
    def others(self) -> tuple[str, ...]:
        """The checkpoints that cpreplicate did not write."""
        return self.adopted + self.unrecorded

    def completed(self, name: str) -> float | None:
        """Return when a checkpoint was completed at the source, None if that is not recorded."""
        return self.records[name].completed if name in self.records else None


def of_records(records: Mapping[str, Record | None]) -> Census:
    """Return the census of checkpoints that are there, by the record that lists each, if one does.

    Of several, the one with the highest sequence number was published last. If one of cpreplicate's
    own has none, the numbers of the checkpoints decide.
    """
    known = {name: record for name, record in records.items() if record is not None}
    ours = {name: record for name, record in known.items() if not record.adopted}
    own = {name: record for name, record in ours.items() if not is_derived(name)}
    return Census(
        own=tuple(_last_published_first(own)),
        derived=tuple(sorted(ours.keys() - own.keys())),
        adopted=tuple(name for name in known if name not in ours),
        unrecorded=tuple(name for name in records if name not in known),
        records=known,
    )


def take(replica: Replica, children: Sequence[FileStatus] | None = None) -> Census:
    """Return the census by the lengths of the `_metadata`, of which none is read.

    Costs a listing of the replica, unless its `children` are given, one of each checkpoint, and the
    read of its record. Its manifest is read where the record does not list the `_metadata`.
    """
    children = replica.children() if children is None else children
    names = [*replica.committed_names(children), *replica.derived_names(children)]
    found = {name: _listed(replica, name) for name in names}
    return of_records({name: seen[1] for name, seen in found.items() if seen is not None})


def recorded(
    replica: Replica,
    name: str,
    look: Callable[[], T | None],
    is_it: Callable[[T, Digest], bool],
    seen: T | None,
) -> tuple[T, Record | None] | None:
    """Return a `_metadata` and the record that lists it, both of one moment.

    Return None if it was withdrawn. `look` looks at the `_metadata`, which was `seen` so; `is_it`
    compares what it returns with a digest.

    Another run may publish or withdraw the checkpoint meanwhile. A record is in place before its
    `_metadata` appears and until that is gone. So a `_metadata` that is the same before and after
    the record was read, and that the record does not match, is not cpreplicate's.
    """
    while seen is not None:
        record = matching_record(replica, name, partial(is_it, seen))
        if record is not None:
            return seen, record
        before, seen = seen, look()
        if before == seen:
            return seen, None
    return None


def _listed(replica: Replica, name: str) -> tuple[FileStatus, Record | None] | None:
    seen = replica.listed_metadata(name)
    return recorded(replica, name, lambda: replica.metadata_status(name), _has_length, seen)


def _has_length(status: FileStatus, digest: Digest) -> bool:
    return status.length == digest.length


def _last_published_first(records: Mapping[str, Record]) -> list[str]:
    are_known = all(record.sequence != UNKNOWN_SEQUENCE for record in records.values())

    def key(name: str) -> tuple[int, int]:
        return records[name].sequence if are_known else 0, int(name.removeprefix("chk-"))

    return sorted(records, key=key, reverse=True)
