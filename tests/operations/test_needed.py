"""What is needed is what any checkpoint in the directory references: no operation deletes it."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

from cpreplicate.core.packs import Packing
from cpreplicate.core.plan import Cap
from cpreplicate.errors import Refused
from cpreplicate.operations import relocate, sweep, watch
from cpreplicate.operations.sync import Report, diff, sync
from cpreplicate.operations.sync_plan import SyncRequest
from cpreplicate.protocol import replica_state
from cpreplicate.protocol.needed import needed
from cpreplicate.protocol.replica import Replica
from cpreplicate.runners import ExecutionOptions
from cpreplicate.storage import Side
from tests.support.jobs import JOB, metadata_of, write_checkpoint
from tests.support.registry import serving
from tests.support.replicas import FILES, aged
from tests.support.tracing import Tracing

LATER = {"shared/zz": 10, "chk-3/q": 7}
SHARED = {name: size for name, size in FILES.items() if "shared/" in name and name < "shared/f"}
ON = Packing("on", 1 << 20)


class Adopted:
    """A directory in which a job wrote a file before it was adopted, and the job goes on there."""

    def __init__(self, root: Path, **options: object) -> None:
        self.root, self.replica = root, root / "dcB" / JOB
        write_checkpoint(root / "dcA", 1, FILES)
        (self.replica / "shared").mkdir(parents=True)
        (self.replica / "shared/of-b").write_bytes(b"of the job")
        self.sync(adopt=True, **options)

    def request(self, **options: object) -> SyncRequest:
        return SyncRequest(
            f"file:{self.root}/dcA/{JOB}",
            f"file:{self.root}/dcB",
            execution=ExecutionOptions(runner="inline"),
            **options,
        )

    def sync(self, **options: object) -> Report:
        return sync(self.request(**options), lambda _line: None)

    def complete(self, files: dict[str, int], number: int = 2, root: str = "") -> None:
        """Complete a checkpoint of the job, which was started from chk-1 of the replica."""
        recorded = root or f"file:{self.replica}"
        place = self.replica / f"chk-{number}"
        place.mkdir()
        uris = {f"{recorded}/{name}": size for name, size in files.items()}
        (place / "_metadata").write_bytes(metadata_of(number, uris))

    def moves_on(self) -> None:
        write_checkpoint(self.root / "dcA", 3, LATER)

    def sweep(self) -> sweep.Sweep:
        aged(self.replica)
        options = ExecutionOptions(runner="inline")
        everything = Cap(1, is_share=True)
        request = sweep.SweepRequest(f"file:{self.replica}", 0, everything, execution=options)
        return sweep.sweep(request, lambda _line: None)

    def there(self) -> set[str]:
        return {name for name in FILES if (self.replica / name).exists()}


@pytest.fixture
def adopted(tmp_path):
    return Adopted(tmp_path)


@pytest.mark.parametrize("recorded", ["", f"file:/other/name/{JOB}", f"hdfs://nn1:8020/x/{JOB}"])
def test_a_checkpoint_that_adopt_accepted_keeps_the_files_that_it_shares(adopted, recorded):
    """Also where its job has another name for the cluster."""
    adopted.complete(SHARED, root=recorded)
    adopted.moves_on()
    plan = adopted.sync(adopt=True).plan
    gone = FILES.keys() - SHARED.keys()
    assert {action.target for action in plan.deletes} == gone
    assert adopted.there() == SHARED.keys()
    adopted.sweep()
    assert adopted.there() == SHARED.keys()


def test_relative_paths_of_such_a_checkpoint_are_those_of_its_directory(adopted):
    adopted.sync(paths="relative")
    place = adopted.replica / "chk-2"
    shutil.copytree(adopted.replica / "chk-1", place)
    adopted.moves_on()
    adopted.sync(adopt=True)
    assert adopted.there() >= {name for name in FILES if "shared/" in name}


def test_the_files_are_deleted_once_the_job_has_deleted_its_checkpoint(adopted):
    adopted.complete(SHARED)
    adopted.moves_on()
    adopted.sync(adopt=True)
    shutil.rmtree(adopted.replica / "chk-2")
    adopted.sweep()
    assert adopted.there() == set()
    assert (adopted.replica / "shared/of-b").exists()


def test_deletes_that_were_put_off_spare_what_was_adopted_since(adopted):
    adopted.moves_on()
    request = adopted.request(async_deletes=True, adopt=True)
    backlog = watch.Backlog(request)
    backlog.add(sync(request, lambda _line: None))
    assert set(backlog.targets) == FILES.keys()
    adopted.complete(SHARED)
    adopted.sync(adopt=True)
    backlog.work_off(time.monotonic() + 60, lambda _line: None)
    assert adopted.there() == SHARED.keys()


def test_deletes_that_were_put_off_wait_for_a_checkpoint_that_is_not_accepted(adopted):
    adopted.moves_on()
    request = adopted.request(async_deletes=True)
    backlog = watch.Backlog(request)
    backlog.add(sync(request, lambda _line: None))
    adopted.complete(SHARED)
    with pytest.raises(Refused, match="chk-2/_metadata was not written by cpreplicate"):
        backlog.work_off(time.monotonic() + 60, lambda _line: None)
    assert adopted.there() == FILES.keys()


def test_a_pack_that_such_a_checkpoint_references_outlives_unpacking(tmp_path):
    adopted = Adopted(tmp_path, packing=ON, paths="absolute")
    (pack,) = (adopted.replica / "packed").iterdir()
    place = adopted.replica / "chk-2"
    shutil.copytree(adopted.replica / "chk-1", place)
    adopted.moves_on()
    adopted.sync(adopt=True, packing=ON, paths="absolute")
    assert pack.exists()
    adopted.sweep()
    request = relocate.RelocateRequest(f"file:{adopted.replica}", "absolute", unpack=True)
    relocate.relocate(request, lambda _line: None)
    assert pack.exists()


class TestACheckpointThatCannotBeRead:
    @pytest.fixture
    def unreadable(self, adopted):
        adopted.complete({})
        (adopted.replica / "chk-2/_metadata").write_bytes(b"of a later Flink")
        adopted.moves_on()
        return adopted

    def test_has_nothing_deleted_because_it_is_not_known_what_it_needs(self, unreadable):
        with pytest.raises(Refused, match="chk-2/_metadata is another program's and cannot be"):
            unreadable.sync(adopt=True)
        assert unreadable.there() == FILES.keys()

    def test_is_no_reason_where_nothing_is_deleted(self, unreadable):
        assert unreadable.sync(adopt=True, keep=2).committed
        with pytest.raises(Refused, match="cannot be read"):
            unreadable.sweep()

    def test_is_no_reason_any_more_once_it_was_moved_out(self, unreadable):
        shutil.rmtree(unreadable.replica / "chk-2")
        assert unreadable.sync().committed


def test_a_dry_run_shows_the_same_deletes(adopted):
    adopted.complete(SHARED)
    adopted.moves_on()
    planned = diff(adopted.request(adopt=True)).plan.deletes
    assert planned == adopted.sync(adopt=True).plan.deletes


def test_a_directory_without_checkpoints_of_others_costs_no_call(tmp_path):
    write_checkpoint(tmp_path / "dcA", 1, FILES)
    request = SyncRequest(f"file:{tmp_path}/dcA/{JOB}", f"file:{tmp_path}/dcB")
    sync(request, lambda _line: None)
    replica = Replica(f"file:{tmp_path}/dcB/{JOB}", Side())
    state = replica_state.examine(replica)
    with serving("file", tracing := Tracing(Side().storage("file:/"))):
        assert set(needed(replica, state).to_pylist()) == FILES.keys()
    assert tracing.calls == []
