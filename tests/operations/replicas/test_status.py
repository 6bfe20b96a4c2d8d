"""`status`: every replica with its lag, as an operator sees it."""

import errno
import json
import os
import shutil
import time

import pytest
from click.testing import CliRunner

from cpreplicate.cli.commands.replication import cli
from cpreplicate.core.shard import Shard
from cpreplicate.operations.replicas.replicas import replicas_below
from cpreplicate.operations.replicas.status import status
from cpreplicate.operations.sync import sync
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.protocol.lease import acquire
from cpreplicate.runners import ExecutionOptions
from cpreplicate.storage import Side, Sides
from cpreplicate.storage.backends.local.local import LocalStorage
from tests.support import jobs
from tests.support.commandline import printed, run
from tests.support.faults import Faulty
from tests.support.registry import serving
from tests.support.replicas import DAY, FILES, NEXT, aged, paths, recorded
from tests.support.roots import FIRST, HOUR, NOON, SECOND, Roots
from tests.support.waiting import PATIENCE

ORDERS, CLICKS = "a" * 32, "b" * 32
LAGGING, NOT_THERE, REFUSED = 21, 10, 6
AGE = 2 * PATIENCE  # seconds ago a checkpoint was completed


def complete(root, job, number, files=FILES, age=AGE):
    """Complete a checkpoint of a job, some seconds ago."""
    directory = jobs.write_checkpoint(root / "dcA", number, files)
    target = root / "dcA" / job
    if job != jobs.JOB:
        shutil.copytree(root / "dcA" / jobs.JOB, target, dirs_exist_ok=True)
        shutil.rmtree(root / "dcA" / jobs.JOB)
        metadata = target / directory.name / "_metadata"
        metadata.write_bytes(
            jobs.metadata(f"file:{root}/dcA", number, files).replace(
                jobs.JOB.encode(), job.encode()
            )
        )
    os.utime(target / f"chk-{number}" / "_metadata", (time.time() - age,) * 2)
    os.utime(target / f"chk-{number}", (time.time() - age,) * 2)


def replicate(root, job, **options):
    execution = ExecutionOptions(runner="inline")
    request = SyncRequest(
        f"file:{root}/dcA/{job}", f"file:{root}/dcB", execution=execution, **options
    )
    sync.sync(request, lambda _line: None)
    return root / "dcB" / job


@pytest.fixture
def root(tmp_path):
    """Two jobs that are replicated."""
    for job in (ORDERS, CLICKS):
        complete(tmp_path, job, 1)
        replicate(tmp_path, job)
    return tmp_path


def rows(root, *words, target="dcB"):
    done = run("status", f"{root}/{target}", "--output", "json", *words)
    return {row["job"]: row for row in json.loads(done.out)["replicas"]}


def code(root, *words, target="dcB"):
    return run("status", f"{root}/{target}", *words).code


def test_a_replica_with_the_newest_checkpoint_has_no_lag(root):
    row = rows(root)[ORDERS]
    assert (row["checkpoint"], row["source_checkpoint_id"]) == ("chk-1", 1)
    assert (row["lag_seconds"], row["checkpoints_behind"]) == (0, 0)
    assert AGE <= row["age_seconds"] < AGE + PATIENCE
    assert (row["files"], row["bytes"], row["packs"]) == (len(FILES), sum(FILES.values()), 0)
    assert row["error"] is row["source_error"] is row["sealed"] is row["lease"] is None


def test_a_replica_behind_its_source_lags_by_the_age_of_its_own_checkpoint(root):
    complete(root, ORDERS, 4, NEXT, age=1)
    row = rows(root)[ORDERS]
    assert (row["source_checkpoint_id"], row["checkpoints_behind"]) == (4, 3)
    assert row["lag_seconds"] == row["age_seconds"] >= AGE
    assert row["is_lagging"] is None


def test_exit_21_if_a_replica_lags_more_than_allowed(root):
    complete(root, ORDERS, 2, NEXT, age=1)
    assert (code(root, "--max-lag", "30s"), code(root, "--max-lag", "1h")) == (LAGGING, 0)
    replicate(root, ORDERS)
    assert code(root, "--max-lag", "1s") == 0


