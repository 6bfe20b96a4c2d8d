"""Uploads that runs which died left incomplete, where the storage keeps them."""

from __future__ import annotations

from cpreplicate.core import uri
from cpreplicate.core.packs import is_written
from cpreplicate.core.placement import METADATA, OWN
from cpreplicate.protocol import lease
from cpreplicate.protocol.held import HeldReplica
from cpreplicate.protocol.ledger import Ledger
from cpreplicate.protocol.replica_state import State


def abort_left(replica: HeldReplica, state: State, ledger: Ledger) -> list[str]:
    """Abort the uploads that runs of cpreplicate left when they died, and return their paths.

    There are some only where the storage `keeps_uploads`. They are of files that manifests and
    journals list as written or about to be, of `_metadata` that has a record and was not adopted,
    and of files in `.cpreplicate/`. The storage dated them and the lease, which this run holds:
    what began before it is of no run that lives.
    """
    taken = state.own.get(lease.NAME)
    if taken is None:
        return []
    written = ledger.written
    records = {**state.stale, **state.records}
    named = {name for name, record in records.items() if record and not record.adopted}

    def is_left(file_uri: str, began: float) -> bool:
        path = uri.below(file_uri, replica.root)
        if path is None or began >= taken.modified:
            return False
        directory, _, name = path.rpartition("/")
        is_metadata = name == METADATA and directory in named
        return is_metadata or directory == OWN or is_written(path, written)

    aborted = replica.storage.abort_uploads(replica.root, is_left)
    return [each.removeprefix(replica.uri_of("")) for each in aborted]
