"""The record of a job's name: bounded when it is written and when it is read, and never trusted."""

import json

import pytest

from cpreplicate.protocol import job_record
from cpreplicate.protocol.job_record import JobRecord, read_job_record, record_job
from tests.support.replicas import held

ONE, TWO = f"{1:032x}", f"{2:032x}"


@pytest.fixture
def replica(tmp_path):
    with held(tmp_path) as replica:
        yield replica


def read(replica):
    return read_job_record(replica.side, replica.root)


def record(replica, *fields):
    record_job(replica, replica.own_files(), JobRecord(*fields))
    return read(replica)


def place(replica):
    return f"{replica.root.removeprefix('file:')}/.cpreplicate/job.json"


def test_a_name_is_read_as_it_was_recorded(replica):
    assert record(replica, "Fraud détection <script>", 5.0, (ONE,)) == JobRecord(
        "Fraud détection <script>", 5.0, (ONE,)
    )


def test_a_name_keeps_the_time_since_when_it_is_known_and_the_jobs_that_were_followed(replica):
    record(replica, "orders", 5.0, (ONE,))
    assert record(replica, "orders", 9.0, (TWO,)) == JobRecord("orders", 5.0, (ONE, TWO))
    assert record(replica, "orders", 9.0) == JobRecord("orders", 5.0, (ONE, TWO))


def test_another_name_begins_anew_and_keeps_the_jobs_that_were_followed(replica):
    record(replica, "orders", 5.0, (ONE,))
    assert record(replica, "orders-v2", 9.0) == JobRecord("orders-v2", 9.0, (ONE,))


def test_what_is_recorded_is_not_written_again(replica):
    record(replica, "x" * 400, 5.0, (ONE,))
    before = replica.own_files()["job.json"]
    record(replica, "x" * 400, 9.0, (ONE,))
    assert replica.own_files()["job.json"] == before


@pytest.mark.parametrize(
    "name",
    ["a\x1b[2Jb\n", "\ud800", "\u202e", "x" * 10_000_000, "\U0001f600" * 1000],
    ids=["escapes", "surrogate", "direction", "long", "pictures"],  # else 10 MB, in each worker
)
def test_a_hostile_name_is_recorded_short_and_in_characters_that_print(replica, name):
    recorded = record(replica, name, 5.0).name
    assert 0 < len(recorded) <= 300
    assert recorded.isprintable()
    assert replica.own_files()["job.json"].length < 1 << 13


@pytest.mark.parametrize("name", ["", " ", "\n" * 0])
def test_an_empty_name_is_not_recorded(replica, name):
    assert record(replica, name, 5.0) is None


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff",
        b"[]",
        b"{}",
        b'{"name": 5}',
        b'{"name": ["orders"]}',
        b'{"name": ""}',
        b"[" * 100_000,
        json.dumps({"name": "x" * 10_000_000}).encode(),
    ],
)
@pytest.mark.usefixtures("no_collection")
def test_a_damaged_record_is_none_and_is_replaced(replica, content):
    record(replica, "orders", 5.0)
    with open(place(replica), "wb") as file:
        file.write(content)
    assert read(replica) is None
    assert not job_record.is_job_recorded(replica.side, replica.root, replica.own_files(), "orders")
    assert record(replica, "orders", 6.0).name == "orders"


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"since": float("nan")}, JobRecord("orders", 0.0)),
        ({"since": "soon", "follows": "x"}, JobRecord("orders", 0.0)),
        ({"since": 10**400}, JobRecord("orders", 0.0)),
        ({"since": 5, "follows": [1, None, "x", ONE]}, JobRecord("orders", 5.0, (ONE,))),
        ({"name": "or\x00ders\x1b"}, JobRecord("or?ders?", 0.0)),
    ],
)
def test_fields_that_others_wrote_are_bounded_when_they_are_read(replica, fields, expected):
    record(replica, "orders", 5.0)
    with open(place(replica), "w") as file:
        json.dump({"name": "orders", **fields}, file)
    assert read(replica) == expected


def test_jobs_that_are_followed_are_not_more_than_64(replica):
    ids = tuple(f"{number:032x}" for number in range(100))
    assert record(replica, "orders", 5.0, ids).follows == ids[:64]
    assert record(replica, "orders", 5.0, ids[90:]).follows == ids[:64]
