"""Which directory of a TARGET_ROOT is the replica of a source: docs/adr/0017.

A replica that exists keeps its name, whatever that is: its marker names the source. The name of a
new one follows from the source alone, and from who has that name already.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import NamedTuple

from cpreplicate.core import uri
from cpreplicate.core.placement import JOB_ID
from cpreplicate.errors import Refused
from cpreplicate.protocol.marker import Marker, SourceName, read_marker
from cpreplicate.storage import Side
from cpreplicate.storage.option_names import HDFS_SCHEMES, WEBHDFS_SCHEMES

# The second half of Flink's ids in application mode with high availability: `new JobID(0, 0)`, or
# with a hash of the cluster's id in the first one. Of random ids, one in 10^19 ends so.
_FIXED = "0" * 16
_SAVEPOINT = re.compile(r"savepoint-.+")
_NO_NAME = re.compile(r"[^A-Za-z0-9_.-]+")
_LONGEST_STEM = 40  # characters: the whole name is a label of Kubernetes, too
_DIGITS = 8


class Named(NamedTuple):
    """What decides about the name of a replica.

    `is_lone`: the source is a savepoint, whose directory has a name that nothing else has.
    `same_source`: a replica of another source is one of this, too, as the operator states.
    `has_namesake`: another source of this name is replicated into the same TARGET_ROOT.
    `adopts`: what is in the directory without a marker is accepted. `replica_id`: the source is a
    replica itself, of this id.
    """

    source: SourceName
    is_lone: bool
    same_source: bool = False
    has_namesake: bool = False
    adopts: bool = False
    replica_id: str | None = None

    @property
    def names(self) -> tuple[str, str, str]:
        """The names that the replica may have: that of the source's directory, and longer ones.

        The second differs for sources of other paths or buckets, the third for those of other
        nameservices, too: these have names that differ between hosts, and that change.
        """
        stem = _stem(self.source)
        own = f"{stem}-{_digest(_place(self.source))}"
        return uri.name(self.source.given), own, f"{own}-{_digest(_filesystem(self.source))}"

    @property
    def likely(self) -> str:
        """The name of a new replica in a TARGET_ROOT that nothing is known of."""
        plain, own, whole = self.names
        if self.has_namesake:
            return whole
        return plain if self._is_distinctive else own

    @property
    def _is_distinctive(self) -> bool:
        """Whether no other source is likely to have a directory of this name."""
        return self.is_lone or is_distinctive(uri.name(self.source.given))


def is_savepoint_name(name: str) -> bool:
    """Return whether Flink names the directory of a savepoint so."""
    return _SAVEPOINT.fullmatch(name) is not None


def is_distinctive(name: str) -> bool:
    """Return whether a name is an id that Flink drew at random for one job."""
    return JOB_ID.fullmatch(name) is not None and not name.endswith(_FIXED)


def word_of(replica: str) -> str:
    """Return what `--job` is given: the name of a replica, or its URI if others may have its id."""
    name = uri.name(replica)
    return name if is_distinctive(name) else replica


def find_replica(named: Named, target_root: str, side: Side) -> str:
    """Return the URI of the replica of a source, there or not. Costs up to three small reads.

    Raises `Refused` if no replica is found, and a marker that may be that of one is damaged.
    """
    markers: dict[str, Marker | None] = {}
    damaged: Refused | None = None
    for name in named.names:
        markers[name] = None
        try:
            marker = markers[name] = read_marker(side, uri.join(target_root, name))
        except Refused as error:
            damaged = damaged or error
            continue
        except (IsADirectoryError, NotADirectoryError):
            continue  # something else is there, which who examines it reports
        if marker is not None and _is_of(marker, named):
            break
    found = _found(named, markers)
    if found is None and damaged is not None:
        raise damaged
    return uri.join(target_root, found or _new_name(named, markers, target_root, side))


def namesake(named: Named, replica: str, side: Side) -> tuple[str, Marker] | None:
    """Return the replica of another source that `same_source` would make that of this, too.

    None if there is none among the names before that of `replica`.
    """
    for name in reversed(named.names[: named.names.index(uri.name(replica))]):
        root = uri.join(uri.parent(replica), name)
        if (marker := read_marker(side, root)) is not None:
            return root, marker
    return None


def claims(marker: Marker, source: SourceName) -> bool:
    """Return whether a replica is that of a source, or of one that has the same URI.

    The latter is not the same if the name leads elsewhere by now: that is for the operator to
    decide, and no reason to begin another replica.
    """
    return marker.names(source) or any(known.given == source.given for known in marker.sources)


def _is_of(marker: Marker, named: Named) -> bool:
    """Return whether a replica is that of a source, or the source itself under another name.

    That is no reason to begin another replica: whoever examines it refuses it.
    """
    return claims(marker, named.source) or marker.replica_id == named.replica_id


def _found(named: Named, markers: Mapping[str, Marker | None]) -> str | None:
    """Return the name of the replica that is there, None without one.

    Without one of its own, `same_source` takes that of another source, of the longest name.
    """
    there = {name: marker for name, marker in markers.items() if marker is not None}
    own = next((name for name, each in there.items() if _is_of(each, named)), None)
    if own is not None or not named.same_source or named.has_namesake:
        return own
    return max(there, key=len, default=None)


def _new_name(
    named: Named, markers: Mapping[str, Marker | None], target_root: str, side: Side
) -> str:
    names, plain = named.names, named.names[0]
    if markers[plain] is None and _is_adopted(named, uri.join(target_root, plain), side):
        return plain
    allowed = names[names.index(named.likely) :]
    return next((name for name in allowed if markers[name] is None), names[-1])


def _is_adopted(named: Named, root: str, side: Side) -> bool:
    """Return whether the directory of another program is to become the replica."""
    return named.adopts and not named.has_namesake and bool(side.storage(root).list(root))


def _stem(source: SourceName) -> str:
    """Return what a name begins with that has a digest, so that a person knows the source.

    A directory without an id is named by the one above it, too: `orders-checkpoints`.
    """
    *_, above, name = f"/{_path(source)}".split("/")
    if JOB_ID.fullmatch(name) or is_savepoint_name(name):
        return name
    if above:
        name = f"{above}-{name}"
    return _NO_NAME.sub("-", name).strip("-.")[:_LONGEST_STEM] or "job"


def _place(source: SourceName) -> str:
    """Return where a source is, without what differs between hosts: names of NameNodes."""
    filesystem = uri.filesystem(source.given)
    scheme, _, authority = filesystem.partition("://")
    is_hdfs = scheme in (*HDFS_SCHEMES, *WEBHDFS_SCHEMES)
    return f"{'' if is_hdfs else authority}{_path(source)}"


def _path(source: SourceName) -> str:
    """Return the path of a source, on local filesystems without symbolic links."""
    is_local = uri.filesystem(source.given) == "file:"
    return uri.local_path(source.resolved if is_local else source.given)


def _filesystem(source: SourceName) -> str:
    return uri.filesystem(uri.without_password(source.given)).lower()


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:_DIGITS]
