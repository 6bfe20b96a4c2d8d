"""Points in time on the command line: what is kept, listed and promoted."""

import base64
import gzip
import json
import os
import re
import subprocess
import sys
from time import monotonic, sleep

import pytest

from tests.support.commandline import printed as run
from tests.support.jobs import JOB, write_checkpoint
from tests.support.replicas import DAY
from tests.support.waiting import PATIENCE

HOUR = 3600
MIDNIGHT = 20_000 * DAY  # of 2024-10-04


@pytest.fixture
def replicate(tmp_path):
    """Sync a checkpoint for each time, with options of retention; the names that are then held."""

    def all_of(times, *words, **environment):
        for number, time in enumerate(times, 1):
            directory = write_checkpoint(tmp_path / "dcA", number, {f"chk-{number}/x": 10})
            os.utime(directory / "_metadata", (time,) * 2)
            places = (tmp_path / "dcA" / JOB, tmp_path / "dcB")
            run("sync", *places, "--runner", "inline", *words, **environment).check_returncode()
        return sorted(each.name for each in (tmp_path / "dcB" / JOB).glob("chk-*"))

    return all_of


HALF_HOURS = [MIDNIGHT + HOUR * number / 2 for number in range(1, 7)]


@pytest.mark.parametrize(
    ("words", "numbers"),
    [
        ((), [6]),
        (("--keep", "2"), [5, 6]),
        (("--keep-within", "61m"), [4, 5, 6]),
        (("--keep-hourly", "2"), [5, 6]),
        (("--keep-hourly", "3"), [3, 5, 6]),
        (("--keep-daily", "1"), [6]),
        (("--keep", "2", "--keep-hourly", "3"), [3, 5, 6]),
    ],
)
def test_the_options_of_retention_keep_points_counted_from_the_newest(replicate, words, numbers):
    assert replicate(HALF_HOURS, *words) == [f"chk-{number}" for number in numbers]


def test_retention_may_be_set_by_the_environment(replicate):
    held = replicate(HALF_HOURS[-3:], CPREPLICATE_SYNC_KEEP_WITHIN="31m")
    assert held == ["chk-2", "chk-3"]


