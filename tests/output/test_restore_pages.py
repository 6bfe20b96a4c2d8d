"""The pages for webhooks and controllers: what a service answers, whatever jobs are called."""

import json
from dataclasses import replace
from http import HTTPStatus
from urllib.parse import quote

import pytest

from cpreplicate.core.lag import Newest
from cpreplicate.core.restore import Restore
from cpreplicate.core.start import Starting
from cpreplicate.operations.jobs.observation import Observation
from cpreplicate.operations.jobs.restore_point import restore_point, selected
from cpreplicate.operations.jobs.restore_state import RestoreState
from cpreplicate.output.restore_pages import page_of
from cpreplicate.protocol.seal import Seal
from tests.support.schema import mistakes, schema, undescribed

NOW = 1_000.0
FIRST, SECOND = f"{1:032x}", f"{2:032x}"


def observed(name, job=FIRST, root="hdfs://dcB/r", sealed=None, **more):
    replica = f"{root}/{job}"
    place = f"{replica}/chk-42"
    how = Restore("NO_CLAIM", ("flink", "run", "-s", place, "JAR"), "it is safe")
    start = Starting(place, how, {"savepointPath": place}, {"mode": "NO_CLAIM"}, 900)
    fields = {
        "source_newest": Newest(43, 990.0),
        "replica_newest": Newest(42, 970.0),
        "restore_state": RestoreState(start, 970.0, sealed),
        "replica_looked": 995.0,
        "tries": 1,
        **more,
    }
    return Observation(name, replica=replica, **fields)


def points_of(*observations):
    def points(job):
        found = list(observations)
        if job is not None:
            found = selected(found, lambda each: each, job)
        return [restore_point(each, NOW) for each in found]

    return points


def ask(path, *observations, name=None):
    """Status and document of a page, which its schema describes whole if it succeeded."""
    page = page_of(path, points_of(*observations))
    assert page.kind == "application/json"
    document = json.loads(page.text)
    if name is not None:
        assert list(mistakes(document, schema(name))) == []
        assert list(undescribed(document, schema(name))) == []
    return page.status, document


def test_a_job_is_described_as_it_was_when_its_replica_was_looked_at():
    status, point = ask("/jobs/orders/restore", observed("orders"), name="restore")
    assert status == HTTPStatus.OK
    assert point["path"] == f"hdfs://dcB/r/{FIRST}/chk-42"
    assert (point["name"], point["job"], point["checkpoint"]) == ("orders", FIRST, "chk-42")
    assert point["checkpoint_completed"] == "1970-01-01T00:16:10.000Z"
    assert point["observed"] == "1970-01-01T00:16:35.000Z"
    assert (point["claim_mode"], point["sealed"], point["ready"]) == ("NO_CLAIM", False, True)
    assert point["lag_seconds"] == 30


def test_a_replica_that_is_not_sealed_has_no_manifest_to_apply():
    _, point = ask("/jobs/orders/restore", observed("orders"), name="restore")
    assert point["restore"]["deployment"] is None
    assert point["restore"]["snapshot"] is None
    sealed = observed("orders", sealed=Seal("chk-42", 900.5))
    _, point = ask("/jobs/orders/restore", sealed, name="restore")
    job = point["restore"]["deployment"]["spec"]["job"]
    assert job == {"initialSavepointPath": point["path"], "savepointRedeployNonce": 900}
    assert point["restore"]["snapshot"]["kind"] == "FlinkStateSnapshot"
    assert (point["sealed"], point["sealed_at"]) == (True, "1970-01-01T00:15:00.500Z")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"restore_state": None, "replica_looked": None}, "the replica was not looked at yet"),
        ({"restore_state": RestoreState()}, "it holds no checkpoint that cpreplicate committed"),
        ({"restore_state": RestoreState(refusal="a link")}, "a link"),
        ({"is_lease_held": True}, "another process holds its lease"),
    ],
)
def test_a_job_that_cannot_be_promoted_has_the_reason(changes, reason):
    job = observed("orders", **changes)
    _, point = ask("/jobs/orders/restore", job, name="restore")
    assert (point["ready"], point["not_ready_because"]) == (False, reason)
    ask("/jobs", job, name="jobs")


def test_a_checkpoint_that_no_claim_mode_restores_has_no_command():
    job = observed("orders")
    start = replace(job.restore_state.starting, restore=Restore(None, None, "none is safe"))
    job.restore_state = job.restore_state._replace(starting=start)
    _, point = ask("/jobs/orders/restore", job, name="restore")
    assert (point["claim_mode"], point["restore"]["command"]) == (None, None)


