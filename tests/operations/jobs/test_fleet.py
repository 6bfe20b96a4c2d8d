"""Many jobs in one run: what changed is replicated, important jobs first, and a job's failure is
its own.
"""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cpreplicate.core import uri
from cpreplicate.errors import UsageError
from cpreplicate.operations.handover.promote import PromoteRequest, promote
from cpreplicate.operations.jobs import fleet
from cpreplicate.operations.jobs.job import Job
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.runners import ExecutionOptions, startup_times
from cpreplicate.runners.inline import InlineRunner
from cpreplicate.storage import Sides
from tests.support import checker, jobs, parts
from tests.support.stepping import ManualClock
from tests.support.waiting import PATIENCE

pytestmark = pytest.mark.xdist_group("spark")

IDS = [f"{number:032x}" for number in range(1, 9)]


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Eight jobs in dcA, each with a checkpoint of its own."""
    for number, job in enumerate(IDS):
        write_job(monkeypatch, tmp_path, job, 1, {f"shared/{n}": 1000 + number for n in range(3)})
    return tmp_path


def write_job(monkeypatch, root, job, number, files):
    monkeypatch.setattr(jobs, "JOB", job)
    return jobs.write_checkpoint(root / "dcA", number, files)


def run(place, text, *words):
    (place / "fleet.toml").write_text(text)
    command = [sys.executable, "-m", "cpreplicate", "fleet", str(place / "fleet.toml"), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)


def summary(done):
    return json.loads(done.stdout)


def statuses(done):
    return {job["name"]: job["status"] for job in summary(done)["jobs"]}


def root_of(place, more=""):
    return f'[[root]]\nsource = "{place}/dcA"\ntarget = "{place}/dcB"\n{more}\n'


def test_auto_starts_no_spark_for_a_few_small_jobs_and_reports_why(place):
    done = run(place, root_of(place), "--verbose", "--output", "json")
    assert summary(done)["runner"] == "inline"
    assert (
        "runner: inline (auto, 24 files of 23.5 KiB: inline about 0 s, Spark about " in done.stderr
    )


@pytest.mark.parametrize(
    "words", [["--runner", "inline"], parts.rest(["--runner", "spark", "--master", "local[2,4]"])]
)
def test_every_job_under_a_root_is_replicated_and_only_what_changed_again(
    place, monkeypatch, words
):
    first = run(place, root_of(place), *words, "--output", "json")
    assert first.returncode == 0, first.stderr
    assert statuses(first) == dict.fromkeys(IDS, "replicated")
    assert all(checker.faults(place / "dcB" / job) == [] for job in IDS)
    write_job(monkeypatch, place, IDS[5], 2, {"shared/0": 1005, "shared/new": 77})
    second = run(place, root_of(place), *words, "--output", "json")
    assert statuses(second) == {**dict.fromkeys(IDS, "current"), IDS[5]: "replicated"}
    [report] = [job["report"] for job in summary(second)["jobs"] if "report" in job]
    assert (report["copy"]["files"], report["keep"]["files"], report["delete"]["files"]) == (
        1,
        1,
        2,
    )
    assert checker.faults(place / "dcB" / IDS[5]) == []


def test_one_job_that_fails_fails_alone_and_its_code_is_that_of_the_run(place):
    (place / "dcA" / IDS[2] / "shared" / "1").unlink()
    done = run(place, root_of(place), "--runner", "inline", "--output", "json")
    assert done.returncode == 10
    assert statuses(done) == {**dict.fromkeys(IDS, "replicated"), IDS[2]: "failed"}
    [failed] = [job for job in summary(done)["jobs"] if job["status"] == "failed"]
    assert failed["exit_code"] == 10
    assert "shared/1" in failed["error"]
    assert not list((place / "dcB" / IDS[2]).glob("chk-*/_metadata"))
    assert "Traceback" not in done.stderr


def test_failures_of_several_kinds_give_3(place):
    (place / "dcA" / IDS[2] / "shared" / "1").unlink()
    (place / "dcA" / IDS[3] / "chk-1" / "_metadata").write_bytes(b"no metadata")
    done = run(place, root_of(place), "--runner", "inline", "--output", "json")
    assert done.returncode == 3
    assert sorted(job["exit_code"] for job in summary(done)["jobs"]) == [0] * 6 + [5, 10]


def test_a_job_that_is_named_has_its_own_options_and_is_not_taken_from_the_root_again(
    place, monkeypatch
):
    text = (
        f'[[job]]\nname = "orders"\nsource = "{place}/dcA/{IDS[1]}"\ntarget = "{place}/dcB"\nkeep ='
        ' 2\npaths = "absolute"\n'
    )
    text += root_of(place, f'exclude = ["{IDS[4]}"]')
    run(place, text, "--runner", "inline")
    write_job(monkeypatch, place, IDS[1], 2, {"shared/0": 1001})
    done = run(place, text, "--runner", "inline", "--output", "json")
    assert statuses(done) == {
        "orders": "replicated",
        **{job: "current" for job in IDS if job not in (IDS[1], IDS[4])},
    }
    assert sorted(each.name for each in (place / "dcB" / IDS[1]).glob("chk-*")) == [
        "chk-1",
        "chk-2",
    ]
    assert not (place / "dcB" / IDS[4]).exists()
    names = {
        record.parent.parent.name: json.loads(record.read_text())["name"]
        for record in (place / "dcB").glob("*/.cpreplicate/job.json")
    }
    assert names == {IDS[1]: "orders"}  # an id is no name


def test_a_job_under_a_root_without_a_checkpoint_is_no_failure_and_a_named_one_is(place):
    (place / "dcA" / ("f" * 32)).mkdir()
    assert (
        statuses(run(place, root_of(place), "--runner", "inline", "--output", "json"))["f" * 32]
        == "empty"
    )
    named = f'[[job]]\nsource = "{place}/dcA/{"f" * 32}"\ntarget = "{place}/dcB"\n'
    assert run(place, named, "--runner", "inline").returncode == 10


def test_a_replica_below_a_root_is_skipped_until_a_job_that_was_started_from_it_writes_there(
    place, monkeypatch
):
    """Both data centres use Flink's own directories as TARGET_ROOT, and each root holds replicas
    beside jobs.
    """
    run(place, root_of(place), "--runner", "inline")
    back = f'[[root]]\nsource = "{place}/dcB"\ntarget = "{place}/dcA"\n'
    before = files_below(place)
    done = run(place, back, "--runner", "inline", "--output", "json")
    assert (done.returncode, summary(done)["skipped"]) == (0, len(IDS))
    assert statuses(done) == dict.fromkeys(IDS, "skipped")
    assert files_below(place) == before
    promote(PromoteRequest(f"file:{place}/dcB/{IDS[0]}"), lambda _line: None)
    assert statuses(run(place, back, "--runner", "inline", "--output", "json"))[IDS[0]] == "skipped"
    monkeypatch.setattr(jobs, "JOB", IDS[0])
    jobs.write_checkpoint(place / "dcB", 2, {"shared/own": 10})
    elsewhere = f'[[root]]\nsource = "{place}/dcB"\ntarget = "{place}/replicas"\n'
    done = run(place, elsewhere, "--runner", "inline", "--output", "json")
    assert statuses(done) == {**dict.fromkeys(IDS, "skipped"), IDS[0]: "replicated"}


def test_a_replica_that_is_named_is_replicated_like_a_job(place):
    run(place, root_of(place), "--runner", "inline")
    text = f'[[job]]\nsource = "{place}/dcB/{IDS[0]}"\ntarget = "{place}/dcC"\n'
    assert statuses(run(place, text, "--runner", "inline", "--output", "json")) == {
        IDS[0]: "replicated"
    }


def files_below(place):
    return {
        path: path.stat().st_mtime_ns
        for path in place.rglob("*")
        if path.is_file() and path.name != "fleet.toml"
    }


def test_dry_run_reports_what_has_changed_and_does_nothing(place):
    done = run(place, root_of(place), "--dry-run", "--output", "json")
    assert set(statuses(done).values()) == {"planned"}
    looked = summary(done)["jobs"][0]["looked"]
    assert looked.pop("checkpoint_completed").endswith("Z")
    assert looked.pop("warnings") == looked.pop("withdraw") == []
    goes = {"deletes": 0, "delete_bytes": 0}
    assert looked == {
        "checkpoint": "chk-1",
        "is_current": False,
        "files": 3,
        "bytes": 3000,
        **goes,
    }
    assert not (place / "dcB").exists()


def test_dry_run_looks_for_the_files_of_each_job(place):
    (place / "dcA" / IDS[3] / "shared" / "1").unlink()
    done = run(place, root_of(place), "--dry-run", "--output", "json")
    codes = {job["name"]: job["exit_code"] for job in summary(done)["jobs"]}
    assert codes == {**dict.fromkeys(IDS, 0), IDS[3]: 10}
    assert done.returncode == 10


def test_important_jobs_are_begun_first(place):
    members = [
        Job(
            job,
            SyncRequest(
                f"file:{place}/dcA/{job}",
                f"file:{place}/dcB",
                execution=ExecutionOptions(runner="inline"),
            ),
            priority=number % 3,
        )
        for number, job in enumerate(IDS)
    ]
    order: list[str] = []
    fleet.replicate_fleet(
        members,
        ExecutionOptions(runner="inline"),
        Sides(),
        order.append,
        settings=fleet.FleetSettings(at_once=1),
    )
    begun = [line.partition(":")[0] for line in order if "copying" in line]
    assert begun == sorted(IDS, key=lambda job: (-(IDS.index(job) % 3), job))


class Leveller(InlineRunner):
    """Stands where Spark's runner would, which alone makes use of levels, and remembers them."""

    name = "spark"

    def __init__(self, levels):
        super().__init__(Sides())
        self.levels = levels

    def run(self, actions, level=0, done=None):
        self.levels.extend(
            (Path(uri.local_path(action.target)).parent.parent.name, level) for action in actions
        )
        return super().run(actions, level, done)


