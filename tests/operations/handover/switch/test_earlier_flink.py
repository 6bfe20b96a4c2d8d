"""A job moves between session clusters of a Flink that lacks what later ones can do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cpreplicate.operations.handover.switch.switch import switch
from tests.support.flink import Flink
from tests.support.sessions import session
from tests.support.switching import Pair

pytestmark = [
    pytest.mark.xdist_group("flink"),
    pytest.mark.rest,
    pytest.mark.parametrize("flink", ["1.13", "1.17"], indirect=True),
]
RETAINS = ("--retained", "200")  # which a Flink before 1.20 reads from the cluster only


@pytest.fixture
def pair(flink: Flink, tmp_path: Path) -> Iterator[Pair]:
    for name in ("dcA", "dcB"):
        (tmp_path / name / "replicas").mkdir(parents=True)
    with session(flink, *RETAINS) as a, session(flink, *RETAINS) as b:
        pair = Pair(a, b, f"file:{tmp_path}/dcA", f"file:{tmp_path}/dcB")
        yield pair
        pair.close()


@pytest.mark.parametrize("stop", ["checkpoint", "savepoint"])
def test_a_job_moves_there_and_back_and_continues_exactly(
    pair: Pair, stop: str, flink: Flink
) -> None:
    pair.start("--parallelism", "1")
    for is_back, clusters, there in ((False, pair.clusters(), pair.b), (True, pair.back(), pair.a)):
        changes: dict[str, Any] = {"stop": stop}
        if stop == "savepoint":
            changes["savepoints"] = f"{pair.dc_b if is_back else pair.dc_a}/savepoints"
        notes: list[str] = []
        done = switch(pair.request(is_back=is_back, **changes), clusters, notes.append)
        assert done.outcome == "switched"
        assert there.restored(str(done.new_job)) == f"{done.replica}/{done.checkpoint}"
        pair.assert_runs_only(there, str(done.new_job))
        # 1.13 takes no checkpoint when asked, so that it is not known how much is repeated
        is_newest = (stop, flink.version) == ("checkpoint", "1.13")
        assert (done.repeated is None) == is_newest
        assert any("takes no checkpoint when asked" in note for note in notes) == is_newest
