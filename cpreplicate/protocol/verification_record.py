"""The record of a verification: which `_metadata` was found restorable, or not, and when.

`.cpreplicate/verified.json` is written by `verify --record` only, without the lease: it appears
atomically, nothing but `status` reads it, and it proves nothing of another `_metadata` than the one
whose digest it holds.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from cpreplicate.core.placement import OWN
from cpreplicate.errors import Refused
from cpreplicate.protocol import json_files
from cpreplicate.protocol.digest import Digest
from cpreplicate.protocol.marker import is_replica
from cpreplicate.protocol.replica import Replica

NAME = "verified.json"


class Verified(NamedTuple):
    """The result of a verification of a checkpoint, at a `time` in seconds since the epoch.

    `share` of the content was compared, from 0 to 1.
    """

    checkpoint: str
    metadata: Digest
    is_restorable: bool
    share: float
    time: float


def record_verification(replica: Replica, verified: Verified) -> None:
    """Write the record. Raise `Refused` if the directory is no replica of cpreplicate's."""
    if not is_replica(replica):
        raise Refused(
            f"{replica.root} has no marker of cpreplicate, so nothing is written there. The"
            " verification was not recorded. Verify without --record"
        )
    fields = {**verified._asdict(), "metadata": list(verified.metadata), **json_files.signature()}
    path = replica.uri_of(f"{OWN}/{NAME}")
    storage = replica.side.storage(path, replica.root)  # without the lease: see above
    storage.put(path, lambda: [json_files.encoded(fields)])


def last_verification(replica: Replica) -> Verified | None:
    """Return what was recorded last, or None if there is nothing or it is damaged."""
    fields = json_files.parse(json_files.read(replica.storage, replica.uri_of(f"{OWN}/{NAME}")))
    if not fields:
        return None
    try:
        length, crc32c = fields["metadata"]
        verified = Verified(
            json_files.word(fields, "checkpoint"),
            Digest(int(length), int(crc32c)),
            bool(fields["is_restorable"]),
            float(fields["share"]),
            float(fields["time"]),
        )
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
    return verified if math.isfinite(verified.time) and math.isfinite(verified.share) else None
