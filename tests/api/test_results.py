"""Results as dictionaries and as texts."""

import pytest

from cpreplicate import (
    Checkpoint,
    FleetJob,
    Place,
    SyncOptions,
    errors,
    fleet,
    list_points,
    plan,
    promote,
    status,
    sweep,
    sync,
    to_dict,
    unseal,
    verify,
)
from cpreplicate.runners import ExecutionOptions
from tests.support.commandline import run
from tests.support.jobs import JOB
from tests.support.replicas import FILES

pytestmark = pytest.mark.usefixtures("still_source")
INLINE = ExecutionOptions(runner="inline")
OPTIONS = SyncOptions(keep=2, execution=INLINE)
CHANGING = ("started", "finished", "seconds", "age_seconds", "lag_seconds", "groups")


@pytest.fixture
def replica(places, tmp_path):
    sync(places[0], places[1], OPTIONS)
    return tmp_path / "dcB" / JOB


def steady(found):
    """Return a document without what changes from one run to the next."""
    if isinstance(found, list):
        return [steady(each) for each in found]
    if not isinstance(found, dict):
        return found
    return {name: steady(each) for name, each in found.items() if name not in CHANGING}


def printed(*words):
    return steady(run(*words, "--output", "json").json())


def test_a_dictionary_is_the_json_of_the_command(places, replica, tmp_path):
    source, target = places
    job, root = tmp_path / "dcA" / JOB, tmp_path / "dcB"
    inline = ("--runner", "inline")
    pairs = {
        "diff": (plan(source, target, OPTIONS), ("diff", "--keep", 2, job, root)),
        "verify": (verify(replica, execution=INLINE), ("verify", *inline, replica)),
        "status": (status(target), ("status", root)),
        "list": (list_points(target), ("list", root)),
        "inspect": (Checkpoint(job).inspect(), ("inspect", job)),
        "sweep": (sweep(replica, dry_run=True), ("sweep", "--dry-run", *inline, replica)),
        "promote": (
            promote(replica, dry_run=True, execution=INLINE),
            ("promote", "--dry-run", *inline, replica),
        ),
    }
    for name, (result, words) in pairs.items():
        assert steady(to_dict(result)) == printed(*words), name


def test_the_dictionaries_of_changes_have_what_was_done(places, replica):
    assert to_dict(sync(places[0], places[1], OPTIONS))["committed"] is False
    assert "actions" not in to_dict(plan(places[0], places[1], OPTIONS))
    listed = to_dict(plan(places[0], places[1], OPTIONS), actions=True)["actions"]
    assert len(listed) == len(FILES)
    assert to_dict(fleet([FleetJob(places[0], places[1])], execution=INLINE))["current"] == 1
    assert to_dict(promote(replica, execution=INLINE))["sealed"]
    assert to_dict(unseal(replica, no_job_uses_it=True))["replica"] == f"file:{replica}"


def test_what_is_no_result_is_a_usage_error():
    with pytest.raises(errors.UsageError, match="the option result of the API is "):
        to_dict({"committed": True})


def test_the_text_of_a_result_fits_on_a_few_lines(places, replica):
    results = [
        plan(places[0], places[1], OPTIONS),
        plan(places[0], places[1], OPTIONS).plan,
        verify(replica, execution=INLINE),
        status(places[1]),
        status(places[1]).replicas[0],
        list_points(places[1]),
        list_points(places[1]).replicas[0],
        sweep(replica, dry_run=True, execution=INLINE),
        promote(replica, dry_run=True, execution=INLINE),
        fleet([FleetJob(places[0], places[1])], execution=INLINE),
        fleet([FleetJob(places[0], places[1])], execution=INLINE).jobs[0],
        places[0].inspect(),
    ]
    for result in results:
        text = repr(result).replace(str(replica.parents[1]), "")
        assert text.startswith(f"<{type(result).__name__} ")
        assert len(text) < 200
    assert repr(results[0]).startswith(f"<Report replica='file:{replica}' checkpoint='chk-1' ")


def test_the_text_of_a_place_has_no_secret():
    place = Place("s3://replicas/flink", options={"secret": "c2VjcmV0"})
    assert repr(place) == "<Place s3://replicas/flink, options of secret>"
    assert "c2VjcmV0" not in repr(Place("s3://key:c2VjcmV0@bucket/a"))
    assert repr(Checkpoint("/a/b")) == "<Checkpoint /a/b>"
