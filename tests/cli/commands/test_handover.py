"""`promote` and `unseal` of one replica or of all: what they ask, print and return."""

import json

import pytest

from tests.support.commandline import printed, run
from tests.support.roots import FIRST, SECOND, Roots

SINCE = ("--no-job-uses-it", "--sealed-after", "2020-01-01T00:00Z")


@pytest.fixture
def roots(tmp_path):
    roots = Roots(tmp_path)
    roots.add(FIRST, "orders")
    roots.add(SECOND, "clicks")
    return roots


def is_sealed(roots, job):
    return (roots.targets / job / ".cpreplicate" / "sealed").exists()


def test_one_replica_is_promoted_by_the_name_of_its_job(roots):
    found = run("promote", roots.targets, "--job", "orders", "--output", "json").json()
    assert found["replica"] == f"file:{roots.targets}/{FIRST}"
    assert (is_sealed(roots, FIRST), is_sealed(roots, SECOND)) == (True, False)


def test_one_replica_is_unsealed_by_the_name_of_its_job(roots):
    run("promote", roots.targets / FIRST)
    words = ("unseal", roots.targets, "--replica-of", "orders", "--no-job-uses-it")
    dry = run(*words, "--dry-run", "--output", "json").json()
    assert is_sealed(roots, FIRST)
    done = run(*words, "--output", "json").json()
    assert not is_sealed(roots, FIRST)
    place = f"file:{roots.targets}/{FIRST}"
    assert [(each["replica"], each["dry_run"]) for each in (dry, done)] == [
        (place, True),
        (place, False),
    ]
    assert "for chk-1" in done["sealed"]


def test_what_was_unsealed_is_reported(roots):
    run("promote", roots.targets / FIRST)
    ended = printed("unseal", roots.targets / FIRST, "--no-job-uses-it")
    assert ended.returncode == 0
    assert f"unsealed file:{roots.targets}/{FIRST}, which was sealed by" in ended.stderr


def test_all_are_promoted_and_unsealed_with_yes(roots):
    found = run("promote", "--all", "--yes", roots.targets, "--output", "json").json()
    assert found["promoted"] == 2
    assert [job["name"] for job in found["jobs"]] == ["clicks", "orders"]
    for job in found["jobs"]:
        arguments = job["promotion"]["restore"]["arguments"]
        assert arguments[:3] == ["flink", "run", "-s"]
        assert arguments[3] == f"{job['replica']}/chk-1"
    assert is_sealed(roots, FIRST)
    back = run("unseal", "--all", "--yes", *SINCE, roots.targets, "--output", "json").json()
    assert [(job["name"], job["exit_code"]) for job in back["jobs"]] == [
        ("clicks", 0),
        ("orders", 0),
    ]
    assert not is_sealed(roots, FIRST)


def test_each_form_has_every_job_and_its_start_command(roots):
    text = run("promote", "--all", "--dry-run", roots.targets).out
    assert "2 jobs: 2 can be promoted" in text
    text = run("promote", "--all", "--yes", roots.targets).out
    for name, job in (("orders", FIRST), ("clicks", SECOND)):
        assert f"{name}: flink run -s file:{roots.targets}/{job}/chk-1 " in text
    rows = run("promote", "--all", "--yes", roots.targets, "--output", "ndjson").out.splitlines()
    assert [json.loads(row)["outcome"] for row in rows] == ["sealed_before", "sealed_before"]


def test_the_exit_code_of_each_that_failed_is_in_the_result(roots):
    (roots.targets / FIRST / "shared" / "a").unlink()
    ended = run("promote", "--all", "--yes", roots.targets, "--output", "json")
    assert ended.code == 3
    codes = {job["name"]: job["exit_code"] for job in json.loads(ended.out)["jobs"]}
    assert codes == {"orders": 4, "clicks": 0}


@pytest.mark.parametrize(
    "words", [("promote", "--all"), ("unseal", "--all", *SINCE)], ids=["promote", "unseal"]
)
def test_without_a_terminal_and_without_yes_nothing_is_done(roots, words):
    if words[0] == "unseal":
        run("promote", "--all", "--yes", roots.targets)
    before = is_sealed(roots, FIRST)
    ended = run(*words, roots.targets)
    assert ended.code == 2
    assert "Nothing was done. Give --yes" in ended.message
    assert is_sealed(roots, FIRST) == before


@pytest.mark.parametrize(
    "words",
    [
        ("promote", "--all", "--job", "orders"),
        ("promote", "--all", "--checkpoint", "chk-1"),
        ("promote", "--all", "--as-of", "2026-11-24T03:00Z"),
        ("promote", "--all", "--content"),
        ("promote", "--all", "--skip-lagging"),
        ("promote", "--include", "orders"),
        ("promote", "--yes"),
        ("promote", "--checkpoint", "chk-1", "--as-of", "2026-11-24T03:00Z"),
        ("unseal",),
        ("unseal", "--all", "--no-job-uses-it"),
        ("unseal", "--all", "--no-job-uses-it", "--replica-of", "orders"),
        ("unseal", "--all", "--job", "/a", "--sealed-after", "2026-11-24T03:00Z"),
        ("unseal", "--no-job-uses-it", "--sealed-after", "2026-11-24T03:00Z"),
        ("unseal", "--no-job-uses-it", "--job", "/a"),
    ],
    ids=" ".join,
)
def test_options_that_do_not_go_together_are_refused_before_anything_is_done(roots, words):
    assert printed(*words, roots.targets).returncode == 2
    assert not is_sealed(roots, FIRST)


def test_a_file_of_a_fleet_stands_for_its_jobs_and_those_below_its_roots(roots, tmp_path):
    job = f'[[job]]\nsource = "/lost/{FIRST}"\ntarget = "{roots.targets}"\nname = "shop"\n'
    (tmp_path / "jobs.toml").write_text(job)
    root = f'[[root]]\nsource = "/lost"\ntarget = "{roots.targets}"\n'
    (tmp_path / "roots.toml").write_text(root)
    words = ("promote", "--all", "--dry-run", "--max-lag", "15m", "--output", "json")
    named = run(*words, tmp_path / "jobs.toml").json()
    below = run(*words, tmp_path / "roots.toml").json()
    assert [job["name"] for job in named["jobs"]] == ["shop"]
    assert [job["name"] for job in below["jobs"]] == ["clicks", "orders"]


def test_what_fails_of_all_for_one_cause_is_printed_once(roots):
    for job in (FIRST, SECOND):
        (roots.targets / job / "shared" / "a").unlink()
    text = run("promote", "--all", "--yes", roots.targets).out
    assert "2 jobs, one cause: clicks; orders" in text
    assert text.count("exit 4: ") == 1
