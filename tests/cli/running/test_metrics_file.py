"""`--metrics-file`, as cron runs the commands."""

import math
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

from cpreplicate.operations.jobs.observation import Observation
from cpreplicate.output.textfile import read
from tests.support.commandline import printed, run
from tests.support.jobs import JOB, write_checkpoint
from tests.support.prometheus import promtool
from tests.support.replicas import FILES, NEXT, recorded, synced
from tests.support.waiting import PATIENCE


@pytest.fixture
def directory(tmp_path):
    write_checkpoint(tmp_path / "dcA", 1, FILES)
    return tmp_path


def sync(directory, *words):
    source, metrics = f"{directory}/dcA/{JOB}", f"{directory}/m.prom"
    return run("sync", source, f"{directory}/dcB", "-q", "--metrics-file", metrics, *words)


def written(directory, name="m.prom") -> Observation:
    (job,) = read(f"{directory}/{name}")
    return job


def test_a_sync_writes_its_metrics_and_the_next_one_adds_to_them(directory):
    assert sync(directory).code == 0
    write_checkpoint(directory / "dcA", 2, NEXT)
    assert sync(directory).code == 0
    job = written(directory)
    assert (job.name, job.replica) == (JOB, f"file:{directory}/dcB/{JOB}")
    assert (job.tries, job.last_exit_code, job.failures) == (2, 0, {})
    assert job.files["copied"] == len(FILES) + len(NEXT) - len(FILES.keys() & NEXT.keys())
    assert job.source_newest == job.replica_newest
    assert job.replica_newest.checkpoint_id == 2
    assert (job.sync_durations[math.inf], job.sync_durations[14400.0]) == (2, 2)
    assert job.sync_seconds > 0
    assert sync(directory).code == 0  # nothing to do
    assert written(directory).sync_durations == job.sync_durations


def test_a_sync_that_fails_counts_the_failure_and_the_replica_lags(directory):
    assert sync(directory).code == 0
    write_checkpoint(directory / "dcA", 2, NEXT)
    (directory / "dcA" / JOB / "shared" / "y").unlink()
    assert sync(directory).code == 10
    job = written(directory)
    assert (job.tries, job.failures, job.last_exit_code) == (2, {10: 1}, 10)
    assert (job.source_newest.checkpoint_id, job.replica_newest.checkpoint_id) == (2, 1)
    assert job.lag(time.time()) > 0


def test_without_a_replica_the_lag_of_a_sync_that_fails_is_infinite(directory):
    (directory / "dcA" / JOB / "shared" / "a").unlink()
    assert sync(directory).code == 10
    assert "cpreplicate_replica_lag_seconds{" in (directory / "m.prom").read_text()
    assert written(directory).lag(time.time()) == float("inf")


def test_the_lag_is_known_also_if_earlier_runs_wrote_no_metrics(directory):
    assert run("sync", f"{directory}/dcA/{JOB}", f"{directory}/dcB", "-q").code == 0
    write_checkpoint(directory / "dcA", 2, NEXT)
    (directory / "dcA" / JOB / "shared" / "y").unlink()
    assert sync(directory).code == 10
    job = written(directory)
    assert job.replica_newest.checkpoint_id == 1
    assert 0 < job.lag(time.time()) < 600


def test_the_lag_is_unknown_while_the_source_is_not_there(directory):
    assert sync(directory).code == 0
    shutil.rmtree(directory / "dcA")
    assert sync(directory).code == 10
    job = written(directory)
    assert (job.source_newest, job.failures) == (None, {10: 1})
    assert job.last_success < job.last_try


def test_a_sync_into_a_sealed_replica_shows_the_seal(directory):
    assert sync(directory).code == 0
    assert run("promote", f"{directory}/dcB/{JOB}", "-q").code == 0
    write_checkpoint(directory / "dcA", 2, NEXT)
    assert sync(directory).code == 6
    job = written(directory)
    assert (job.is_sealed, job.failures) == (True, {6: 1})
    assert job.lag(time.time()) > 0


