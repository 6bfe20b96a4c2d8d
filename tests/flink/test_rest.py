"""Answers of a JobManager with anything anywhere."""

import copy
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cpreplicate.errors import CpreplicateError, MetadataError
from cpreplicate.flink import FlinkRest
from cpreplicate.flink.client import RequestLimits
from tests.support.hostile import answer, hostile
from tests.support.waiting import PATIENCE

JOB = "0123456789abcdef0123456789abcdef"


AMPLE = RequestLimits(PATIENCE, 100_000)  # met only by a hang


OVERVIEW = {"jobs": [{"jid": JOB, "name": "orders", "start-time": 5000, "state": "RUNNING"}]}


COMPLETED = {"id": 7, "external_path": f"file:/dcA/{JOB}/chk-7", "latest_ack_timestamp": 9000}


DEEP = "[" * 50_000


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(
        ["\ud800", "\0", "file:/a/../../b", "//", f"file:/x/{JOB}/chk-9", "9" * 400, "ftp:x", ""]
    ),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2)
    ),
    max_leaves=4,
)


def places(value, path=()):
    """The paths of all values in a document."""
    yield path
    if isinstance(value, dict):
        for key in value:
            yield from places(value[key], (*path, key))
    if isinstance(value, list):
        for index, each in enumerate(value):
            yield from places(each, (*path, index))


def replaced(document, path, value):
    if not path:
        return value
    result = copy.deepcopy(document)
    inner = result
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return result


@pytest.fixture(scope="module")
def answering():
    """A server that answers with the document in `holder`, and a client of it."""
    holder: dict[str, bytes] = {}

    def script(connection, head):
        answer(holder["body"])(connection, head)

    with hostile(script) as server:
        rest = FlinkRest(server.url, limits=AMPLE)
        yield holder, rest
        rest.close()


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_any_value_at_any_place_of_an_answer_is_an_error_that_a_program_expects(answering, data):
    holder, rest = answering
    for document, ask in (
        (OVERVIEW, rest.jobs),
        ({"latest": {"completed": COMPLETED}}, lambda: rest.newest_checkpoint(JOB)),
    ):
        path = data.draw(st.sampled_from(list(places(document))))
        holder["body"] = json.dumps(replaced(document, path, data.draw(VALUES))).encode()
        try:
            found = ask()
        except (CpreplicateError, OSError):
            continue
        str(found).encode()  # it can be written


@pytest.mark.parametrize(
    "body",
    [
        DEEP,
        '{"a":' * 10_000,
        "",
        "\udcff",
        "{",
        "9" * 5000,
        '{"jobs": 1e999}',
        '{"jobs": {}}',
        "null",
        '"jobs"',
    ],
    ids=range(10),
)
@pytest.mark.usefixtures("no_collection")
def test_what_is_no_answer_of_flink_is_a_metadata_error(answering, body):
    holder, rest = answering
    holder["body"] = body.encode("utf-8", "surrogateescape")
    with pytest.raises(MetadataError, match="does not answer as Flink's REST API does"):
        rest.jobs()


@pytest.mark.parametrize("field", ["id", "latest_ack_timestamp"])
@pytest.mark.parametrize(
    "value", ["1e999", "-1", "NaN", "9" * 400, "9" * 5000, "true", '"7"', DEEP], ids=range(8)
)
@pytest.mark.usefixtures("no_collection")
def test_a_number_that_no_checkpoint_has_is_a_metadata_error(answering, field, value):
    holder, rest = answering
    marked = {"latest": {"completed": {**COMPLETED, field: "VALUE"}}}
    holder["body"] = json.dumps(marked).replace('"VALUE"', value).encode()
    with pytest.raises(MetadataError):
        rest.newest_checkpoint(JOB)


def test_a_job_with_a_field_that_is_wrong_hides_no_other(answering):
    holder, rest = answering
    good = OVERVIEW["jobs"][0]
    other = f"{1:032x}"
    entries = [
        {**good, "jid": "1" * 400},
        {**good, "jid": other, "state": 7},
        {},
        7,
        good,
    ]
    holder["body"] = json.dumps({"jobs": entries}).encode()
    overview = rest.jobs()
    assert [job.job_id for job in overview.jobs] == [JOB]
    assert list(overview.unclear) == [other]
    assert len(overview.problems) == 3
