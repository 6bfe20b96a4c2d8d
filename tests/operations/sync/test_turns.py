"""A run turns to the newest checkpoint when the one that it copies begins to vanish."""

import itertools
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from cpreplicate.core.packs import PackOptions
from cpreplicate.core.plan import Cap
from cpreplicate.errors import CopyFailed, Refused, SourceMovedOn, TooManyDeletes
from cpreplicate.operations.sync import sync as operation
from cpreplicate.operations.sync.copy import copy_missing
from cpreplicate.operations.sync.diff import check, diff
from cpreplicate.operations.sync.report import Report
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.operations.sync.source import newer
from cpreplicate.operations.sync.sync import sync
from cpreplicate.operations.verify.verify import ALL, verify
from cpreplicate.runners import ExecutionOptions, Runner
from cpreplicate.runners.inline import InlineRunner
from cpreplicate.runners.spark.runner import SparkRunner
from cpreplicate.runners.tasks import Copy, current_wanted
from cpreplicate.runners.wrapper import RunnerWrapper
from cpreplicate.storage import TEMPORARY, Side, Sides
from tests.support import checker
from tests.support.faults import Faulty
from tests.support.jobs import JOB, write_checkpoint
from tests.support.registry import serving
from tests.support.replicas import paths
from tests.support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("still_source")

SHARED = {f"shared/{number}": 50 for number in range(4)}
FIRST = {**SHARED, "shared/old": 60, "chk-1/own": 70}
SECOND = {**SHARED, "shared/new": 80, "chk-2/own": 90}


class Job:
    """A job that retains `retained` checkpoints, and deletes the files that none of them needs."""

    def __init__(self, root: Path, retained: int = 1) -> None:
        self.root, self._retained = root / "dcA", retained
        self._checkpoints: dict[int, Mapping[str, int]] = {}

    def complete(self, number: int, files: Mapping[str, int]) -> None:
        write_checkpoint(self.root, number, files)
        self._checkpoints[number] = files
        for gone in sorted(self._checkpoints)[: -self._retained]:
            del self._checkpoints[gone]
            (self.root / JOB / f"chk-{gone}" / "_metadata").unlink()
            shutil.rmtree(self.root / JOB / f"chk-{gone}")
        needed = {name for files in self._checkpoints.values() for name in files}
        for path in (self.root / JOB / "shared").iterdir():
            if f"shared/{path.name}" not in needed:
                path.unlink()


class Meanwhile(RunnerWrapper):
    """A runner before each of whose runs of copies a job goes on, as long as it does.

    `copied` are the names of the files that it copied.
    """

    def __init__(self, *steps: Callable[[], object], runner: Runner | None = None) -> None:
        super().__init__(runner or InlineRunner(Sides()))
        self._steps = list(steps)
        self.copied: list[str] = []

    def run(self, actions, level=0, done=None):
        if actions and isinstance(actions[0], Copy) and self._steps:
            self._steps.pop(0)()
        outcomes = super().run(actions, level, done)
        if actions and isinstance(actions[0], Copy):
            self.copied += [each.target for each in outcomes if each.error is None]
        return outcomes


@pytest.fixture
def job(tmp_path):
    job = Job(tmp_path)
    job.complete(1, FIRST)
    return job


def request_of(job: Job, source: str = "", **options: object) -> SyncRequest:
    place = f"file:{job.root}/{JOB}{source}"
    return SyncRequest(place, f"file:{job.root.parent}/dcB", **options)


def replicated(
    job: Job, *steps: Callable[[], object], **options: object
) -> tuple[Report, Meanwhile]:
    runner = Meanwhile(*steps)
    return sync(request_of(job, **options), lambda _line: None, runner), runner


def replica_of(job: Job) -> Path:
    return job.root.parent / "dcB" / JOB


def assert_only(job: Job, number: int, files: Mapping[str, int]) -> None:
    """The replica holds this checkpoint and nothing else, and can be restored."""
    replica = replica_of(job)
    names = (f"chk-{number}.json", f"chk-{number}.parquet", "lease-room", "replica.json")
    own = {f".cpreplicate/{name}" for name in names}
    expected = {*files, *own, f"chk-{number}/_metadata"}
    assert paths(replica) == expected
    assert checker.faults(replica) == []
    assert verify(f"file:{replica}", None, ALL, lambda _line: None, Side()).restorable
    assert [each.name for each in replica.glob("chk-*")] == [f"chk-{number}"]


