"""The workflow that builds and publishes; `make deploy-check` runs actionlint on it."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from cpreplicate import __version__

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / ".github" / "workflows" / "build.yml").read_text()
JOBS = yaml.safe_load(TEXT)["jobs"]
PUBLISHING = sorted(name for name in JOBS if name.startswith("publish-"))


def test_every_supported_python_is_tested_and_installed_on():
    supported = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', _project())
    assert len(supported) >= 4
    for name in ("check", "install"):
        assert JOBS[name]["strategy"]["matrix"]["python"] == supported


def test_the_version_is_read_from_the_file_that_holds_it():
    [command] = re.findall(r"version=\$\((sed .*)\)\n", TEXT)
    read = subprocess.run(command, shell=True, cwd=ROOT, capture_output=True, text=True, check=True)
    assert read.stdout.strip() == __version__


def test_ci_runs_check_on_the_oldest_python_then_docs_then_test_and_no_more():
    lines = (ROOT / ".ci" / "run").read_text().splitlines()
    made = [line.split()[1] for line in lines if line.strip().startswith("make ")]
    assert made == ["check", "docs", "test"]


def _project():
    return (ROOT / "pyproject.toml").read_text()


def test_each_action_is_pinned_by_its_commit():
    used = re.findall(r"uses: (\S+)(.*)", TEXT)
    assert used
    for action, comment in used:
        assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", action), action
        assert re.fullmatch(r" # v\d+\.\d+\.\d+", comment), action


@pytest.mark.parametrize("name", PUBLISHING)
def test_only_a_tag_is_published_after_all_tests_and_with_an_attestation(name):
    job = JOBS[name]
    assert job["if"] == "startsWith(github.ref, 'refs/tags/v')"
    assert {"check", "servers", "install"} <= _before(name)
    assert job["permissions"]["attestations"] == "write"
    actions = [step.get("uses", "") for step in job["steps"]]
    assert any("/attest-build-provenance@" in action for action in actions)


def _before(name):
    """Every job that must succeed before a job starts."""
    needed = JOBS[name].get("needs", [])
    names = {needed} if isinstance(needed, str) else set(needed)
    return names.union(*map(_before, names)) if names else names


def test_only_what_publishes_has_rights():
    assert yaml.safe_load(TEXT)["permissions"] == {"contents": "read"}
    with_rights = {name for name, job in JOBS.items() if "permissions" in job}
    assert with_rights == {*PUBLISHING, "release"}
