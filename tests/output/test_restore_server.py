"""`GET /jobs` and `GET /jobs/NAME/restore` asked by clients; the schemas by jsonschema."""

import json
import socket
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import quote

import pytest
from jsonschema import Draft202012Validator

from cpreplicate.core.lag import Newest
from cpreplicate.core.restore import Restore
from cpreplicate.core.start import Starting
from cpreplicate.operations.jobs.observation import Observation
from cpreplicate.operations.jobs.restore_point import restore_point, selected
from cpreplicate.operations.jobs.restore_state import RestoreState
from cpreplicate.output.http import ListenAddress, serve
from cpreplicate.output.restore_pages import page_of
from cpreplicate.protocol.seal import Seal
from tests.support.waiting import PATIENCE

FREE = ListenAddress("127.0.0.1", 0)
NOW = 2000.0
SCHEMAS = Path(__file__).parents[2] / "docs" / "schemas"
ODD_NAMES = [
    *("a/b", "50%", "%2F", "..", ".", "", "ünï ☃", "a?b#c", "a b+c;d", "\ud800", "\x1b[2J"),
    "x" * 900,
]


def observed(name="orders", job="5" * 32, root="hdfs://dcB/r", number=7, **fields):
    """A job whose replica was looked at, and holds a checkpoint."""
    replica = f"{root}/{job}"
    path = f"{replica}/chk-{number}"
    restore = Restore("NO_CLAIM", ("flink", "run", "-s", path, "JAR"), "it is safe")
    starting = Starting(path, restore, {"savepointPath": path}, {"claim": "NO_CLAIM"}, 1234)
    restore_state = RestoreState(starting, 1000.0, fields.pop("sealed", None))
    newest = Newest(number, 1000.0)
    known = {"restore_state": restore_state, "replica_looked": 1900.0, "source_newest": newest}
    return Observation(name, replica=replica, **{**known, "replica_newest": newest, **fields})


def served(*jobs):
    def points(job):
        chosen = list(jobs) if job is None else selected(jobs, lambda each: each, job)
        return [restore_point(each, NOW) for each in chosen]

    yes = partial(bool, 1)
    return serve(FREE, list, yes, yes, pages=lambda path: page_of(path, points))


def ask(address, path, method="GET", body=None):
    """Status, headers and body of an answer to a path that is sent as it is."""
    connection = HTTPConnection(*address, timeout=PATIENCE)
    connection.putrequest(method, path, skip_accept_encoding=True)
    if body is not None:
        connection.putheader("Content-Length", str(len(body)))
    connection.endheaders(body)
    with connection.getresponse() as response:
        answer = response.status, dict(response.getheaders()), response.read()
    connection.close()
    return answer


def get(address, path):
    status, headers, body = ask(address, path)
    assert headers["Content-Type"] == "application/json"
    return status, json.loads(body)


def errors(name, page):
    """What its published schema finds wrong with a page."""
    schema = json.loads((SCHEMAS / f"{name}.schema.json").read_text())
    Draft202012Validator.check_schema(schema)
    return [error.message for error in Draft202012Validator(schema).iter_errors(page)]


STATES = {
    "unsealed": observed(),
    "sealed": observed(sealed=Seal("chk-7", 1500.0)),
    "unlooked": Observation("new", replica="hdfs://dcB/r/9"),
    "empty": observed(restore_state=RestoreState(), replica_newest=None),
    "claimed": observed(restore_state=RestoreState(sealed=Seal("chk-7", 1500.0))),
    "foreign": observed(restore_state=RestoreState(refusal="a job lives here")),
    "held": observed(is_lease_held=True),
    "failed": observed(last_error="the source is gone", last_exit_code=7),
    "unseen": observed(look_within=1.0),
    "undated": observed(restore_state=observed().restore_state._replace(completed=None)),
}


@pytest.mark.parametrize("state", STATES)
def test_the_documents_are_as_their_schemas_say(state):
    with served(STATES[state]) as address:
        _, jobs = get(address, "/jobs")
        status, restore = get(address, jobs["jobs"][0]["url"])
    assert status == 200
    assert errors("jobs", jobs) == []
    assert errors("restore", restore) == []


@pytest.mark.parametrize(
    "damage",
    [
        {"path": 1},
        {"sealed": "yes"},
        {"ready": None},
        {"observed": 12},
        {"claim_mode": "LEGACY"},
        {"lag_seconds": -1},
    ],
)
def test_the_schema_refuses_what_is_no_restore_document(damage):
    with served(observed()) as address:
        _, restore = get(address, "/jobs/orders/restore")
    assert errors("restore", {**restore, **damage})


def test_a_restore_document_has_what_a_controller_sets():
    with served(observed()) as address:
        _, page = get(address, "/jobs/orders/restore")
    assert page["path"] == f"hdfs://dcB/r/{'5' * 32}/chk-7"
    assert (page["claim_mode"], page["checkpoint"]) == ("NO_CLAIM", "chk-7")
    assert page["checkpoint_completed"] == "1970-01-01T00:16:40.000Z"
    assert page["observed"] == "1970-01-01T00:31:40.000Z"
    assert (page["ready"], page["sealed"], page["lag_seconds"]) == (True, False, 0.0)


def test_only_a_sealed_replica_has_a_deployment_because_that_would_start_the_job():
    with served(observed(), observed("sealed", "6" * 32, sealed=Seal("chk-7", 1500.0))) as address:
        unsealed = get(address, "/jobs/orders/restore")[1]
        sealed = get(address, "/jobs/sealed/restore")[1]
    assert unsealed["restore"]["deployment"] is unsealed["restore"]["snapshot"] is None
    assert sealed["restore"]["deployment"]["spec"]["job"]["savepointRedeployNonce"] == 1234
    assert sealed["sealed_at"] == "1970-01-01T00:25:00.000Z"


