"""The commit protocol on real object stores: every point at which a run may die, kill -9, runs at
the same time, leases that were left, wrong credentials and buckets.
"""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, TypeVar

import pytest

from cpreplicate.core.packs import PackOptions
from cpreplicate.core.restore import PathsMode
from cpreplicate.errors import LeaseHeld, Refused
from cpreplicate.operations.sync import sync
from cpreplicate.operations.sync.report import Report
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.operations.upkeep import relocate
from cpreplicate.operations.verify.verify import Sample, verify
from cpreplicate.protocol import json_files, lease
from cpreplicate.runners import ExecutionOptions
from cpreplicate.storage import Sides
from cpreplicate.storage.base import Content
from cpreplicate.storage.wrappers.base import READING, StorageWrapper
from tests.support.checker import faults
from tests.support.commandline import printed
from tests.support.jobs import JOB, pattern, write_checkpoint
from tests.support.killing import started
from tests.support.registry import serving
from tests.support.stores import NAMES, Store
from tests.support.waiting import wait_until

T = TypeVar("T")
FILES = {f"shared/{number}": 1000 + number for number in range(4)}
NEXT = {"shared/3": 1003, "shared/4": 2000, "chk-2/own": 10}
MANY = {f"shared/{number:03}": 60_000 for number in range(60)}
NO_JOB, NO_RIGHT, UNREACHABLE = 10, 1, 7
IS_EVERY_POINT = "TESTS_EVERY_POINT" in os.environ  # by `make nightly`


class Died(BaseException):
    """The run was killed: it calls nothing any more."""


class Mortal(StorageWrapper):
    """Dies before or after one of the calls that change something; then nothing is done."""

    def __init__(self, inner: object, at: int, is_after: bool) -> None:
        super().__init__(inner)  # type: ignore[arg-type]
        self._at, self._is_after = at, is_after
        self._lock = threading.Lock()
        self.count = 0

    def carry_out(self, verb: str, uri: str, call: Callable[[], T]) -> T:
        if verb in READING:
            self._refuse_if_dead()
            return self._inner.carry_out(verb, uri, call)
        with self._lock:
            self._refuse_if_dead()
            if self.count + 1 == self._at and not self._is_after:
                self.count += 1
                raise Died
            result = self._inner.carry_out(verb, uri, call)
            self.count += 1
            if self.count == self._at:
                raise Died
            return result

    def _refuse_if_dead(self) -> None:
        if self._at and self.count >= self._at:
            raise Died


@pytest.fixture(params=NAMES)
def store(request: pytest.FixtureRequest) -> Store:
    found = request.getfixturevalue(request.param.replace("-", "_"))
    assert isinstance(found, Store)
    return found


class HeldUp(StorageWrapper):
    """Holds a run up right after its last look at its lease, before it changes one `_metadata`.

    Meanwhile other runs do what `meanwhile` does. No heartbeat is written by a run that is held up.
    """

    def __init__(self, inner: object, name: str, meanwhile: Callable[[], object]) -> None:
        super().__init__(inner)  # type: ignore[arg-type]
        self._end, self._meanwhile = f"/{name}/_metadata", meanwhile
        self.was_held_up = False

    def before(self, verb: str, uri: str) -> None:
        if verb == "put" and uri.endswith(".heartbeat"):
            raise OSError("held up")

    def publish(
        self, uri: str, content: Content, check: Callable[[int], None], replace: bool
    ) -> int:
        def checked(length: int) -> None:
            check(length)
            self._hold_up(uri)

        return super().publish(uri, content, checked, replace)

    def withdraw(
        self, uri: str, aside: str, check: Callable[[], None], keeps_aside: bool = False
    ) -> bool:
        def checked() -> None:
            check()
            self._hold_up(uri)

        return super().withdraw(uri, aside, checked, keeps_aside)

    def _hold_up(self, uri: str) -> None:
        if uri.endswith(self._end) and not self.was_held_up:
            self.was_held_up = True
            self._meanwhile()


pytestmark = pytest.mark.stores


@pytest.fixture
def target(store: Store) -> str:
    """A TARGET_ROOT of the test's own."""
    return f"{store.root}/{uuid.uuid4().hex}"


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Let so much time pass that a lease that was left is stale."""

    def pass_by() -> None:
        monkeypatch.setattr(json_files, "now", lambda: time.time() + 2 * lease.SECONDS)

    return pass_by


def request_of(store: Store, directory: Path, target: str, mode: str = "off") -> SyncRequest:
    packing = PackOptions(mode, 1 << 20)  # type: ignore[arg-type]
    return SyncRequest(
        f"file:{directory}/dcA/{JOB}",
        target,
        sides=Sides(target=store.side()),
        packing=packing,
        execution=ExecutionOptions(runner="inline", parallelism=1),
    )


def silent(_line: str) -> None:
    """Report nothing."""


def assert_whole(store: Store, target: str, number: int, tmp_path: Path) -> None:
    """The checkpoint is the source's, byte for byte, as read by the verification and by a copy."""
    replica = f"{target}/{JOB}"
    found = verify(replica, f"chk-{number}", Sample(1.0), silent, store.side())
    assert found.restorable, found
    assert_restores(store, replica, number, tmp_path)


