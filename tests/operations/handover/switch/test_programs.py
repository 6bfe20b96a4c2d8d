"""The jar that a switch runs is one that Flink takes, before anything is stopped."""

from __future__ import annotations

from pathlib import Path

import pytest

from cpreplicate.errors import NotThere
from cpreplicate.operations.handover.switch.programs import named_jar
from cpreplicate.operations.handover.switch.request import Program
from tests.support.simulated_flink import SimulatedControl, SimulatedFlink


@pytest.mark.parametrize("name", ["job.zip", "job"])
def test_a_file_that_flink_does_not_take_is_no_jar(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"PK")
    control = SimulatedControl(SimulatedFlink("http://b:8081", f"file:{tmp_path}"))
    with pytest.raises(NotThere, match=r"is no jar for Flink: it takes files that end in \.jar"):
        named_jar(Program(f"{tmp_path}/{name}"), control)
