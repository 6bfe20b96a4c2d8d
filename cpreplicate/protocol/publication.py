"""Publish and withdraw checkpoints of a replica; each has its record as long as it is there."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial

from cpreplicate.core.placement import METADATA
from cpreplicate.errors import Refused
from cpreplicate.protocol import fingerprint_record, manifest
from cpreplicate.protocol.checkpoint_record import (
    UNKNOWN_SEQUENCE,
    Record,
    encoded_record,
    read_record,
    record_uri,
    write_record,
)
from cpreplicate.protocol.digest import Digest, digest_of
from cpreplicate.protocol.held import HeldReplica
from cpreplicate.protocol.pending import PendingPut
from cpreplicate.protocol.replica_state import State, ask_checkpoint, read_checkpoint
from cpreplicate.storage import FileStatus
from cpreplicate.storage.base import Content
from cpreplicate.storage.wrappers.ahead import overlapping


def adopt(replica: HeldReplica, name: str) -> None:
    """Record a checkpoint of others as adopted: older than cpreplicate's own, and never changed."""
    data = replica.metadata_bytes(name)
    if data is not None:
        write_record(replica, name, Record(0, (data.digest,), adopted=True))


class Publication:
    """The commit of one checkpoint: its record and its `_metadata`, written early.

    Both are written and closed in the background, and appear by `publish`. As a context manager it
    removes what has not appeared. `completed` is the time for the record, and `savepoint` the URI
    of a savepoint. `former` is the record of a checkpoint that stays as new or old as it is.
    `summary` is the SHA-256 of that of the other points, for which the record vouches, and
    `new_summary` its file, if it is a new one: it appears before the record.
    """

    def __init__(
        self,
        replica: HeldReplica,
        name: str,
        content: Content,
        state: State,
        completed: float | None = None,
        former: Record | None = None,
        savepoint: str | None = None,
        summary: str | None = None,
        new_summary: PendingPut | None = None,
    ) -> None:
        current = [committed.metadata for committed in state.ours if committed.name == name]
        self.digest = digest_of(content())
        self._replica, self._name, self._new_summary = replica, name, new_summary
        # A `_metadata` that is there stays recorded, too. The checkpoint is the newest one from its
        # publication on, unless it is repaired.
        digests = (*current, self.digest)
        record = Record(state.next_sequence, digests, False, completed, savepoint, summary)
        if former is not None:
            record = former._replace(digests=digests)
        record_content = encoded_record(record)
        storage = replica.storage
        self._record = PendingPut(storage, record_uri(replica, name), lambda: [record_content])
        metadata_uri = replica.uri_of(f"{name}/{METADATA}")
        self._replaces = bool(current)
        try:
            self._metadata = PendingPut(
                storage, metadata_uri, content, replace=self._replaces, is_fenced=True
            )
        except BaseException:  # as if the system has no thread left
            self._record.close()
            raise

    @property
    def replaces(self) -> bool:
        """Whether the checkpoint is committed already, and its `_metadata` will be replaced."""
        return self._replaces

    def let_record_appear(self) -> None:
        """Let the record appear as soon as it is written: without `_metadata`, it does no harm."""
        if self._new_summary is not None:
            self._new_summary.appear()
            self._new_summary = None
        self._record.let_appear()

    def publish(self, check: Callable[[], None], manifest: PendingPut) -> None:
        """Commit: record, manifest and `_metadata` appear, which replaces only one of its name.

        If the checkpoint is new, its manifest appears just before the `_metadata`: so each
        committed file has its CRC32C at every instant. Else it appears after that, since the former
        manifest describes the former `_metadata`. `check` is called before the `_metadata` appears,
        and may raise; of the others the storage of the replica does so. Raises `Refused` if another
        program has just created the `_metadata`.
        """
        self.let_record_appear()
        self._replica.lease.ask(self._replica.lease.counts / 2)
        if not self._replaces:
            manifest.let_appear()
            manifest.wait_until_there()
        self._record.wait_until_there()
        self._publish(check)
        if self._replaces:
            manifest.appear()

    def _publish(self, check: Callable[[], None]) -> None:
        """Let the `_metadata` appear. Raises `Refused` if another program made one meanwhile."""
        try:
            self._metadata.appear(check)
        except FileExistsError as error:
            # An attempt whose answer was lost may have created it.
            data = self._replica.metadata_bytes(self._name)
            if data is None or data.digest != self.digest:
                check()  # a lost lease is the better reason
                raise Refused(
                    f"{self._replica.uri_of(self._name)}/{METADATA} was created by another program"
                    " during the run: a job writes its checkpoints here. Nothing was committed or"
                    " deleted. Sync into a TARGET_ROOT that only cpreplicate writes"
                ) from error

    def __enter__(self) -> Publication:
        return self

    def __exit__(self, *exception: object) -> None:
        self._record.close()
        self._metadata.close()


