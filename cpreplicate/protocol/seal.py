"""The seal: it marks a replica that a job runs from, or is about to.

A sealed replica is not synced, watched or swept any more.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from cpreplicate.core.placement import OWN, is_checkpoint
from cpreplicate.errors import Sealed
from cpreplicate.protocol import json_files
from cpreplicate.protocol.held import HeldReplica
from cpreplicate.protocol.replica import Replica
from cpreplicate.storage import FileStatus

NAME = "sealed"
_MOST_OPERATORS = 1_000  # more would not fit into a small file, and prove no more


class Seal(NamedTuple):
    """The content of a seal.

    `checkpoint` is the one that was promoted, "unknown" if the seal is damaged. `modified` is when
    it was sealed, by the storage's clock, or that of the run if the storage does not date files.
    `operators` are the ids of those of the checkpoint, none in a seal of version 0.3.0 or earlier.
    `described` is by whom, when and for which checkpoint it was made.
    """

    checkpoint: str
    modified: float
    operators: frozenset[str] = frozenset()
    described: str = ""


def seal_uri(replica: Replica) -> str:
    """Return the URI of the seal."""
    return replica.uri_of(f"{OWN}/{NAME}")


def is_sealed(replica: Replica) -> bool:
    """Return whether there is a seal."""
    return replica.storage.stat(seal_uri(replica)) is not None


def seal(replica: HeldReplica, checkpoint: str, operators: Iterable[str] = ()) -> Seal:
    """Seal a replica for a job that starts from `checkpoint`. Renew a seal that is there.

    Returns the seal as `read` does.

    The ids of its `operators` identify that job when it has deleted the checkpoint. Raises
    `LeaseHeld` if the lease is lost, also if that was found only afterwards.
    """
    fields = {
        **json_files.signature(),
        "sealed": json_files.now(),
        "checkpoint": checkpoint,
        "operators": sorted(operators)[:_MOST_OPERATORS],
    }
    replica.storage.put(seal_uri(replica), lambda: [json_files.encoded(fields)])
    replica.lease.check()
    return _seal_of(fields, replica.storage.stat(seal_uri(replica)))


def remove(replica: HeldReplica) -> None:
    """Remove the seal durably, but not one that another run made after this one lost its lease."""
    replica.withdraw(f"{OWN}/{NAME}")


def read(replica: Replica) -> Seal | None:
    """Return the seal, or None if there is none."""
    fields = _fields(replica)
    status = None if fields is None else replica.storage.stat(seal_uri(replica))
    return None if fields is None or status is None else _seal_of(fields, status)


def _seal_of(fields: Mapping[str, Any], status: FileStatus | None) -> Seal:
    dated = None if status is None else status.dated
    recorded = fields.get("operators")
    return Seal(
        json_files.word(fields, "checkpoint"),
        dated or json_files.seconds(fields, "sealed") or 0.0,
        frozenset(map(str, recorded if isinstance(recorded, list) else ())),
        _described(fields),
    )


def promoted(replica: Replica) -> str | None:
    """Return the checkpoint that a replica is sealed for, None if it is not, or not known."""
    name = str((_fields(replica) or {}).get("checkpoint"))
    return name if is_checkpoint(name) else None


def reason_against(replica: Replica, checkpoint: str | None) -> str | None:
    """Return why a checkpoint must not be promoted: the replica is sealed for another one.

    `checkpoint` is None where none is asked for by name: that is the promoted one.
    """
    sealed = promoted(replica)
    if None in (sealed, checkpoint) or sealed == checkpoint:
        return None
    return (
        f"{replica.root} is sealed {describe(replica)}, not for {checkpoint}: a job may run from"
        f" {sealed}. Nothing was done. If none does, stop what syncs into the replica, which may"
        f" withdraw {checkpoint}. Then run `cpreplicate unseal {shlex.quote(replica.root)}"
        f" --no-job-uses-it`, and promote {checkpoint}"
    )


def refuse_sealed(replica: Replica) -> None:
    """Raise `Sealed` if the replica is sealed."""
    description = describe(replica)
    if description is not None:
        raise Sealed(
            f"{replica.root} is sealed {description}: a job may use its files. Nothing was done."
            " Sync into another TARGET_ROOT. Or, once the job has completed a checkpoint of its"
            f" own, run `cpreplicate unseal {shlex.quote(replica.root)} --job DIR`"
        )


def describe(replica: Replica) -> str | None:
    """Return by whom, when and for which checkpoint a replica was sealed, or None if it is not."""
    fields = _fields(replica)
    return None if fields is None else _described(fields)


def _described(fields: Mapping[str, Any]) -> str:
    user = f"{json_files.word(fields, 'owner')}@{json_files.word(fields, 'host')}"
    time, checkpoint = json_files.clock_of(fields, "sealed"), json_files.word(fields, "checkpoint")
    return f"by {user} at {time} for {checkpoint}"


def _fields(replica: Replica) -> dict[str, Any] | None:
    return json_files.parse(json_files.read(replica.storage, seal_uri(replica)))
