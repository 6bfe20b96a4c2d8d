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
    record_place,
    write_record,
)
from cpreplicate.protocol.digest import Digest, digest_of
from cpreplicate.protocol.replica import Replica
from cpreplicate.protocol.replica_state import State, observe
from cpreplicate.storage.base import Content


def adopt(replica: Replica, name: str) -> None:
    """Record a checkpoint of others that lies here: it is older than any of cpreplicate's, and
    never changed.
    """
    data = replica.metadata_bytes(name)
    if data is not None:
        write_record(replica, name, Record(0, (data.digest,), adopted=True))


def announce(replica: Replica, name: str, content: Content, state: State) -> Digest:
    """Record the `_metadata` that is about to be published as `name`; the one that is there stays
    recorded as well.

    It is the newest from its publication on. Returns its digest.
    """
    digest = digest_of(content())
    current = [each.metadata for each in state.committed if each.name == name]
    write_record(replica, name, Record(state.next_sequence, (*current, digest)))
    return digest


def announce_rewrite(replica: Replica, name: str, current: Digest, content: Content) -> None:
    """Record another spelling of the `_metadata` of `name`, which stays as old or new as it is."""
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
    """Commit the `_metadata` that was announced. One that is not there yet is created, never
    replaced.

    Raises `Refused` if somebody else has just created it.
    """
    try:
        replica.publish(name, content, check, replace)
    except FileExistsError as error:
        found = replica.metadata_bytes(name)  # an attempt whose answer was lost may have created it
        if found is None or found.digest != digest:
            raise Refused(
                f"{replica.uri_of(name)}/{METADATA} was created by another program during the run: a"
                " job writes its checkpoints here. Nothing was committed or deleted. Sync into a"
                " TARGET_ROOT that only cpreplicate writes"
            ) from error


def withdraw(replica: Replica, name: str) -> None:
    """Remove the `_metadata` of a checkpoint, if it is still cpreplicate's own.

    Raises `Refused` otherwise.
    """
    seen = observe(replica, name, has_own=True)
    if seen is None:
        return
    if seen.record is None or seen.record.adopted:
        raise Refused(
            f"{replica.uri_of(name)}/{METADATA} is not the one that cpreplicate wrote. Nothing was"
            " deleted"
        )
    replica.withdraw(name)


def forget(replica: Replica, name: str) -> None:
    """Remove what is left of a withdrawn checkpoint once its files are gone: record, manifest and
    empty directory.
    """
    manifest.remove(replica.storage, replica.root, name)
    replica.storage.delete(record_place(replica, name))
    replica.storage.rmdir(replica.uri_of(name))
