"""kill -9 of real runs from one HDFS to another at random times, beside a job that completes
checkpoints on the first.
"""

import uuid
from concurrent.futures import ThreadPoolExecutor
from random import Random

import pytest

from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.runners import ExecutionOptions
from cpreplicate.storage import Side, Sides
from tests.support.killing import HdfsPlace, Moment, RunningJob, Shape, Standby

pytestmark = pytest.mark.xdist_group("hdfs-sync")

SHAPE = Shape(interval=0.4, new=4, lives=3, length=100_000, retained=4)
MOMENTS = (Moment("copy", 0.3), Moment("commit", 0.2), Moment("start", 0.6), Moment("lease", 0.2))
CAMPAIGNS = {  # client, kills, seed; each run by Hadoop's client starts a JVM
    "once": [("native", 2, 3)],
    "native": [("native", 6, 1), ("native", 6, 2)],
    "hadoop": [("hadoop", 2, 3)],
}
SLOWLY = ("--max-rps", 60)


@pytest.fixture
def conf(clusters, tmp_path):
    """The options for a run that reaches both clusters."""
    a, b = (
        cluster.write_conf_dir(tmp_path / name)
        for name, cluster in zip("ab", clusters, strict=True)
    )
    return "--source-conf", a, "--target-conf", b


@pytest.mark.rest
@pytest.mark.parametrize("name", CAMPAIGNS)
def test_a_sync_killed_at_any_time_leaves_whole_checkpoints_and_the_next_run_completes(
    clusters, conf, name
):
    """Several jobs at once: HDFS has a run wait much more than compute."""
    campaigns = CAMPAIGNS[name]
    with ThreadPoolExecutor(len(campaigns)) as pool:
        list(pool.map(lambda campaign: killed(clusters, conf, *campaign), campaigns))


def in_the_middle(died):
    """Whether a third of the runs died between their first copy and their end."""
    middle = ("copying", "committing", "committed", "deleting")
    return sum(died[where] for where in middle) >= died.total() / 3


def killed(clusters, conf, client, kills, seed):
    """Where so many runs died that were killed beside a job of their own."""
    here = f"/test/{uuid.uuid4().hex}"
    source_side, target_side = (Side((("", tuple(cluster.conf.items())),)) for cluster in clusters)
    sides = Sides(source_side, target_side)
    with RunningJob(SHAPE, sides.source, clusters.a.uri + here) as job:
        request = SyncRequest(
            job.source,
            clusters.b.uri + here,
            sides=sides,
            execution=ExecutionOptions(runner="inline"),
        )
        standby = Standby(job, HdfsPlace(clusters.b, here), request, Random(seed))
        standby.converge()
        options = (*conf, "--hdfs-client", client, "--runner", "inline", *SLOWLY)
        return standby.kill_runs(
            kills,
            MOMENTS,
            *("sync", request.source, request.target_root, *options),
            enough=in_the_middle,
        )
