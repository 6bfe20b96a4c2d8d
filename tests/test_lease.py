"""One run at a time writes to a replica."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time

import pytest

from cpreplicate import lease, notes
from cpreplicate.errors import LeaseHeld
from cpreplicate.processes import own_process
from cpreplicate.storage import Site
from cpreplicate.storage.memory import MemoryStorage
from cpreplicate.storage.registry import serving


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
    with lease.held(f"file:{replica}", Site()) as hold:
        hold.check()


def test_a_lease_of_a_process_that_died_on_this_host_is_taken_over(replica):
    code = "import json, cpreplicate.processes as p; print(json.dumps(p.own_process()))"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True).stdout
    leave_behind(replica, **json.loads(told))
    with lease.held(f"file:{replica}", Site()) as hold:
        hold.check()


def test_a_lease_of_a_process_that_died_is_respected_where_its_number_may_mean_another_process(replica):
    leave_behind(replica, pid=2**22 + 1, space="another boot", birth=1)
    with pytest.raises(LeaseHeld), lease.held(f"file:{replica}", Site()):
        pass


def test_a_lease_is_taken_over_from_a_process_whose_number_another_one_has_now(replica):
    leave_behind(replica, **{**own_process(), "birth": 1})
    with lease.held(f"file:{replica}", Site()) as hold:
        hold.check()


def test_a_lease_whose_executors_may_still_delete_outlives_its_process(replica, monkeypatch):
    with lease.held(f"file:{replica}", Site()) as hold:
        hold.delegate()
        monkeypatch.setattr(lease, "is_alive", lambda _held: False)
        with pytest.raises(LeaseHeld), lease.held(f"file:{replica}", Site()):
            pass
        start = time.time()
        monkeypatch.setattr(notes, "now", lambda: start + lease.SECONDS + 1)
        with lease.held(f"file:{replica}", Site()) as other:
            other.check()
    assert [each.name for each in (replica / ".cpreplicate").iterdir()] == []


def test_a_run_may_wait_for_the_lease_and_is_told_for_whom(replica):
    told, order = [], []

    def hold_for_a_while(held, let_go):
        with lease.held(f"file:{replica}", Site()):
            held.set()
            let_go.wait(20)
            order.append("first")

    held, let_go = threading.Event(), threading.Event()
    first = threading.Thread(target=hold_for_a_while, args=(held, let_go))
    first.start()
    held.wait(20)
    threading.Timer(2.5, let_go.set).start()
    with lease.held(f"file:{replica}", Site(), 20.0, told.append):
        order.append("second")
    first.join()
    assert order == ["first", "second"]
    assert [f"process {os.getpid()}" in line for line in told] == [True]


def test_waiting_for_the_lease_ends(replica):
    leave_behind(replica, host="elsewhere")
    started = time.monotonic()
    with pytest.raises(LeaseHeld, match="cron@elsewhere"), lease.held(f"file:{replica}", Site(), 0.5):
        pass
    assert 0.5 <= time.monotonic() - started < 10


@pytest.mark.parametrize("scheme", ["file", "memory"])
def test_an_expired_lease_is_taken_over_by_one_of_many_contenders(replica, scheme):
    with serving("memory", MemoryStorage()):
        root = f"{scheme}:{replica}"
        stale = json.dumps({"token": "0", "host": "elsewhere", "expires": time.time() - 1}).encode()
        Site().storage(root).put(f"{root}/.cpreplicate/lease", lambda: [stale])
        everyone = threading.Barrier(12)
        holders, most, lock = [], [], threading.Lock()

        def contend():
            everyone.wait()
            with contextlib.suppress(LeaseHeld), lease.held(root, Site()) as hold:
                with lock:
                    holders.append(hold)
                    most.append(len(holders))
                time.sleep(0.02)
                hold.check()
                with lock:
                    holders.remove(hold)

        contenders = [threading.Thread(target=contend) for _ in range(12)]
        for contender in contenders:
            contender.start()
        for contender in contenders:
            contender.join()
        assert set(most) == {1}


def test_a_holder_that_lost_its_lease_is_told_before_it_goes_on(replica):
    with lease.held(f"file:{replica}", Site()) as hold:
        path = replica / ".cpreplicate" / "lease"
        taken = json.loads(path.read_text())
        path.write_text(json.dumps({**taken, "token": "another", "host": "elsewhere"}))
        with pytest.raises(LeaseHeld, match="lost its lease"):
            hold.check()
    assert json.loads(path.read_text())["token"] == "another"


def test_a_holder_stops_before_others_may_take_its_lease_over(replica, monkeypatch):
    start = time.time()
    clock = [start]
    monkeypatch.setattr(notes, "now", lambda: clock[0])
    with lease.held(f"file:{replica}", Site()) as hold:
        hold.check()
        clock[0] = start + lease.SECONDS - 29
        with pytest.raises(LeaseHeld, match="could not renew"):
            hold.check()
        with pytest.raises(LeaseHeld), lease.held(f"file:{replica}", Site()):
            pass
        clock[0] = start + lease.SECONDS + 1
        with lease.held(f"file:{replica}", Site()) as other:
            other.check()
            with pytest.raises(LeaseHeld):
                hold.check()


def test_a_lease_is_renewed_while_it_is_held_and_leaves_nothing(replica, monkeypatch):
    monkeypatch.setattr(lease, "_HEARTBEAT", 0.05)
    with lease.held(f"file:{replica}", Site()) as hold:
        first, until = hold.until(), time.monotonic() + 10
        while hold.until() == first:
            assert time.monotonic() < until, "the lease was not renewed"
            time.sleep(0.02)
        text = (replica / ".cpreplicate" / "lease").read_bytes()
        start = time.time()
        monkeypatch.setattr(notes, "now", lambda: start + lease.SECONDS - 1)  # the lease itself is about to expire
        time.sleep(0.2)
        monkeypatch.setattr(notes, "now", lambda: start + lease.SECONDS + 5)
        with pytest.raises(LeaseHeld), lease.held(f"file:{replica}", Site()):
            pass
        assert (replica / ".cpreplicate" / "lease").read_bytes() == text
    assert list((replica / ".cpreplicate").iterdir()) == []


@pytest.mark.parametrize("text", ["", "[]", "{}", "nonsense", '{"pid": "x", "started": 1e300}'])
def test_a_damaged_lease_is_respected_and_told(replica, text):
    leave_behind(replica).write_text(text)
    with pytest.raises(LeaseHeld, match="lease is"), lease.held(f"file:{replica}", Site()):
        pass
