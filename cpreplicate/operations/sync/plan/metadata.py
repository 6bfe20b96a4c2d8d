"""The `_metadata` of the source with the paths of the replica, and whether the replica holds it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

from cpreplicate.core.ledger import NO_MEMBERS, MemberTable
from cpreplicate.core.metadata import rewrite
from cpreplicate.core.restore import PathsMode, PathSpeller
from cpreplicate.operations.sync.checks import seconds_after
from cpreplicate.operations.sync.source.state import SourceState
from cpreplicate.protocol.digest import digest_of
from cpreplicate.protocol.replica import CommittedCheckpoint, Replica
from cpreplicate.protocol.replica_state import State


def rewritten(
    source_state: SourceState, replica: Replica, mode: str, members: MemberTable = NO_MEMBERS
) -> Iterator[bytes]:
    """Yield the bytes of the source's `_metadata` with paths of the replica.

    `members` are the packed files by their logical path.
    """
    file, placement = source_state.file, source_state.placement
    speller = PathSpeller(source_state.closure, placement, replica.root, mode, members)
    with ExitStack() as stack:
        yield from rewrite(file.open(stack), file.metadata, speller, speller.moves())


def spelling_of(
    held: CommittedCheckpoint, source_state: SourceState, replica: Replica
) -> PathsMode | None:
    """Return how the `_metadata` of a checkpoint of the replica spells the paths of the source's.

    None if it is not the source's checkpoint in any spelling.
    """
    modes: tuple[PathsMode, ...] = ("relative", "absolute")
    for mode in modes:
        if digest_of(rewritten(source_state, replica, mode, held.members)) == held.metadata:
            return mode
    return None


def of_former_life(
    state: State, source_state: SourceState, replica: Replica
) -> CommittedCheckpoint | None:
    """Return the replica's checkpoint with the number of the source's, if it is another one.

    A job that is started from scratch uses each number again. It is the same one if it was
    completed at the same time, or if its `_metadata` is the source's in any spelling. Where a run
    died before it had replaced the `_metadata`, the recorded time is of the other one.
    """
    name = source_state.placement.name
    held = next((each for each in state.committed if each.name == name), None)
    if held is None:
        return None
    is_of_record = held.metadata in state.records[name].digests[-1:]
    if is_of_record and seconds_after(name, state, source_state.source) == 0:
        return None
    return held if spelling_of(held, source_state, replica) is None else None