def test_exit_21_if_a_job_with_a_checkpoint_has_no_replica(root):
    shutil.rmtree(root / "dcB" / CLICKS)
    assert code(root, "--max-lag", "1h") == 0  # nothing names the job
    row = rows(root, "--source", root / "dcA")[CLICKS]
    assert (row["checkpoint"], row["lag_seconds"], row["source_checkpoint_id"]) == (None, None, 1)
    assert code(root, "--max-lag", "1h", "--source", root / "dcA") == LAGGING
    (root / "dcA" / CLICKS / "chk-1" / "_metadata").unlink()
    assert CLICKS not in rows(root, "--source", root / "dcA")


def test_a_source_is_a_root_or_a_job(root):
    moved = root / "moved"
    (root / "dcA").rename(moved)
    assert rows(root)[ORDERS]["lag_seconds"] is None
    assert rows(root, "--source", moved)[ORDERS]["lag_seconds"] == 0
    found = rows(root, "--source", moved / ORDERS)
    assert (found[ORDERS]["lag_seconds"], found[CLICKS]["lag_seconds"]) == (0, None)


def test_a_source_that_cannot_be_read_is_in_its_row_and_the_age_limits_the_lag(root):
    (root / "dcA").rename(root / "gone")
    row = rows(root)[ORDERS]
    assert "is not there" in row["source_error"]
    assert (row["checkpoint"], row["checkpoints_behind"]) == ("chk-1", None)
    assert (code(root, "--max-lag", "30s"), code(root, "--max-lag", "1h")) == (LAGGING, 0)


def test_of_a_job_that_is_gone_from_a_root_that_is_there_the_age_limits_the_lag(root):
    shutil.rmtree(root / "dcA" / ORDERS)
    row = rows(root)[ORDERS]
    unknown = ("lag_seconds", "checkpoints_behind", "source_checkpoint_id")
    assert [row[name] for name in unknown] == [None] * 3
    assert "is not there" in row["source_error"]
    assert "holds no checkpoint any more" in row["not_ready_because"]
    assert (code(root, "--max-lag", "30s"), code(root, "--max-lag", "1h")) == (LAGGING, 0)


def test_the_file_of_a_fleet_gives_names_and_jobs_without_a_replica(root):
    (root / "fleet.toml").write_text(
        f'[defaults]\ntarget = "{root}/dcB"\n[[root]]\nsource = "{root}/dcA"\n'
        f'[[job]]\nname = "orders"\nsource = "{root}/dcA/{ORDERS}"\n'
    )
    shutil.rmtree(root / "dcB" / CLICKS)
    found = rows(root, target="fleet.toml")
    assert found[ORDERS]["name"] == "orders"
    assert (found[CLICKS]["checkpoint"], found[CLICKS]["source_checkpoint_id"]) == (None, 1)
    assert "orders" in run("status", root / "fleet.toml").out
    assert code(root, "--max-lag", "1h", target="fleet.toml") == LAGGING


def test_a_source_beside_the_file_of_a_fleet_is_a_usage_error(root):
    (root / "fleet.toml").write_text(f'[[root]]\nsource = "{root}/dcA"\ntarget = "{root}/dcB"\n')
    with pytest.raises(Exception, match="--source cannot be given with a TOML file"):
        run("status", root / "fleet.toml", "--source", root / "dcA")


def test_one_replica_is_a_target_too(root):
    assert rows(root, target=f"dcB/{CLICKS}").keys() == {CLICKS}


def test_a_directory_without_replicas_is_not_there(root):
    assert code(root, target="nowhere") == NOT_THERE


def test_a_directory_without_replicas_is_not_there_although_it_exists(root):
    (root / "empty").mkdir()
    (root / "logs" / "today").mkdir(parents=True)
    assert code(root, target="empty") == code(root, target="logs") == NOT_THERE


