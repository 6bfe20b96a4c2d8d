"""The record of which points a replica keeps: read by every sync, and never guessed."""

import json
import os

import pytest

from cpreplicate.core.retention import Retention, Stated
from cpreplicate.errors import Refused
from cpreplicate.protocol.retention_record import (
    NAME,
    described,
    read_retention,
    record_retention,
    shown_retention,
    stated_by,
)
from tests.support.replicas import held

POLICY = Retention(3, 90.5, 24, 30)
FIELDS = {
    **{"format": 1, "last": 1, "within": 0.0, "hourly": 0, "daily": 30},
    **{"command": "cpreplicate fleet", "user": "flink", "host": "a", "path": "/etc/fleet.toml"},
    "time": 1_800_000_000.0,
}


@pytest.fixture
def replica(tmp_path):
    with held(tmp_path) as replica:
        yield replica


@pytest.fixture
def record(tmp_path):
    """Write a file in the place of the record."""

    def written(content):
        (tmp_path / ".cpreplicate").mkdir(exist_ok=True)
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        (tmp_path / ".cpreplicate" / NAME).write_bytes(data)

    return written


def read(replica):
    return read_retention(replica, replica.own_files())


@pytest.mark.parametrize("path", [None, "/etc/cpreplicate/fleet.toml"])
def test_a_policy_is_read_as_it_was_recorded(replica, path):
    by = stated_by("cpreplicate sync", path)
    record_retention(replica, Stated(POLICY, by))
    found = read(replica)
    assert (found.retention, found.by) == (POLICY, by)
    assert by.path == path
    assert found.time > 0


def test_a_replica_without_a_record_has_no_policy(replica):
    assert read(replica) is None
    assert shown_retention(replica, replica.own_files()) == (None, None)


def test_a_record_that_vanishes_meanwhile_is_none(replica):
    assert read_retention(replica, {NAME}) is None


def test_the_last_policy_replaces_the_former(replica):
    for retention in (POLICY, Retention()):
        record_retention(replica, Stated(retention, stated_by("cpreplicate sync")))
    assert read(replica).retention == Retention()


@pytest.mark.parametrize("path", ["a\nb", "\x1b[2J", "\ud800", "x" * 5000])
def test_a_path_that_cannot_be_printed_is_no_file_that_could_be_known_again(replica, path):
    record_retention(replica, Stated(POLICY, stated_by("cpreplicate sync", path)))
    assert read(replica).by.path is None


def test_what_stated_a_policy_is_named_with_its_host_and_time(replica, record):
    record(FIELDS)
    assert described(read(replica)) == (
        "--keep-daily 30, stated by /etc/fleet.toml, read by `cpreplicate fleet` on a at"
        " 2027-01-15T08:00:00+00:00"
    )
    by = read(replica).by._replace(path=None)
    assert str(by) == "`cpreplicate fleet` of flink@a"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff",
        b"[]",
        b"{",
        b"{}",
        *({**FIELDS, name: value} for name, value in (
            ("format", 2), ("format", None), ("last", -1), ("last", 1.5), ("last", True),
            ("last", None), ("last", "3"), ("hourly", 1 << 60), ("daily", []), ("within", -1),
            ("within", float("nan")), ("within", 10**400), ("within", float("inf")),
            ("within", "1h"), ("path", 5), ("path", "a\nb"), ("command", None),
            ("command", "\x1b[2J"),
        )),
        *({other: FIELDS[other] for other in FIELDS if other != name} for name in (
            "format", "last", "within", "hourly", "daily", "command", "path",
        )),
    ],
)  # fmt: skip
def test_a_damaged_record_is_an_error_that_names_the_file_and_what_to_do(
    replica, record, tmp_path, content
):
    record(content)
    with pytest.raises(Refused, match="State the policy again") as refused:
        read(replica)
    assert f"{tmp_path}/.cpreplicate/{NAME}" in str(refused.value)
    assert shown_retention(replica, replica.own_files()) == (None, str(refused.value))


def test_a_directory_in_the_place_of_the_record_is_damage(replica, tmp_path):
    (tmp_path / ".cpreplicate" / NAME).mkdir(parents=True)
    with pytest.raises(Refused, match="is damaged"):
        read(replica)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_record_that_cannot_be_read_is_no_missing_one(replica, record, tmp_path):
    record(FIELDS)
    (tmp_path / ".cpreplicate" / NAME).chmod(0)
    with pytest.raises(OSError, match=NAME):
        read(replica)


def test_a_time_that_is_damaged_is_not_known_and_changes_nothing_else(replica, record):
    record({**FIELDS, "time": "yesterday"})
    assert read(replica).time is None
    assert "at an unknown time" in described(read(replica))
