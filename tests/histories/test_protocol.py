"""The commit protocol under death at every storage operation: what is committed is whole, and the
next run completes.
"""

import shutil
import threading
from pathlib import Path

import pytest

from cpreplicate.errors import CopyFailed
from cpreplicate.operations.sync import sync as sync_operation
from cpreplicate.operations.sync.diff import diff
from cpreplicate.operations.sync.report import Report
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.runners import Copy, ExecutionOptions
from cpreplicate.runners.inline import InlineRunner
from cpreplicate.runners.tasks import Outcome
from cpreplicate.storage import Side
from cpreplicate.storage.wrappers.base import StorageWrapper
from tests.support import checker, corpus, parts
from tests.support.faults import Faulty
from tests.support.jobs import JOB, write_checkpoint
from tests.support.registry import serving
from tests.support.tracing import Tracing

FILES = {f"shared/{name}": 100 * size for size, name in enumerate("abcdefgh", start=1)}
NEXT = {
    **{name: size for name, size in FILES.items() if name > "shared/c"},
    "shared/x": 50,
    "shared/y": 60,
}


class Died(BaseException):
    """The process is gone: nothing after it happens, not even what a `finally` would do."""


class Mortal(StorageWrapper):
    """Dies before the operation of a given number, and stays dead."""

    def __init__(self, inner, death):
        super().__init__(inner)
        self.count, self.death, self.lock = 0, death, threading.Lock()

    def before(self, verb, uri):  # noqa: ARG002  # as in `StorageWrapper`
        with self.lock:
            self.count += 1
            if self.count > self.death:
                raise Died


class Scenario:
    """A source, a replica in some state, and the sync that is to be interrupted."""

    def __init__(self, root: Path, keep: int = 1) -> None:
        self.root, self.keep = root, keep
        self.before = root / "before"

    def request(self, number: int) -> SyncRequest:
        return SyncRequest(
            f"file:{self.root}/dcA/{JOB}/chk-{number}",
            f"file:{self.root}/dcB",
            keep=self.keep,
            execution=ExecutionOptions(runner="inline", parallelism=1),
        )

    def sync(self, number: int) -> Report:
        return sync_operation.sync(self.request(number), lambda _: None)

    @property
    def replica(self) -> Path:
        return self.root / "dcB" / JOB

    def freeze(self) -> None:
        (self.root / "dcB").mkdir(exist_ok=True)
        shutil.copytree(self.root / "dcB", self.before)

    def reset(self) -> None:
        shutil.rmtree(self.root / "dcB")
        shutil.copytree(self.before, self.root / "dcB")

    def committed(self) -> list[int]:
        return sorted(int(each.parent.name[4:]) for each in self.replica.glob("chk-*/_metadata"))


def first(root):
    write_checkpoint(root / "dcA", 1, FILES)
    return Scenario(root), 1


def incremental(root, keep=1):
    scenario = Scenario(root, keep)
    for number, files in enumerate([FILES, {**FILES, "shared/w": 9}], start=1):
        write_checkpoint(root / "dcA", number, files)
        scenario.sync(number)
    write_checkpoint(root / "dcA", 3, NEXT)
    return scenario, 3


def keeping_two(root):
    return incremental(root, keep=2)


def resumed(root):
    scenario, number = first(root)
    full = Faulty(
        Side().storage("file:/"), lambda _, uri: OSError("full") if uri.endswith("/b") else None
    )
    with serving("file", full), pytest.raises(CopyFailed):
        scenario.sync(number)
    return scenario, number


def without_manifest(root):
    scenario, number = first(root)
    scenario.sync(number)
    (scenario.replica / ".cpreplicate" / f"chk-{number}.parquet").unlink()
    return scenario, number


@pytest.mark.parametrize(
    "make", [first, incremental, *map(parts.rest, (keeping_two, resumed, without_manifest))]
)
def test_a_death_at_any_operation_leaves_every_committed_checkpoint_whole(make, tmp_path):
    scenario, number = make(tmp_path)
    scenario.freeze()
    newest = max(scenario.committed(), default=0)
    scenario.sync(number)
    complete = corpus.tree(scenario.replica)
    local, death, deaths = Side().storage("file:/"), 0, 0
    while True:
        scenario.reset()
        mortal = Mortal(local, death)
        try:
            with serving("file", mortal):
                scenario.sync(number)
        except Died:
            deaths += 1
        else:
            break
        assert checker.faults(scenario.replica) == []
        assert max(scenario.committed(), default=0) in (newest, number)
        # its process is this one, which lives
        (scenario.replica / ".cpreplicate" / "lease").unlink(missing_ok=True)
        scenario.sync(number)
        # a death between deletes leaves orphans
        assert complete.items() <= corpus.tree(scenario.replica).items()
        assert checker.faults(scenario.replica) == []
        assert scenario.sync(number).plan.empty
        death += 1
    assert deaths == death > 10