@pytest.mark.parametrize(
    "name",
    [
        "a/b",
        "a%2Fb",
        "100%",
        "..",
        ".",
        "a b",
        "größe",
        "注文",
        "a?b#c",
        "a;b",
        "",
        "/jobs",
        "\ud800",
        "x\n",
    ],
)
def test_the_url_of_a_job_finds_it_whatever_its_name(name):
    jobs = [observed(name), observed("other", SECOND)]
    _, listed = ask("/jobs", *jobs, name="jobs")
    url = listed["jobs"][0]["url"]
    assert url.count("/") == 3
    assert ".." not in url
    status, point = ask(url, *jobs, name="restore")
    assert (status, point["job"], point["name"]) == (HTTPStatus.OK, FIRST, name)


def test_two_jobs_of_one_name_are_a_conflict_and_the_id_selects_one():
    jobs = [observed("orders"), observed("orders", SECOND)]
    status, conflict = ask("/jobs/orders/restore", *jobs)
    assert status == HTTPStatus.CONFLICT
    assert [each["job"] for each in conflict["jobs"]] == [FIRST, SECOND]
    for each in conflict["jobs"]:
        assert ask(each["url"], *jobs, name="restore")[1]["job"] == each["job"]


def test_two_replicas_of_one_id_and_name_are_told_apart_by_their_urls():
    jobs = [observed("orders"), observed("orders", root="hdfs://dcC/r")]
    assert ask(f"/jobs/{FIRST}/restore", *jobs)[0] == HTTPStatus.CONFLICT
    _, listed = ask("/jobs", *jobs, name="jobs")
    replicas = [ask(each["url"], *jobs)[1]["replica"] for each in listed["jobs"]]
    assert replicas == [f"hdfs://dcB/r/{FIRST}", f"hdfs://dcC/r/{FIRST}"]


def test_a_job_that_is_called_as_the_id_of_another_hides_neither():
    jobs = [observed("orders"), observed(FIRST, SECOND)]
    assert ask(f"/jobs/{FIRST}/restore", *jobs)[1]["name"] == "orders"
    _, listed = ask("/jobs", *jobs, name="jobs")
    found = [ask(each["url"], *jobs)[1]["job"] for each in listed["jobs"]]
    assert found == [FIRST, SECOND]


@pytest.mark.parametrize(
    "path",
    ["/jobs/nobody/restore", "/jobs/../restore", "/jobs/%2e%2e%2fetc/restore", "/jobs//restore",
     "/jobs/%ff%00/restore", "/jobs/orders", "/jobs/orders/restore/", "/jobs/orders/delete"],
)  # fmt: skip
def test_what_is_not_there_is_a_404_in_json(path):
    status, document = ask(path, observed("orders"))
    assert status == HTTPStatus.NOT_FOUND
    assert document["error"].isprintable()


@pytest.mark.parametrize("path", ["/", "/job", "/jobsx", "/%6Aobs"])
def test_a_path_of_others_is_left_to_them(path):
    assert page_of(path, points_of()) is None


def test_no_password_of_a_uri_is_answered():
    root = "s3a://key:se:cr%et@bucket/r"
    error = f"{root}/x cannot be read"
    seal = Seal("chk-42", 900.0)
    jobs = [
        observed("orders", root=root, last_error=error, sealed=seal),
        observed(
            "orders", root="s3a://key:se:cr%et@other/r", restore_state=RestoreState(refusal=error)
        ),
    ]
    _, listed = ask("/jobs", *jobs, name="jobs")
    urls = [each["url"] for each in listed["jobs"]]
    texts = [
        page_of(url, points_of(*jobs)).text for url in ["/jobs", "/jobs/orders/restore", *urls]
    ]
    assert [json.loads(text)["replica"] for text in texts[2:]] == [
        f"s3a://bucket/r/{FIRST}",
        f"s3a://other/r/{FIRST}",
    ]
    for text in texts:
        assert "cr%et" not in text
        assert quote("cr%et") not in text


def test_a_container_stays_in_a_uri():
    root = "abfss://container@account.dfs.core.windows.net/r"
    _, point = ask("/jobs/orders/restore", observed("orders", root=root), name="restore")
    assert point["path"] == f"{root}/{FIRST}/chk-42"


def test_a_thousand_jobs_are_listed_by_one_look_at_what_is_known():
    jobs = [observed(f"job-{number}", f"{number:032x}") for number in range(1000)]
    looks = []

    def points(job):
        looks.append(job)
        return points_of(*jobs)(job)

    listed = json.loads(page_of("/jobs", points).text)["jobs"]
    assert [each["url"] for each in listed] == [f"/jobs/job-{n}/restore" for n in range(1000)]
    assert looks == [None]
