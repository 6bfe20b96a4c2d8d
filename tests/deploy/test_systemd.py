"""The units of `deploy/systemd`, checked by systemd's own programs."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from cpreplicate import errors
from tests.support import parts
from tests.support.waiting import PATIENCE

pytestmark = [*parts.NIGHTLY]

UNITS = Path(__file__).resolve().parents[2] / "deploy" / "systemd"
PROGRAM = "/opt/cpreplicate/bin/cpreplicate"
SERVICES = sorted(UNITS.glob("*.service"))
FOLLOWING = [unit for unit in SERVICES if "sync" not in unit.name]
MOST_EXPOSED = 20  # tenths, of `systemd-analyze security`, where 100 is a unit without hardening


def instance(unit, directory):
    """Write a unit as systemd loads it, of a template the instance `orders`, with a program that is
    installed here.
    """
    written = directory / unit.name.replace("@.", "@orders.")
    written.write_text(unit.read_text().replace(PROGRAM, shutil.which("true")))
    return written


def setting(unit, name):
    """Return the values of a setting of a unit, in their order."""
    return re.findall(rf"^{name}=(.*)$", unit.read_text(), re.MULTILINE)


def codes(unit, name):
    """Return the exit codes in a setting of a unit."""
    return {int(code) for value in setting(unit, name) for code in value.split()}


def seconds(text):
    """Return the number of a time span such as `60s`."""
    return int(text.removesuffix("s"))


@pytest.fixture
def analyze():
    """Run `systemd-analyze`."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")

    def run(*words):
        command = ["systemd-analyze", *map(str, words)]
        return subprocess.run(
            command, text=True, capture_output=True, timeout=PATIENCE, check=False
        )

    return run


def test_systemd_finds_no_fault_in_the_units(analyze, tmp_path):
    units = [instance(unit, tmp_path) for unit in [*SERVICES, *UNITS.glob("*.timer")]]
    done = analyze("verify", "--man=no", *units)
    assert (len(units), done.returncode, done.stdout + done.stderr) == (4, 0, "")


@pytest.mark.parametrize("unit", SERVICES, ids=lambda unit: unit.name)
def test_a_service_is_hardened(unit, analyze, tmp_path):
    limit = f"--threshold={MOST_EXPOSED}"
    done = analyze("security", "--offline=yes", "--no-pager", limit, instance(unit, tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_user_of_the_services_can_be_created(tmp_path):
    if shutil.which("systemd-sysusers") is None:
        pytest.skip("systemd-sysusers is not installed")
    (tmp_path / "etc").mkdir()
    configuration = str(UNITS / "cpreplicate.sysusers")
    words = ["systemd-sysusers", f"--root={tmp_path}", "--dry-run", configuration]
    done = subprocess.run(words, text=True, capture_output=True, check=False)
    assert (done.returncode, "user 'cpreplicate'" in done.stderr) == (0, True), done
    assert {user for unit in SERVICES for user in setting(unit, "User")} == {"cpreplicate"}


@pytest.mark.parametrize("unit", SERVICES, ids=lambda unit: unit.name)
def test_a_service_that_is_stopped_has_not_failed(unit):
    assert codes(unit, "SuccessExitStatus") >= {130, 143}


@pytest.mark.parametrize("unit", FOLLOWING, ids=lambda unit: unit.name)
def test_a_service_is_killed_only_after_its_grace(unit):
    [grace] = re.findall(r"--grace (\S+)", unit.read_text())
    [timeout] = setting(unit, "TimeoutStopSec")
    assert seconds(timeout) > seconds(grace)


@pytest.mark.parametrize("unit", FOLLOWING, ids=lambda unit: unit.name)
def test_a_service_is_not_restarted_where_another_try_changes_nothing(unit):
    refused = errors.Refused.exit_code
    assert codes(unit, "RestartPreventExitStatus") == {2, refused}


def test_a_timed_sync_succeeds_where_the_next_one_replicates():
    [unit] = [unit for unit in SERVICES if "sync" in unit.name]
    later = {errors.LeaseHeld.exit_code, errors.SourceMovedOn.exit_code}
    assert codes(unit, "SuccessExitStatus") == {130, 143, *later}


@pytest.mark.parametrize("unit", FOLLOWING, ids=lambda unit: unit.name)
def test_a_service_may_have_connections_to_many_jobmanagers(unit):
    assert setting(unit, "LimitNOFILE") == ["65536"]