def assert_restores(store: Store, replica: str, number: int, tmp_path: Path) -> None:
    """A copy of the replica in another directory is whole to the independent checker."""
    back = tmp_path / uuid.uuid4().hex
    request = SyncRequest(
        f"{replica}/chk-{number}",
        f"file:{back}",
        paths="absolute",
        sides=Sides(source=store.side()),
        execution=ExecutionOptions(runner="inline"),
    )
    sync.sync(request, silent)
    assert faults(back / JOB) == []
    for path in (back / JOB / "shared").iterdir():
        assert path.read_bytes() == pattern(f"shared/{path.name}", path.stat().st_size)


def test_checkpoints_are_replicated_incrementally_and_restored_from_there(
    store: Store, target: str, tmp_path: Path
) -> None:
    write_checkpoint(tmp_path / "dcA", 1, FILES)
    assert sync.sync(request_of(store, tmp_path, target), silent).committed
    assert_whole(store, target, 1, tmp_path)
    write_checkpoint(tmp_path / "dcA", 2, NEXT)
    report = sync.sync(request_of(store, tmp_path, target), silent)
    assert {action.target for action in report.plan.copies} == {"shared/4", "chk-2/own"}
    assert_whole(store, target, 2, tmp_path)
    names = {status.name for status in store.side().storage(target).list(f"{target}/{JOB}/shared")}
    assert names == {"3", "4"}


def deaths(store: Store, target: str, request: SyncRequest) -> int:
    """Return how many calls that change something a run makes."""
    inner = store.side().storage(target)
    alive = Mortal(inner, 0, False)
    with serving(store.scheme, alive):
        sync.sync(request, silent)
    return alive.count


