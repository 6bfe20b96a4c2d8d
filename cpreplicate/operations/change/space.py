"""Whether a target has room for a plan, as far as its storage knows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from cpreplicate.core.plan import Plan, total
from cpreplicate.core.sizes import counted, size
from cpreplicate.errors import NoSpace
from cpreplicate.protocol.replica import Replica
from cpreplicate.storage.statuses import Space

_LARGE = 0.1  # of what is kept


class Shortage(NamedTuple):
    """What a target has too little space for, and what can be done."""

    message: str
    remedy: str


class _Needed(NamedTuple):
    """What a sync would write. A pack counts as no file: there are few."""

    files: int
    bytes: int

    def __str__(self) -> str:
        return f"{counted(self.files, 'file')}, {size(self.bytes)}"

    def exceeds(self, space: Space) -> bool:
        """Return whether a limit leaves less than this."""
        too_long = space.bytes is not None and self.bytes > space.bytes
        return too_long or (space.files is not None and self.files > space.files)


def shortage(plan: Plan | None, spaces: Sequence[Space]) -> Shortage | None:
    """Return which limit has no room for a plan, None if each has.

    What a plan deletes does not count: it is there until the copies are complete.
    """
    if plan is None or plan.empty:
        needed = _Needed(0, 0)
    else:
        files = len(plan.copies) - len(plan.packed)
        needed = _Needed(files, total(plan.copies) + total(plan.repacks))
    short = next(filter(needed.exceeds, spaces), None)
    if short is None:
        return None
    message = f"{left(short)}, but a sync would write {needed}"
    return Shortage(message, "Free space there, or raise the limit")


def left(space: Space) -> str:
    """Return what a limit leaves, as a message has it."""
    amounts = [
        *([size(space.bytes)] if space.bytes is not None else []),
        *([counted(space.files, "file")] if space.files is not None else []),
    ]
    return f"{space.limit} leaves {' and '.join(amounts)}"


def too_little_space(plan: Plan, replica: Replica) -> NoSpace | None:
    """Return the error with which a sync would end that has no room for a plan, else None."""
    if not (plan.copies or plan.repacks):
        return None
    short = shortage(plan, _known(replica, briefly=False))
    return None if short is None else _error(short, replica)


def refuse_no_space(plan: Plan, replica: Replica) -> None:
    """Raise `NoSpace` if a replica has no room for a plan, before anything is copied.

    Where the service counts all files to answer, it is asked one question, and none for a plan that
    copies little beside what is kept.
    """
    if not (plan.copies or plan.repacks):
        return
    if replica.storage.counts_for_space and not _is_large(plan):
        return
    if (short := shortage(plan, _known(replica, briefly=True))) is not None:
        raise _error(short, replica)


def space_left(replica: Replica) -> str | None:
    """Return what each limit leaves that is known, None if none is."""
    return "; ".join(left(each) for each in _known(replica, briefly=True)) or None


def _error(short: Shortage, replica: Replica) -> NoSpace:
    return NoSpace(
        f"{replica.root}: {short.message}. Nothing was copied, committed or deleted. {short.remedy}"
    )


def _is_large(plan: Plan) -> bool:
    copied = total(plan.copies) + total(plan.repacks)
    too_many = len(plan.copies) > _LARGE * len(plan.keeps)
    return too_many or copied > _LARGE * total(plan.keeps)


def _known(replica: Replica, briefly: bool) -> Sequence[Space]:
    """Return the limits that are known: what is not known is no obstacle."""
    try:
        return replica.storage.space(replica.root, briefly)
    except OSError:
        return ()
