"""What cpreplicate cannot read of its own records makes it refuse, never delete."""

import pytest

from cpreplicate.errors import Refused
from cpreplicate.operations.sync import sync
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.runners import ExecutionOptions
from tests.support.jobs import JOB, write_checkpoint
from tests.support.replicas import FILES, NEXT, synced


def contents(replica):
    return {path: path.read_bytes() for path in replica.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("record", "why"),
    [
        ("replica.json", "is damaged, or of another version"),
        ("chk-1.json", "was not written by cpreplicate"),
    ],
)
@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b"[1]",
        b'{"digests": [[1, 2]], "sources": 4, "sequence": "x"}',
        b'{"format": 1, "replica_id": "x", "job": "y", "sources": [], "adopted": false}',
    ],
)
def test_a_damaged_marker_or_record_is_refused_with_nothing_changed(tmp_path, record, why, content):
    replica = synced(tmp_path, {1: FILES})
    (replica / ".cpreplicate" / record).write_bytes(content)
    (
        replica / ".cpreplicate" / "chk-1.parquet"
    ).unlink()  # otherwise it shows the same as the record
    write_checkpoint(tmp_path / "dcA", 2, NEXT)
    before = contents(replica)
    with pytest.raises(Refused, match=why):
        sync.sync(
            SyncRequest(
                f"file:{tmp_path}/dcA/{JOB}",
                f"file:{tmp_path}/dcB",
                execution=ExecutionOptions(runner="inline"),
            ),
            lambda _line: None,
        )
    assert contents(replica) == before
