"""One run at a time writes to a replica."""

import contextlib
import errno
import fcntl
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

from cpreplicate.errors import CopyFailed, LeaseHeld, Refused, TargetGone
from cpreplicate.protocol import json_files, lease
from cpreplicate.protocol.processes import own_process
from cpreplicate.runners import RunnerStopped
from cpreplicate.storage import Side, Transient
from cpreplicate.storage.waiting.cancellation import cancellable, go_on
from cpreplicate.storage.wrappers.base import StorageWrapper
from tests.support.memory import MemoryStorage
from tests.support.registry import serving
from tests.support.waiting import PATIENCE, wait_until


@pytest.fixture
def replica(tmp_path):
    return tmp_path / "job"


def leave_behind(replica, **facts):
    path = replica / ".cpreplicate" / "lease"
    path.parent.mkdir(parents=True)
    here = {
        "token": "0",
        "owner": "cron",
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "started": 0,
    }
    path.write_text(json.dumps({**here, "expires": time.time() + lease.SECONDS, **facts}))
    return path


def holder(replica):
    """Return the number of the process that holds the lease."""
    return json.loads((replica / ".cpreplicate" / "lease").read_text())["pid"]


def test_a_lease_is_there_while_it_is_held_and_gone_afterwards(replica):
    with lease.acquire(f"file:{replica}", Side()):
        assert holder(replica) == os.getpid()
    assert list((replica / ".cpreplicate").iterdir()) == []


def test_a_lease_of_another_host_is_respected_until_it_expires(replica):
    path = leave_behind(replica, host="elsewhere", pid=1)
    with pytest.raises(LeaseHeld, match="cron@elsewhere"), lease.acquire(f"file:{replica}", Side()):
        pass
    path.unlink()
    path.parent.rmdir()
    leave_behind(replica, host="elsewhere", expires=time.time() - 1)
    with lease.acquire(f"file:{replica}", Side()) as hold:
        hold.check()
        assert holder(replica) == os.getpid()


def test_a_lease_of_a_process_that_died_on_this_host_is_taken_over(replica):
    code = "import json, cpreplicate.protocol.processes as p; print(json.dumps(p.own_process()))"
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=True, text=True
    ).stdout
    leave_behind(replica, **json.loads(process))
    with lease.acquire(f"file:{replica}", Side()) as hold:
        hold.check()
        assert holder(replica) == os.getpid()


def test_a_lease_of_a_process_that_died_is_respected_where_its_number_may_mean_another_process(
    replica,
):
    leave_behind(replica, pid=2**22 + 1, space="another boot", birth=1)
    with pytest.raises(LeaseHeld), lease.acquire(f"file:{replica}", Side()):
        pass


def test_a_lease_is_taken_over_from_a_process_whose_number_another_one_has_now(replica):
    leave_behind(replica, **{**own_process(), "start_time": 1})
    with lease.acquire(f"file:{replica}", Side()) as hold:
        hold.check()
        assert holder(replica) == os.getpid()


@pytest.fixture
def hidden(monkeypatch):
    """/proc as it is mounted with `hidepid`: another user's process cannot be seen there, and not
    be signalled.
    """
    stat = f"/proc/{os.getppid()}/stat"
    read_text, kill = Path.read_text, os.kill

    def unseen(path, *words, **options):
        if str(path) == stat:
            raise FileNotFoundError(stat)
        return read_text(path, *words, **options)

    def forbidden(pid, number):
        if pid == os.getppid():
            raise PermissionError(1, "Operation not permitted")
        kill(pid, number)

    monkeypatch.setattr(Path, "read_text", unseen)
    monkeypatch.setattr(os, "kill", forbidden)
    return {**own_process(), "pid": os.getppid(), "start_time": 1}


def test_a_lease_of_a_process_that_proc_hides_is_respected(replica, hidden):
    leave_behind(replica, **hidden)
    with pytest.raises(LeaseHeld), lease.acquire(f"file:{replica}", Side()):
        pass


IMPORT_AND_TRY = """
import os, sys
from cpreplicate.protocol import lease
from cpreplicate.errors import LeaseHeld
from cpreplicate.storage import Side

with lease.acquire(f"file:{sys.argv[1]}-before", Side()):
    pass
os.setgid(65534)
os.setuid(65534)
try:
    with lease.acquire(f"file:{sys.argv[1]}", Side()):
        print("taken over")
except LeaseHeld as error:
    print(f"respected: {error}")
print("visible" if os.path.exists(f"/proc/{sys.argv[2]}") else "hidden")
"""
HOLD = """
import os, subprocess, sys
from cpreplicate.protocol import lease
from cpreplicate.storage import Side

with lease.acquire(f"file:{sys.argv[1]}", Side()):
    os.chmod(f"{sys.argv[1]}/.cpreplicate", 0o777)
    subprocess.run([sys.executable, "-c", sys.argv[2], sys.argv[1], str(os.getpid())], check=True)
"""