def test_a_directory_that_is_a_link_is_named_as_verify_and_promote_would(root):
    shared = root / "dcB" / ORDERS / "shared"
    shared.rename(root / "elsewhere")
    shared.symlink_to(root / "elsewhere")
    (warning,) = rows(root)[ORDERS]["warnings"]
    assert f"file:{shared} is a symbolic link or a mount. sync, sweep and promote refuse" in warning
    assert rows(root)[CLICKS]["warnings"] == []
    assert "links or mounts" in run("status", root / "dcB").out


def test_a_replica_is_ready_or_why_it_is_not_is_printed(root):
    assert (rows(root)[ORDERS]["ready"], rows(root)[ORDERS]["not_ready_because"]) == (True, None)
    (root / "dcB" / ORDERS / ".cpreplicate" / "replica.json").unlink()
    row = rows(root)[ORDERS]
    assert row["ready"] is False
    assert "is not a replica of cpreplicate's making" in row["not_ready_because"]
    assert rows(root)[CLICKS]["ready"] is True
    printed = run("status", root / "dcB").out
    assert f"{ORDERS}: promote would not succeed: {row['not_ready_because']}" in printed
    assert run("promote", root / "dcB" / ORDERS).code != 0


def test_the_name_that_a_sync_recorded_is_shown_with_the_id(root):
    words = ["--name", "orders", "--runner", "inline", "--adopt", "--keep", "9"]
    assert run("sync", root / "dcA" / ORDERS, root / "dcB", *words).code == 0
    assert rows(root)[ORDERS]["name"] == "orders"
    assert f"orders ({ORDERS})" in run("status", root / "dcB").out


@pytest.mark.parametrize("inner", ["chk-1", "chk-1/_metadata", ".cpreplicate"])
def test_a_path_in_a_replica_is_none_and_the_replica_is_named(root, inner):
    done = run("status", root / "dcB" / ORDERS / inner)
    assert done.code == NOT_THERE
    assert f"It is in the replica file:{root}/dcB/{ORDERS}: give that" in done.message


def test_a_file_holds_no_replica(root):
    (root / "file").touch()
    done = run("status", root / "file")
    assert (done.code, f"file:{root}/file is a file." in done.message) == (NOT_THERE, True)


def test_flinks_own_directory_holds_no_replica(root):
    assert code(root, target="dcA") == code(root, target=f"dcA/{ORDERS}") == NOT_THERE
    done = run("status", root / "dcA", "--output", "json")
    assert (done.out, "holds no replica" in done.message) == ("", True)


def test_without_any_replica_the_jobs_of_the_source_are_shown_then_exit_10(root):
    shutil.rmtree(root / "dcB")
    (root / "dcB").mkdir()
    assert rows(root, "--source", root / "dcA").keys() == {ORDERS, CLICKS}
    assert code(root, "--source", root / "dcA") == NOT_THERE
    assert code(root, "--source", root / "dcA", "--max-lag", "1h") == LAGGING


def test_a_source_that_is_not_there_is_named_after_the_table(root):
    assert rows(root, "--source", root / "dcA" / "typo").keys() == {ORDERS, CLICKS}
    done = run("status", root / "dcB", "--source", root / "dcA" / "typo")
    assert done.code == NOT_THERE
    assert f"--source file:{root}/dcA/typo is not there" in done.message
    assert code(root, "--source", root / "dcA", "--source", root / "typo") == NOT_THERE


def test_a_source_whose_parent_is_not_there_may_not_be_mounted(root):
    words = ["status", f"{root}/dcB", "--source", f"{root}/mnt/flink"]
    done = CliRunner().invoke(cli, words, standalone_mode=False)
    assert done.return_value == 0
    assert f"--source file:{root}/mnt/flink is not there, and neither is" in done.stderr
    assert ORDERS in done.stdout


def test_a_source_is_a_checkpoint_or_its_metadata_too(root):
    complete(root, ORDERS, 2, NEXT)
    for place in (f"{ORDERS}/chk-2", f"{ORDERS}/chk-2/_metadata"):
        found = rows(root, "--source", root / "dcA" / place)
        assert found.keys() == {ORDERS, CLICKS}
        assert found[ORDERS]["source_checkpoint_id"] == 2


