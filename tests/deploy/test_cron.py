"""The crontab of `deploy/cron` and its wrapper."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import parts
from tests.support.jobs import JOB, write_checkpoint

pytestmark = [*parts.NIGHTLY]

CRON = Path(__file__).resolve().parents[2] / "deploy" / "cron"
WRAPPER = CRON / "cpreplicate-cron"
RANGES = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
FIELD = re.compile(r"(?:\*|(\d+)(?:-(\d+))?)(?:/(\d+))?")


@pytest.fixture
def program(tmp_path):
    """Return a program that ends as the file `code` states, and prints what `stderr` contains."""
    script = tmp_path / "program"
    script.write_text('#!/bin/sh\necho result\ncat "$0.stderr" >&2\nexit "$(cat "$0.code")"\n')
    script.chmod(0o755)
    return script


def wrapped(program, *words):
    """Run the wrapper: its exit code, and what cron would mail."""
    command = ["sh", str(WRAPPER), *map(str, words)]
    environment = {"CPREPLICATE": str(program), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, text=True, capture_output=True, env=environment, check=False)
    return done.returncode, done.stdout + done.stderr


def ends_with(program, code, message):
    """Set how the program ends."""
    Path(f"{program}.code").write_text(str(code))
    Path(f"{program}.stderr").write_text(message)
    return wrapped(program, "sync")


@pytest.mark.parametrize("code", [11, 12])
def test_cron_mails_nothing_if_the_next_run_replicates(program, code):
    assert ends_with(program, code, "cpreplicate: error: …\n") == (0, "")


@pytest.mark.parametrize("code", [1, 2, 3, 5, 6, 7, 10, 143])
def test_cron_mails_the_message_of_a_failure_and_the_code_stays(program, code):
    message = "cpreplicate: error: 3 of 5 copies failed.\n"
    assert ends_with(program, code, message) == (code, message)


def test_cron_mails_the_warnings_of_a_run_that_succeeds(program):
    message = "cpreplicate: warning: 2 files could not be deleted.\n"
    assert ends_with(program, 0, message) == (0, message)


def test_the_wrapper_replicates_and_prints_nothing(tmp_path):
    write_checkpoint(tmp_path / "dcA", 1, {"shared/a": 100})
    script = tmp_path / "cpreplicate"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -m cpreplicate "$@"\n')
    script.chmod(0o755)
    words = ("sync", "-q", tmp_path / "dcA" / JOB, tmp_path / "dcB")
    assert wrapped(script, *words) == (0, "")
    assert (tmp_path / "dcB" / JOB / "chk-1" / "_metadata").exists()


def test_each_line_of_the_crontab_has_times_a_user_and_a_command():
    lines = [
        line
        for line in (CRON / "cpreplicate.crontab").read_text().splitlines()
        if line and not line.startswith("#") and not re.match(r"[A-Z_]+=", line)
    ]
    assert lines
    for line in lines:
        *times, user, command = line.split(maxsplit=6)
        assert all(map(is_time, times, RANGES)), line
        assert (user, command.split()[0]) == ("cpreplicate", "cpreplicate-cron")
        assert "%" not in command, "cron replaces % by a new line"


def is_time(field, limits):
    """Whether cron accepts a field: numbers in their range, `*`, steps and lists."""
    matches = [FIELD.fullmatch(part) for part in field.split(",")]
    numbers = [int(number) for match in matches if match for number in match.groups()[:2] if number]
    return all(matches) and all(limits[0] <= number <= limits[1] for number in numbers)