def test_a_permanent_fault_of_any_write_deletes_nothing_before_the_commit(tmp_path):
    scenario, number = incremental(tmp_path)
    scenario.freeze()
    before = corpus.tree(scenario.replica)
    trace = Tracing(Side().storage("file:/"))
    with serving("file", trace):
        scenario.sync(number)
    places = {
        uri
        for verb, uri in trace.calls
        if verb == "put" and ("/shared/" in uri or uri.endswith("/_metadata"))
    }
    assert len(places) > 2
    for place in places:
        scenario.reset()
        failing = Faulty(Side().storage("file:/"), no_space_for(place))
        with serving("file", failing), pytest.raises((OSError, CopyFailed)):
            scenario.sync(number)
        assert before.items() <= corpus.tree(scenario.replica).items()
        assert checker.faults(scenario.replica) == []


def no_space_for(place):
    error = OSError(f"no space left for {place}")
    return lambda verb, uri: error if (verb, uri) == ("put", place) else None


def test_nothing_is_written_or_deleted_outside_the_replica(tmp_path):
    scenario, number = incremental(tmp_path)
    trace = Tracing(Side().storage("file:/"))
    with serving("file", trace):
        scenario.sync(number)
    changed = {uri for _, uri in trace.changes()}
    assert changed
    assert all(uri.startswith(f"file:{scenario.replica}/") for uri in changed)


def test_no_directory_is_listed_twice_and_no_file_of_the_source_is_asked_for(tmp_path):
    scenario, number = incremental(tmp_path)
    trace = Tracing(Side().storage("file:/"))
    with serving("file", trace):
        report = scenario.sync(number)
    listed = [uri for verb, uri in trace.calls if verb == "list" and "/shared" in uri]
    # to plan; the few files that were copied are asked for one by one
    assert listed == [f"file:{scenario.replica}/shared"]
    assert [uri for verb, uri in trace.calls if verb == "list"].count(
        f"file:{scenario.replica}"
    ) == 3  # also under the lease, and before the deletes: a job may have completed a checkpoint
    opened = [uri for verb, uri in trace.calls if verb == "open" and uri.endswith(".parquet")]
    assert len(opened) == len(set(opened))
    at_source = [(verb, uri) for verb, uri in trace.calls if f"{tmp_path}/dcA/" in uri]
    copied = sorted(action.source for action in report.plan.copies)
    assert sorted(uri for verb, uri in at_source if verb == "open" and "/shared/" in uri) == copied
    # and a status and an open of its _metadata, a status of a file of its one directory, no marker,
    # and not our lease
    assert len(at_source) == len(copied) + 5


class Forgetful(InlineRunner):
    """A runner that reports copies as done without making them."""

    def run(self, actions, level=0, done=None):
        claimed = [Outcome(task.target, 0, None, 0.0) for task in actions if isinstance(task, Copy)]
        rest = [task for task in actions if not isinstance(task, Copy)]
        return claimed + super().run(rest, level, done)


def test_a_runner_that_reports_copies_it_did_not_make_commits_nothing(tmp_path):
    scenario, number = incremental(tmp_path)
    request = scenario.request(number)
    before = scenario.committed()
    with pytest.raises(CopyFailed):
        sync_operation.sync(request, lambda _: None, Forgetful(request.sides, request.execution))
    assert scenario.committed() == before
    assert checker.faults(scenario.replica) == []


def test_these_tests_find_a_protocol_that_commits_before_it_copies(tmp_path):
    scenario, number = incremental(tmp_path)
    copies = diff(scenario.request(number)).plan.copies

    def take_copies_back(verb, uri):
        if verb == "put" and uri.endswith("/_metadata"):
            for action in copies:
                (scenario.replica / action.target).unlink()

    assert copies
    with serving("file", Faulty(Side().storage("file:/"), take_copies_back)):
        assert scenario.sync(number).committed
    assert checker.faults(scenario.replica) != []


def test_these_tests_find_a_protocol_that_deletes_before_it_commits(tmp_path):
    scenario, number = incremental(tmp_path)
    deletes = diff(scenario.request(number)).plan.deletes

    def delete_and_die(verb, uri):
        if verb == "put" and uri.endswith("/_metadata"):
            for action in deletes:
                (scenario.replica / action.target).unlink()
            raise Died

    assert deletes
    with (
        serving("file", Faulty(Side().storage("file:/"), delete_and_die)),
        pytest.raises(Died),
    ):
        scenario.sync(number)
    assert checker.faults(scenario.replica) != []
