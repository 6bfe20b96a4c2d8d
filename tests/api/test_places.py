"""Places as another program names them."""

import pytest

from cpreplicate import Checkpoint, Place, SyncOptions, errors, plan
from tests.support.jobs import JOB, write_checkpoint
from tests.support.replicas import FILES


def test_a_checkpoint_is_inspected(places):
    inspection = places[0].inspect()
    assert (inspection.checkpoint_id, inspection.files) == (1, len(FILES))


@pytest.mark.parametrize("url", ["s3://key:secret@bucket/a", "hdfs//dcB/a", "file://data/a"])
def test_a_place_that_is_another_one_than_meant_is_refused(places, url):
    with pytest.raises(errors.UsageError) as raised:
        plan(places[0], Place(url))
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    "wrong",
    [
        {"url": 5},
        {"url": b"/a"},
        {"conf_dir": 5},
        {"hdfs_client": "hdfs3"},
        {"retry_for": "soon"},
        {"principal": 5, "keytab": "/k"},
    ],
    ids=str,
)
def test_a_wrong_value_is_a_usage_error(wrong):
    name = next(iter(wrong))
    with pytest.raises(errors.UsageError, match=f"the option {name} of the API is "):
        Place(**{"url": "/a", **wrong})


@pytest.mark.parametrize("options", [{"secret": 5}, "secret=c2VjcmV0", {"c2VjcmV0": None}], ids=str)
def test_what_is_wrong_in_options_is_not_shown(options):
    with pytest.raises(errors.UsageError, match="option options of the API") as raised:
        Place("s3://a/b", options=options)
    assert "c2VjcmV0" not in str(raised.value)


def test_a_principal_needs_its_keytab():
    with pytest.raises(errors.UsageError, match="given together"):
        Place("hdfs://a/b", principal="flink@A")


def test_times_may_be_texts():
    assert Place("/a", retry_for="5m").side().retry_for == 300.0


def test_a_remap_from_a_directory_with_an_equals_sign_is_used(tmp_path):
    write_checkpoint(tmp_path / "env=old", 1, FILES)
    (tmp_path / "env=old").rename(tmp_path / "env=new")
    source, target = Checkpoint(f"{tmp_path}/env=new/{JOB}"), Place(f"{tmp_path}/dcB")
    options = SyncOptions(remap={f"file:{tmp_path}/env=old": f"{tmp_path}/env=new"})
    with pytest.raises(errors.NotThere):
        plan(source, target)
    assert len(plan(source, target, options).plan.copies) == len(FILES)
