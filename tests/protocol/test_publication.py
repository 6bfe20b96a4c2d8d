"""A commit that cannot be begun leaves nothing behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from cpreplicate.protocol import publication, replica_state
from cpreplicate.protocol.held import HeldReplica
from cpreplicate.protocol.lease import acquire
from cpreplicate.protocol.pending import PendingPut
from cpreplicate.protocol.publication import Publication
from cpreplicate.storage import Side
from tests.support.replicas import FILES, synced


def test_a_record_whose_metadata_cannot_be_begun_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if the system has no thread left: else its thread waits for ever."""
    root = f"file:{synced(tmp_path, {1: FILES})}"
    begun: list[PendingPut] = []
    closed: list[PendingPut] = []

    class Begun(PendingPut):
        def __init__(self, *args: object, **options: object) -> None:
            if begun:
                raise RuntimeError("can't start new thread")
            begun.append(self)
            super().__init__(*args, **options)

        def close(self) -> None:
            closed.append(self)
            super().close()

    monkeypatch.setattr(publication, "PendingPut", Begun)
    with acquire(root, Side()) as lease:
        replica = HeldReplica(root, Side(), lease)
        state = replica_state.examine(replica)
        with pytest.raises(RuntimeError, match="new thread"):
            Publication(replica, "chk-2", lambda: [b"x"], state)
    assert closed == begun
