"""A second examination, under the lease, reads only what may have changed since the first one."""

import os
import time

import pytest

from cpreplicate.core.placement import OWN
from cpreplicate.operations.upkeep import sweep
from cpreplicate.protocol import publication, replica_state
from cpreplicate.protocol.replica import Replica
from cpreplicate.runners import ExecutionOptions
from cpreplicate.storage import Side, Transient
from cpreplicate.storage.backends.local.local import LocalStorage
from tests.support.faults import Faulty
from tests.support.jobs import JOB
from tests.support.registry import serving
from tests.support.replicas import DAY, FILES, NEXT, aged, held, paths, synced
from tests.support.tracing import Tracing
from tests.support.untimed import untimed

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
    with untimed(), serving("file", tracing):  # a heartbeat would read the lease
        replica = Replica(f"file:{path}", Side())
        earlier = replica_state.examine(replica)
        change()
        with held(path) as replica:
            tracing.calls.clear()
            state = replica_state.examine(replica, earlier)
            reads = {
                uri.removeprefix(f"{replica.root}/")
                for verb, uri in tracing.calls
                if verb == "open"
            }
            truth = replica_state.examine(replica)
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
    young = time.time() + DAY  # however long the test takes
    os.utime(path / name, (young, young))
    reads, is_true = opened(path, lambda: replaced(path / name, young))
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


LATER = {"chk-3/x": 30}


class TestAMetadataThatIsListedButNotOpened:
    """As of a storage whose answers lag behind, or that hides what it cannot read."""

    @pytest.fixture
    def lost(self, tmp_path):
        """Return a replica of two checkpoints, and a storage that denies chk-2 `times` times."""
        replica = aged(synced(tmp_path, {1: FILES, 2: NEXT}, keep=2))
        return replica, lambda times: serving("file", Faulty(LocalStorage(), denying(times)))

    def test_is_opened_again(self, lost):
        replica, denied = lost
        with denied(2):
            state = replica_state.examine(Replica(f"file:{replica}", Side()))
        assert [committed.name for committed in state.committed] == ["chk-2", "chk-1"]
        assert not state.stale

    def test_is_never_taken_for_withdrawn(self, tmp_path, lost):
        replica, denied = lost
        before = paths(replica)
        with denied(999):
            for run in (lambda: synced(tmp_path, {3: LATER}, keep=2), lambda: swept(replica)):
                with pytest.raises(Transient, match="opening it answers that it is not") as caught:
                    run()
                assert caught.value.exit_code == 7
                assert caught.value.filename == f"file:{replica}/chk-2/_metadata"
        assert paths(replica) == before

    def test_costs_one_listing_where_the_file_was_withdrawn_meanwhile(self, lost):
        replica, _ = lost

        def withdrawn(verb, uri):
            if verb == "open" and uri.endswith("chk-2/_metadata"):
                (replica / "chk-2/_metadata").unlink(missing_ok=True)

        tracing = Tracing(Faulty(LocalStorage(), withdrawn))
        with serving("file", tracing):
            state = replica_state.examine(Replica(f"file:{replica}", Side()))
        assert [committed.name for committed in state.committed] == ["chk-1"]
        looks = [verb for verb, uri in tracing.calls if "/chk-2" in uri and OWN not in uri]
        assert looks == ["list", "open", "list"]

    def test_keeps_its_record(self, lost):
        replica, _ = lost
        before = paths(replica)
        with held(replica) as changed:
            publication.forget(changed, "chk-2", ())
        assert paths(replica) == before


def denying(times):
    """Answer that the `_metadata` of chk-2 is not there, so many times."""
    left = iter(range(times))

    def fault(verb, uri):
        is_asked = verb == "open" and uri.endswith("dcB/" + JOB + "/chk-2/_metadata")
        return FileNotFoundError(uri) if is_asked and next(left, None) is not None else None

    return fault


def swept(replica):
    request = sweep.SweepRequest(f"file:{replica}", 0, execution=ExecutionOptions(runner="inline"))
    return sweep.sweep(request, lambda _line: None)
