"""What the source lacks of the files that are to be copied.

Its checkpoint was subsumed, or is incomplete.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from cpreplicate.core.path_columns import rows_of, texts
from cpreplicate.core.plan import Plan, sources, targets, without_targets
from cpreplicate.errors import CpreplicateError, SourceMovedOn
from cpreplicate.operations.sync.source import incomplete
from cpreplicate.operations.sync.source.state import SourceState, search
from cpreplicate.protocol.source import newest

_LOOKS = 30  # of a minute, if each is after two seconds


def refuse_incomplete(plan: Plan, source_state: SourceState) -> None:
    """Raise if the source lacks files that are to be copied: a `--remap` may be missing.

    One file of each directory is checked.
    """
    from_source = sources(without_targets(plan.copies, plan.reused.keys()))
    refuse_lacking(search(source_state).missing(from_source), [], source_state)


def refuse_lacking(missing: Sequence[str], short: Sequence[str], source_state: SourceState) -> None:
    """Raise if the source lacks files, or if some of its files are too short.

    If its `_metadata` goes too, the checkpoint was subsumed meanwhile, else it is incomplete.
    """
    if not (missing or short):
        return
    if _is_subsumed(source_state):
        raise SourceMovedOn(
            f"{source_state.source.checkpoint} was subsumed meanwhile. Nothing was committed or"
            " deleted. Run again with the job's directory to take its newest checkpoint. Files that"
            " were copied stay useful"
        )
    closure = source_state.needed.sources.texts()
    raise incomplete.error(search(source_state), missing, short, closure)


def look_for_copies(plan: Plan, source_state: SourceState) -> tuple[str, ...]:
    """Look at the source for all files that are to be copied from it, for a plan that is only
    shown: a sync finds out while it copies.

    Returns a warning if only a sample was looked for. Raises as the copies would if files are
    missing or too short.
    """
    from_source = targets(without_targets(plan.copies, plan.reused.keys()))
    if not len(from_source):
        return ()
    needed = source_state.needed
    files = needed.take(rows_of(needed.paths, from_source) >= 0)
    looked = search(source_state).look(files, needed)
    refuse_lacking(looked.missing, looked.short, source_state)
    return (looked.warning,) if looked.warning is not None else ()


def of_other_lengths(plan: Plan, source_state: SourceState) -> list[str]:
    """Return the paths of copies at which there is a file of another program with another length.

    For a plan that is only shown: a sync compares the content.
    """
    if not plan.strangers:
        return []
    theirs = {
        str(row.source): row.target
        for row in plan.copies
        if row.target in plan.strangers
        and row.target not in plan.packed
        and row.target not in plan.reused
        and not source_state.needed[row.target].segment  # the beginning may be equal
    }
    if not theirs:
        return []
    listed = search(source_state).lengths(texts(theirs))
    return sorted(theirs[file] for file, n in listed if n != plan.strangers[theirs[file]])


def _is_subsumed(source_state: SourceState) -> bool:
    """Return whether the source's `_metadata` is gone, now or after `subsumption_wait`.

    Flink deletes the `_metadata` and the files of a subsumed checkpoint one after the other: with
    many files on a slow NameNode, that takes long. Where the job has another one by now, it is
    looked for so often.
    """
    if _is_gone(source_state):
        return True
    looks = _LOOKS if _is_replaced(source_state) else 1
    return any(_is_gone(source_state, wait=True) for _ in range(looks))


def _is_gone(source_state: SourceState, wait: bool = False) -> bool:
    if wait:
        time.sleep(source_state.request.subsumption_wait)
    metadata_uri = source_state.file.uri
    return source_state.file.side.storage(metadata_uri).stat(metadata_uri) is None


def _is_replaced(source_state: SourceState) -> bool:
    """Return whether the job's newest checkpoint is another one, or it has none any more."""
    source, request = source_state.source, source_state.request
    if source.job_root is None:
        return False
    try:
        found = newest(source.job_root, request.sides.source, request.allow_older)
    except CpreplicateError:  # it is being deleted, or not clear
        return True
    return found.checkpoint != source.checkpoint
