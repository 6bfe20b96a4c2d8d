"""Real brokers: on a busy machine they are slow, and not silent."""

import pytest

from cpreplicate.kafka import cluster
from cpreplicate.operations.sync import fingerprints
from tests.support.waiting import PATIENCE


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for what a broker is asked, and for the records that are read, as long as it takes."""
    monkeypatch.setattr(cluster, "DEADLINE", PATIENCE)
    monkeypatch.setattr(cluster, "_READING", PATIENCE)
    monkeypatch.setattr(fingerprints, "LIMIT", PATIENCE)