def test_the_metadata_of_a_checkpoint_names_its_job_in_the_file_of_a_fleet(root):
    (root / "fleet.toml").write_text(
        f'[[job]]\nsource = "{root}/dcA/{ORDERS}/chk-1/_metadata"\ntarget = "{root}/dcB"\n'
    )
    row = rows(root, target="fleet.toml")[ORDERS]
    assert (row["name"], row["checkpoint"], row["lag_seconds"]) == (ORDERS, "chk-1", 0)


def test_a_checkpoint_of_another_program_is_a_warning_beside_our_newest(root):
    other = root / "dcB" / ORDERS / "chk-12"
    shutil.copytree(root / "dcB" / ORDERS / "chk-1", other)
    row = rows(root)[ORDERS]
    assert (row["checkpoint"], row["source_checkpoint_id"], row["lag_seconds"]) == ("chk-1", 1, 0)
    (warning,) = row["warnings"]
    assert f"file:{other}/_metadata was not written by cpreplicate" in warning
    assert rows(root)[CLICKS]["warnings"] == []
    printed = run("status", root / "dcB").out
    assert f"{ORDERS}: warning: file:{other}/_metadata" in printed
    assert "checkpoints of others" in printed
    complete(root, ORDERS, 2, NEXT)
    assert run("sync", root / "dcA" / ORDERS, root / "dcB").code == REFUSED
    assert run("promote", root / "dcB" / ORDERS).code == REFUSED


def test_a_replica_with_two_problems_of_one_cause_is_counted_once(root):
    for job, number in ((ORDERS, 9), (ORDERS, 10), (CLICKS, 9)):
        other = root / "dcB" / job / f"chk-{number}"
        other.mkdir()
        (other / "_metadata").write_bytes(b"of a job that writes here")
        counted = "2 replicas, one cause" in run("status", root / "dcB").out
        assert counted == (job == CLICKS)


@pytest.mark.parametrize("case", ["dead run", "overwritten"])
def test_a_metadata_that_its_record_does_not_list_is_another_programs(root, case):
    replica = root / "dcB" / ORDERS
    complete(root, ORDERS, 2, NEXT, age=1)
    if case == "dead run":  # the record of a number that the run did not live to publish
        own = replica / ".cpreplicate"
        shutil.copy(own / "chk-1.json", own / "chk-2.json")
        (replica / "chk-2").mkdir()
    else:
        replicate(root, ORDERS, keep=2)
    (replica / "chk-2" / "_metadata").write_bytes(b"of a job that writes here")
    row = rows(root)[ORDERS]
    assert (row["checkpoint"], row["checkpoints_behind"], row["error"]) == ("chk-1", 1, None)
    assert row["lag_seconds"] == row["age_seconds"] >= AGE
    assert "chk-2/_metadata was not written by cpreplicate" in row["warnings"][0]
    assert code(root, "--max-lag", "30s") == LAGGING


def test_a_checkpoint_whose_record_was_lost_is_ours_if_a_manifest_names_it(root):
    (root / "dcB" / ORDERS / ".cpreplicate" / "chk-1.json").unlink()
    row = rows(root)[ORDERS]
    assert (row["checkpoint"], row["warnings"]) == ("chk-1", [])


def test_a_job_may_write_into_a_replica_that_was_promoted_for_it(root):
    run("promote", root / "dcB" / ORDERS)
    shutil.copytree(root / "dcB" / ORDERS / "chk-1", root / "dcB" / ORDERS / "chk-12")
    row = rows(root)[ORDERS]
    assert (row["checkpoint"], row["warnings"]) == ("chk-1", [])


def test_other_directories_in_the_target_root_have_no_row(root):
    (root / "dcB" / "logs").mkdir()
    (root / "dcB" / ".hidden").mkdir()
    assert rows(root).keys() == {ORDERS, CLICKS}


def test_nothing_is_changed(root):
    before = {path: path.stat().st_mtime_ns for path in root.rglob("*")}
    run("status", root / "dcB", "--orphans", "--source", root / "dcA")
    assert {path: path.stat().st_mtime_ns for path in root.rglob("*")} == before


