"""The summary of a replica's points on real object stores."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from cpreplicate.errors import Refused
from cpreplicate.protocol.point_summary import NAME, WORTH
from tests.support.kept_points import KeptPoints
from tests.support.stores import NAMES, Store

pytestmark = pytest.mark.stores
POINTS = WORTH + 2


@pytest.mark.parametrize("name", NAMES)
def test_a_sync_reads_few_of_its_points_until_one_of_them_is_replaced(
    name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    store: Store = request.getfixturevalue(name.replace("-", "_"))
    kept = KeptPoints(tmp_path, store.side(), f"{store.root}/{uuid.uuid4().hex}", POINTS)
    kept.sync()
    storage = store.side().storage(kept.root)
    assert NAME in {each.name for each in storage.list(f"{kept.replica}/.cpreplicate")}
    assert kept.calls()["points"] < POINTS
    kept.rewrite(f"chk-{kept.number - WORTH}", lambda data: data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(Refused, match=f"chk-{kept.number - WORTH}"):
        kept.sync()