def announce_rewrite(replica: HeldReplica, name: str, current: Digest, content: Content) -> None:
    """Record another spelling of the `_metadata` of `name`.

    It keeps its sequence number, the time at which it was completed, and what it was made of.
    """
    record = read_record(replica, name) or Record(UNKNOWN_SEQUENCE, ())
    digests = (current, digest_of(content()))
    write_record(replica, name, record._replace(digests=digests, adopted=False, summary=None))


def withdraw(
    replica: HeldReplica, name: str, seen: FileStatus | None = None, keeps_aside: bool = False
) -> None:
    """Remove the `_metadata` of a checkpoint. Raise `Refused` if it is not cpreplicate's own.

    `seen` is its status when it was found to be that, under the lease, if another one would have
    another status: then only that is asked for. `keeps_aside` is as of `HeldReplica.withdraw`.
    Raises `LeaseHeld` if the lease is lost. Where the storage can fence that, what another run
    published stays even if this one is held up after it has looked at its lease.
    """
    if seen is None or not _is_as_seen(replica, name, seen):
        observed = read_checkpoint(replica, name, has_own=True)
        if observed is None:
            return
        if observed.record is None or observed.record.adopted:
            raise Refused(
                f"{replica.uri_of(name)}/{METADATA} is not the one that cpreplicate wrote. Nothing"
                " was deleted"
            )
    replica.withdraw(f"{name}/{METADATA}", keeps_aside)


def ask_to_withdraw(replica: HeldReplica, name: str, seen: FileStatus | None) -> None:
    """Begin what `withdraw` asks soon."""
    if seen is None:
        ask_checkpoint(replica, name)
    else:
        replica.storage.ask("stat", replica.uri_of(f"{name}/{METADATA}"))


def _is_as_seen(replica: HeldReplica, name: str, seen: FileStatus) -> bool:
    now = replica.storage.stat(replica.uri_of(f"{name}/{METADATA}"))
    return now is not None and not now.is_link and _look(now) == _look(seen)


def _look(status: FileStatus) -> tuple[int, float]:
    return status.length, status.modified


def forget(replica: HeldReplica, name: str, own: Collection[str]) -> None:
    """Remove the manifest, fingerprints, record and empty directory of a withdrawn checkpoint.

    They stay if its `_metadata` is there after all: without a record it would be another program's.
    `own` are the files that were in `.cpreplicate/`: most checkpoints have no fingerprints.
    """
    if replica.storage.stat(replica.uri_of(f"{name}/{METADATA}")) is not None:
        return
    unrecorded = partial(_unrecord, replica, name, own)
    overlapping(replica.storage, unrecorded, partial(_remove_directory, replica, name))


def empty(replica: HeldReplica, name: str) -> bool:
    """Remove the directory of a checkpoint that was just withdrawn; return whether it was empty.

    If so, nothing is left of the checkpoint but what `unrecord` removes.
    """
    with suppress(OSError):
        return replica.storage.rmdir_left(replica.uri_of(name))
    return False


def unrecord(replica: HeldReplica, name: str, own: Collection[str]) -> None:
    """Remove what is recorded of a checkpoint of which nothing else is left.

    Its manifest may outlast its record if the run dies meanwhile: see `lone_manifests`.
    """
    remove_manifest = partial(manifest.remove, replica.storage, replica.root, name)
    overlapping(replica.storage, remove_manifest, partial(_remove_others, replica, name, own))


def _unrecord(replica: HeldReplica, name: str, own: Collection[str]) -> None:
    """Remove what is recorded of a checkpoint, its record last: that shows what is left to do."""
    manifest.remove(replica.storage, replica.root, name)
    _remove_others(replica, name, own)


def _remove_others(replica: HeldReplica, name: str, own: Collection[str]) -> None:
    if fingerprint_record.own_file(name) in own:  # else it would cost a request
        fingerprint_record.remove(replica, name)
    replica.storage.delete(record_uri(replica, name))


def _remove_directory(replica: HeldReplica, name: str) -> None:
    if replica.storage.has_directories:  # else each would cost requests
        replica.storage.rmdir(replica.uri_of(name))
