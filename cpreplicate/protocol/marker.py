"""The marker: it makes a directory a replica, and names the source that is replicated there.

`.cpreplicate/replica.json` is created before anything else in the directory.
"""

from __future__ import annotations

import re
import uuid
from typing import NamedTuple

from cpreplicate.core import uri
from cpreplicate.core.placement import OWN
from cpreplicate.errors import Refused
from cpreplicate.protocol import json_files
from cpreplicate.protocol.held import HeldReplica
from cpreplicate.protocol.replica import Replica
from cpreplicate.storage import Side

MARKER = "replica.json"
_FORMAT = 1
_BY_NAME = re.compile(r"(hdfs|viewfs):/(?!/)|viewfs://[^ /]+:\d+/|(abfss?|gc?s|oss)://[^ /]+/")


class SourceName(NamedTuple):
    """A source as the operator named it, and as its storage knows it.

    `resolved` has no symbolic links, and addresses instead of names: see `Side.place`.
    """

    given: str
    resolved: str

    def was_recorded_as(self, known: SourceName) -> bool:
        """Return whether a marker of 0.2.0 has this source, by the URI alone.

        That did not follow a view, nor find the cluster of `hdfs:/…`, or the endpoint or account of
        an object store but S3.
        """
        return self.given == known.given and _BY_NAME.match(known.resolved) is not None


class Marker(NamedTuple):
    """The content of a marker.

    `adopted`: files of others were in the directory when it became a replica. `conditional_puts`:
    the storage needs them for the lease, and was found to have them.
    """

    replica_id: str
    job: str
    sources: tuple[SourceName, ...]
    adopted: bool = False
    conditional_puts: bool = False

    def names(self, source: SourceName) -> bool:
        """Return whether this source may be replicated here."""
        return any(
            known.resolved == source.resolved or source.was_recorded_as(known)
            for known in self.sources
        )

    def records(self, source: SourceName) -> bool:
        """Return whether the source is recorded here as its storage knows it now."""
        return any(known.resolved == source.resolved for known in self.sources)


def source_name(side: Side, root: str) -> SourceName:
    """Return the name of a source's root as given, and as its storage knows it."""
    place = side.place(side.storage(root).real(root))
    return SourceName(root, place.service + place.path)


def read_marker(side: Side, root: str) -> Marker | None:
    """Return the marker of the replica at `root`, or None if there is none.

    Raises `Refused` if the marker is damaged or of another version.
    """
    marker_uri = uri.join(root, f"{OWN}/{MARKER}")
    fields = json_files.parse(json_files.read(side.storage(marker_uri), marker_uri))
    if fields is None:
        return None
    damaged = (
        f"{marker_uri} is damaged, or of another version of cpreplicate. Nothing was done. Sync"
        " into another TARGET_ROOT"
    )
    if fields.get("format") != _FORMAT or not fields.get("sources"):
        raise Refused(damaged)
    try:
        sources = tuple(
            SourceName(str(source["given"]), str(source["resolved"]))
            for source in fields["sources"]
        )
        return Marker(
            str(fields["replica_id"]),
            str(fields["job"]),
            sources,
            bool(fields["adopted"]),
            fields.get("conditional_puts") is True,
        )
    except (KeyError, TypeError) as error:
        raise Refused(damaged) from error


def ask_marker(side: Side, root: str, times: int = 1) -> None:
    """Begin to read a marker that `read_marker` is called for soon, so many times."""
    marker_uri = uri.join(root, f"{OWN}/{MARKER}")
    json_files.ask(side.storage(marker_uri), marker_uri, times=times)


def is_replica(replica: Replica) -> bool:
    """Return whether there is a marker, of whatever version."""
    return replica.storage.stat(_marker_uri(replica)) is not None


def create_marker(
    replica: HeldReplica,
    job: str,
    source: SourceName,
    adopted: bool,
    conditional_puts: bool = False,
) -> Marker:
    """Make a directory a replica of this source.

    Raises `Refused` if another run did so just before.
    """
    marker = Marker(uuid.uuid4().hex, job, (source,), adopted, conditional_puts)
    if not replica.storage.create_exclusive(_marker_uri(replica), _encoded(marker)):
        raise Refused(f"{replica.root} was made a replica by another run just now. Run again")
    return marker


def add_source(replica: HeldReplica, marker: Marker, source: SourceName) -> Marker:
    """Record a further name of the source in the marker, or a better one."""
    others = [known for known in marker.sources if not source.was_recorded_as(known)]
    return _replaced(replica, marker._replace(sources=(*others, source)))


def note_conditional_puts(replica: HeldReplica, marker: Marker) -> Marker:
    """Record in the marker that the storage was found to have conditional puts."""
    return _replaced(replica, marker._replace(conditional_puts=True))


def _replaced(replica: HeldReplica, marker: Marker) -> Marker:
    replica.storage.put(_marker_uri(replica), lambda: [_encoded(marker)])
    return marker


def _marker_uri(replica: Replica) -> str:
    return replica.uri_of(f"{OWN}/{MARKER}")


def _encoded(marker: Marker) -> bytes:
    fields = {
        "format": _FORMAT,
        **marker._asdict(),
        "sources": [source._asdict() for source in marker.sources],
        "time": json_files.now(),
        **json_files.signature(),
    }
    if not marker.conditional_puts:  # a note of what was found, not that nothing was looked for
        del fields["conditional_puts"]
    return json_files.encoded(fields)
