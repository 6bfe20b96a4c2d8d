"""What the tests rely on: parts that leave nothing out, no inheritance, demanded states."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.support import parts, ports, reached
from tests.support.environment import without_influence
from tests.support.waiting import PATIENCE

PROJECT = Path(__file__).parent.parent.parent


@pytest.mark.parametrize(("main", "full", "portion"), [(100, 1000, 450), (0, 7, 3), (5, 5, 2)])
def test_each_seed_is_in_one_part(main, full, portion):
    made = parts.seeds(main, full, portion)
    assert [seed for case in made for seed in case.values[0]] == list(range(full))
    first = [seed for case in made if not case.marks for seed in case.values[0]]
    assert first == list(range(main))
    assert max(len(case.values[0]) for case in made) <= portion


def test_seeds_that_ci_has_no_time_for_are_those_of_the_night():
    made = parts.seeds(10, 100, 30, portions=1)
    marks = {case.values[0]: [mark.name for mark in case.marks] for case in made}
    assert marks == {
        range(10): [],
        range(10, 40): ["rest"],
        range(40, 70): ["rest", "nightly"],
        range(70, 100): ["rest", "nightly"],
    }


def collected(*words):
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, *words], cwd=PROJECT, capture_output=True, text=True, timeout=PATIENCE
    )
    return {line for line in done.stdout.splitlines() if "::" in line}


@pytest.mark.slow  # it starts pytest
def test_the_two_parts_are_all_tests_and_have_none_in_common():
    suites = (
        "tests/histories/test_races.py",
        "tests/servers/test_restore.py",
        "tests/faults/test_faults.py",
    )
    main, rest, every = (collected("--part", part, *suites) for part in parts.PARTS)
    assert main | rest == every
    assert main & rest == set()
    assert main
    assert rest


def test_signals_and_variables_of_whoever_starts_the_tests_are_reset():
    ignored = [signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGCHLD]
    found = (
        "import json, os, signal\n"
        "from tests.support import environment\n"
        "environment.reset_signals()\n"
        "environment.reset_environment()\n"
        f"handlers = [signal.getsignal(number) for number in {[int(each) for each in ignored]}]\n"
        "blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [])\n"
        "print(json.dumps([handlers.count(signal.SIG_IGN), len(blocked), dict(os.environ)]))\n"
    )
    start = (
        "import os, signal, sys\n"
        f"for number in {[int(each) for each in ignored]}: signal.signal(number, signal.SIG_IGN)\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])\n"
        "os.environ.update(HADOOP_CONF_DIR='/x', SPARK_HOME='/x', AWS_PROFILE='x', NO_COLOR='1',"
        " TERM='dumb', COLUMNS='7', TZ='Asia/Tokyo', LC_ALL='C', http_proxy='http://x',"
        " CPREPLICATE_SYNC_KEEP='3')\n"
        "os.execv(sys.executable, [sys.executable, '-c', sys.argv[1]])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", start, found],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    still_ignored, blocked, variables = json.loads(done.stdout)
    assert (still_ignored, blocked) == (0, 0)
    assert without_influence(variables).keys() >= {"PATH", "TERM"}
    assert (variables["TERM"], variables["COLUMNS"], variables["TZ"]) == ("xterm", "80", "UTC")
    gone = {"HADOOP_CONF_DIR", "SPARK_HOME", "AWS_PROFILE", "NO_COLOR", "LC_ALL", "http_proxy"}
    assert not {*gone, "CPREPLICATE_SYNC_KEEP"} & set(variables)


def test_a_port_is_given_once_and_is_not_one_of_those_of_the_kernel(monkeypatch):
    monkeypatch.setattr(ports, "kernels_range", lambda: range(20_000, 65_536))
    given = [ports.free_port() for _ in range(100)]
    assert len(set(given)) == 100
    assert max(given) < 20_000


def test_where_the_kernel_may_take_every_port_one_of_these_is_given(monkeypatch):
    monkeypatch.setattr(ports, "kernels_range", lambda: range(1024, 65_536))
    assert ports.free_port() in ports.given


def test_a_port_that_any_process_listens_at_is_not_given(monkeypatch):
    first, second = ports.free_port(), ports.free_port()
    rest = set(range(1 << 16)) - {first, second}
    for port in (first, second):
        os.close(ports.given.pop(port))
    monkeypatch.setattr(ports, "given", dict.fromkeys(rest, -1))
    with socket.create_server(("127.0.0.1", first)):
        assert ports.free_port() == second
        with pytest.raises(OSError, match="no port is free"):
            ports.free_port()


def test_a_port_that_a_test_of_another_process_was_given_is_not_given():
    port = ports.free_port()
    code = (
        "from tests.support import ports\n"
        f"ports.given = dict.fromkeys(set(range(1 << 16)) - {{{port}}}, -1)\n"
        "ports.free_port()"
    )
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "no port is free" in other.stderr


def test_a_state_that_was_not_reached_is_listed_and_one_that_was_is_not():
    suite = "tests/histories/test_races.py"
    demanded = [*reached.STATES[suite], *reached.DIRECTED_STATES[suite]]
    every = [*demanded, *reached.RARE_STATES[suite]]
    found = dict.fromkeys(every[1:], 1)
    assert reached.missing([suite], "main", found) == [f"{suite}: {every[0]}"]
    assert reached.missing([suite], "rest", dict.fromkeys(every, 1)) == []
    by_seeds = [*reached.STATES[suite], *reached.RARE_STATES[suite]]
    assert reached.missing([suite], "rest", dict.fromkeys(by_seeds, 1)) == []
    rare = reached.missing([suite], "all", dict.fromkeys(demanded, 1))
    assert len(rare) == len(reached.RARE_STATES[suite])
    assert reached.missing([], "all", {}) == []


def ran_a_suite_that_does_nothing(directory, marks, part):
    """Run a whole suite, of one test with these marks."""
    copy = directory / "tests"
    suite = copy / "histories"
    suite.mkdir(parents=True)
    for name in ("__init__.py", "conftest.py", "durations.json", "support", "data"):
        (copy / name).symlink_to(PROJECT / "tests" / name)
    (suite / "__init__.py").touch()
    (suite / "test_races.py").write_text(
        f"import pytest\npytestmark = {marks}\ndef test_nothing():\n    pass\n"
    )
    (directory / "pyproject.toml").write_text((PROJECT / "pyproject.toml").read_text())
    command = [sys.executable, "-m", "pytest", "-q", "-n", "1", "-p", "no:cacheprovider"]
    return subprocess.run(
        [*command, "--part", part, "tests/histories/test_races.py"],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )


@pytest.mark.slow  # it starts pytest
def test_a_run_that_does_not_reach_its_states_fails(tmp_path):
    done = ran_a_suite_that_does_nothing(tmp_path, "[]", "main")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "1 passed" in done.stdout
    assert "NEVER REACHED tests/histories/test_races.py: two runs committed" in done.stdout


@pytest.mark.slow  # it starts pytest
def test_of_what_only_the_night_runs_all_states_are_demanded_but_those_it_has_no_seed_for(tmp_path):
    done = ran_a_suite_that_does_nothing(tmp_path, "[pytest.mark.nightly]", "rest")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "NEVER REACHED tests/histories/test_races.py: two runs committed" in done.stdout
    assert not [state for state in reached.NOT_AT_NIGHT if state in done.stdout]


def test_seeds_go_on_until_each_state_was_reached_and_no_further(monkeypatch):
    monkeypatch.setattr(reached, "reached", Counter())
    played = []
    for seed in reached.going_on(range(3), ["rare"]):
        played.append(seed)
        reached.sometimes("rare", len(played) == 5)
    assert played[:3] == [0, 1, 2]
    assert len(played) == len(set(played)) == 5
    assert list(reached.going_on(range(3), ["rare"])) == [0, 1, 2]
    assert len(list(reached.going_on(range(3), ["never"]))) > 100


def test_there_are_enough_states():
    demanded = [state for states in reached.STATES.values() for state in states]
    assert len(demanded) == len(set(demanded)) >= 40
