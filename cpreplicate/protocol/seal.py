"""The seal: a replica that a job runs from, or is about to, is not synced, watched or swept any
more.
"""

from __future__ import annotations

from typing import NamedTuple

from cpreplicate.core import uri
from cpreplicate.core.placement import OWN
from cpreplicate.errors import Refused
from cpreplicate.protocol import json_files
from cpreplicate.protocol.replica import Replica

NAME = "sealed"


class Seal(NamedTuple):
    """A seal as it lies: the checkpoint that was promoted, "unknown" if damaged, and when, by the
    storage's clock.
    """

    checkpoint: str
    modified: float


def place(replica: Replica) -> str:
    """Where the seal lies."""
    return replica.uri_of(f"{OWN}/{NAME}")


def is_sealed(replica: Replica) -> bool:
    """Return whether there is a seal."""
    return replica.storage.stat(place(replica)) is not None


def seal(replica: Replica, checkpoint: str) -> None:
    """Seal it for a job that starts from `checkpoint`; a seal that is there is renewed."""
    note = {**json_files.signature(), "sealed": json_files.now(), "checkpoint": checkpoint}
    replica.storage.put(place(replica), lambda: [json_files.encoded(note)])


def read(replica: Replica) -> Seal | None:
    """Return the seal; None if there is none."""
    status = replica.storage.stat(place(replica))
    found = json_files.parse(json_files.read(replica.storage, place(replica)))
    return (
        Seal(json_files.word(found, "checkpoint"), status.modified)
        if status is not None and found is not None
        else None
    )


def refuse_sealed(replica: Replica) -> None:
    """Raise `Refused` if the replica is sealed."""
    found = describe(replica)
    if found is not None:
        raise Refused(
            f"{replica.root} is sealed {found}: a job may live on its files. Nothing was done. Sync"
            " into another TARGET_ROOT, or, once the job has completed a checkpoint of its own,"
            f" `cpreplicate unseal {uri.quoted(replica.root)} --job DIR`"
        )


def describe(replica: Replica) -> str | None:
    """By whom the replica was sealed, when and for which checkpoint; None if it is not."""
    found = json_files.parse(json_files.read(replica.storage, place(replica)))
    if found is None:
        return None
    who = f"{json_files.word(found, 'owner')}@{json_files.word(found, 'host')}"
    return f"by {who} at {json_files.clock(found, 'sealed')} for {json_files.word(found, 'checkpoint')}"