def test_packed_files_count_and_so_do_their_packs(tmp_path):
    complete(tmp_path, ORDERS, 1)
    words = ("--pack", "on", "--runner", "inline")
    run("sync", tmp_path / "dcA" / ORDERS, tmp_path / "dcB", *words)
    row = rows(tmp_path)[ORDERS]
    assert (row["files"], row["bytes"]) == (len(FILES), sum(FILES.values()))
    assert row["packs"] >= 1


def test_orphans_are_counted_if_asked_for(root):
    replica = root / "dcB" / ORDERS
    (replica / "shared" / "left").write_bytes(b"x" * 70)
    recorded(replica, "shared/left")
    aged(replica / "shared" / "left")
    assert rows(root)[ORDERS]["orphans"] is None
    found = rows(root, "--orphans")
    assert found[ORDERS]["orphans"]["files"] == 2, "the file, and the journal that names it"
    assert found[ORDERS]["orphans"]["bytes"] > 70
    assert found[CLICKS]["orphans"] == {"files": 0, "bytes": 0}


def test_temporary_files_that_the_next_run_removes_are_not_counted(root):
    (root / "dcB" / ORDERS / "shared" / ".cpreplicate-tmp-1").write_text("killed twice")
    assert rows(root, "--orphans")[ORDERS]["orphans"] == {"files": 0, "bytes": 0}


def test_what_all_files_of_a_replica_take_is_counted_with_the_orphans(root):
    replica = root / "dcB" / ORDERS
    every = sum(path.stat().st_size for path in replica.rglob("*") if path.is_file())
    assert rows(root)[ORDERS]["stored_bytes"] is None
    assert rows(root, "--orphans")[ORDERS]["stored_bytes"] == every
    assert "stored" in run("status", root / "dcB", "--orphans").out.splitlines()[0]


def test_of_a_shard_those_are_shown_that_its_service_follows(tmp_path):
    roots = Roots(tmp_path)
    every = {roots.add(f"{number:x}e" * 16).name for number in range(6)}
    shown = [set(rows(tmp_path, "--shard", f"{number}/2")) for number in (1, 2)]
    assert (shown[0] | shown[1], shown[0] & shown[1]) == (every, set())
    assert shown[0] == {name for name in every if Shard(1, 2).has(name)}
    words = ("status", roots.targets, "--shard", "1/2")
    found = json.loads(run(*words, "--output", "json").out)
    assert (found["shard"], found["in_other_shards"]) == ("1/2", len(shown[1]))
    assert f"shard 1/2: {len(shown[1])} replicas are of jobs in other shards" in run(*words).out


def test_earlier_lives_of_jobs_are_shown_with_what_they_take(tmp_path):
    roots = Roots(tmp_path)
    roots.add(FIRST, "orders", NOON, NOON + HOUR)
    roots.add(SECOND, "orders", NOON + DAY, NOON + DAY + HOUR)
    roots.add(CLICKS, "clicks")
    found = json.loads(run("status", roots.targets, "--output", "json").out)
    later = {row["job"]: row["later_life"] for row in found["replicas"]}
    assert later == {FIRST: SECOND, SECOND: None, CLICKS: None}
    assert found["earlier_lives"] == {"replicas": 1, "bytes": sum(FILES.values())}
    text = run("status", roots.targets).out
    assert sum(line.endswith("earlier life") for line in text.splitlines()) == 1
    assert "1 of 3 replicas is of an earlier life of its job" in text


def test_a_later_life_that_deleted_its_checkpoints_is_no_earlier_one(tmp_path):
    roots = Roots(tmp_path)
    roots.add(FIRST, "orders", NOON, NOON + HOUR)
    place = roots.add(SECOND, "orders", NOON + DAY, NOON + DAY + HOUR)
    assert run("promote", place).code == 0
    shutil.rmtree(place / "chk-1")
    found = json.loads(run("status", roots.targets, "--output", "json").out)
    assert [row["later_life"] for row in found["replicas"]] == [None, None]


def test_a_journal_that_is_older_than_the_newest_manifest_is_of_no_unfinished_run(root):
    recorded(root / "dcB" / ORDERS, "shared/left")
    assert rows(root)[ORDERS]["unfinished_since"] is None