def test_the_runner_receives_the_priority_of_each_file(place, monkeypatch):
    levels: list[tuple[str, int]] = []
    monkeypatch.setattr(fleet, "choose_runner", lambda *_: Leveller(levels))
    members = [
        Job(job, SyncRequest(f"file:{place}/dcA/{job}", f"file:{place}/dcB"), priority=number % 3)
        for number, job in enumerate(IDS)
    ]
    fleet.replicate_fleet(members, ExecutionOptions(runner="spark"), Sides(), lambda _line: None)
    assert set(levels) == {(job, 2 - number % 3) for number, job in enumerate(IDS)}


@pytest.mark.parametrize(
    ("start", "runners"), [(0.0, ["inline", "spark"]), (60.0, ["inline", "auto"])]
)
def test_the_first_checks_decide_whether_spark_is_worth_its_start_for_the_others(
    place, monkeypatch, start, runners
):
    monkeypatch.setattr(startup_times, "seconds", lambda _: (start, True))
    asked, clock = [], ManualClock()

    class Checking(Leveller):
        """The checks of the first three jobs take three seconds, however busy the machine is."""

        def map(self, *words):
            clock.pass_(3.0)
            return super().map(*words)

    def choose(execution, *words):
        asked.append((execution.runner, words[-1]))
        runner = Checking([])
        runner.name = execution.runner
        return runner

    monkeypatch.setattr(fleet, "choose_runner", choose)
    members = [Job(job, SyncRequest(f"file:{place}/dcA/{job}", f"file:{place}/dcB")) for job in IDS]
    found = fleet.replicate_fleet(
        members,
        ExecutionOptions(master="local[2]"),
        Sides(),
        lambda _line: None,
        settings=fleet.FleetSettings(checked_inline=3),
        clock=clock,
    )
    assert [job.outcome for job in found.jobs] == ["replicated"] * len(IDS)
    assert [runner for runner, _ in asked] == runners
    assert start or asked[1][1].startswith(
        f"auto, {len(IDS) - 3} more jobs to check: inline about "
    )


