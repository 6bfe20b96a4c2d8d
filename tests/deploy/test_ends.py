"""How the services of `deploy/systemd` end, and what does not end them, by the units' commands."""

import contextlib
import re
import signal
import socket
import subprocess
import time
from functools import partial
from pathlib import Path
from random import Random

import pytest

from cpreplicate.core.placement import OWN
from cpreplicate.operations.sync.diff import diff
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.storage import TEMPORARY
from tests.support import checker
from tests.support.jobs import JOB, NEXT_JOB, write_checkpoint
from tests.support.ports import free_port
from tests.support.replicas import FILES, NEXT
from tests.support.shipped import DEPLOY, unit_command, unit_reload
from tests.support.waiting import PATIENCE, wait_until

pytestmark = [pytest.mark.rest]

FLEET = "cpreplicate-fleet.service"
TERMINATED = 128 + signal.SIGTERM
CLOSED = 'exec "$@" >&- 2>&-'
FULL = 'exec "$@" >/dev/full 2>/dev/full'
GONE = 'exec "$@" > >(exec true) 2>&1'  # a pipe that nobody reads


class Host:
    """A host with the unit of the fleet, beside others that share its sources and its target."""

    def __init__(self, site, name):
        self.site, self.directory = site, site / name
        self.directory.mkdir()
        self.configure(JOB)

    def configure(self, *jobs):
        tables = "".join(f'[[job]]\nsource = "{self.site}/dcA/{job}"\n' for job in jobs)
        text = f'[defaults]\ntarget = "{self.site}/dcB"\n{tables}'
        (self.directory / "fleet.toml").write_text(text)

    @contextlib.contextmanager
    def start(self, shell=None, **environment):
        """Start the unit, each 0.2 s instead of 30 s, until the block ends; yield its process."""
        given = {"METRICS": f"127.0.0.1:{free_port()}", "CPREPLICATE_FLEET_RUNNER": "inline"}
        words, variables = unit_command(FLEET, "", self.directory, {**given, **environment})
        words = [word.replace("/etc/cpreplicate", str(self.directory)) for word in words]
        words[words.index("--every") + 1] = "0.2s"
        if shell is not None:
            words = ["bash", "-c", shell, "bash", *words]
        with (self.directory / "messages").open("a") as stderr:
            process = subprocess.Popen(
                words, env=variables, stdin=subprocess.DEVNULL, stdout=stderr, stderr=stderr
            )
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    def messages(self):
        return (self.directory / "messages").read_text()


@pytest.fixture
def host(tmp_path):
    write_checkpoint(tmp_path / "dcA", 1, FILES)
    return Host(tmp_path, "host")


def is_replicated(site, number, job=JOB):
    return (site / "dcB" / job / f"chk-{number}" / "_metadata").exists()


def has_begun(site, number):
    return any((site / "dcB" / JOB).glob(f"shared/{number}-*"))


def terminated(process):
    process.terminate()
    return process.wait(PATIENCE)


def reload(process):
    words, environment = unit_reload(FLEET, process.pid)
    return subprocess.run(words, env=environment, timeout=PATIENCE, check=False).returncode


def is_of_a_killed_run(path):
    """Whether it is a temporary file of the protocol, which a sync removes after two minutes."""
    return path.parent.name == OWN and path.name.startswith(TEMPORARY)


def is_whole(site):
    """Whether the replica has what it needs, and nothing that a sync would delete.

    But for temporary files of runs that were killed in `.cpreplicate`: they outlast a lease.
    """
    replica = site / "dcB" / JOB
    hidden = [each for each in replica.rglob(".*") if each.is_file()]
    left = [each for each in hidden if not is_of_a_killed_run(each)]
    plan = diff(SyncRequest(f"file:{site}/dcA/{JOB}", f"file:{site}/dcB")).plan
    return checker.faults(replica) == [] and plan.empty and left == []


def test_a_reload_right_after_the_start_is_made_once_the_service_can(host, tmp_path):
    with host.start() as process:
        assert reload(process) == 0
        wait_until(lambda: "the configuration was read again" in host.messages())
        wait_until(lambda: is_replicated(tmp_path, 1))
        assert terminated(process) == TERMINATED


def test_a_hangup_at_any_moment_from_the_start_on_is_no_end(host):
    delays = [0.005, 0.01, 0.02, 0.05, 0.1, 0.3, 1.0]  # seconds; env has run, and Python begins
    for count, delay in enumerate(delays, start=1):
        with host.start() as process:
            wait_until(partial(is_ready_for, process.pid, signal.SIGHUP))
            time.sleep(delay)
            process.send_signal(signal.SIGHUP)
            wait_until(partial(has_read_again, host, count))
            assert terminated(process) == TERMINATED


def has_read_again(host, count):
    return host.messages().count("the configuration was read again") == count


def is_ready_for(process, number):
    """Whether a process blocks a signal, or handles it already: we may look late."""
    return has_mask(process, "SigBlk", number) or has_mask(process, "SigCgt", number)


def has_mask(process, name, number):
    """Whether a process handles (`SigCgt`) or blocks (`SigBlk`) a signal."""
    with contextlib.suppress(OSError):
        status = Path(f"/proc/{process}/status").read_text()
        [mask] = re.findall(rf"^{name}:\s+(\w+)$", status, re.MULTILINE)
        return bool(int(mask, 16) >> (number - 1) & 1)
    return False


