"""Places as another program names them."""

import pytest

from cpreplicate import Place, errors, plan
from tests.support.replicas import FILES


def test_a_checkpoint_is_inspected(places):
    inspection = places[0].inspect()
    assert (inspection.checkpoint_id, inspection.files) == (1, len(FILES))


@pytest.mark.parametrize("url", ["s3://key:secret@bucket/a", "hdfs//dcB/a", "file://data/a"])
def test_a_place_that_is_another_one_than_meant_is_refused(places, url):
    with pytest.raises(errors.UsageError) as raised:
        plan(places[0], Place(url))
    assert "secret" not in str(raised.value)
