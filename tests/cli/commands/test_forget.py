"""`forget`: what it asks, prints and returns."""

import json

import pytest

from tests.support.commandline import printed, run
from tests.support.jobs import JOB
from tests.support.replicas import FILES, aged, paths, recorded, synced
from tests.support.roots import FIRST, HOUR, NOON, SECOND, Roots
from tests.support.services import following


@pytest.fixture
def roots(tmp_path):
    """Two lives of orders, and another job."""
    roots = Roots(tmp_path)
    roots.add(FIRST, "orders", NOON, NOON + HOUR)
    roots.add(SECOND, "orders", NOON + 2 * HOUR, NOON + 3 * HOUR)
    roots.add("2d" * 16, "clicks")
    return roots


def left(roots):
    return {each.name for each in roots.targets.iterdir()}


def test_one_replica_is_removed_and_reported(roots):
    words = ("forget", roots.targets / FIRST, "--output", "json")
    dry = run(*words, "--dry-run").json()
    assert left(roots) == {FIRST, SECOND, "2d" * 16}
    done = run(*words, "--yes").json()
    assert left(roots) == {SECOND, "2d" * 16}
    assert (dry["done"], done["done"], dry["checkpoints"]) == (False, True, ["chk-1"])
    assert (dry["files"], dry["bytes"]) == (done["files"], done["bytes"])
    assert f"{SECOND} is a later life of its job" in done["why"]


def test_the_earlier_lives_of_a_job_are_removed_by_its_name(roots):
    text = run("forget", "--job", "orders", roots.targets, "--yes").out
    assert left(roots) == {SECOND, "2d" * 16}
    assert "1 of 2 replicas removed" in text
    ended = run("forget", "--job", "orders", roots.targets, "--yes")
    assert (ended.code, left(roots)) == (6, {SECOND, "2d" * 16})
    assert "is the newest point of its job orders" in ended.message


def test_the_name_of_several_replicas_does_not_choose_one_whose_last_point_goes(roots):
    words = ("forget", "--job", "orders", roots.targets, "--yes", "--last-point")
    assert (run(*words).code, left(roots)) == (2, {FIRST, SECOND, "2d" * 16})


def test_of_all_those_that_may_go_are_removed(roots):
    words = ("forget", "--all", "--older-than", "30d", roots.targets, "--output", "json")
    dry = run(*words, "--dry-run").json()
    assert {job["name"]: job["outcome"] for job in dry["jobs"]} == {
        FIRST: "can be removed",
        SECOND: "stays",
        "2d" * 16: "stays",
    }
    assert run(*words, "--yes").json()["jobs"][0]["outcome"] == "removed"
    assert left(roots) == {SECOND, "2d" * 16}


def test_of_all_one_that_fails_makes_the_exit_code_3(roots):
    (roots.targets / FIRST / "shared" / "theirs").write_text("of somebody")
    words = ("forget", "--all", "--older-than", "30d", "--yes", roots.targets)
    ended = run(*words, "--output", "json")
    assert (ended.code, json.loads(ended.out)["jobs"][0]["exit_code"]) == (3, 6)


def test_without_a_terminal_it_needs_yes(roots):
    ended = run("forget", roots.targets / FIRST)
    assert (ended.code, left(roots)) == (2, {FIRST, SECOND, "2d" * 16})
    assert "Give --yes, or --dry-run" in ended.message


@pytest.mark.parametrize(
    "words",
    [
        ["ROOT"],
        ["ROOT/"],
        [""],
        ["/"],
        ["//"],
        ["ROOT/JOB/"],
        ["ROOT/JOB/chk-1"],
        ["--all", "ROOT"],
        ["--all", "--ended", "--job", "orders", "ROOT"],
        ["--all", "--ended", "--last-point", "ROOT"],
        ["--all", "--older-than", "1d", "ROOT/JOB"],
        ["--job", "", "ROOT"],
    ],
)
def test_what_an_empty_variable_leaves_of_a_command_is_a_mistake(tmp_path, words):
    synced(tmp_path, {1: FILES})
    before = paths(tmp_path)
    given = [word.replace("ROOT", f"{tmp_path}/dcB").replace("JOB", JOB) for word in words]
    last = [] if "--all" in words else ["--last-point"]
    assert printed("forget", *given, *last, "--yes").returncode == 2
    assert paths(tmp_path) == before


def test_more_files_than_are_allowed_do_not_go(roots):
    before = paths(roots.targets)
    words = ("--all", "--older-than", "30d", roots.targets, "--yes", "--output", "json")
    files = run("forget", *words, "--dry-run").json()["jobs"][0]["files"]
    for more in (("--max-delete", files - 1), ("--max-delete", "33%"), ("--max-delete", "0")):
        for dry in ((), ("--dry-run",)):
            refused = run("forget", *words, *more, *dry)
            assert (refused.code, paths(roots.targets)) == (6, before)
            assert f"{files} of " in json.loads(refused.out)["refused"]
    refused = run("forget", roots.targets / FIRST, "--yes", "--max-delete", "99%")
    assert (refused.code, paths(roots.targets)) == (6, before)
    assert run("forget", *words, "--max-delete", files).code == 0
    assert left(roots) == {SECOND, "2d" * 16}


@pytest.mark.rest
def test_a_service_forgets_by_policy_and_sweeps_what_it_follows(roots, tmp_path):
    followed = synced(tmp_path, {1: FILES})
    (followed / "shared" / "orphan").write_text("left")
    aged(followed / "shared" / "orphan")
    recorded(followed, "shared/orphan")
    words = ("--jobs-under", tmp_path / "dcA", roots.targets, "--forget-ended", "30d")
    with following(tmp_path / "service", *words, "--sweep-every", "0.2s") as service:
        service.wait_until(lambda: FIRST not in left(roots), "the replica stays")
        orphan = followed / "shared" / "orphan"
        service.wait_until(lambda: not orphan.exists(), "the orphan stays")
        service.wait_for_message(f"{SECOND} is older than --forget-ended, and stays")
        forgotten = "cpreplicate_forgotten_replicas_total"
        service.wait_until(lambda: service.metric(forgotten) == 1, "it is not counted")
    assert left(roots) == {SECOND, "2d" * 16, JOB}


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--jobs-under", "{root}/dcA", "--forget-ended", "30"), "must be at least 1h"),
        (("{root}/dcA", "--forget-ended", "30d"), "--forget-ended is of many jobs"),
        (("--jobs-under", "{root}/dcA", "--forget-flink", "http://b:1"), "is of --forget-ended"),
    ],
)
def test_a_policy_without_its_unit_or_for_one_job_is_refused(tmp_path, words, reason):
    given = [word.format(root=tmp_path) for word in words]
    ended = printed("watch", *given, tmp_path / "dcB")
    assert (ended.returncode, reason in ended.stderr) == (2, True)