def test_the_service_reports_to_systemd_that_it_is_ready_once_a_hangup_is_handled(host, tmp_path):
    unit = (DEPLOY / "systemd" / FLEET).read_text()
    assert re.findall(r"^Type=(.*)$", unit, re.MULTILINE) == ["notify"]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(PATIENCE)
        with host.start(NOTIFY_SOCKET=str(tmp_path / "notify")) as process:
            assert manager.recv(100) == b"READY=1"
            assert has_mask(process.pid, "SigCgt", signal.SIGHUP)
            process.send_signal(signal.SIGHUP)
            wait_until(lambda: "the configuration was read again" in host.messages())


def test_a_reload_of_a_service_that_is_gone_fails(host):
    with host.start() as process:
        process.kill()
        process.wait()
    assert reload(process) == 1


@pytest.mark.parametrize("unit", [FLEET, "cpreplicate-watch@.service"])
def test_a_service_that_a_hangup_killed_is_started_again(unit):
    text = (DEPLOY / "systemd" / unit).read_text()
    assert re.findall(r"^RestartForceExitStatus=(.*)$", text, re.MULTILINE) == ["SIGHUP"]


def test_a_configuration_that_changes_counts_from_the_reload_on_and_a_mistake_for_a_new_start(
    host, tmp_path
):
    write_checkpoint(tmp_path / "other", 1, FILES)
    (tmp_path / "other" / JOB).rename(tmp_path / "dcA" / NEXT_JOB)
    with host.start() as process:
        wait_until(lambda: is_replicated(tmp_path, 1))
        host.configure(NEXT_JOB)
        write_checkpoint(tmp_path / "dcA", 2, NEXT)
        wait_until(lambda: is_replicated(tmp_path, 2))
        assert not (tmp_path / "dcB" / NEXT_JOB).exists()
        assert reload(process) == 0
        wait_until(lambda: "the configuration was read again" in host.messages())
        (host.directory / "fleet.toml").write_text("[[jobb]]\n")
        assert reload(process) == 0
        wait_until(lambda: "did you mean 'job'" in host.messages())
        assert terminated(process) == TERMINATED
    with host.start() as process:
        assert process.wait(PATIENCE) == 2  # in RestartPreventExitStatus


def test_two_services_without_shards_share_a_target(host, tmp_path):
    other = Host(tmp_path, "other")
    with host.start() as one, other.start() as two:
        for number, files in enumerate([FILES, NEXT] * 5, start=1):
            write_checkpoint(tmp_path / "dcA", number, files)
            wait_until(partial(is_replicated, tmp_path, number))
        assert [terminated(one), terminated(two)] == [TERMINATED, TERMINATED]
    assert is_whole(tmp_path)
    assert "Traceback" not in host.messages() + other.messages()


def test_a_service_that_is_killed_again_and_again_leaves_a_whole_replica(host, tmp_path):
    draw, number = Random(20261128), 0
    for _ in range(5):
        number += 1
        sizes = {f"shared/{number}-{each}": 100_000 for each in range(20)}
        write_checkpoint(tmp_path / "dcA", number, {**FILES, **sizes})
        with host.start(CPREPLICATE_FLEET_BANDWIDTH="2MB/s") as process:
            wait_until(partial(has_begun, tmp_path, number))
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(draw.uniform(0, 1.5))
        assert checker.faults(tmp_path / "dcB" / JOB) == []
    # the last one may have been killed after all of its work but its end
    number += 1
    write_checkpoint(tmp_path / "dcA", number, FILES)
    with host.start() as process:
        wait_until(lambda: is_replicated(tmp_path, number))
        wait_until(partial(has_mask, process.pid, "SigCgt", signal.SIGTERM))
        assert terminated(process) == TERMINATED
    assert is_whole(tmp_path)


@pytest.mark.parametrize("shell", [CLOSED, FULL, GONE])
def test_a_service_whose_streams_are_closed_or_full_replicates_and_ends(host, tmp_path, shell):
    with host.start(shell) as process:
        wait_until(lambda: is_replicated(tmp_path, 1) or process.poll() is not None)
        write_checkpoint(tmp_path / "dcA", 2, NEXT)
        wait_until(lambda: is_replicated(tmp_path, 2) or process.poll() is not None)
        assert terminated(process) == TERMINATED
    assert is_whole(tmp_path)


def test_sigterm_during_a_long_copy_ends_the_service_before_systemd_would_kill_it(host, tmp_path):
    write_checkpoint(tmp_path / "dcA", 2, {"shared/large": 60_000_000})
    with host.start(CPREPLICATE_FLEET_BANDWIDTH="10KB/s") as process:  # it would take hours
        wait_until(lambda: list((tmp_path / "dcB" / JOB).glob("shared/*")))
        assert terminated(process) == TERMINATED
    assert list((tmp_path / "dcB" / JOB).glob("**/large*")) == []
    left = (tmp_path / "dcB" / JOB).glob(".cpreplicate/lease*")
    assert [each.name for each in left] == ["lease-room"]