def test_a_sync_and_a_fleet_show_whether_the_replica_is_ready(directory):
    fleet = directory / "fleet.toml"
    fleet.write_text(
        f'[[job]]\nname = "orders"\nsource = "{directory}/dcA/{JOB}"\ntarget = "{directory}/dcB"\n'
    )
    words = ("fleet", fleet, "-q", "--metrics-file", directory / "fleet.prom")
    replica = directory / "dcB" / JOB
    for code, readiness in ((0, "ready"), (6, "foreign")):
        assert sync(directory).code == code
        assert written(directory).readiness == readiness
        assert run(*words).code == code
        assert written(directory, "fleet.prom").readiness == readiness
        shutil.copytree(replica / "chk-1", replica / "chk-9", dirs_exist_ok=True)
    assert (
        'cpreplicate_replica_unready{flink_job="orders"' in (directory / "fleet.prom").read_text()
    )


def test_a_dry_run_writes_no_metrics(directory):
    assert sync(directory, "--dry-run").code == 0
    assert not (directory / "m.prom").exists()


def test_a_file_that_the_collector_would_not_read_is_refused(directory):
    command = [sys.executable, "-m", "cpreplicate", "verify", "x", "--metrics-file", "m.txt"]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 2
    assert "only files whose name ends in .prom" in done.stderr


def test_a_file_in_a_replica_is_refused_before_anything_is_done(directory):
    assert sync(directory).code == 0
    replica = directory / "dcB" / JOB
    before = sorted(replica.rglob("*"))
    for words in (["verify", f"{replica}"], ["sync", f"{directory}/dcA/{JOB}", f"{directory}/dcB"]):
        metrics = f"{replica}/shared/m.prom"
        refused = printed(*words, "--metrics-file", metrics)
        assert refused.returncode == 2
        assert f"--metrics-file {metrics} would be in the replica {replica}" in refused.stderr
    assert sorted(replica.rglob("*")) == before


def test_metrics_that_cannot_be_written_do_not_change_the_exit_code(directory):
    source = f"{directory}/dcA/{JOB}"
    words = ["sync", source, "dcB", "-q", "--metrics-file", "absent/m.prom"]
    command = [sys.executable, "-m", "cpreplicate", *words]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0
    assert done.stderr == (
        "cpreplicate: warning: the metrics were not written to absent/m.prom: No such file or"
        " directory\n"
    )


