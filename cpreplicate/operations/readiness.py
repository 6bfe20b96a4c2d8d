"""Whether `promote` would succeed, as far as `status` can see from what it reads anyway. Pure.

The right to write, and whether all files are there, are for `doctor` and for `promote --dry-run`.
"""

from __future__ import annotations

from typing import Protocol

from cpreplicate.operations.observation import Observation
from cpreplicate.protocol.lease import Holder


class Row(Protocol):
    """What is asked of the status of a replica: see `ReplicaStatus`."""

    @property
    def observed(self) -> Observation: ...

    @property
    def is_there(self) -> bool: ...

    @property
    def is_marked(self) -> bool: ...

    @property
    def is_damaged(self) -> bool: ...

    @property
    def sealed(self) -> str | None: ...

    @property
    def checkpoint(self) -> str | None: ...

    @property
    def warnings(self) -> tuple[str, ...]: ...

    @property
    def has_links(self) -> bool: ...

    @property
    def holder(self) -> Holder | None: ...


def why_not_ready(row: Row) -> str | None:
    """Return why `promote` would not succeed, None if nothing is known that is in its way.

    A sealed replica is promoted already: what a job writes there is no obstacle.
    """
    if row.observed.last_error is not None:
        return row.observed.last_error
    if not row.is_there:
        return "there is no replica"
    if row.warnings:
        return row.warnings[0]
    if row.has_links:
        return "a part of the replica is a symbolic link or a mount"
    if not row.is_marked and row.sealed is None:
        return "the marker replica.json is lost, so the directory does not count as a replica"
    if row.checkpoint is None:
        return "it holds no checkpoint that cpreplicate committed"
    if row.is_damaged:
        return f"the last `verify --record` found missing or damaged files of {row.checkpoint}"
    if row.holder is not None and not row.holder.is_stale:
        return f"a run of {row.holder.owner}@{row.holder.host} holds its lease"
    return None
