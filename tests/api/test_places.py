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


def test_a_remap_from_a_directory_with_an_equals_sign_is_used(tmp_path):
    write_checkpoint(tmp_path / "env=old", 1, FILES)
    (tmp_path / "env=old").rename(tmp_path / "env=new")
    source, target = Checkpoint(f"{tmp_path}/env=new/{JOB}"), Place(f"{tmp_path}/dcB")
    options = SyncOptions(remap={f"file:{tmp_path}/env=old": f"{tmp_path}/env=new"})
    with pytest.raises(errors.NotThere):
        plan(source, target)
    assert len(plan(source, target, options).plan.copies) == len(FILES)
