"""A replica is changed only while its lease is held, by whatever verb."""

import inspect

import pytest

from cpreplicate.errors import LeaseHeld
from cpreplicate.protocol import held as protocol_held
from cpreplicate.storage import Storage
from cpreplicate.storage.wrappers.base import READING
from tests.support.replicas import held

READS = {
    *READING,
    "open_extent",
    "listing",
    "real",
    "file_id",
    "are_in_one_mount",
    "mounts_below",
    "files_named",
    "reach",
}
READS |= {
    "ask",
    "answer",
    "service_time",
    "space",
    "delete_policies",
    "inside",
    "carry_out",
    "as_one",
}
CHANGES = {
    "put",
    "publish",
    "create_exclusive",
    "take_over",
    "withdraw",
    "fence",
    "move",
    "rmdir_left",
}
CHANGES |= {"delete", "rmdir", "abort_uploads", "copy_within", "ignored_conditions"}
CHANGES |= {"keep_room", "fill_room", "begin_join", "write_range", "join", "give_up_join"}
CHANGES |= {"delete_into_room"}


def test_each_verb_of_a_storage_reads_or_changes():
    verbs = {name for name, _ in inspect.getmembers(Storage, callable) if not name.startswith("_")}
    assert verbs - READS - {"unwrapped"} == CHANGES


@pytest.fixture(autouse=True)
def without_a_second_between_looks(monkeypatch):
    """Each check reads the lease, also one right after another."""
    monkeypatch.setattr(protocol_held, "JUST_CHECKED", 0.0)


def arguments_of(verb, uri):
    names = list(inspect.signature(getattr(Storage, verb)).parameters)[1:]
    given = {"content": lambda: [b"x"], "data": b"x", "seen": b"y", "replace": True}
    given |= {"expect": None, "attributes": None, "durable": False, "new_uri": f"{uri}-2"}
    given |= {
        "check": lambda *_: None,
        "is_left": lambda *_: True,
        "aside": f"{uri}-3",
        "length": 9,
        "offset": 0,
        "receipts": [],
    }
    return [given.get(name, uri) for name in names]


@pytest.mark.parametrize("verb", sorted(CHANGES))
def test_nothing_is_changed_once_the_lease_is_lost(tmp_path, verb):
    with held(tmp_path) as replica:
        (tmp_path / ".cpreplicate" / "lease").unlink()
        (tmp_path / "file").write_bytes(b"y")
        before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
        with pytest.raises(LeaseHeld):
            getattr(replica.storage, verb)(*arguments_of(verb, f"file:{tmp_path}/file"))
        assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_a_file_that_is_written_when_the_lease_is_lost_does_not_appear(tmp_path):
    def content():
        (tmp_path / ".cpreplicate" / "lease").unlink()
        yield b"x"

    with pytest.raises(LeaseHeld), held(tmp_path) as replica:
        replica.storage.put(replica.uri_of("file"), content)
    assert [path.name for path in tmp_path.iterdir()] == [".cpreplicate"]
