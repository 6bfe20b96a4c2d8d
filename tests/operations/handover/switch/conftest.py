"""Two data centres on the local disk."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """The directory above that of each data centre, `dcA` and `dcB`."""
    for name in ("dcA", "dcB"):
        (tmp_path / name / "replicas").mkdir(parents=True)
    return tmp_path
