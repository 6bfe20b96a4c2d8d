"""Publish and withdraw checkpoints of a replica; each has its record as long as it is there."""

from __future__ import annotations

from collections.abc import Callable

from cpreplicate.core.placement import METADATA
from cpreplicate.errors import Refused
from cpreplicate.protocol import manifest
from cpreplicate.protocol.checkpoint_record import (
    UNKNOWN_SEQUENCE,
    Record,
    read_record,
    record_uri,
    write_record,
)
from cpreplicate.protocol.digest import Digest, digest_of
from cpreplicate.protocol.replica import Replica
from cpreplicate.protocol.replica_state import State, observe
from cpreplicate.storage.base import Content


def adopt(replica: Replica, name: str) -> None:
    """Record a checkpoint of others as adopted: older than cpreplicate's own, and never changed."""
    data = replica.metadata_bytes(name)
    if data is not None:
        write_record(replica, name, Record(0, (data.digest,), adopted=True))


def announce(replica: Replica, name: str, content: Content, state: State) -> Digest:
    """Record the `_metadata` that is about to be published as `name`, and return its digest.

    A `_metadata` that is there stays recorded as well. The checkpoint is the newest one from its
    publication on.
    """
    digest = digest_of(content())
    current = [committed.metadata for committed in state.committed if committed.name == name]
    write_record(replica, name, Record(state.next_sequence, (*current, digest)))
    return digest


def announce_rewrite(replica: Replica, name: str, current: Digest, content: Content) -> None:
    """Record another spelling of the `_metadata` of `name`, which keeps its sequence number."""
    record = read_record(replica, name)
    sequence = record.sequence if record is not None else UNKNOWN_SEQUENCE
    write_record(replica, name, Record(sequence, (current, digest_of(content()))))


def publish(
    replica: Replica,
    name: str,
    content: Content,
    digest: Digest,
    check: Callable[[], None],
    replace: bool,
) -> None:
    """Commit the `_metadata` that was announced. Without `replace`, create it exclusively.

    `check` is called when the file is written and about to appear, and may raise. Raises `Refused`
    if another program has just created the file.
    """
    try:
        replica.publish(name, content, check, replace)
    except FileExistsError as error:
        # An attempt whose answer was lost may have created it.
        data = replica.metadata_bytes(name)
        if data is None or data.digest != digest:
            raise Refused(
                f"{replica.uri_of(name)}/{METADATA} was created by another program during the run:"
                " a job writes its checkpoints here. Nothing was committed or deleted. Sync into a"
                " TARGET_ROOT that only cpreplicate writes"
            ) from error


def withdraw(replica: Replica, name: str) -> None:
    """Remove the `_metadata` of a checkpoint. Raise `Refused` if it is not cpreplicate's own."""
    observed = observe(replica, name, has_own=True)
    if observed is None:
        return
    if observed.record is None or observed.record.adopted:
        raise Refused(
            f"{replica.uri_of(name)}/{METADATA} is not the one that cpreplicate wrote. Nothing was"
            " deleted"
        )
    replica.withdraw(name)


def forget(replica: Replica, name: str) -> None:
    """Remove the manifest, record and empty directory of a withdrawn checkpoint."""
    manifest.remove(replica.storage, replica.root, name)
    replica.storage.delete(record_uri(replica, name))
    replica.storage.rmdir(replica.uri_of(name))