def test_a_run_whose_checkpoint_is_subsumed_commits_the_newer_one(job):
    report, runner = replicated(job, lambda: job.complete(2, SECOND))
    assert (report.committed, report.plan.checkpoint) == (True, "chk-2")
    assert report.turned_from == ("chk-1",)
    assert_only(job, 2, SECOND)
    assert len(runner.copied) == len(set(runner.copied)) == len(SECOND)


def test_what_both_checkpoints_need_is_copied_once_and_counts_as_copied(job):
    report, runner = replicated(job, lambda: job.complete(2, SECOND))
    assert {action.target for action in report.plan.copies} == set(SECOND)
    for name in SHARED:
        assert sum(target.endswith(name) for target in runner.copied) == 1


def test_packs_of_both_are_kept_and_what_only_the_former_needed_is_in_none(job):
    packing = PackOptions("on")
    report, _ = replicated(job, lambda: job.complete(2, SECOND), packing=packing)
    assert report.plan.packed == frozenset(SECOND)
    replica = replica_of(job)
    assert verify(f"file:{replica}", None, ALL, lambda _line: None, Side()).restorable
    again, _ = replicated(job, packing=packing)
    assert again.plan.empty


def test_a_run_turns_as_often_as_it_gains(job):
    third = {**SHARED, "shared/third": 30, "chk-3/own": 20}
    steps = [lambda: job.complete(2, SECOND), lambda: job.complete(3, third)]
    report, _ = replicated(job, *steps)
    assert report.turned_from == ("chk-1", "chk-2")
    assert_only(job, 3, third)


def test_a_run_that_gains_nothing_on_the_job_ends_with_both_rates(job):
    def complete(number: int) -> Callable[[], None]:
        return lambda: job.complete(number, {f"chk-{number}/own": 1000 * number})

    runner = Meanwhile(*map(complete, range(2, 60)))
    with pytest.raises(SourceMovedOn, match="as fast as they are copied") as caught:
        sync(request_of(job), lambda _line: None, runner)
    assert f"turned {newer.MOST_WITHOUT_GAIN} times, from chk-1" in str(caught.value)
    assert "The copies carried" in str(caught.value)
    assert "new files came at" in str(caught.value)
    assert "num-retained" in str(caught.value)
    assert not (replica_of(job) / "chk-1" / "_metadata").exists()


def test_a_run_of_which_no_file_is_ever_complete_ends_too(job):
    def complete(number: int) -> Callable[[], None]:
        return lambda: job.complete(number, {f"chk-{number}/own": 500})

    job.complete(2, {"chk-2/own": 500})
    runner = Meanwhile(*map(complete, range(3, 90)))
    with pytest.raises(SourceMovedOn, match="as fast as they are copied"):
        sync(request_of(job), lambda _line: None, runner)
    assert runner.copied == []


def test_turns_while_the_first_files_are_copied_do_not_count_as_without_gain(tmp_path):
    job = Job(tmp_path)
    job.complete(1, {"shared/large": 1_000_000, "chk-1/own": 10})

    def goes_on() -> None:
        wanted = current_wanted()
        for number in range(2, 30):
            seen = wanted.version
            job.complete(number, {"shared/large": 1_000_000, f"chk-{number}/own": 10 * number})
            wait_until(lambda seen=seen: wanted.version > seen)

    report, runner = replicated(job, goes_on, look_every=0.001)
    assert report.plan.checkpoint == "chk-29"
    assert sum("large" in target for target in runner.copied) == 1


def test_a_checkpoint_that_is_named_is_not_exchanged_for_another(job):
    runner = Meanwhile(lambda: job.complete(2, SECOND))
    with pytest.raises(SourceMovedOn, match=r"chk-1 was subsumed"):
        sync(request_of(job, "/chk-1"), lambda _line: None, runner)
    assert not list(replica_of(job).glob("chk-*/_metadata"))


def test_the_newest_checkpoint_that_a_service_knows_is_exchanged(job):
    runner = Meanwhile(lambda: job.complete(2, SECOND))
    request = request_of(job, "/chk-1", follows=True)
    assert sync(request, lambda _line: None, runner).plan.checkpoint == "chk-2"


def overtaken(job: Job, *steps: Callable[[], object]) -> Faulty:
    """A storage before each of whose reads of a `_metadata` at the source a step is made."""
    waiting, at_source = list(steps), f"file:{job.root}/"

    def go_on(verb: str, place: str) -> None:
        if verb == "open" and place.startswith(at_source) and place.endswith("_metadata"):
            for step in waiting[:1]:
                del waiting[0]
                step()

    return Faulty(Side().storage("file:/"), go_on)