def test_a_run_that_is_stopped_counts_as_a_failure(directory):
    source = f"{directory}/dcA/{JOB}"
    lease = directory / "dcB" / JOB / ".cpreplicate" / "lease"
    assert sync(directory).code == 0
    write_checkpoint(directory / "dcA", 2, NEXT)
    holder = (
        "import sys; from cpreplicate.protocol.lease import acquire;"
        "from cpreplicate.storage import Side\n"
        f"with acquire('file:{directory}/dcB/{JOB}', Side()): print('held', flush=True);"
        " sys.stdin.read()"
    )
    waiting = ["sync", source, "dcB", "--lock-wait", "1h", "--metrics-file", "m.prom"]
    with subprocess.Popen(
        [sys.executable, "-c", holder], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout.readline() == b"held\n"
        assert lease.exists()
        command = [sys.executable, "-m", "cpreplicate", *waiting]
        with subprocess.Popen(command, cwd=directory, stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr.readline()  # it waits
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE) == 143
        assert sync(directory).code == 11
        job = written(directory)
        assert (job.failures, job.is_lease_held) == ({143: 1, 11: 1}, True)
        other.kill()


def fleet_file(directory, *names):
    tables = [
        f'[[job]]\nname = "{name}"\nsource = "{directory}/{name}/{JOB}"\n'
        f'target = "{directory}/to-{name}"\n'
        for name in names
    ]
    (directory / "jobs.toml").write_text("".join(tables))


def fleet(directory, *words):
    metrics = f"{directory}/f.prom"
    return run(
        *("fleet", f"{directory}/jobs.toml", "--runner", "inline", "-q"),
        *("--metrics-file", metrics, *words),
    )


def test_a_fleet_writes_the_metrics_of_each_job(directory):
    for name in ("orders", "clicks"):
        write_checkpoint(directory / name, 1, FILES)
    fleet_file(directory, "orders", "clicks")
    assert fleet(directory).code == 0
    assert fleet(directory).code == 0
    write_checkpoint(directory / "orders", 2, NEXT)
    (directory / "clicks" / JOB / "chk-1" / "_metadata").write_bytes(b"?")
    assert fleet(directory).code == 5
    orders, clicks = read(f"{directory}/f.prom")
    assert (orders.name, orders.tries, orders.failures) == ("orders", 3, {})
    assert orders.replica_newest.checkpoint_id == 2
    assert orders.lag(time.time()) == 0
    assert (clicks.name, clicks.tries, clicks.failures) == ("clicks", 3, {5: 1})
    assert clicks.source_newest is None
    assert clicks.replica == f"file:{directory}/to-clicks/{JOB}"


def test_a_fleet_with_a_mistake_in_its_file_fails_every_job(directory):
    write_checkpoint(directory / "orders", 1, FILES)
    fleet_file(directory, "orders")
    assert fleet(directory).code == 0
    (directory / "jobs.toml").write_text("[[jobb]]\n")
    words = ["fleet", "jobs.toml", "--metrics-file", "f.prom"]
    command = [sys.executable, "-m", "cpreplicate", *words]
    assert subprocess.run(command, cwd=directory, timeout=PATIENCE, check=False).returncode == 2
    job = written(directory, "f.prom")
    assert (job.name, job.failures, job.last_exit_code) == ("orders", {2: 1}, 2)


def test_a_sweep_shows_the_bytes_of_orphans_and_what_it_deleted(directory):
    replica = synced(directory, {1: FILES})
    (replica / "shared" / "orphan").write_bytes(bytes(70))
    recorded(replica, "shared/orphan")
    aged = time.time() - 2 * 24 * 3600
    os.utime(replica / "shared" / "orphan", (aged, aged))
    words = ["sweep", replica, "-q", "--metrics-file", f"{directory}/w.prom"]
    assert run(*words, "--dry-run").code == 0
    job = written(directory, "w.prom")
    assert (job.operation, job.tries, job.files["deleted"]) == ("sweep", 1, 0)
    before = job.orphan_bytes
    assert before >= 70
    assert run(*words, "--max-delete", "0").code == 6
    job = written(directory, "w.prom")
    assert (job.failures, job.orphan_bytes) == ({6: 1}, before)
    assert run(*words).code == 0
    assert written(directory, "w.prom").bytes["deleted"] == before
    assert run(*words).code == 0
    assert written(directory, "w.prom").orphan_bytes == 0


def test_verify_shows_whether_the_replica_can_be_restored(directory):
    replica = synced(directory, {1: FILES})
    words = ["verify", replica, "-q", "--metrics-file", f"{directory}/v.prom"]
    assert run(*words).code == 0
    assert written(directory, "v.prom").is_restorable
    (replica / "shared" / "a").unlink()
    assert run(*words).code == 4
    job = written(directory, "v.prom")
    assert (job.is_restorable, job.failures, job.tries) == (False, {4: 1}, 2)
    assert job.last_success < job.last_try


@pytest.mark.prometheus
def test_promtool_finds_nothing_wrong_with_the_files(directory):
    replica = synced(directory, {1: FILES})
    sync(directory)
    (directory / "dcA" / JOB / "chk-1" / "_metadata").unlink()
    sync(directory)
    run("sweep", replica, "-q", "--metrics-file", f"{directory}/w.prom")
    run("verify", replica, "-q", "--metrics-file", f"{directory}/v.prom")
    for name in ("m.prom", "w.prom", "v.prom"):
        done = promtool("check", "metrics", stdin=(directory / name).read_text())
        assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), name


def test_no_two_files_of_a_replica_hold_the_same_sample(directory):
    # node_exporter would reject all of them
    replica = synced(directory, {1: FILES})
    sync(directory)
    run("sweep", replica, "-q", "--metrics-file", f"{directory}/w.prom")
    run("verify", replica, "-q", "--metrics-file", f"{directory}/v.prom")
    lines = [
        line.rpartition(" ")[0]
        for name in ("m.prom", "w.prom", "v.prom")
        for line in (directory / name).read_text().splitlines()
        if not line.startswith("#")
    ]
    assert len(lines) == len(set(lines)) > 20


def test_without_the_option_nothing_of_prometheus_is_imported(directory):
    script = (
        "import sys; from cpreplicate.cli.commands.replication import cli\n"
        f"cli.main(['sync', 'dcA/{JOB}', 'dcB', '-q'], standalone_mode=False)\n"
        "assert not [name for name in sys.modules if name.startswith('prometheus')]\n"
    )
    subprocess.run([sys.executable, "-c", script], cwd=directory, check=True, timeout=PATIENCE)