def test_a_journal_without_a_run_at_work_is_an_unfinished_run(root):
    recorded(root / "dcB" / ORDERS, "shared/left")
    aged(root / "dcB" / ORDERS / ".cpreplicate" / "chk-1.parquet", days=3)
    assert rows(root)[ORDERS]["unfinished_since"] is not None
    assert rows(root)[CLICKS]["unfinished_since"] is None
    assert "unfinished run" in run("status", root / "dcB").out


def test_a_run_that_was_killed_is_unfinished_though_its_lease_is_still_there(root):
    replica = root / "dcB" / ORDERS
    recorded(replica, "shared/left")
    aged(replica / ".cpreplicate" / "chk-1.parquet", days=3)
    lease = replica / ".cpreplicate" / "lease"
    with acquire(f"file:{replica}", Side()):
        held = json.loads(lease.read_text())
        assert "unfinished run" not in run("status", root / "dcB").out  # it is at work
    lease.write_text(json.dumps({**held, "expires": 1.0}))
    assert "lease is stale, unfinished run" in run("status", root / "dcB").out


def test_who_holds_the_lease_is_shown(root):
    with acquire(f"file:{root}/dcB/{ORDERS}", Side()):
        lease = rows(root)[ORDERS]["lease"]
        assert lease["is_stale"] is False
        assert lease["since"].endswith("Z")
        assert f"held by {lease['host']}" in run("status", root / "dcB").out
    assert rows(root)[ORDERS]["lease"] is None


@pytest.mark.parametrize("content", ["", "[]", '{"started": "x", "token": 4}'])
def test_a_damaged_lease_is_shown_and_ends_nothing(root, content):
    (root / "dcB" / ORDERS / ".cpreplicate" / "lease").write_text(content)
    assert rows(root)[ORDERS]["lease"]["since"] is None


def test_a_promoted_replica_is_sealed(root):
    before = rows(root)[ORDERS]
    run("promote", root / "dcB" / ORDERS)
    after = rows(root)[ORDERS]
    assert "for chk-1" in after["sealed"]
    assert after["checkpoint_completed"] == before["checkpoint_completed"]


def test_a_recorded_verification_is_shown_until_another_checkpoint_is_published(root):
    replica = root / "dcB" / ORDERS
    before = paths(replica)
    run("verify", replica, "--content")
    assert paths(replica) == before
    assert rows(root)[ORDERS]["verified"] is None
    run("verify", replica, "--content", "--record")
    verified = rows(root)[ORDERS]["verified"]
    assert (verified["restorable"], verified["content_share"]) == (True, 1.0)
    assert verified["is_current"] is True
    complete(root, ORDERS, 2, NEXT)
    replicate(root, ORDERS)
    assert rows(root)[ORDERS]["verified"]["is_current"] is False
    assert run("sweep", replica, "--min-age", "0s", "--runner", "inline").code == 0
    assert rows(root)[ORDERS]["verified"]["checkpoint"] == "chk-1"


def test_a_verification_that_failed_is_recorded_too(root):
    (root / "dcB" / ORDERS / "shared" / "a").unlink()
    run("verify", root / "dcB" / ORDERS, "--record")
    verified = rows(root)[ORDERS]["verified"]
    assert (verified["restorable"], verified["is_current"]) == (False, False)
    assert "failed" in run("status", root / "dcB").out


def test_a_verification_of_an_older_checkpoint_that_failed_is_shown_with_its_name(root):
    complete(root, ORDERS, 2, NEXT)
    replica = replicate(root, ORDERS, keep=2)
    verify = ("verify", replica, "--record", "--checkpoint")
    (replica / "shared" / "a").unlink()
    run(*verify, "chk-1")
    assert "chk-1, failed " in run("status", root / "dcB").out


def test_nothing_is_recorded_in_a_directory_that_is_no_replica(root):
    source = root / "dcA" / ORDERS
    before = paths(source)
    done = run("verify", source, "--record")
    assert (done.code, paths(source)) == (6, before)
    assert "is not a replica" in done.message