def test_each_reason_against_a_promotion_is_named():
    expected = {
        "unlooked": "the replica was not looked at yet",
        "empty": "it holds no checkpoint that cpreplicate committed",
        "claimed": "chk-7, for which it is sealed, is not there",
        "foreign": "a job lives here",
        "held": "another process holds its lease",
    }
    for state, job in STATES.items():
        with served(job) as address:
            (row,) = get(address, "/jobs")[1]["jobs"]
        assert row["not_ready_because"] == expected.get(state), state
        assert row["ready"] == (state not in expected)


def test_while_the_source_is_unseen_the_lag_is_an_age():
    with served(STATES["unseen"]) as address:
        (row,) = get(address, "/jobs")[1]["jobs"]
    assert (row["lag_seconds"], row["source_unseen"]) == (1000.0, True)


@pytest.mark.parametrize("name", ODD_NAMES)
def test_every_listed_url_means_its_own_job_whatever_that_is_called(name):
    with served(observed(name, "1" * 32), observed("other", "2" * 32)) as address:
        (row,) = [row for row in get(address, "/jobs")[1]["jobs"] if row["name"] == name]
        assert row["url"].isascii()
        status, page = get(address, row["url"])
    assert (status, page["name"], page["job"]) == (200, name, "1" * 32)


def test_jobs_of_one_name_are_409_and_their_ids_select_them():
    jobs = [observed("orders", digit * 32) for digit in "12"]
    with served(*jobs) as address:
        status, page = get(address, "/jobs/orders/restore")
        assert status == 409
        assert [row["job"] for row in page["jobs"]] == ["1" * 32, "2" * 32]
        urls = [row["url"] for row in page["jobs"]]
        assert urls == [f"/jobs/{digit * 32}/restore" for digit in "12"]
        assert [get(address, url)[1]["job"] for url in urls] == ["1" * 32, "2" * 32]


def test_jobs_of_one_id_below_several_roots_are_selected_by_their_replica():
    jobs = [observed("orders", "0" * 32, root) for root in ("hdfs://b/r", "hdfs://c/r")]
    with served(*jobs) as address:
        status, page = get(address, f"/jobs/{'0' * 32}/restore")
        assert status == 409
        urls = [row["url"] for row in page["jobs"]]
        assert urls[0] == f"/jobs/{quote(jobs[0].replica, safe='')}/restore"
        assert [get(address, url)[1]["replica"] for url in urls] == [job.replica for job in jobs]


def test_a_job_named_as_the_id_or_the_replica_of_another_one_does_not_hide_that():
    victim = observed("orders", "1" * 32)
    named = [observed("1" * 32, "2" * 32), observed(victim.replica, "3" * 32)]
    with served(victim, *named) as address:
        assert get(address, f"/jobs/{'1' * 32}/restore")[1]["name"] == "orders"
        rows = get(address, "/jobs")[1]["jobs"]
        for row in rows:
            assert get(address, row["url"])[1]["job"] == row["job"]


@pytest.mark.parametrize(
    "path",
    [
        "/jobs/nothing/restore",
        "/jobs/../restore",
        "/jobs/%2e%2e/restore",
        "/jobs//restore",
        "/jobs/",
        "/jobs/orders",
        "/jobs/orders/",
        "/jobs/orders/restore/",
        "/jobs/orders/x/restore",
        "/jobs/orders%2Frestore",
        "/jobs/ORDERS/restore",
        "/jobs/%ff%00/restore",
        "/jobs/%/restore",
        "/jobs/%252e/restore",
    ],
)
def test_another_path_below_jobs_is_404_in_json(path):
    with served(observed()) as address:
        status, page = get(address, path)
    assert status == 404
    assert page["error"]


def test_a_query_changes_nothing():
    with served(observed()) as address:
        assert get(address, "/jobs?x=/../y")[0] == 200
        assert get(address, "/jobs/orders/restore?a=b")[0] == 200


@pytest.mark.parametrize("path", ["/jobs", "/jobs/orders/restore", "/jobs/nothing/restore"])
def test_head_has_the_headers_of_get_and_no_body(path):
    with served(observed()) as address:
        status, headers, body = ask(address, path)
        head = ask(address, path, "HEAD")
    assert (head[0], head[2]) == (status, b"")
    # times in the document are of equal length
    assert head[1]["Content-Length"] == headers["Content-Length"] == str(len(body))


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"])
@pytest.mark.parametrize("path", ["/jobs", "/jobs/orders/restore", "/metrics", "/healthz"])
def test_a_method_that_does_not_read_is_405(method, path):
    with served(observed()) as address:
        status, headers, _ = ask(address, path, method, body=b"x" * 5000)
    assert (status, headers["Allow"]) == (405, "GET, HEAD")


def test_a_path_that_is_none_is_400_and_the_server_answers_the_next_client(capsys):
    with served(observed()) as address:
        with socket.create_connection(address, PATIENCE) as client:
            client.sendall(b"GET http://[/jobs HTTP/1.0\r\n\r\n")
            with client.makefile("rb") as stream:
                assert b" 400 " in stream.readline()
        assert get(address, "/jobs")[0] == 200
    assert capsys.readouterr().err == ""


def test_no_cache_keeps_a_path_that_goes_with_the_next_sync():
    with served(observed()) as address:
        assert ask(address, "/jobs/orders/restore")[1]["Cache-Control"] == "no-store"


def test_a_thousand_jobs_are_listed_each_by_its_own_url():
    jobs = [observed(f"job {number}", f"{number:032x}") for number in range(1000)]
    with served(*jobs) as address:
        rows = get(address, "/jobs")[1]["jobs"]
    assert len({row["url"] for row in rows}) == 1000
