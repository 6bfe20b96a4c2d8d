"""The fingerprints of a checkpoint count for it only, and a damaged file is as none."""

import json

import pytest

from cpreplicate.core.positions.fingerprints import Fingerprint, Seen
from cpreplicate.protocol.checkpoint_record import recorded_names
from cpreplicate.protocol.fingerprint_record import (
    own_file,
    read_fingerprints,
    record_fingerprints,
    remove,
)
from tests.support.replicas import held

RECORD, BEFORE = Seen(41, 1_700_000_000_000, False, "a" * 64), Seen(40, 12, True, "b" * 64)
KEPT = (
    Fingerprint("orders", 3, 42, RECORD, BEFORE, 2),
    Fingerprint("orders", 4, 0, RECORD._replace(offset=0)),
)
DONE = 1_700_000_123.5


@pytest.fixture
def replica(tmp_path):
    with held(tmp_path) as replica:
        yield replica


@pytest.mark.parametrize("completed", [DONE, None])
@pytest.mark.parametrize("name", ["chk-7", "rebased/chk-7-1"])
def test_what_was_kept_is_read_back(replica, name, completed):
    record_fingerprints(replica, name, KEPT, completed)
    assert read_fingerprints(replica, name, completed) == KEPT
    assert read_fingerprints(replica, "chk-8", completed) == ()
    remove(replica, name)
    assert read_fingerprints(replica, name, completed) == ()


def test_those_of_an_earlier_checkpoint_of_the_same_number_do_not_count(replica):
    record_fingerprints(replica, "chk-7", KEPT, DONE)
    assert read_fingerprints(replica, "chk-7", DONE + 1) == ()


@pytest.mark.parametrize("name", ["chk-7", "rebased/chk-7-1"])
def test_earlier_releases_do_not_take_them_for_a_record_of_a_checkpoint(name):
    assert recorded_names([own_file(name)]) == []


@pytest.mark.parametrize(
    "change",
    [
        lambda fields: fields["positions"][0].__setitem__(0, "a\x1b[2J"),
        lambda fields: fields["positions"][0].__setitem__(2, -1),
        lambda fields: fields["positions"][0].__setitem__(2, 1 << 70),
        lambda fields: fields["positions"][0].__setitem__(2, True),
        lambda fields: fields["positions"][0].__setitem__(3, None),
        lambda fields: fields["positions"][0].__setitem__(3, [1, 2, False]),
        lambda fields: fields["positions"][0].__setitem__(3, [1, 2, False, "short"]),
        lambda fields: fields["positions"][0].append(1),
        lambda fields: fields.__setitem__("positions", {"a": 1}),
        lambda fields: fields.__setitem__("format", 2),
        lambda fields: fields.pop("completed"),
    ],
)
def test_a_damaged_file_is_as_none(replica, tmp_path, change):
    record_fingerprints(replica, "chk-7", KEPT, DONE)
    path = tmp_path / ".cpreplicate" / own_file("chk-7")
    fields = json.loads(path.read_bytes())
    change(fields)
    path.write_text(json.dumps(fields))
    assert read_fingerprints(replica, "chk-7", DONE) == ()
    path.write_bytes(b"\0" * 100)
    assert read_fingerprints(replica, "chk-7", DONE) == ()
    path.unlink()
    path.mkdir()
    assert read_fingerprints(replica, "chk-7", DONE) == ()
