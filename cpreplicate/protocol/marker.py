"""The marker: what makes a directory a replica, and names the source that it replicates.

`.cpreplicate/replica.json` is created before anything else in the directory.
"""

from __future__ import annotations

import uuid
from typing import NamedTuple

from cpreplicate.core import uri
from cpreplicate.core.placement import OWN
from cpreplicate.errors import Refused
from cpreplicate.protocol import json_files
from cpreplicate.protocol.replica import Replica
from cpreplicate.storage import Side

MARKER = "replica.json"
_FORMAT = 1


class SourceName(NamedTuple):
    """A source as the operator named it, and as its storage knows it: without links, by addresses
    instead of names.
    """

    given: str
    resolved: str


class Marker(NamedTuple):
    """What makes a directory a replica.

    `adopted`: there were files of others when it became one.
    """

    replica_id: str
    job: str
    sources: tuple[SourceName, ...]
    adopted: bool = False

    def names(self, source: SourceName) -> bool:
        """Return whether this source may be replicated here."""
        return any(each.resolved == source.resolved for each in self.sources)


def source_name(side: Side, place: str) -> SourceName:
    """Return a source's root as given, and as its storage knows it."""
    return SourceName(place, side.identity(place) + uri.local_path(side.storage(place).real(place)))


def read_marker(side: Side, root: str) -> Marker | None:
    """Return the marker of the replica at `root`; None if there is none.

    Raises `Refused` if it cannot be understood.
    """
    place = uri.join(root, f"{OWN}/{MARKER}")
    note = json_files.parse(json_files.read(side.storage(place), place))
    if note is None:
        return None
    damaged = (
        f"{place} is damaged, or of another version of cpreplicate. Nothing was done. Sync into"
        " another TARGET_ROOT"
    )
    if note.get("format") != _FORMAT:
        raise Refused(damaged)
    try:
        sources = tuple(
            SourceName(str(each["given"]), str(each["resolved"])) for each in note["sources"]
        )
        return Marker(str(note["replica_id"]), str(note["job"]), sources, bool(note["adopted"]))
    except (KeyError, TypeError) as error:
        raise Refused(damaged) from error


def is_replica(replica: Replica) -> bool:
    """Return whether there is a marker, of whatever version."""
    return replica.storage.stat(_marker_place(replica)) is not None


def create_marker(replica: Replica, job: str, source: SourceName, adopted: bool) -> Marker:
    """Make a directory a replica of this source.

    Raises `Refused` if another run did so just before.
    """
    marker = Marker(uuid.uuid4().hex, job, (source,), adopted)
    if not replica.storage.create_exclusive(_marker_place(replica), _encoded_marker(marker)):
        raise Refused(f"{replica.root} became a replica just now, by another run. Run again")
    return marker


def add_source(replica: Replica, marker: Marker, source: SourceName) -> Marker:
    """Record a further name of the source in the marker."""
    added = marker._replace(sources=(*marker.sources, source))
    replica.storage.put(_marker_place(replica), lambda: [_encoded_marker(added)])
    return added


def _marker_place(replica: Replica) -> str:
    return replica.uri_of(f"{OWN}/{MARKER}")


def _encoded_marker(marker: Marker) -> bytes:
    sources = [source._asdict() for source in marker.sources]
    return json_files.encoded(
        {
            "format": _FORMAT,
            **marker._asdict(),
            "sources": sources,
            "time": json_files.now(),
            **json_files.signature(),
        }
    )
