"""The place of the replica of a request. Nothing of the source need be there."""

from __future__ import annotations

from contextlib import suppress

from cpreplicate.core import uri
from cpreplicate.core.placement import job_root
from cpreplicate.errors import CpreplicateError
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.protocol.marker import source_name
from cpreplicate.protocol.replica_name import Named, find_replica, is_savepoint_name


def replica_root(request: SyncRequest) -> str:
    """Return the URI of the replica of a request, there or not. See `find_replica`.

    A savepoint is recognised by its name only.
    """
    root = job_root(request.source)
    named = named_source(request, root, is_savepoint_name(uri.name(root)))
    return find_replica(named, request.target_root, request.sides.target)


def likely_root(request: SyncRequest) -> str:
    """Return where a new replica of a request would be, without a look at the target."""
    root = job_root(request.source)
    named = named_source(request, root, is_savepoint_name(uri.name(root)))
    return uri.join(request.target_root, named.likely)


def names_of(request: SyncRequest, root: str) -> tuple[str, ...]:
    """Return the names that the replica of a job's directory may have in the TARGET_ROOT."""
    return named_source(request, root, is_lone=False).names


def known_root(request: SyncRequest) -> str:
    """Return the URI of the replica of a request, the likely one if the target cannot be read."""
    with suppress(CpreplicateError, OSError):
        return replica_root(request)
    return likely_root(request)


def named_source(request: SyncRequest, root: str, is_lone: bool) -> Named:
    """Return what decides about the name of the replica of a source's root."""
    return Named(
        source_name(request.sides.source, root),
        is_lone,
        request.same_source,
        request.has_namesake,
        request.adopt,
    )
