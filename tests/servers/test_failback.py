"""A job goes to the other data centre and back, twice in a row, as docs/failback.md describes, with
real Flink.

Each data centre has Flink's own directory and, beside it, a TARGET_ROOT that only cpreplicate
writes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support import parts
from tests.support.datacentres import DataCentre, Guard, Report, cli, watching
from tests.support.flink import Flink, Job

pytestmark = pytest.mark.xdist_group("flink")

FIXED = Job(job_id="0" * 32)  # as in application mode with high availability
CASES = [
    parts.rest("2", Job(), 2, id="new-ids"),
    pytest.param("2", FIXED, 1, id="fixed-id-once"),
    parts.rest("2", FIXED, 2, id="fixed-id"),
    parts.rest("1", FIXED, 1, id="fixed-id-once-flink-1.20"),
]


@pytest.mark.parametrize(("flink", "job", "times"), CASES, indirect=["flink"])
def test_a_job_goes_to_the_other_data_centre_and_back_with_its_state_exact(
    flink: Flink, tmp_path: Path, job: Job, times: int
) -> None:
    a, b = DataCentre(tmp_path / "dcA"), DataCentre(tmp_path / "dcB")
    with Guard() as guard:
        trip = Trip(flink, job, guard, tmp_path)
        for here, there in [(a, b), (b, a)] * times:
            trip.switch(here, there)
        end = flink.run(a.checkpoints, job, **trip.restoring(), checkpoints=1)
        assert end.exact, end.failure
        assert set(trip.kept) <= set(guard.retained())
    assert guard.faults == []
    assert not list(tmp_path.glob("dc*/flink/checkpoints/**/.cpreplicate*"))


@pytest.mark.parametrize("flink", [parts.rest("2")], indirect=True)
def test_a_replica_that_its_job_claimed_stays_sealed_and_another_target_root_takes_the_next_round(
    flink: Flink, tmp_path: Path
) -> None:
    a, b = DataCentre(tmp_path / "dcA"), DataCentre(tmp_path / "dcB")
    at_a = flink.run(a.checkpoints, FIXED, checkpoints=2)
    cli("sync", at_a.directory, b.replicas, "--runner", "inline")
    replica = b.replica(at_a.job_id)
    cli("promote", replica)
    at_b = flink.run(
        b.checkpoints, FIXED, restore=replica / at_a.newest.name, claim_mode="CLAIM", checkpoints=2
    )
    assert at_b.exact, at_b.failure
    refused = cli("unseal", replica, "--job", at_b.directory, codes=(6,))
    assert f"files of file:{replica}: the job needs them" in refused.stderr
    again = flink.run(a.checkpoints, FIXED, restore=at_a.newest, checkpoints=1)
    cli("sync", again.directory, b.replicas, "--runner", "inline", codes=(6,))
    cli("sync", again.directory, b.side / "flink" / "replicas-2", "--runner", "inline")
    (made,) = (b.side / "flink" / "replicas-2").glob(f"{again.job_id}*")
    second = made / again.newest.name
    for checkpoint in (second, at_b.newest):
        restored = flink.run(tmp_path / "restored", restore=checkpoint, checkpoints=0)
        assert restored.exact, restored.failure


@pytest.mark.parametrize("flink", [parts.rest("2")], indirect=True)
def test_a_job_of_a_fixed_id_that_was_started_from_scratch_is_followed_only_with_allow_older(
    flink: Flink, tmp_path: Path
) -> None:
    a, b = DataCentre(tmp_path / "dcA"), DataCentre(tmp_path / "dcB")
    with Guard() as guard:
        former = flink.run(a.checkpoints, FIXED, checkpoints=6)
        kept = former.retained
        guard.follow(former.directory)
        cli("sync", former.directory, b.replicas, "--runner", "inline")
        anew = flink.run(a.checkpoints, FIXED, checkpoints=1)
        old, new = former.newest.name, anew.newest.name
        assert number(new) < min(number(path.name) for path in kept)
        refused = cli("sync", former.directory, b.replicas, "--runner", "inline", codes=(6,))
        assert f"{new} was completed after {old}" in refused.stderr
        cli("sync", former.directory, b.replicas, "--runner", "inline", "--allow-older")
        assert [path.parent.name for path in b.replica(anew.job_id).glob("chk-*/_metadata")] == [
            new
        ]
        restored = flink.run(
            b.checkpoints, FIXED, restore=b.replica(anew.job_id) / new, checkpoints=0
        )
        assert restored.exact, restored.failure
        assert {*kept, anew.newest} <= set(guard.retained())
    assert guard.faults == []


def number(checkpoint: str) -> int:
    return int(checkpoint.removeprefix("chk-"))


class Trip:
    """A job that moves between two data centres; `kept` are the checkpoints that Flink retained."""

    def __init__(self, flink: Flink, job: Job, guard: Guard, scratch: Path) -> None:
        self.kept: list[Path] = []
        self._flink, self._job, self._guard, self._scratch = flink, job, guard, scratch
        self._promoted: list[Report] = []

    def switch(self, here: DataCentre, there: DataCentre) -> None:
        """Run the job here, follow it with `watch` to there, stop it, and promote the replica
        there.
        """
        with self._flink.start(here.checkpoints, self._job, **self.restoring()) as running:
            source = running.so_far.directory
            self._guard.follow(source)
            replica = there.replica(source.name)
            if replica.exists():
                unseal(source, replica, there)
            with watching(
                source, there.replicas, self._scratch / f"watch-{len(self._promoted)}"
            ) as watch:
                running.take_checkpoints(3)
                stopped = running.stop()
                watch.wait_for(stopped.newest.name)
        assert stopped.exact if self._promoted else stopped.failure is None, stopped.failure
        self.kept += stopped.checkpoints[-self._job.retained :]
        self._promote(there.replica(source.name), stopped.newest.name)

    def _promote(self, replica: Path, checkpoint: str) -> None:
        found = json.loads(cli("promote", replica, "--content", "--output", "json").stdout)
        assert found["promoted"]
        assert found["checkpoint"].endswith(checkpoint)
        paths = [
            str(row["path"]) for row in self._flink.refs(replica / checkpoint) if "path" in row
        ]
        assert [path for path in paths if not path.startswith(f"file:{replica}/")] == []
        self._promoted.append(found)

    def restoring(self) -> dict[str, Any]:
        """How the job is started: as `promote` printed it; the first one, from nothing."""
        if not self._promoted:
            return {}
        restore = self._promoted[-1]["restore"]
        return {"restore": restore["rest"]["savepointPath"], "claim_mode": restore["claim_mode"]}


def unseal(source: Path, replica: Path, there: DataCentre) -> None:
    """The replica of the round before is sealed.

    The job that was started from it has checkpoints of its own by now.
    """
    refused = cli("sync", source, there.replicas, "--runner", "inline", codes=(6,))
    assert "is sealed by" in refused.stderr
    assert f"unseal file:{replica} --job" in refused.stderr
    cli("unseal", replica, "--job", there.checkpoints / source.name)
