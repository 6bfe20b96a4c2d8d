"""The `_metadata` of the source, with the paths of the replica."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

from cpreplicate.core.ledger import NO_MEMBERS, MemberTable
from cpreplicate.core.metadata import rewrite
from cpreplicate.core.restore import PathSpeller
from cpreplicate.operations.sync.source.state import SourceState
from cpreplicate.protocol.replica import Replica


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