def synced(request: SyncRequest) -> str:
    return sync(request, lambda _line: None).plan.checkpoint


@pytest.mark.parametrize(
    "run", [synced, lambda it: diff(it).plan.checkpoint, lambda it: check(it).checkpoint]
)
@pytest.mark.parametrize("known", [False, True])
def test_checkpoints_that_are_gone_before_they_are_read_are_left_for_the_newest(job, run, known):
    gone = [lambda: job.complete(2, SECOND), lambda: job.complete(3, SHARED)]
    request = request_of(job, "/chk-1", follows=True) if known else request_of(job)
    with serving("file", overtaken(job, *gone)):
        assert run(request) == "chk-3"


def test_the_newest_checkpoint_that_a_service_knew_may_be_gone_before_its_first_call(job):
    request = request_of(job, "/chk-1", follows=True)
    job.complete(2, SECOND)
    assert synced(request) == "chk-2"


def test_a_checkpoint_that_is_gone_before_it_is_read_and_has_no_newer_one_has_moved_on(job):
    def delete() -> None:
        shutil.rmtree(job.root / JOB / "chk-1")

    with (
        serving("file", overtaken(job, delete)),
        pytest.raises(SourceMovedOn, match="before it was read"),
    ):
        synced(request_of(job))
    assert not replica_of(job).exists()


def test_a_source_that_has_nothing_newer_has_moved_on(job):
    def delete() -> None:
        shutil.rmtree(job.root / JOB / "chk-1")

    with pytest.raises(SourceMovedOn, match=r"chk-1 was subsumed"):
        replicated(job, delete)


def test_of_several_that_are_retained_the_first_one_is_finished(tmp_path):
    job = Job(tmp_path, retained=2)
    job.complete(1, FIRST)
    report, _ = replicated(job, lambda: job.complete(2, SECOND))
    assert (report.plan.checkpoint, report.turned_from) == ("chk-1", ())
    assert_only(job, 1, FIRST)


def test_a_run_goes_on_with_a_checkpoint_that_is_retained_however_many_complete_meanwhile(
    tmp_path,
):
    job = Job(tmp_path, retained=10)
    job.complete(1, FIRST)
    looks: list[str] = []

    def looked(verb: str, place: str) -> None:
        if (verb, place) == ("list", f"file:{job.root}/{JOB}"):
            looks.append(place)

    def goes_on() -> None:
        for number in range(2, 10):
            job.complete(number, {**SHARED, f"shared/{number}": 500 * number})
            before = len(looks)
            wait_until(lambda before=before: len(looks) > before + 1)

    with serving("file", Faulty(Side().storage("file:/"), looked)):
        report, _ = replicated(job, goes_on, look_every=0.001)
    assert (report.plan.checkpoint, report.turned_from) == ("chk-1", ())
    assert_only(job, 1, FIRST)


def test_a_run_that_gains_nothing_on_a_job_that_retains_several_ends_with_both_rates(tmp_path):
    job = Job(tmp_path, retained=3)
    numbers = itertools.count(1)

    def all_are_replaced() -> None:
        for number in itertools.islice(numbers, 3):
            job.complete(number, {"shared/0": 50, f"chk-{number}/own": 1000 * number})

    all_are_replaced()
    runner = Meanwhile(*[all_are_replaced] * 60)
    with pytest.raises(SourceMovedOn, match="as fast as they are copied") as caught:
        sync(request_of(job), lambda _line: None, runner)
    assert "The copies carried" in str(caught.value)
    assert "new files came at" in str(caught.value)
    assert "num-retained" in str(caught.value)


def test_a_run_turns_to_a_newer_checkpoint_that_leaves_less_to_be_copied(tmp_path):
    job = Job(tmp_path, retained=2)
    job.complete(1, {"shared/0": 50, "shared/large": 3_000_000})

    def compacted() -> None:
        job.complete(2, {"shared/0": 50, "shared/small": 500})
        wanted = current_wanted()
        wait_until(lambda: not wanted(f"file:{replica_of(job)}/shared/large"))

    report, runner = replicated(job, compacted, look_every=0.01)
    assert report.turned_from == ("chk-1",)
    assert_only(job, 2, {"shared/0": 50, "shared/small": 500})
    assert not any("large" in target for target in runner.copied)


