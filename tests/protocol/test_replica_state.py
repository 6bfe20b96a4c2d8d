"""A second examination, under the lease, reads only what may have changed since the first one."""

import os
import time

import pytest

from cpreplicate.protocol import replica_state
from cpreplicate.protocol.lease import acquire
from cpreplicate.protocol.replica import Replica
from cpreplicate.storage import Side
from cpreplicate.storage.backends.local import LocalStorage
from tests.support.registry import serving
from tests.support.replicas import DAY, FILES, aged, synced
from tests.support.tracing import Tracing

METADATA = "chk-1/_metadata"
RECORD = ".cpreplicate/chk-1.json"
MARKER = ".cpreplicate/replica.json"


@pytest.fixture
def path(tmp_path):
    return aged(synced(tmp_path, {1: FILES}))


def opened(path, change=lambda: None):
    """Return the files that an examination under the lease opens, and whether it finds the truth.

    `change` happens between the two examinations.
    """
    tracing = Tracing(LocalStorage())
    with serving("file", tracing):
        replica = Replica(f"file:{path}", Side())
        earlier = replica_state.examine(replica)
        change()
        with acquire(replica.root, replica.side):
            tracing.calls.clear()
            state = replica_state.examine(replica, is_alone=True, earlier=earlier)
            reads = {
                uri.removeprefix(f"{replica.root}/")
                for verb, uri in tracing.calls
                if verb == "open"
            }
            truth = replica_state.examine(replica, is_alone=True)
    parts = ("marker", "committed", "adopted", "unrecorded", "records", "stale")
    return reads, all(getattr(state, part) == getattr(truth, part) for part in parts)


def replaced(file, modified):
    """Put another file of the same length there, with this time."""
    data = file.read_bytes()
    file.write_bytes(bytes(reversed(data)))
    os.utime(file, (modified, modified))


def test_what_has_not_changed_is_not_read_again(path):
    assert opened(path) == (set(), True)


@pytest.mark.parametrize("days_ago", [0, 9])
@pytest.mark.parametrize("name", [METADATA, RECORD])
def test_a_checkpoint_whose_file_was_replaced_is_read_again(path, name, days_ago):
    modified = time.time() - days_ago * DAY
    reads, is_true = opened(path, lambda: replaced(path / name, modified))
    assert reads >= {METADATA, RECORD}
    assert is_true


def test_a_marker_that_was_replaced_is_read_again(path):
    text = (path / MARKER).read_text()
    reads, is_true = opened(path, lambda: (path / MARKER).write_text(text.replace("dcA", "dcX")))
    assert MARKER in reads
    assert is_true


@pytest.mark.parametrize("name", [METADATA, RECORD])
def test_a_file_so_young_that_its_time_does_not_distinguish_it_is_read_again(path, name):
    """Another one may have been written within the same second, and S3 dates by seconds."""
    now = time.time()
    os.utime(path / name, (now, now))
    reads, is_true = opened(path, lambda: replaced(path / name, now))
    assert name in reads
    assert is_true


def test_a_checkpoint_that_was_withdrawn_is_not_found_any_more(path):
    assert opened(path, (path / METADATA).unlink)[1]


def test_a_metadata_that_another_program_wrote_under_a_new_number_is_found(path):
    def write():
        (path / "chk-9").mkdir()
        (path / "chk-9" / "_metadata").write_bytes((path / METADATA).read_bytes())

    reads, is_true = opened(path, write)
    assert "chk-9/_metadata" in reads
    assert is_true
