"""States of sinks of files without the part files that they name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from cpreplicate.core.positions.model import SourceState, Unreadable
from cpreplicate.core.positions.sinks.committables import COMMITTER, emptied
from cpreplicate.core.positions.sinks.part_files import BYTES, PartFiles


class WithoutFiles(NamedTuple):
    """Lists with other elements, and lists that have none any more."""

    elements: Mapping[str, tuple[bytes, ...]]
    emptied: frozenset[str]


def without_part_files(state: SourceState) -> WithoutFiles | None:
    """Return an operator's states without the part files in them, None if it names none.

    Buckets go, too: a restored one writes where its path is, and not where the sink of the restored
    job is. Names of new part files do not meet those of earlier ones: a `FileSink` makes a new id,
    and the counter of a `StreamingFileSink` stays. Raises `Unreadable` as `PartFiles.decode`, and
    if the new states still name a file.
    """
    found = PartFiles().decode(state)
    if found is None or not found.part_files:
        return None
    lists = frozenset(name for name in BYTES if state.elements.get(name))
    elements = {
        name: tuple(map(emptied, state.elements[name]))
        for name in (COMMITTER,)
        if state.elements.get(name)
    }
    after = {**state.elements, **elements, **dict.fromkeys(lists, ())}
    if PartFiles().decode(SourceState(state.operator, after)) is not None:
        raise Unreadable("what was to be written still names part files")
    return WithoutFiles(elements, lists)