@pytest.mark.parametrize("is_after", [False, True], ids=["before", "after"])
def test_a_run_that_dies_at_any_point_loses_nothing_and_the_next_one_completes(
    store: Store,
    target: str,
    tmp_path: Path,
    is_after: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write_checkpoint(tmp_path / "dcA", 1, FILES)
    first = request_of(store, tmp_path, f"{target}/counted")
    sync.sync(first, silent)
    write_checkpoint(tmp_path / "dcA", 2, NEXT)
    points = deaths(store, target, request_of(store, tmp_path, f"{target}/counted"))
    assert points > 10
    step = 1 if IS_EVERY_POINT else 3
    for point in range(1 + is_after, points + 1, step):
        place = f"{target}/{point}"
        (tmp_path / "dcA" / JOB / "chk-2" / "_metadata").unlink()
        sync.sync(request_of(store, tmp_path, place), silent)
        write_checkpoint(tmp_path / "dcA", 2, NEXT)
        request = request_of(store, tmp_path, place)
        mortal = Mortal(store.side().storage(target), point, is_after)
        with serving(store.scheme, mortal), pytest.raises(Died):
            sync.sync(request, silent)
        assert_whole_or_next(store, place)
        with monkeypatch.context() as patch:  # what it left is stale
            patch.setattr(json_files, "now", lambda: time.time() + 2 * lease.SECONDS)
            sync.sync(request, silent)
        found = verify(f"{place}/{JOB}", "chk-2", Sample(1.0), silent, store.side())
        assert found.restorable, (point, found)


def assert_whole_or_next(store: Store, target: str) -> None:
    """What is committed can be restored, and something is."""
    found = verify(f"{target}/{JOB}", None, Sample(1.0), silent, store.side())
    assert found.restorable, found


def test_a_run_that_was_killed_is_resumed(store: Store, target: str, tmp_path: Path) -> None:
    """The lease is stale at once, because its process is gone; so the next run takes it over."""
    write_checkpoint(tmp_path / "dcA", 1, MANY)
    words = [tmp_path / "dcA" / JOB, target, *store.words(), "--runner", "inline"]
    storage = store.side().storage(target)
    slowly = ["--bandwidth", "100KB/s", "--parallelism", 2]  # there is time to look
    with started("sync", *words, *slowly) as victim:
        wait_until(
            lambda: len(storage.list(f"{target}/{JOB}/shared")) > 5 or victim.code is not None
        )
        assert victim.kill(), victim.messages()
    assert storage.stat(f"{target}/{JOB}/.cpreplicate/lease") is not None
    assert storage.stat(f"{target}/{JOB}/chk-1/_metadata") is None
    ended = printed("sync", *words)
    assert ended.returncode == 0, ended.stderr
    assert_whole(store, target, 1, tmp_path)
    assert storage.stat(f"{target}/{JOB}/.cpreplicate/lease") is None


def test_a_lease_that_is_held_is_not_taken_over_and_a_stale_one_is_by_one_of_many(
    store: Store, target: str, later: Callable[[], None]
) -> None:
    replica = f"{target}/{JOB}"
    left = lease.Lease(replica, store.side())
    left.take(0.0, silent)
    with pytest.raises(LeaseHeld):
        lease.Lease(replica, store.side()).take(0.0, silent)
    later()
    start, won = threading.Barrier(8), []

    def contend() -> None:
        mine = lease.Lease(replica, store.side())
        start.wait()
        try:
            mine.take(0.0, silent)
        except LeaseHeld:
            return
        won.append(mine)

    threads = [threading.Thread(target=contend) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    won[0].check()
    with pytest.raises(LeaseHeld):
        left.check()
    won[0].give_back()
    left.give_back()


def relocated(store: Store, target: str, paths: PathsMode) -> object:
    request = relocate.RelocateRequest(f"{target}/{JOB}", paths, side=store.side())
    return relocate.relocate(request, silent)


def metadata(store: Store, target: str) -> dict[str, bytes]:
    """Every `_metadata` of the replica, by the name of its checkpoint."""
    storage, replica = store.side().storage(target), f"{target}/{JOB}"
    names = [status.name for status in storage.list(replica) if status.name.startswith("chk-")]
    places = {name: f"{replica}/{name}/_metadata" for name in names}
    there = {name: place for name, place in places.items() if storage.stat(place) is not None}
    return {name: storage.read(place) for name, place in there.items()}


class Overtaken(NamedTuple):
    """A run that was held up, and the `_metadata` after the other one and after both."""

    outcome: object
    left: dict[str, bytes]
    after: dict[str, bytes]


def overtaken(
    store: Store,
    target: str,
    later: Callable[[], None],
    run: Callable[[], object],
    name: str,
    other: Callable[[], object],
) -> Overtaken:
    """Hold a run up before it changes the `_metadata` of `name`, until another one has ended."""
    left: dict[str, bytes] = {}

    def meanwhile() -> None:
        later()
        other()
        left.update(metadata(store, target))

    held = HeldUp(store.side().storage(target), name, meanwhile)
    with serving(store.scheme, held):
        try:
            outcome = run()
        except (LeaseHeld, Refused) as error:
            outcome = error
    assert held.was_held_up
    return Overtaken(outcome, left, metadata(store, target))


# fake-gcs-server ignores the condition of a delete
@pytest.mark.parametrize("store", ["versitygw", "azurite"], indirect=True)
def test_a_withdrawal_after_a_long_pause_leaves_what_another_run_published(
    store: Store, target: str, tmp_path: Path, later: Callable[[], None]
) -> None:
    """The other run rewrites both checkpoints, and keeps them."""
    write_checkpoint(tmp_path / "dcA", 1, FILES)
    sync.sync(request_of(store, tmp_path, target), silent)
    write_checkpoint(tmp_path / "dcA", 2, NEXT)
    ended = overtaken(
        store,
        target,
        later,
        lambda: sync.sync(request_of(store, tmp_path, target), silent),
        "chk-1",
        lambda: relocated(store, target, "absolute"),
    )
    assert set(ended.left) == {"chk-1", "chk-2"}
    assert ended.after == ended.left
    assert isinstance(ended.outcome, Report)
    assert "stopped before publishing or deleting" in str(ended.outcome.warnings)
    for number in (1, 2):
        assert_restorable(store, target, number)


def test_a_checkpoint_that_another_run_withdrew_is_not_brought_back_after_a_long_pause(
    store: Store, target: str, tmp_path: Path, later: Callable[[], None]
) -> None:
    write_checkpoint(tmp_path / "dcA", 1, FILES)
    sync.sync(request_of(store, tmp_path, target), silent)
    write_checkpoint(tmp_path / "dcA", 2, NEXT)
    ended = overtaken(
        store,
        target,
        later,
        lambda: relocated(store, target, "absolute"),
        "chk-1",
        lambda: sync.sync(request_of(store, tmp_path, target), silent),
    )
    assert set(ended.left) == {"chk-2"}
    assert ended.after == ended.left
    assert isinstance(ended.outcome, LeaseHeld), ended.outcome
    assert_restorable(store, target, 2)


@pytest.mark.parametrize("paths", ["absolute", "relative"])
def test_a_commit_after_a_long_pause_does_not_replace_that_of_another_run(
    store: Store, target: str, tmp_path: Path, later: Callable[[], None], paths: PathsMode
) -> None:
    """Also if the other run writes the same bytes: then both have committed them."""
    write_checkpoint(tmp_path / "dcA", 1, FILES)
    late = replace(request_of(store, tmp_path, target), paths="relative")
    other = replace(late, paths=paths)
    ended = overtaken(
        store,
        target,
        later,
        lambda: sync.sync(late, silent),
        "chk-1",
        lambda: sync.sync(other, silent),
    )
    assert set(ended.left) == {"chk-1"}
    assert ended.after == ended.left
    assert isinstance(ended.outcome, LeaseHeld if paths == "absolute" else Report), ended.outcome
    assert_restorable(store, target, 1)
    assert sync.sync(other, silent).plan.empty


def assert_restorable(store: Store, target: str, number: int) -> None:
    found = verify(f"{target}/{JOB}", f"chk-{number}", Sample(1.0), silent, store.side())
    assert found.restorable, found


def test_of_runs_at_the_same_time_each_succeeds_or_finds_the_lease_held(
    store: Store, target: str, tmp_path: Path
) -> None:
    write_checkpoint(tmp_path / "dcA", 1, FILES)
    start, outcomes = threading.Barrier(4), []

    def run() -> None:
        start.wait()
        try:
            sync.sync(request_of(store, tmp_path, target), silent)
            outcomes.append("done")
        except (LeaseHeld, Refused) as error:
            outcomes.append(type(error).__name__)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(outcomes) == 4
    assert "done" in outcomes
    assert_whole(store, target, 1, tmp_path)


def test_a_store_with_conditional_puts_is_found_to_have_them(store: Store, target: str) -> None:
    storage = store.side().storage(target)
    assert storage.ignored_conditions(target) == []
    assert storage.list(target) == []


def test_a_missing_bucket_is_named_at_once(store: Store, tmp_path: Path) -> None:
    source = write_checkpoint(tmp_path / "dcA", 1, FILES)
    bucket = f"{store.scheme}://no-such-bucket/replicas"
    ended = printed("sync", source, bucket, *store.words())
    assert ended.returncode == NO_JOB, ended.stderr
    assert "the bucket does not exist" in ended.stderr
    assert "trying again" not in ended.stderr
    ended = printed("sync", bucket, tmp_path / "dcB", *store.words("source"))
    assert ended.returncode == NO_JOB, ended.stderr
    assert "trying again" not in ended.stderr


WRONG = {
    "versitygw": [{"secret": "wrong"}, {"key": "nobody"}],
    "azurite": [
        {
            "connection_string": "DefaultEndpointsProtocol=http;AccountName=devstoreaccount1"
            ";AccountKey=d3Jvbmc=;BlobEndpoint=http://127.0.0.1:{port}/devstoreaccount1;"
        }
    ],
}


@pytest.mark.parametrize(("name", "number"), [("versitygw", 0), ("versitygw", 1), ("azurite", 0)])
def test_wrong_credentials_are_reported_at_once(
    request: pytest.FixtureRequest, tmp_path: Path, name: str, number: int
) -> None:
    store = request.getfixturevalue(name)
    source = write_checkpoint(tmp_path / "dcA", 1, FILES)
    wrong = {key: text.format(port=store.port) for key, text in WRONG[name][number].items()}
    ended = printed("sync", source, f"{store.root}/replicas", *store.words(**wrong))
    assert ended.returncode == NO_RIGHT, ended.stderr
    assert "refuses the credentials" in ended.stderr
    assert "trying again" not in ended.stderr


def test_without_a_server_a_run_ends_after_the_time_for_retries(
    store: Store, tmp_path: Path
) -> None:
    source = write_checkpoint(tmp_path / "dcA", 1, FILES)
    nobody = store.words(**store.at(1))
    ended = printed("sync", source, f"{store.root}/replicas", *nobody, "--retry-for", "1s")
    assert ended.returncode == UNREACHABLE, ended.stderr
    assert "longer than --retry-for allows (1 s)" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_packs_are_written_and_read(store: Store, target: str, tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "dcA", 1, MANY)
    request = request_of(store, tmp_path, target, "on")
    assert sync.sync(request, silent).committed
    found = verify(f"{target}/{JOB}", None, Sample(1.0), silent, store.side())
    assert found.restorable, found
