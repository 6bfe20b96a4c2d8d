"""The exit codes as Airflow sees them. `make deploy-check` runs the DAG in a real Airflow."""

import importlib
import re
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
MODULE = PROJECT / "deploy" / "airflow" / "cpreplicate_exit_codes.py"


@pytest.fixture
def codes(monkeypatch):
    """Return the module, which is no part of a package."""
    monkeypatch.syspath_prepend(MODULE.parent)
    yield importlib.import_module(MODULE.stem)
    del sys.modules[MODULE.stem]


def documented():
    """Return the exit codes of docs/json.md."""
    table = (PROJECT / "docs" / "json.md").read_text().split("## Exit codes")[1].split("\n\n")[1]
    rows = re.findall(r"^\| ([\d, ]+) \|", table, re.MULTILINE)
    return {int(code) for row in rows for code in row.split(",")}


def test_each_documented_exit_code_has_an_outcome(codes):
    unexpected = {1}
    assert documented() - unexpected <= set(codes._OUTCOMES)


@pytest.mark.parametrize(
    ("code", "name"),
    [
        *((code, "retry") for code in (1, 3, 7, 11, 12, 99, 143)),
        *((code, "fail") for code in (2, 5, 6, 10)),
        (0, "success"),
    ],
)
def test_an_exit_code_is_tried_again_only_if_that_can_help(codes, code, name):
    assert codes.outcome(code).value == name


def test_a_job_without_a_checkpoint_is_skipped_only_if_asked_for(codes):
    assert codes.outcome(10, skip_not_there=True) is codes.Outcome.SKIP
    assert codes.outcome(7, skip_not_there=True) is codes.Outcome.RETRY