@pytest.mark.parametrize(
    "words", [("--keep-within", "long"), ("--keep-hourly", "-1"), ("--keep-daily", "x")]
)
def test_a_wrong_value_of_retention_is_a_mistake_of_usage(tmp_path, words):
    done = run("sync", tmp_path / "a", tmp_path / "b", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert words[0] in done.stderr


@pytest.mark.parametrize(
    ("time", "name"),
    [
        ("2024-10-04T01:30Z", "chk-3"),
        ("2024-10-04 01:59:59", "chk-3"),
        ("2024-10-04T04:30+02:00", "chk-5"),
    ],
)
def test_the_newest_checkpoint_as_of_a_time_is_promoted(replicate, tmp_path, time, name):
    replicate(HALF_HOURS, "--keep", "9")
    done = run("promote", tmp_path / "dcB" / JOB, "--as-of", time, "--output", "json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["checkpoint"] == name


def test_the_time_that_list_prints_of_a_checkpoint_promotes_it(replicate, tmp_path):
    replicate(HALF_HOURS, "--keep", "9")
    replica = tmp_path / "dcB" / JOB
    listed = json.loads(run("list", replica, "--output", "json").stdout)["replicas"][0]["points"]
    assert len(listed) == len(HALF_HOURS)
    for point in listed:
        words = ("--as-of", point["completed"], "--dry-run", "--output", "json")
        done = run("promote", replica, *words)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["checkpoint"] == point["checkpoint"]


def test_no_checkpoint_by_a_time_is_not_there(replicate, tmp_path):
    replicate(HALF_HOURS[:1])
    done = run("promote", tmp_path / "dcB" / JOB, "--as-of", "2024-10-03T00:00Z")
    assert (done.returncode, done.stdout) == (10, "")
    assert "chk-1 (2024-10-04T00:30:00" in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("--as-of", "yesterday"),
        ("--as-of", "2024-10-04"),
        ("--as-of", "2024-13-04T00:00Z"),
        ("--as-of", "2024-10-04T00:00Z", "--checkpoint", "chk-1"),
    ],
)
def test_a_time_that_is_none_and_a_second_choice_are_mistakes_of_usage(tmp_path, words):
    done = run("promote", tmp_path / "replica", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert "--as-of" in done.stderr


def test_what_promote_returns_starts_a_job_in_each_way(replicate, tmp_path):
    replicate(HALF_HOURS[:1])
    words = ("promote", tmp_path / "dcB" / JOB)
    restore = json.loads(run(*words, "--output", "json").stdout)["restore"]
    checkpoint = f"file:{tmp_path}/dcB/{JOB}/chk-1"
    assert restore["arguments"][0:4] == ["flink", "run", "-s", checkpoint]
    assert restore["arguments"][-1] == "JAR"
    job = restore["deployment"]["spec"]["job"]
    assert job["initialSavepointPath"] == checkpoint
    assert restore["snapshot"]["spec"]["savepoint"]["disposeOnDelete"] is False
    assert f"savepointRedeployNonce: {job['savepointRedeployNonce']}" in run(*words).stdout


def test_the_name_of_a_job_is_recorded_by_sync(replicate, tmp_path):
    replicate(HALF_HOURS[:1], "--name", "orders")
    record = json.loads((tmp_path / "dcB" / JOB / ".cpreplicate" / "job.json").read_text())
    assert record["name"] == "orders"


@pytest.mark.parametrize("name", [" orders", "a\nb", "x" * 301])
def test_what_is_no_name_of_a_job_is_a_usage_error(tmp_path, name):
    done = run("sync", tmp_path / "dcA", tmp_path / "dcB", "--name", name)
    assert done.returncode == 2
    assert "expected the name of a job" in done.stderr


def test_the_name_of_one_job_is_not_given_to_many(tmp_path):
    done = run("watch", "--jobs-under", tmp_path, tmp_path / "dcB", "--name", "orders")
    assert done.returncode == 2
    assert "--name is of one job" in done.stderr


def test_list_shows_the_points_of_a_job_by_its_name(replicate, tmp_path):
    replicate(HALF_HOURS[:2], "--keep", "2", "--name", "orders")
    done = run("list", tmp_path / "dcB", "--job", "orders", "--output", "json")
    assert done.returncode == 0
    assert "the job orders has the id" in done.stderr
    (replica,) = json.loads(done.stdout)["replicas"]
    assert replica["job"] == JOB
    points = [
        (point["checkpoint"], point["completed"], point["added_bytes"])
        for point in replica["points"]
    ]
    assert points == [
        ("chk-2", "2024-10-04T01:00:00.000Z", 10),
        ("chk-1", "2024-10-04T00:30:00.000Z", 10),
    ]
    rows = run("list", tmp_path / "dcB").stdout.splitlines()
    assert rows[0] == f"{JOB}: 2 checkpoints, 20 B together"
    assert [row.split()[0] for row in rows[2:4]] == ["chk-2", "chk-1"]


def test_list_ends_with_10_where_no_replica_is_and_names_similar_jobs(replicate, tmp_path):
    (tmp_path / "empty").mkdir()
    assert run("list", tmp_path / "empty").returncode == 10
    replicate(HALF_HOURS[:1], "--name", "orders")
    done = run("list", tmp_path / "dcB", "--job", "ordres")
    assert done.returncode == 10
    assert "'orders'" in done.stderr


DAYS = [MIDNIGHT + DAY * number for number in range(7)]


@pytest.fixture
def kept(replicate, tmp_path):
    """The replica of a job of which a command kept a point of each day."""
    replicate(DAYS, "--keep-daily", "30")
    return tmp_path / "dcB" / JOB


def tables_of(page):
    """The tables of a page, as they are in it."""
    packed = re.findall(r"H4sI[A-Za-z0-9+/=]+", page.read_text())
    return [gzip.decompress(base64.b64decode(each)).decode() for each in packed]


def places(tmp_path):
    return (tmp_path / "dcA" / JOB, tmp_path / "dcB")


def held(replica):
    return sorted(each.parent.name for each in replica.glob("chk-*/_metadata"))


def test_the_sync_of_the_runbook_keeps_the_points_of_the_service(kept, tmp_path):
    done = run("sync", *places(tmp_path))
    assert (done.returncode, len(held(kept))) == (0, 7)
    assert "nothing to do" in done.stdout


@pytest.mark.parametrize("command", ["sync", "diff", "doctor", "fleet"])
def test_less_ends_with_6_and_names_what_would_go_who_kept_it_and_both_ways_out(
    kept, tmp_path, command
):
    source, target = places(tmp_path)
    (tmp_path / "jobs.toml").write_text(
        f'[[job]]\nsource = "{source}"\ntarget = "{target}"\nkeep = 3\n'
    )
    words = ["jobs.toml"] if command == "fleet" else [source, target, "--keep", "3"]
    done = run(command, *words, cwd=tmp_path)
    assert done.returncode == 6
    printed_text = done.stdout + done.stderr
    for number in range(1, 5):
        assert f"chk-{number} (completed 2024-10-0{number + 3}T" in printed_text
    assert "--keep-daily 30, stated by `cpreplicate sync` of " in printed_text
    assert "--keep-less" in printed_text
    assert len(held(kept)) == 7


def test_a_fleet_accepts_less_of_what_its_own_file_stated_and_else_with_keep_less(kept, tmp_path):
    source, target = places(tmp_path)
    file = tmp_path / "jobs.toml"

    def fleet(keep, *words):
        file.write_text(f'[defaults]\n{keep}\n[[job]]\nsource = "{source}"\ntarget = "{target}"\n')
        return run("fleet", "jobs.toml", "--runner", "inline", *words, cwd=tmp_path).returncode

    assert fleet("keep = 5") == 6
    assert fleet("keep = 5", "--keep-less", "--dry-run") == 0
    assert fleet("keep = 5", "--keep-less") == 0
    assert held(kept) == [f"chk-{number}" for number in range(3, 8)]
    assert fleet("keep = 2") == 0
    assert held(kept) == ["chk-6", "chk-7"]
    assert run("sync", source, target).returncode == 0
    assert held(kept) == ["chk-6", "chk-7"]


def test_one_job_of_a_fleet_that_keeps_less_does_not_hold_up_another(kept, tmp_path):
    other = write_checkpoint(tmp_path / "dcC", 1, {"chk-1/x": 10}).parent
    source, target = places(tmp_path)
    (tmp_path / "jobs.toml").write_text(
        f'[[job]]\nsource = "{source}"\ntarget = "{target}"\nkeep = 3\n'
        f'[[job]]\nsource = "{other}"\ntarget = "{tmp_path}/dcD"\nkeep = 3\n'
    )
    done = run("fleet", "jobs.toml", "--runner", "inline", "--output", "json", cwd=tmp_path)
    results = [(job["status"], job["exit_code"]) for job in json.loads(done.stdout)["jobs"]]
    assert results == [("failed", 6), ("replicated", 0)]
    assert len(held(kept)) == 7


def options_file(tmp_path, text):
    (tmp_path / "config.toml").write_text(text)
    return ("--config", tmp_path / "config.toml")


def json_of(*words, **environment):
    return json.loads(run(*words, "--output", "json", **environment).stdout)


@pytest.mark.parametrize("in_environment", [False, True])
def test_diff_and_doctor_show_the_sync_that_the_file_and_the_environment_ask_for(
    replicate, tmp_path, in_environment
):
    replicate(DAYS[:3], "--keep", "3")
    write_checkpoint(tmp_path / "dcA", 4, {"chk-4/x": 10})
    text = "[sync]\nkeep = 2\nkeep-less = true\n"
    options = options_file(tmp_path, "[options]\n" if in_environment else text)
    names = {"CPREPLICATE_SYNC_KEEP": "2", "CPREPLICATE_SYNC_KEEP_LESS": "true"}
    environment = names if in_environment else {}
    plan = json_of(*options, "diff", *places(tmp_path), **environment)
    assert [each["checkpoint"] for each in plan["withdraw"]] == ["chk-1", "chk-2"]
    assert plan["retention"]["options"] == "--keep 2"
    doctor = run(*options, "doctor", *places(tmp_path), **environment).stdout
    assert "withdraws chk-1 (completed" in doctor
    done = json_of(*options, "sync", *places(tmp_path), "--runner", "inline", **environment)
    assert done["withdraw"] == plan["withdraw"]
    assert held(tmp_path / "dcB" / JOB) == ["chk-3", "chk-4"]


def test_diff_ends_as_the_sync_of_the_file_also_by_options_that_it_lacks(kept, tmp_path):
    for text, code in (
        ('[sync]\npreserve = true\npack = "on"\n', 2),
        ("[sync]\ncheck-content = true\nkeep = 1\n", 6),
    ):
        options = options_file(tmp_path, text)
        for command in ("sync", "diff"):
            assert run(*options, command, *places(tmp_path)).returncode == code, (command, text)
    assert len(held(kept)) == 7


@pytest.mark.usefixtures("kept")
def test_a_table_of_diff_wins_over_that_of_sync_and_how_sync_prints_is_its_own(tmp_path):
    options = options_file(tmp_path, '[sync]\nkeep = 9\noutput = "json"\n[diff]\nkeep-daily = 31\n')
    plan = run(*options, "diff", *places(tmp_path), "--keep-less")
    assert "--keep 9 --keep-daily 31, stated by this run" in plan.stdout


def test_the_file_of_options_may_state_less_of_what_it_stated_and_the_words_may_not(
    replicate, tmp_path
):
    options = options_file(tmp_path, "[sync]\nkeep = 3\n")
    replicate(DAYS[:3], *options)
    options_file(tmp_path, "[sync]\nkeep = 2\n")
    assert run("sync", *places(tmp_path), *options, "--keep", "1").returncode == 6
    environment = {"CPREPLICATE_SYNC_KEEP": "1"}
    assert run("sync", *places(tmp_path), *options, **environment).returncode == 6
    assert run("diff", *places(tmp_path), *options, **environment).returncode == 6
    assert run("sync", *places(tmp_path), *options, "--runner", "inline").returncode == 0
    assert held(tmp_path / "dcB" / JOB) == ["chk-2", "chk-3"]


def watched(tmp_path, *words):
    """Run `watch` until it has recorded a policy, and withdrawn what that does not keep."""
    record = tmp_path / "dcB" / JOB / ".cpreplicate" / "retention.json"
    former = record.read_bytes() if record.exists() else None
    command = [sys.executable, "-m", "cpreplicate", "watch", *places(tmp_path), *words]
    command += ["--interval", "30m", "--runner", "inline", "--metrics", "off", "--quiet"]
    with subprocess.Popen([*map(str, command)]) as process:
        end = monotonic() + PATIENCE
        while monotonic() < end:
            is_recorded = record.exists() and record.read_bytes() != former
            if is_recorded and not record.with_name("lease").exists():
                break
            sleep(0.05)
        process.terminate()


def test_a_sync_by_the_file_of_a_service_keeps_the_points_that_the_table_of_the_service_keeps(
    replicate, tmp_path
):
    text = "[sync]\nkeep = 2\n[watch]\nkeep = {}\nkeep-daily = {}\n"
    options = options_file(tmp_path, text.format(5, 30))
    replicate(DAYS[:1])
    watched(tmp_path, *options)
    replicate(DAYS)
    assert len(held(tmp_path / "dcB" / JOB)) == 7
    for command in ("sync", "diff", "doctor"):
        done = run(command, *places(tmp_path), *options)
        assert done.returncode == 6, command
        printed_text = done.stdout + done.stderr
        assert "--keep 2 keeps less than the policy" in printed_text
        recorded = f"stated by {tmp_path}/config.toml, read by `cpreplicate watch` on "
        assert recorded in printed_text
    assert len(held(tmp_path / "dcB" / JOB)) == 7
    options_file(tmp_path, text.format(3, 4))
    watched(tmp_path, *options)  # the service may state less of what it stated
    assert len(held(tmp_path / "dcB" / JOB)) == 4


def test_a_pipe_is_no_file_that_could_be_known_again(kept, tmp_path):
    source, target = places(tmp_path)
    text = f'[[job]]\nsource = "{source}"\ntarget = "{target}"\nkeep-daily = 40\n'
    read, write = os.pipe()
    os.write(write, text.encode())
    os.close(write)
    assert run("fleet", f"/dev/fd/{read}", "--runner", "inline").returncode == 0
    record = json.loads((kept / ".cpreplicate" / "retention.json").read_text())
    assert (record["daily"], record["path"]) == (40, None)


@pytest.mark.usefixtures("kept")
def test_what_a_run_withdraws_is_the_first_sentence_and_a_line_of_each_listing(tmp_path):
    words = (*places(tmp_path), "--keep", "5", "--keep-less")
    first = run("diff", *words).stdout.splitlines()[0]
    assert first == (
        "withdraws chk-1 (completed 2024-10-04T00:00:00+00:00),"
        " chk-2 (completed 2024-10-05T00:00:00+00:00)"
    )
    assert "- chk-1/_metadata" in run("diff", *words, "--combined").stdout.splitlines()
    rows = map(json.loads, run("diff", *words, "--output", "ndjson").stdout.splitlines())
    withdrawn = [row["target"] for row in rows if row["action"] == "withdraw"]
    assert withdrawn == ["chk-1/_metadata", "chk-2/_metadata"]
    done = run("sync", *words, "--runner", "inline").stdout
    assert done.splitlines()[0] == first


@pytest.mark.usefixtures("kept")
def test_the_page_of_a_plan_names_what_goes_and_does_not_draw_it_as_kept(tmp_path):
    words = (*places(tmp_path), "--keep", "5", "--keep-less")
    assert run("diff", *words, "--report", tmp_path / "plan.html").returncode == 0
    page = (tmp_path / "plan.html").read_text()
    answer = page[page.index('class="answer') :]
    assert 'class="answer notice"' in page
    assert "ithdraws chk-1 (completed 2024-10-04" in answer[:300]
    assert "chk-1 2024-10-04T00:00Z (withdrawn)" in page
    assert "Kept checkpoints" not in page
    assert "2 of them are withdrawn, 5 kept" in page


@pytest.mark.usefixtures("kept")
def test_list_and_status_show_the_policy_and_what_stated_it(tmp_path):
    (listed,) = json_of("list", tmp_path / "dcB")["replicas"]
    (status,) = json_of("status", tmp_path / "dcB")["replicas"]
    for shown in (listed, status):
        policy = shown["retention"]
        assert (policy["options"], policy["daily"], policy["last"]) == ("--keep-daily 30", 30, 1)
        assert policy["stated_by"].startswith("`cpreplicate sync` of ")
        assert policy["stated"].endswith("Z")
    assert "keeps by --keep-daily 30, stated by" in run("list", tmp_path / "dcB").stdout
    assert "daily 30" in run("status", tmp_path / "dcB").stdout.splitlines()[1]
    for command in ("list", "status"):
        run(command, tmp_path / "dcB", "--report", tmp_path / "page.html").check_returncode()
        assert "--keep-daily 30, stated by" in "".join(tables_of(tmp_path / "page.html"))


def test_a_damaged_record_is_shown_and_ends_a_sync_and_is_no_obstacle_to_promote(kept, tmp_path):
    (kept / ".cpreplicate" / "retention.json").write_text("{")
    done = run("sync", *places(tmp_path))
    assert done.returncode == 6
    assert f"{kept}/.cpreplicate/retention.json is damaged" in done.stderr
    for command in ("list", "status"):
        assert "retention.json is damaged" in run(command, tmp_path / "dcB").stdout
    (status,) = json_of("status", tmp_path / "dcB")["replicas"]
    assert (status["ready"], status["retention"]) == (True, None)
    assert run("promote", kept).returncode == 0