def test_a_subsumed_checkpoint_is_finished_if_the_newer_one_has_all_that_is_left(job):
    def own_is_copied_and_then_it_is_subsumed() -> None:
        pass

    first = {**SHARED, "shared/old": 60}
    job.complete(2, first)
    report, _ = replicated(job, lambda: job.complete(3, {**first, "shared/new": 1}))
    assert (report.plan.checkpoint, report.turned_from) == ("chk-2", ())
    own_is_copied_and_then_it_is_subsumed()


def test_the_cap_of_deletes_holds_for_the_checkpoint_that_a_run_turns_to(job):
    replicated(job)
    job.complete(2, {**FIRST, "shared/more": 10})
    small = {"shared/0": 50, "chk-3/own": 5}
    with pytest.raises(TooManyDeletes) as caught:
        replicated(job, lambda: job.complete(3, small), max_delete=Cap(2))
    assert (replica_of(job) / "chk-1" / "_metadata").exists()
    assert "Nothing was copied" in str(caught.value)  # so it is: the first copies found them gone


def test_what_is_refused_at_a_turn_after_copies_states_them(job):
    replicated(job)
    job.complete(2, {**FIRST, "shared/more": 10, "shared/other": 10, "shared/gone": 10})
    small = {"shared/more": 10, "chk-3/own": 5}

    def only_one_is_left() -> None:
        (job.root / JOB / "shared" / "gone").unlink()
        (job.root / JOB / "chk-2" / "_metadata").unlink()
        write_checkpoint(job.root, 3, small)

    with pytest.raises(TooManyDeletes) as caught:
        replicated(job, only_one_is_left, max_delete=Cap(2))
    copied = "Nothing was committed or deleted, and what was copied (2 files) stays useful. "
    assert copied in str(caught.value)
    assert "Nothing was copied" not in str(caught.value)
    report = caught.value.report
    assert isinstance(report, Report)
    assert str(report.refusal) == str(caught.value)
    assert (replica_of(job) / "shared" / "more").exists()


def test_a_refusal_that_another_program_causes_before_a_turn_states_what_was_copied(job):
    replicated(job)
    job.complete(2, {**SHARED, "shared/more": 10, "shared/gone": 10})

    def started_there() -> None:
        job.complete(3, {**SHARED, "shared/more": 10, "chk-3/own": 5})
        write_checkpoint(job.root.parent / "dcB", 9, SHARED)

    with pytest.raises(Refused, match=r"what was copied \(1 file\) stays useful"):
        replicated(job, started_there)


def test_a_copy_that_fails_fails_the_run_if_the_newer_checkpoint_needs_the_file(job):
    def file_in_the_way() -> None:
        place = replica_of(job) / "shared" / "0"
        place.mkdir(parents=True)
        (place / "x").write_text("")
        job.complete(2, SECOND)

    with pytest.raises(CopyFailed, match=r"shared/0"):
        replicated(job, file_in_the_way)


def test_after_a_turn_what_the_run_has_not_finished_stays(job, monkeypatch):
    """The examination at a turn removes what other runs left; the run itself writes after it."""
    found: list[bool] = []

    def copied_and_listed(work, following, *how):
        executed = copy_missing(work, following, *how)
        if executed is not None:
            unfinished = replica_of(job) / work.plan.checkpoint / f"{TEMPORARY}1"
            unfinished.parent.mkdir(exist_ok=True)
            unfinished.touch()
            work.replica.present([work.plan.checkpoint])
            found.append(unfinished.exists())
            unfinished.unlink(missing_ok=True)
        return executed

    monkeypatch.setattr(operation, "copy_missing", copied_and_listed)
    report, _ = replicated(job, lambda: job.complete(2, SECOND))
    assert (report.turned_from, found) == (("chk-1",), [True])


@pytest.mark.rest
@pytest.mark.xdist_group("spark")
@pytest.mark.parametrize("packing", [PackOptions("off"), PackOptions("on")])
def test_executors_of_spark_copy_for_the_newer_checkpoint_what_both_need_once(job, packing):
    spark = SparkRunner(Sides(), ExecutionOptions(master="local[2]"))
    runner = Meanwhile(lambda: job.complete(2, SECOND), runner=spark)
    report = sync(request_of(job, packing=packing), lambda _line: None, runner)
    assert (report.runner, report.turned_from) == ("spark", ("chk-1",))
    assert report.plan.packed == (frozenset(SECOND) if packing.mode == "on" else frozenset())
    assert len(runner.copied) == len(set(runner.copied)) == len(SECOND)
    assert checker.faults(replica_of(job)) == []
    assert verify(f"file:{replica_of(job)}", None, ALL, lambda _line: None, Side()).restorable
    assert sync(request_of(job, packing=packing), lambda _line: None).plan.empty
