"""Replicas of several jobs below one TARGET_ROOT, with names and lives."""

from __future__ import annotations

import json
import shutil
import uuid
from pathlib import Path

from cpreplicate.protocol.job_record import JobRecord, record_job
from tests.support import jobs
from tests.support.replicas import FILES, held, synced

FIRST, SECOND, THIRD = "0a" * 16, "0b" * 16, "1c" * 16
HOUR = 3600.0
NOON = 1_700_000_000.0


class Roots:
    """Jobs of a source with replicas, made from one that was replicated."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.targets = root / "dcB"
        synced(root / "made", {1: FILES})

    def add(
        self,
        job: str,
        name: str | None = None,
        since: float = NOON,
        completed: float = NOON,
        source: str = "dcA",
    ) -> Path:
        """A replica of a job with this life."""
        place = self.targets / job
        shutil.copytree(self.root / "made" / "dcB" / jobs.JOB, place)
        own = place / ".cpreplicate"
        marker = (own / "replica.json").read_text().replace("/made/dcA/", f"/{source}/")
        former = json.loads(marker)["replica_id"]
        marker = marker.replace(jobs.JOB, job).replace(former, uuid.uuid4().hex)
        (own / "replica.json").write_text(marker)
        record = json.loads((own / "chk-1.json").read_text())
        (own / "chk-1.json").write_text(json.dumps({**record, "completed": completed}))
        if name is not None:
            with held(place) as replica:
                record_job(replica, replica.own_files(), JobRecord(name, since))
        return place
