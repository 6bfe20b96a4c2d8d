"""A job moves between two session clusters whose state is on two clusters of HDFS."""

from __future__ import annotations

import pytest

from cpreplicate.core.notify import silent
from cpreplicate.operations.handover.switch.switch import switch
from cpreplicate.storage import Side, Sides
from tests.support.flink import Flink
from tests.support.hdfs import Clusters, HdfsCluster
from tests.support.sessions import session
from tests.support.switching import Pair

pytestmark = [pytest.mark.xdist_group("hdfs-sync"), pytest.mark.rest]


def side_of(cluster: HdfsCluster) -> Side:
    """How a cluster is reached."""
    return Side((("", tuple(cluster.conf.items())),))


@pytest.mark.parametrize("flink", ["2"], indirect=True)
def test_a_job_moves_from_one_hdfs_to_another_and_back(flink: Flink, clusters: Clusters) -> None:
    with session(flink) as a, session(flink) as b:
        sides = Sides(side_of(clusters.a), side_of(clusters.b))
        pair = Pair(a, b, f"{clusters.a.uri}/switch", f"{clusters.b.uri}/switch", sides)
        job_id = pair.start()
        done = switch(pair.request(), pair.clusters(), silent)
        assert (done.outcome, done.job_id) == ("switched", job_id)
        pair.assert_runs_only(b, str(done.new_job))
        back = switch(pair.request(is_back=True), pair.back(), silent)
        assert back.outcome == "switched"
        pair.assert_runs_only(a, str(back.new_job))
        pair.close()
