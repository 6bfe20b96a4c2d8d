"""Delete files of a replica: never through a symbolic link, and only while the lease is held."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from cpreplicate.core import uri
from cpreplicate.errors import Refused
from cpreplicate.protocol.lease import Lease
from cpreplicate.protocol.replica import Replica
from cpreplicate.runners import Delete, Outcome, Runner

FILES_PER_CHECK = 20_000  # files that are deleted between two checks of the lease
_SHOWN = 5  # names in a message; the rest are counted


def refuse_links(directories: Iterable[str], replica: Replica) -> None:
    """Raise `Refused` if a directory of the replica is reached through a link below its root."""
    storage = replica.storage
    root = storage.real(replica.root)
    for directory in sorted(set(directories)):
        if storage.real(replica.uri_of(directory)) != uri.join(root, directory):
            raise Refused(
                f"{replica.uri_of(directory)} is reached through a symbolic link: what would be"
                " written or deleted there may not belong to the replica. Nothing was done. Replace"
                " the link by a directory, or sync into another TARGET_ROOT"
            )


def delete(
    targets: Sequence[str] | Mapping[str, str],
    replica: Replica,
    runner: Runner,
    lease: Lease,
    files_per_check: int = FILES_PER_CHECK,
) -> list[str]:
    """Delete files of the replica, or move each to the path that it is mapped to.

    Returns what failed, and why. The lease is checked before each `files_per_check` files. Raises
    `LeaseHeld`, having deleted a part, once this run no longer holds the lease.
    """
    failed: list[str] = []
    waiting = list(targets)
    if waiting and runner.is_elsewhere:
        lease.delegate()
    while waiting:
        lease.check()
        part, rest = waiting[:files_per_check], waiting[files_per_check:]
        outcomes = _outcomes(part, targets, replica, runner, lease.until())
        late = [target for target in part if outcomes[target].late]
        if late == part:
            return failed + [
                f"{outcomes[target].error}: {replica.uri_of(target)}" for target in (*late, *rest)
            ]
        failed += [
            f"{replica.uri_of(target)}: {outcome.error}"
            for target, outcome in outcomes.items()
            if outcome.error and not outcome.late
        ]
        waiting = late + rest
    return failed


def some(texts: Sequence[str], shown: int = _SHOWN) -> str:
    """Return the first few of many texts, and how many more there are."""
    more = f" and {len(texts) - shown} more" if len(texts) > shown else ""
    return "; ".join(texts[:shown]) + more


def _outcomes(
    part: Sequence[str],
    targets: Sequence[str] | Mapping[str, str],
    replica: Replica,
    runner: Runner,
    until: float,
) -> dict[str, Outcome]:
    moves = targets if isinstance(targets, Mapping) else {}
    tasks = []
    for target in part:
        moved_to = replica.uri_of(moves[target]) if target in moves else None
        tasks.append(Delete(replica.uri_of(target), until, moved_to))
    outcomes = {outcome.target: outcome for outcome in runner.run(tasks)}
    return {target: outcomes[replica.uri_of(target)] for target in part}