def test_a_replica_of_an_older_version_is_dated_by_its_own_metadata(root):
    own = root / "dcB" / ORDERS / ".cpreplicate"
    fields = json.loads((own / "chk-1.json").read_text())
    del fields["completed"]
    (own / "chk-1.json").write_text(json.dumps(fields))
    row = rows(root)[ORDERS]
    assert (row["lag_seconds"], row["files"]) == (0, len(FILES))
    assert row["age_seconds"] < PATIENCE


@pytest.mark.parametrize("content", [b"", b"PAR1", b"x" * 5000])
def test_a_damaged_manifest_leaves_the_sums_out(root, content):
    (root / "dcB" / ORDERS / ".cpreplicate" / "chk-1.parquet").write_bytes(content)
    row = rows(root)[ORDERS]
    assert (row["checkpoint"], row["files"], row["error"]) == ("chk-1", None, None)


def test_a_manifest_that_cannot_be_read_is_an_error_without_a_lag(root):
    os.truncate(root / "dcB" / ORDERS / ".cpreplicate" / "chk-1.parquet", 1 << 40)
    row = rows(root)[ORDERS]
    assert "chk-1.parquet" in row["error"]
    assert (row["checkpoint_id"], row["lag_seconds"]) == (None, None)
    assert code(root, "--max-lag", "1h") == LAGGING


def test_a_damaged_marker_or_a_metadata_of_others_is_the_error_of_its_row_alone(root):
    (root / "dcB" / ORDERS / ".cpreplicate" / "replica.json").write_text("{")
    (root / "dcB" / CLICKS / "chk-1" / "_metadata").write_bytes(b"another program's")
    found = rows(root)
    assert "is damaged" in found[ORDERS]["error"]
    assert "is not the one that cpreplicate wrote" in found[CLICKS]["error"]
    assert code(root, "--max-lag", "1h") == LAGGING


def test_a_source_whose_cluster_does_not_answer_is_in_each_row(root):
    sides = Sides(Side(retry_for=0.2), Side())
    for replica in (ORDERS, CLICKS):
        own = root / "dcB" / replica / ".cpreplicate" / "replica.json"
        own.write_text(own.read_text().replace(f"file:{root}/dcA", "hdfs://nohost.invalid:8020/a"))
    report = status(replicas_below(f"file:{root}/dcB", [], sides), sides, max_lag=3600.0)
    assert [row.lag(report.now) for row in report.replicas] == [None, None]
    assert all("nohost.invalid" in str(row.source_error) for row in report.replicas)
    assert report.lagging == ()


@pytest.mark.parametrize("command", ["status", "promote", "list"])
def test_a_directory_that_may_not_be_read_is_named_and_is_no_replica(root, command):
    """Each ext4 volume has `lost+found`, and other teams keep theirs in directories of mode 700."""
    closed = [root / "dcB" / "lost+found", root / "dcA" / ("c" * 32)]
    for directory in closed:
        directory.mkdir()

    def fault(_verb, uri):
        is_closed = any(f"{uri}/".startswith(f"file:{each}/") for each in closed)
        return PermissionError(errno.EACCES, "Permission denied", uri) if is_closed else None

    words = {
        "status": ["--max-lag", "1h", "--source", f"{root}/dcA"],
        "promote": ["--all", "--dry-run"],
        "list": [],
    }[command]
    with serving("file", Faulty(LocalStorage(), fault)):
        done = printed(command, *words, f"{root}/dcB")
    assert done.returncode == 0, done.stderr
    named = closed if command == "status" else closed[:1]
    assert [line for line in done.stderr.splitlines() if "left out" in line] == [
        f"cpreplicate: warning: file:{each} may not be read by this user, so it was left out"
        for each in named
    ]
    assert "lost+found" not in done.stdout
    assert ORDERS in done.stdout


def test_a_replica_that_may_not_be_read_is_not_left_out(root):
    def fault(_verb, uri):
        is_closed = uri.startswith(f"file:{root}/dcB/{CLICKS}/")
        return PermissionError(errno.EACCES, "Permission denied", uri) if is_closed else None

    with serving("file", Faulty(LocalStorage(), fault)):
        done = run("status", "--max-lag", "1h", f"{root}/dcB")
    assert done.code == LAGGING
    assert CLICKS in done.out
