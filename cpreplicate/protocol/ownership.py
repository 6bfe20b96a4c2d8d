"""Ownership: why cpreplicate must not change a directory, or not replicate a source into it.

A directory is cpreplicate's own if it has the marker, and each `_metadata` in it matches its
record.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from cpreplicate.core.placement import METADATA
from cpreplicate.errors import Obstacle, Refused
from cpreplicate.protocol.marker import Marker, SourceName
from cpreplicate.protocol.replica import Replica
from cpreplicate.protocol.replica_state import State

_SHOWN = 3  # names of checkpoints in a message


class Directory(Protocol):
    """What decides whether a directory is cpreplicate's, as it was examined or only listed."""

    @property
    def marker(self) -> Marker | None:
        """The marker."""

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing of a replica, or of anybody else."""

    @property
    def links(self) -> tuple[str, ...]:
        """What is a symbolic link or a mount."""

    @property
    def unrecorded(self) -> tuple[str, ...]:
        """The checkpoints of others that nobody accepted."""


def refuse_foreign(state: Directory, replica: Replica, may_adopt: bool = False) -> None:
    """Raise `Refused` if the directory is not, or not only, a replica; see `foreign`."""
    for reason in foreign(state, replica, may_adopt):
        raise Refused(reason)


def foreign(state: Directory, replica: Replica, may_adopt: bool = False) -> Iterator[str]:
    """Yield why cpreplicate must not change anything in this directory.

    The reasons are symbolic links and mounts, a missing marker, and checkpoints of others.
    `may_adopt`: the latter two are accepted.
    """
    if state.links:
        yield of_link(replica.uri_of(state.links[0]))
    if state.marker is None and not state.is_empty and not may_adopt:
        yield (
            f"{replica.root} is not empty and is not a replica of cpreplicate's making"
            f" ({_content_of(state)}). Nothing was done. Sync into a TARGET_ROOT that only"
            " cpreplicate writes, beside Flink's own checkpoint directory. Or accept the directory"
            " with `sync --adopt`: what is in it is then never changed"
        )
    elif state.unrecorded and not may_adopt:
        metadata = f"{replica.uri_of(state.unrecorded[0])}/{METADATA}"
        yield (
            f"{metadata} was not written by cpreplicate: a job writes its checkpoints here, or the"
            f" file was damaged. Nothing was done. {advice(state, state.unrecorded[0])}"
        )


def obstacle(state: Directory) -> Obstacle | None:
    """Return the kind of the first reason of `foreign`, None without one."""
    if state.links:
        return "link"
    if state.marker is None:
        return None if state.is_empty else "no_marker"
    return "foreign" if state.unrecorded else None


def of_link(path: str) -> str:
    """Return the message for a part of a replica that is a symbolic link or a mount."""
    return (
        f"{path} is a symbolic link or a mount: what would be written or deleted there may not"
        " belong to the replica. Nothing was done. Replace the link or the mount by a directory, or"
        " sync into another TARGET_ROOT"
    )


def of_adopted(checkpoint: str) -> str:
    """Return the message for an adopted checkpoint that is to be promoted."""
    return (
        f"{checkpoint} was here before the directory was adopted, so it is never changed. Nothing"
        " was done. Start the job from it as it is, or promote another checkpoint"
    )


def advice(state: Directory, checkpoint: str) -> str:
    """Return what to do about a checkpoint of another program in a replica."""
    if state.marker is not None and state.marker.adopted:
        return "Accept the checkpoint with `sync --adopt`: it is then never changed"
    return (
        "Sync into another TARGET_ROOT: a job may run here, or Flink may restore the checkpoint."
        f" Move {checkpoint} out of the replica only if you no longer need it: the next"
        " sync deletes the files that it references"
    )


def _content_of(state: Directory) -> str:
    names = state.unrecorded
    if not names:
        return "it holds other files"
    more = " …" if len(names) > _SHOWN else ""
    return f"it holds {', '.join(names[:_SHOWN])}{more}"


def other_source(state: State, replica: Replica, source: SourceName) -> Iterator[str]:
    """Yield why a source must not be replicated here: the marker names another one."""
    if state.marker is not None and not state.marker.names(source):
        yield (
            f"{replica.root} is a replica of {known_sources(state.marker)}, not of"
            f" {source.given} ({source.resolved}). Nothing was done. Sync into another TARGET_ROOT."
            " If both are names of the same source, add the new one with --same-source"
        )


def known_sources(marker: Marker) -> str:
    """Return the names of the source of a replica, for a message."""
    return " and ".join(f"{name.given} ({name.resolved})" for name in marker.sources)


def same_replica(
    state: State, replica: Replica, source_marker: Marker | None, source: SourceName
) -> Iterator[str]:
    """Yield why a source must not be replicated here: its directory has the same replica id.

    So source and replica are one directory, or one is a copy of the other.
    """
    if state.marker is None or source_marker is None:
        return
    if source_marker.replica_id == state.marker.replica_id:
        yield (
            f"{source.given} and {replica.root} have the same replica id"
            f" {state.marker.replica_id}: they are one directory under two names, or one is a copy"
            " of the other. Nothing was done. Give another TARGET_ROOT"
        )
