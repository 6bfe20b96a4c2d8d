"""Ownership: why cpreplicate must not change a directory, or not replicate a source into it.

A directory is cpreplicate's own if it has the marker, and each `_metadata` in it matches its
record.
"""

from __future__ import annotations

from collections.abc import Iterator

from cpreplicate.core.placement import METADATA
from cpreplicate.errors import Refused
from cpreplicate.protocol.marker import Marker, SourceName
from cpreplicate.protocol.replica import Replica
from cpreplicate.protocol.replica_state import State


def refuse_foreign(state: State, replica: Replica) -> None:
    """Raise `Refused` where links, a missing marker or checkpoints of others show that a directory
    is not only a replica.
    """
    for reason in foreign(state, replica):
        raise Refused(reason)


def foreign(state: State, replica: Replica, may_adopt: bool = False) -> Iterator[str]:
    """Yield why cpreplicate must not change anything in this directory."""
    if state.links:
        yield (
            f"{replica.uri_of(state.links[0])} is a symbolic link: what would be written or deleted"
            " there may not belong to the replica. Nothing was done. Replace the link by a"
            " directory, or sync into another TARGET_ROOT"
        )
    if state.marker is None and not state.is_empty and not may_adopt:
        yield (
            f"{replica.root} is not empty and is not a replica of cpreplicate's making"
            f" ({_what_is_there(state)}). Nothing was done. Sync into a TARGET_ROOT that only"
            " cpreplicate writes, beside Flink's own checkpoint directory; or accept the directory"
            " with `sync --adopt`: what is in it is then never changed"
        )
    elif state.unrecorded and not may_adopt:
        yield (
            f"{replica.uri_of(state.unrecorded[0])}/{METADATA} was not written by cpreplicate: a job"
            " writes its checkpoints here, or the file was damaged. Nothing was done."
            f" {_way_out(state)}"
        )


def _way_out(state: State) -> str:
    if state.marker is not None and state.marker.adopted:
        return "Accept the checkpoint with `sync --adopt`: it is then never changed"
    return (
        "If a job runs here, use another TARGET_ROOT. If none does, Flink may still restore the"
        f" checkpoint; to go on with the replica, move {state.unrecorded[0]} out of it"
    )


def _what_is_there(state: State) -> str:
    names = state.unrecorded
    return (
        f"it holds {', '.join(names[:3])}{' …' if len(names) > 3 else ''}"
        if names
        else "it holds other files"
    )


def other_source(state: State, replica: Replica, source: SourceName) -> Iterator[str]:
    """Yield why a source must not be replicated here: the marker names another."""
    if state.marker is not None and not state.marker.names(source):
        known = " and ".join(f"{each.given} ({each.resolved})" for each in state.marker.sources)
        yield (
            f"{replica.root} is a replica of {known}, not of {source.given} ({source.resolved})."
            " Nothing was done. Sync into another TARGET_ROOT, or, if both are names of the same"
            " source, add the new one with --same-source"
        )


def same_replica(
    state: State, replica: Replica, source_marker: Marker | None, source: SourceName
) -> Iterator[str]:
    """Yield why not: the source's directory carries the same replica id, so it is the same
    directory, or a copy of it.
    """
    if (
        state.marker is not None
        and source_marker is not None
        and source_marker.replica_id == state.marker.replica_id
    ):
        yield (
            f"{source.given} and {replica.root} carry the same replica id"
            f" {state.marker.replica_id}: they are one directory under two names, or one is a copy"
            " of the other. Nothing was done. Give another TARGET_ROOT"
        )
