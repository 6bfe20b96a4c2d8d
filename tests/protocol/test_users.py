"""A user id without a passwd entry, as OpenShift assigns them."""

import getpass
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from cpreplicate.protocol import json_files
from cpreplicate.protocol.users import user_name
from tests.support.jobs import JOB, write_checkpoint

NAMES = ("LOGNAME", "USER", "LNAME", "USERNAME", "HADOOP_USER_NAME")
UNKNOWN = 54321

# The first run imports every module: another user may not be able to read where Python is
# installed.
AS_ANOTHER_USER = """
import os, sys
from cpreplicate.cli import main

def run(*words):
    sys.argv[1:] = words
    try:
        main()
    except SystemExit as ended:
        return ended.code

source, target, user, job = sys.argv[1:]
assert run("sync", source, f"{target}-before", "--runner", "inline") == 0
assert run("promote", f"{target}-before/{job}") == 0
os.setgid(int(user))
os.setuid(int(user))
sys.exit(run("sync", source, target, "--runner", "inline") or run("promote", f"{target}/{job}"))
"""


@pytest.fixture
def nameless(monkeypatch):
    """A process whose user has no name in the environment or in the passwd database."""
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)

    def fail():
        raise KeyError("getpwuid(): uid not found: 54321")

    monkeypatch.setattr(getpass, "getuser", fail)


@pytest.mark.usefixtures("nameless")
def test_a_user_without_a_name_is_called_by_the_id():
    assert user_name() == f"uid-{os.getuid()}"
    assert json_files.signature()["owner"] == f"uid-{os.getuid()}"


@pytest.mark.usefixtures("nameless")
def test_a_user_without_a_name_is_called_as_hadoop_calls_it(monkeypatch):
    monkeypatch.setenv("HADOOP_USER_NAME", "flink")
    assert user_name() == "flink"


def test_the_name_in_the_environment_is_used(monkeypatch):
    monkeypatch.setenv("LOGNAME", "cron")
    assert user_name() == "cron"


def test_sync_and_promote_work_for_a_user_id_without_a_passwd_entry():
    user = UNKNOWN if os.getuid() == 0 else os.getuid()
    environment = {name: value for name, value in os.environ.items() if name not in NAMES}
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        write_checkpoint(root / "dcA", 1, {"shared/a": 100})
        for each in [root, *root.rglob("*")]:
            os.chown(each, user, -1)
        words = [root / "dcA" / JOB, root / "dcB", user, JOB]
        done = subprocess.run(
            [sys.executable, "-c", AS_ANOTHER_USER, *map(str, words)],
            capture_output=True,
            text=True,
            env=environment,
        )
        assert done.returncode == 0, done.stderr
        seal = json.loads((root / "dcB" / JOB / ".cpreplicate" / "sealed").read_text())
        assert seal["owner"] == (f"uid-{UNKNOWN}" if user == UNKNOWN else getpass.getuser())