def can_hide_processes():
    """Whether this machine lets us mount /proc with `hidepid` in namespaces of our own."""
    mount = [
        "unshare",
        "--mount",
        "--pid",
        "--fork",
        "mount",
        "-t",
        "proc",
        "-o",
        "hidepid=2",
        "proc",
        "/proc",
    ]
    return subprocess.run(mount, capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(
    not can_hide_processes(), reason="needs root to mount /proc; the test before simulates it"
)
def test_a_lease_is_respected_under_a_real_proc_with_hidepid():
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o755)
        inside = f'mount -t proc -o hidepid=2 proc /proc && exec {sys.executable} -c "$0" "$@"'
        command = [
            "unshare",
            "--mount",
            "--pid",
            "--fork",
            "sh",
            "-c",
            inside,
            HOLD,
            f"{directory}/job",
            IMPORT_AND_TRY,
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "respected: " in done.stdout
    assert done.stdout.endswith("hidden\n")


def test_a_lease_of_a_zombie_is_taken_over(replica):
    code = "import json, cpreplicate.protocol.processes as p; print(json.dumps(p.own_process()))"
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    process = json.loads(child.stdout.read())
    # it has ended, and nobody has collected it
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    os.kill(child.pid, 0)
    leave_behind(replica, **process)
    with lease.acquire(f"file:{replica}", Side()) as hold:
        hold.check()
        assert holder(replica) == os.getpid()
    child.communicate()


def test_a_lease_of_a_live_process_whose_start_time_was_not_recorded_is_respected(replica):
    leave_behind(replica, **{**own_process(), "start_time": None})
    with pytest.raises(LeaseHeld), lease.acquire(f"file:{replica}", Side()):
        pass


def test_a_lease_whose_executors_may_still_delete_outlives_its_process(replica, monkeypatch):
    with lease.acquire(f"file:{replica}", Side(), heartbeat=PATIENCE) as hold:
        hold.delegate()
        monkeypatch.setattr(lease, "is_alive", lambda _held: False)
        with pytest.raises(LeaseHeld), lease.acquire(f"file:{replica}", Side()):
            pass
        start = time.time()
        monkeypatch.setattr(json_files, "now", lambda: start + lease.SECONDS + 1)
        with lease.acquire(f"file:{replica}", Side()) as other:
            other.check()
    assert [each.name for each in (replica / ".cpreplicate").iterdir()] == []


def test_a_run_may_wait_for_the_lease_and_reports_who_holds_it(replica):
    lines: list[str] = []
    order: list[object] = []

    def hold_for_a_while(held, let_go):
        with lease.acquire(f"file:{replica}", Side()):
            held.set()
            let_go.wait(PATIENCE)
            order.append("first")

    held, let_go = threading.Event(), threading.Event()
    first = threading.Thread(target=hold_for_a_while, args=(held, let_go))
    first.start()
    held.wait(PATIENCE)

    def report(line):
        lines.append(line)
        let_go.set()

    with lease.acquire(f"file:{replica}", Side(), PATIENCE, report):
        order.append("second")
    first.join()
    assert order == ["first", "second"]
    assert [f"process {os.getpid()}" in line for line in lines] == [True]


def test_waiting_for_the_lease_ends(replica):
    leave_behind(replica, host="elsewhere")
    started = time.monotonic()
    with (
        pytest.raises(LeaseHeld, match="cron@elsewhere"),
        lease.acquire(f"file:{replica}", Side(), 0.5),
    ):
        pass
    assert time.monotonic() - started >= 0.5


def test_what_ends_the_work_of_a_thread_ends_its_wait_for_the_lease(replica):
    path = leave_behind(replica, host="elsewhere")
    before, looks = path.read_text(), []

    def check():
        looks.append(1)
        if len(looks) > 3:
            raise RunnerStopped

    with (
        pytest.raises(RunnerStopped),
        cancellable(check),
        lease.acquire(f"file:{replica}", Side(), 10 * PATIENCE),
    ):
        pass
    assert path.read_text() == before


@pytest.mark.parametrize("scheme", ["file", "memory"])
def test_an_expired_lease_is_taken_over_by_one_of_many_contenders(replica, scheme):
    with serving("memory", MemoryStorage()):
        root = f"{scheme}:{replica}"
        stale = json.dumps({"token": "0", "host": "elsewhere", "expires": time.time() - 1}).encode()
        Side().storage(root).put(f"{root}/.cpreplicate/lease", lambda: [stale])
        everyone = threading.Barrier(12)
        holders, most, lock = [], [], threading.Lock()

        def contend():
            everyone.wait()
            with contextlib.suppress(LeaseHeld), lease.acquire(root, Side()) as hold:
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


def test_check_raises_lease_held_if_the_lease_was_lost(replica):
    with lease.acquire(f"file:{replica}", Side()) as hold:
        path = replica / ".cpreplicate" / "lease"
        taken = json.loads(path.read_text())
        path.write_text(json.dumps({**taken, "token": "another", "host": "elsewhere"}))
        with pytest.raises(LeaseHeld, match="lost its lease"):
            hold.check()
    assert json.loads(path.read_text())["token"] == "another"


class Unreachable(StorageWrapper):
    """A storage whose reads of the lease fail while `is_down`."""

    is_down, failed = False, 0

    def read(self, uri, offset=0, count=None):
        if self.is_down:
            self.failed += 1
            raise Transient(errno.EIO, "down", uri)
        return super().read(uri, offset, count)


def test_a_heartbeat_that_finds_the_lease_lost_ends_what_works_under_it(replica):
    def lost():
        try:
            go_on()
        except LeaseHeld:
            return True
        return False

    with lease.acquire(f"file:{replica}", Side(), heartbeat=0.02):
        go_on()
        (replica / ".cpreplicate" / "lease").unlink()
        wait_until(lost, "a heartbeat that finds the lease gone")
        with pytest.raises(LeaseHeld, match="is gone: another run removed it"):
            go_on()


def test_a_heartbeat_that_does_not_reach_the_storage_ends_nothing(replica):
    storage = Unreachable(Side().storage("file:/"))
    with (
        serving("file", storage),
        lease.acquire(f"file:{replica}", Side(), heartbeat=0.02) as hold,
    ):
        storage.is_down = True
        wait_until(lambda: storage.failed > 3, "heartbeats that fail")
        go_on()
        storage.is_down, first = False, hold.until()
        wait_until(lambda: hold.until() > first, "a heartbeat")
        go_on()


@pytest.mark.parametrize("error", [FileNotFoundError("went"), CopyFailed("went"), Refused("went")])
def test_whatever_fails_in_a_run_that_lost_its_lease_it_is_reported_as_lost(replica, error):
    def fail(loses):
        with lease.acquire(f"file:{replica}", Side()):
            (replica / ".cpreplicate" / "lease").unlink() if loses else None
            raise error

    with pytest.raises(type(error)):
        fail(False)
    with pytest.raises(LeaseHeld) as lost:
        fail(True)
    assert lost.value.__cause__ is error


def test_a_replica_that_went_is_reported_as_gone(replica):
    with lease.acquire(f"file:{replica}", Side()) as hold:
        shutil.rmtree(replica)
        with pytest.raises(TargetGone):
            hold.check()
    assert not replica.exists()


def test_a_replica_that_is_to_be_there_is_not_made(replica):
    with pytest.raises(TargetGone), lease.acquire(f"file:{replica}", Side(), makes_root=False):
        pass
    assert not replica.exists()


def test_a_take_over_that_stands_still_is_waited_for_no_longer_than_allowed(replica):
    leave_behind(replica, host="elsewhere", expires=1.0)
    descriptor = os.open(replica / ".cpreplicate", os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)  # as a process that was stopped in a take-over
        with (
            pytest.raises(LeaseHeld, match=r"left by cron@elsewhere.*is being taken over"),
            lease.acquire(f"file:{replica}", Side()),
        ):
            pass
    finally:
        os.close(descriptor)
    with lease.acquire(f"file:{replica}", Side()):
        pass


def test_a_holder_stops_before_others_may_take_its_lease_over(replica, monkeypatch):
    start = time.time()
    clock = [start]
    monkeypatch.setattr(json_files, "now", lambda: clock[0])
    with lease.acquire(f"file:{replica}", Side(), heartbeat=PATIENCE) as hold:
        hold.check()
        clock[0] = start + lease.SECONDS - 29
        with pytest.raises(LeaseHeld, match="could not renew"):
            hold.check()
        with pytest.raises(LeaseHeld), lease.acquire(f"file:{replica}", Side()):
            pass
        clock[0] = start + lease.SECONDS + 1
        with lease.acquire(f"file:{replica}", Side()) as other:
            other.check()
            with pytest.raises(LeaseHeld):
                hold.check()


def test_a_lease_is_renewed_while_it_is_held_and_leaves_nothing(replica, monkeypatch):
    with lease.acquire(f"file:{replica}", Side(), heartbeat=0.05) as hold:
        first = hold.until()
        wait_until(lambda: hold.until() != first, "a heartbeat")
        text = (replica / ".cpreplicate" / "lease").read_bytes()
        start = time.time()
        # the lease itself is about to expire
        monkeypatch.setattr(json_files, "now", lambda: start + lease.SECONDS - 1)
        wait_until(lambda: hold.until() > start + lease.SECONDS, "a heartbeat")
        monkeypatch.setattr(json_files, "now", lambda: start + lease.SECONDS + 5)
        with pytest.raises(LeaseHeld), lease.acquire(f"file:{replica}", Side()):
            pass
        assert (replica / ".cpreplicate" / "lease").read_bytes() == text
    assert list((replica / ".cpreplicate").iterdir()) == []


@pytest.mark.parametrize("text", ["", "[]", "{}", "nonsense", '{"pid": "x", "started": 1e300}'])
def test_a_damaged_lease_is_respected_and_reported(replica, text):
    leave_behind(replica).write_text(text)
    with (
        pytest.raises(LeaseHeld, match="delete the file"),
        lease.acquire(f"file:{replica}", Side()),
    ):
        pass


@pytest.mark.parametrize(
    "facts", [{"expires": 4e9}, {"expires": "soon"}, {"expires": None}, {"expires": float("inf")}]
)
def test_a_lease_that_does_not_expire_shows_how_it_is_removed_safely(replica, facts):
    path = leave_behind(replica, host="elsewhere", pid=4711, **facts)
    with pytest.raises(LeaseHeld) as refused, lease.acquire(f"file:{replica}", Side()):
        pass
    advice = str(refused.value)
    assert "It does not expire by itself before" in advice
    assert (
        "that process 4711 on elsewhere has ended, and that no run of cpreplicate works on"
        in advice
    )
    assert f"delete the file file:{path} and nothing else" in advice
    assert "--lock-wait" not in advice
    path.unlink()  # as advised
    with lease.acquire(f"file:{replica}", Side()):
        assert holder(replica) == os.getpid()


def test_a_heartbeat_of_the_future_shows_which_file_keeps_the_lease(replica):
    path = leave_behind(replica, host="elsewhere", pid=4711, token="a", expires=1)
    beat = path.with_name("lease-a.heartbeat")
    beat.write_text(json.dumps({"heartbeat": 4e9, "expires": 4e9}))
    with pytest.raises(LeaseHeld, match=f"delete the file file:{path} and"):
        lease.Lease(f"file:{replica}", Side()).take(0.0, lambda _line: None)
    path.unlink()
    with lease.acquire(f"file:{replica}", Side()):
        pass


def test_the_refusal_of_a_lease_that_expires_in_time_is_to_wait(replica):
    leave_behind(replica, host="elsewhere")
    with pytest.raises(LeaseHeld, match="--lock-wait") as refused:
        lease.Lease(f"file:{replica}", Side()).take(0.0, lambda _line: None)
    assert "delete" not in str(refused.value)


def test_a_lease_that_was_removed_meanwhile_is_reported_as_gone_and_a_damaged_one_as_damaged(
    replica,
):
    path = replica / ".cpreplicate" / "lease"
    with lease.acquire(f"file:{replica}", Side()) as token:
        text = path.read_text()
        path.unlink()
        with pytest.raises(LeaseHeld, match=r"lease is gone: another run removed it\. Run again"):
            token.check()
        path.write_text("nonsense")
        with pytest.raises(LeaseHeld, match=r"lease is damaged: it does not show who"):
            token.check()
        path.write_text(text)


class GoneWhenItIsRead(StorageWrapper):
    """A lease of another run is there at the first attempt to create ours, and gone after that."""

    attempts = 0

    def create_exclusive(self, uri, data):
        self.attempts += 1
        return self.attempts > 1 and super().create_exclusive(uri, data)


def test_a_lease_that_is_given_back_while_it_is_examined_is_created_at_once():
    storage = GoneWhenItIsRead(MemoryStorage())
    with serving("memory", storage), lease.acquire("memory:/replica", Side()):
        with storage.open("memory:/replica/.cpreplicate/lease") as stream:
            taken = json.loads(stream.read())
        assert taken["pid"] == os.getpid()
        assert taken["expires"] > time.time()
    assert storage.attempts == 2
    assert storage.stat("memory:/replica/.cpreplicate/lease") is None
