"""One run at a time writes to a replica."""

import json
import os
import socket
import subprocess
import sys
import time

import pytest

from cpreplicate import lease
from cpreplicate.errors import LeaseHeld
from cpreplicate.storage import Site


@pytest.fixture
def replica(tmp_path):
    return tmp_path / "job"


def leave_behind(replica, **facts):
    path = replica / ".cpreplicate" / "lease"
    path.parent.mkdir(parents=True)
    here = {"token": "0", "owner": "cron", "host": socket.gethostname(), "pid": os.getpid(), "started": 0}
    path.write_text(json.dumps({**here, "expires": time.time() + 60, **facts}))
    return path


def test_a_lease_is_there_while_it_is_held_and_gone_afterwards(replica):
    with lease.held(f"file:{replica}", Site()):
        assert json.loads((replica / ".cpreplicate" / "lease").read_text())["pid"] == os.getpid()
    assert list((replica / ".cpreplicate").iterdir()) == []


def test_a_lease_of_another_host_is_respected_until_it_expires(replica):
    path = leave_behind(replica, host="elsewhere", pid=1)
    with pytest.raises(LeaseHeld, match="cron@elsewhere"), lease.held(f"file:{replica}", Site()):
        pass
    path.unlink()
    path.parent.rmdir()
    leave_behind(replica, host="elsewhere", expires=time.time() - 1)
    with lease.held(f"file:{replica}", Site()) as check:
        check()


def test_a_lease_of_a_process_that_died_on_this_host_is_taken_over(replica):
    died = subprocess.Popen([sys.executable, "-c", ""])
    died.wait()
    leave_behind(replica, pid=died.pid)
    with lease.held(f"file:{replica}", Site()) as check:
        check()


def test_a_holder_that_lost_its_lease_is_told_before_it_goes_on(replica):
    with lease.held(f"file:{replica}", Site()) as check:
        path = replica / ".cpreplicate" / "lease"
        taken = json.loads(path.read_text())
        path.write_text(json.dumps({**taken, "token": "another", "host": "elsewhere"}))
        with pytest.raises(LeaseHeld, match="lost its lease"):
            check()
    assert json.loads(path.read_text())["token"] == "another"


def test_a_holder_that_could_not_renew_in_time_is_told_before_it_goes_on(replica, monkeypatch):
    with lease.held(f"file:{replica}", Site()) as check:
        check()
        monkeypatch.setattr(lease, "SECONDS", -1.0)
        with pytest.raises(LeaseHeld, match="could not renew"):
            check()


def test_a_lease_is_renewed_while_it_is_held(replica, monkeypatch):
    monkeypatch.setattr(lease, "_HEARTBEAT", 0.05)
    path = replica / ".cpreplicate" / "lease"
    with lease.held(f"file:{replica}", Site()) as check:
        first = json.loads(path.read_text())
        until = time.monotonic() + 10
        while json.loads(path.read_text())["expires"] == first["expires"]:
            assert time.monotonic() < until, "the lease was not renewed"
            time.sleep(0.02)
        assert json.loads(path.read_text())["token"] == first["token"]
        check()


@pytest.mark.parametrize("text", ["", "[]", "{}", "nonsense", '{"pid": "x", "started": 1e300}'])
def test_a_damaged_lease_is_respected_and_told(replica, text):
    leave_behind(replica).write_text(text)
    with pytest.raises(LeaseHeld, match="lease is"), lease.held(f"file:{replica}", Site()):
        pass