def test_a_root_without_a_job_is_a_mistake_and_not_a_fleet_of_none(place):
    done = run(place, f'[[root]]\nsource = "{place}/dcA/{IDS[0]}"\ntarget = "{place}/dcB"\n')
    assert done.returncode == 10
    assert "no job's directory" in done.stderr.splitlines()[-1]


def test_two_jobs_of_one_replica_are_refused_before_anything_is_done(place):
    members = [
        Job(name, SyncRequest(f"file:{place}/dcA/{IDS[0]}{end}", f"file:{place}/dcB"))
        for name, end in (("a", ""), ("b", "/chk-1"))
    ]
    with pytest.raises(UsageError, match="share"):
        fleet.replicate_fleet(
            members, ExecutionOptions(runner="inline"), Sides(), lambda _line: None
        )
    assert not (place / "dcB").exists()


BOTH = 'source = "/a"\ntarget = "/b"\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[[job]]\nsource = "/a"\n', ":1: [[job]] has no 'target'; write target = \"…\""),
        (f"[[job]]\n{BOTH}retries = 4\n", ":4: unknown key 'retries' in [[job]]; valid are "),
        (
            f"[[job]]\n{BOTH}lock-wait = 1\nlock_wait = 2\n",
            ":5: 'lock-wait' and 'lock_wait' in [[job]] are one key",
        ),
        (
            f"[[job]]\n{BOTH}keep = 0\n",
            ":4: 'keep' in [[job]]: 0: expected a whole number, 1 or more",
        ),
        ("[[job]\n", ":1: Expected ']]'"),
        (
            f"[[jobs]]\n{BOTH}",
            ":1: unknown table 'jobs' in the configuration of a fleet; did you mean 'job'?",
        ),
        (f"[job]\n{BOTH}", ":1: there may be several of 'job': write [[job]]"),
        ('[defaults]\ntarget = "/b"\n', ": no jobs are named"),
        (
            f'[[job]]\n{BOTH}priority = "high"\n',
            ":4: 'priority' in [[job]] must be a whole number, not 'high'",
        ),
        (
            f'[[root]]\n{BOTH}exclude = "7f0c"\n',
            ":4: 'exclude' in [[root]] must be an array of job ids",
        ),
        (
            '[defaults]\ntraget = "/b"\n[[job]]\n',
            ":2: unknown key 'traget' in [defaults]; did you mean 'target'?",
        ),
        (
            f'[[job]]\n{BOTH}[[job]]\nkeep = "2"\n',
            ":5: 'keep' in [[job]] must be a whole number, not '2'",
        ),
        (
            f'[[job]]\n{BOTH}master = "yarn"\n',
            ":4: unknown key 'master' in [[job]]: give --master on the command line",
        ),
        ('[[job]]\nexclude = ["7f0c"]\n', ":2: unknown key 'exclude' in [[job]]"),
        (
            "[[job]]\nsource = 3\n",
            ":2: 'source' in [[job]] must be a string that is not empty, not 3",
        ),
        (
            '[[job]]\n[storage."s3://b"]\nsecret = ["x"]\n',
            ":3: 'secret' in [storage.\"s3://b\"] must be",
        ),
        ("job = [1]\n", ":1: 'job' must be a table: write [[job]]"),
    ],
)
def test_a_configuration_that_is_not_understood_is_reported_in_one_line(place, text, message):
    done = run(place, text)
    assert done.returncode == 2
    assert f"{place}/fleet.toml{message}" in done.stderr.splitlines()[-1]
    assert not (place / "dcB").exists()


@pytest.mark.parametrize(
    "words", [["--runner", "inline"], parts.rest(["--runner", "spark", "--master", "local[2]"])]
)
def test_an_interrupt_ends_all_jobs_at_once_and_gives_their_leases_back(place, words):
    for job in IDS:
        (place / "dcA" / job / "shared" / "0").write_bytes(bytes(8_000_000))
    (place / "fleet.toml").write_text(root_of(place))
    command = [
        sys.executable,
        "-m",
        "cpreplicate",
        "fleet",
        str(place / "fleet.toml"),
        "--bandwidth",
        "20KB/s",  # for all jobs together: they take an hour
        *words,
    ]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    wait_for(lambda: len(list((place / "dcB").glob("*/shared"))) >= 2)  # jobs that copy
    process.send_signal(signal.SIGINT)
    narration = process.communicate(timeout=PATIENCE)[1]
    assert process.returncode == 130
    assert "Traceback" not in narration
    assert list((place / "dcB").glob("*/.cpreplicate/lease")) == []
    # a job commits as soon as its own files are there
    assert len(list((place / "dcB").glob("*/chk-*/_metadata"))) < len(IDS)


def wait_for(condition, seconds=PATIENCE):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)
