"""The record of verifications: which `_metadata` was found restorable, or not, and when.

`.cpreplicate/verified.json` has the last verification that `verify --record` wrote. Beside it, its
list `failed` has the failures that stand: a failure of a checkpoint stands until a verification of
the same checkpoint compared at least as much, a sync copied its files anew, or it is gone.

`verify` writes the file without the lease, and a sync that repairs a checkpoint writes it under
the lease. It appears atomically. Only `status`, `list` and `forget` use it. It proves nothing of
another `_metadata` than the one whose digest it holds.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from cpreplicate.core.placement import OWN
from cpreplicate.errors import Refused
from cpreplicate.protocol import json_files
from cpreplicate.protocol.digest import Digest
from cpreplicate.protocol.held import HeldReplica
from cpreplicate.protocol.marker import is_replica
from cpreplicate.protocol.replica import Replica
from cpreplicate.storage import Storage

NAME = "verified.json"
_FAILED = "failed"
_MOST = 64  # failures that are recorded: the file stays one that is read at once


class Verified(NamedTuple):
    """The result of a verification of a checkpoint, at a `time` in seconds since the epoch.

    `share` of the content was compared, from 0 to 1: the files that the `seed` chooses. `completed`
    is when the checkpoint was completed at its source, None if that is not known. `is_of_content`:
    it found damage that the lengths of files do not show, or may have.
    """

    checkpoint: str
    metadata: Digest
    is_restorable: bool
    share: float
    time: float
    seed: int = 0
    completed: float | None = None
    is_of_content: bool = True

    def compares_as_much_as(self, other: Verified) -> bool:
        """Return whether it compared, of the same checkpoint, all files that another one did."""
        is_sample = other.share <= 0 or self.share >= 1 or self.seed == other.seed
        return self.checkpoint == other.checkpoint and self.share >= other.share and is_sample

    def is_about(self, name: str | None, completed: float | None) -> bool:
        """Return whether it is about a checkpoint, in whatever spelling of its `_metadata`.

        A job may count anew: then a checkpoint that was `completed` at another time has the name.
        """
        is_same_time = None in (self.completed, completed) or self.completed == completed
        return self.checkpoint == name and is_same_time

    def is_of(self, name: str, completed: float | None, digests: Sequence[Digest]) -> bool:
        """Return whether it is about the `_metadata` of a checkpoint that has these digests.

        Its record has that of a former `_metadata`, too, which may be of another checkpoint: one
        that was completed at another time. If a time is not known, only the last one counts.
        """
        is_dated = None not in (self.completed, completed)
        counting = digests if is_dated else digests[-1:]
        return self.is_about(name, completed) and self.metadata in counting


def record_verification(replica: Replica, verified: Verified, kept: Collection[str]) -> None:
    """Write the record. Raise `Refused` if the directory is no replica of cpreplicate's.

    `kept` are the checkpoints of the replica. Recorded failures of others are dropped.
    """
    if not is_replica(replica):
        raise Refused(
            f"{replica.root} has no marker of cpreplicate, so nothing is written there. The"
            " verification was not recorded. Verify without --record"
        )
    name, completed = verified.checkpoint, verified.completed
    stays = [
        each
        for each in recorded_verifications(replica)
        if not (each.is_restorable or verified.compares_as_much_as(each))
        and each.checkpoint in kept
        and (each.checkpoint != name or each.is_about(name, completed))
    ]
    # without the lease: see above
    _write(replica, replica.side.storage(_uri(replica), replica.root), [verified, *stays])


def drop_repaired(replica: HeldReplica, name: str, is_compared: bool) -> None:
    """Drop the recorded failures of a checkpoint of which a sync copied what was missing.

    If the sync has not compared the content of its files, those of its content stay.
    """
    found = recorded_verifications(replica)
    stays = [
        each
        for each in found
        if each.is_restorable or each.checkpoint != name or (each.is_of_content and not is_compared)
    ]
    if not stays:
        replica.storage.delete(_uri(replica))
    elif len(stays) < len(found):
        _write(replica, replica.storage, stays)


def recorded_verifications(replica: Replica) -> tuple[Verified, ...]:
    """Return the last verification that was recorded, and the other failures that stand.

    There is none if there is no record, or it is damaged.
    """
    fields = json_files.parse(json_files.read(replica.storage, _uri(replica))) or {}
    failed = fields.get(_FAILED, [])
    each_of = [fields, *(failed if isinstance(failed, list) else [])]
    found = [_verified(each) for each in each_of]
    return tuple(each for each in found if each is not None) if found[0] is not None else ()


def lasting_failure(
    found: Sequence[Verified], name: str | None, completed: float | None
) -> Verified | None:
    """Return the recorded failure of a checkpoint, None if there is none that stands."""
    failed = (each for each in found if not each.is_restorable)
    return next((each for each in failed if each.is_about(name, completed)), None)


def _uri(replica: Replica) -> str:
    return replica.uri_of(f"{OWN}/{NAME}")


def _write(replica: Replica, storage: Storage, found: Sequence[Verified]) -> None:
    last, *failed = (
        {**each._asdict(), "metadata": list(each.metadata)} for each in found[: 1 + _MOST]
    )
    content = json_files.encoded({**last, **json_files.signature(), _FAILED: failed})
    storage.put(_uri(replica), lambda: [content])


def _verified(fields: Any) -> Verified | None:
    """Return a verification that is recorded, None if its fields are malformed."""
    if not isinstance(fields, dict):
        return None
    try:
        length, crc32c = fields["metadata"]
        verified = Verified(
            json_files.word(fields, "checkpoint"),
            Digest(int(length), int(crc32c)),
            bool(fields["is_restorable"]),
            float(fields["share"]),
            float(fields["time"]),
            int(fields.get("seed", 0)),
            json_files.seconds(fields, "completed"),
            bool(fields.get("is_of_content", True)),
        )
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
    return verified if math.isfinite(verified.time) and math.isfinite(verified.share) else None
