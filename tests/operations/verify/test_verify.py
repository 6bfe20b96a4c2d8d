"""`verify` approves what `promote` accepts, and refuses what it refuses."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import pytest

from cpreplicate.core.packs import PackOptions
from cpreplicate.core.sizes import size
from cpreplicate.errors import Refused
from cpreplicate.operations.handover import promote
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.operations.sync.sync import sync
from cpreplicate.operations.verify import compare as compare_operation
from cpreplicate.operations.verify.verify import (
    ALL,
    NOTHING,
    Sample,
    Verification,
    verify,
    verify_each,
)
from cpreplicate.protocol.journal import JournalWriter
from cpreplicate.protocol.publication import Publication
from cpreplicate.runners import ExecutionOptions, Snapshot, choose_runner
from cpreplicate.storage import Side
from tests.support.commandline import run as ended
from tests.support.jobs import JOB, write_checkpoint
from tests.support.registry import serving
from tests.support.replicas import FILES, NEXT, synced
from tests.support.tracing import Tracing

GROUP = pytest.mark.xdist_group("spark")
ON, OFF = PackOptions("on", 1 << 20), PackOptions("off", 1 << 20)


def verified(replica: Path, content: bool) -> Verification:
    return verify(f"file:{replica}", None, ALL if content else NOTHING, lambda _line: None, Side())


def promoted(replica: Path) -> promote.Promotion:
    request = promote.PromoteRequest(f"file:{replica}", content=ALL)
    return promote.promote(request, lambda _line: None)


def linked(replica: Path, name: str, to: Path) -> None:
    place = replica / name
    if place.exists():
        shutil.rmtree(place)
    place.symlink_to(to)


def pack_of(replica: Path) -> str:
    (pack,) = (replica / "packed").iterdir()
    return f"packed/{pack.name}"


def flipped(place: Path, at: int) -> None:
    """Change one byte of a file."""
    data = bytearray(place.read_bytes())
    data[at] ^= 1
    place.write_bytes(data)


def damage(replica: Path, name: str) -> None:
    """Change the bytes of a file, but not its length."""
    (replica / name).write_bytes(bytes((replica / name).stat().st_size))


class TestLinks:
    @pytest.mark.parametrize("content", [False, True])
    @pytest.mark.parametrize("name", ["shared", "taskowned", "packed", "chk-7"])
    def test_a_directory_that_is_a_link_is_refused_as_by_promote(self, tmp_path, name, content):
        replica = synced(tmp_path, {1: FILES})
        linked(replica, name, tmp_path / "dcA" / JOB / "shared")
        for run in (lambda: verified(replica, content), lambda: promoted(replica)):
            with pytest.raises(Refused, match=f"{name} is a symbolic link"):
                run()

    @pytest.mark.parametrize("content", [False, True])
    def test_so_is_a_directory_further_down(self, tmp_path, content):
        replica = synced(tmp_path, {1: {"shared/inner/a": 5, "chk-1/x": 3}})
        linked(replica, "shared/inner", tmp_path / "dcA" / JOB / "shared/inner")
        for run in (lambda: verified(replica, content), lambda: promoted(replica)):
            with pytest.raises(Refused, match="symbolic link"):
                run()

    def test_a_file_that_is_a_link_is_missing(self, tmp_path):
        replica = synced(tmp_path, {1: FILES})
        (replica / "shared/a").unlink()
        (replica / "shared/a").symlink_to(tmp_path / "dcA" / JOB / "shared/a")
        assert verified(replica, False).missing == ("shared/a",)
        assert promoted(replica).starting is None


class TestContentIsReadByARunner:
    @pytest.fixture(
        params=[
            "inline",
            pytest.param("spark", marks=[pytest.mark.rest, GROUP]),
        ],
    )
    def execution(self, request):
        return ExecutionOptions(runner=request.param, master="local[2]")

    def verified_by(self, replica, execution, shown=None, sample=ALL, lines=None):
        show = None if shown is None else lambda snapshot, _last: shown.append(snapshot)
        return verify(
            f"file:{replica}",
            None,
            sample,
            (lambda _line: None) if lines is None else lines.append,
            Side(),
            dataclasses.replace(execution, show=show),
        )

    def test_a_corrupt_file_and_a_corrupt_member_are_found_with_the_progress(
        self, tmp_path, execution
    ):
        replica = synced(tmp_path, {1: {**FILES, "taskowned/large": 3 << 20}}, packing=ON)
        damage(replica, "taskowned/large")
        flipped(replica / pack_of(replica), FILES["shared/a"] // 2)
        shown: list[Snapshot] = []
        lines: list[str] = []
        found = self.verified_by(replica, execution, shown, lines=lines)
        assert set(found.corrupt) - {"taskowned/large"} <= FILES.keys()
        assert len(found.corrupt) == 2
        assert (found.compared, found.restorable) == (len(FILES) + 1, False)
        assert (shown[-1].files, shown[-1].files_total) == (len(FILES) + 1,) * 2
        assert shown[-1].bytes == shown[-1].bytes_total == sum(FILES.values()) + (3 << 20)
        assert lines == [
            f"comparing {len(FILES) + 1} files, {len(FILES)} of them in 1 pack,"
            f" {size(sum(FILES.values()) + (3 << 20))}"
        ]

    def test_a_sample_reads_its_files_only(self, tmp_path, execution):
        replica = synced(tmp_path, {1: FILES})
        sample = Sample(0.5, seed=3)
        taken = {path for path in FILES if sample.takes(path)}
        for path in FILES.keys() - taken:
            damage(replica, path)
        shown: list[Snapshot] = []
        found = self.verified_by(replica, execution, shown, sample)
        assert (found.compared, found.corrupt, found.restorable) == (len(taken), (), True)
        assert shown[-1].files_total == len(taken)


@pytest.mark.parametrize("packing", [OFF, ON], ids=["plain", "packed"])
def test_the_smallest_sample_of_a_few_files_reads_one_of_them(tmp_path, packing):
    """Its result is recorded as that of a share of the content."""
    replica = synced(tmp_path, {1: FILES}, packing=packing)
    found = verify(f"file:{replica}", None, Sample(1e-9), lambda _line: None, Side())
    assert (found.compared, found.restorable) == (1, True)


def test_a_pack_is_opened_once_to_compare_its_members(tmp_path):
    replica = synced(tmp_path, {1: FILES}, packing=ON)
    tracing = Tracing(Side().storage("file:/"))
    with serving("file", tracing):
        found = verified(replica, True)
    assert found.compared == len(FILES)
    assert tracing.calls.count(("open", f"file:{replica}/{pack_of(replica)}")) == 1


def test_a_file_that_cannot_be_read_is_an_error_and_no_result(tmp_path):
    replica = synced(tmp_path, {1: FILES})

    class Unreadable(Tracing):
        def before(self, verb, uri):
            if verb == "open" and uri.endswith("/shared/a"):
                raise PermissionError(13, "not allowed", uri)

    with (
        serving("file", Unreadable(Side().storage("file:/"))),
        pytest.raises(OSError, match=r"1 of 9 files of the replica cannot be read\..*/shared/a"),
    ):
        verified(replica, True)


def test_several_checkpoints_are_verified_by_one_runner(tmp_path, monkeypatch):
    replica = synced(tmp_path, {1: FILES, 2: NEXT}, keep=2)
    chosen = []

    def counting(*args):
        chosen.append(choose_runner(*args))
        return chosen[-1]

    monkeypatch.setattr(compare_operation, "choose_runner", counting)
    found = verify_each(f"file:{replica}", ["chk-1", "chk-2"], ALL, lambda _line: None, Side())
    assert [each.compared for each in found.checkpoints] == [len(FILES), len(NEXT)]
    assert len(chosen) == 1


@pytest.mark.parametrize("content", [NOTHING, ALL])
def test_a_metadata_that_cannot_be_understood_hides_no_other_point(tmp_path, content):
    replica = synced(tmp_path, {1: FILES, 2: NEXT}, keep=2)
    damage(replica, "chk-1/_metadata")
    names = ["chk-2", "chk-1"]
    newest, damaged = verify_each(
        f"file:{replica}", names, content, lambda _line: None, Side()
    ).checkpoints
    assert newest.restorable
    assert (damaged.restorable, damaged.corrupt) == (False, ("chk-1/_metadata",))
    assert "chk-1/_metadata: byte 0" in damaged.refused
    done = ended("verify", "--all", replica)
    assert (done.code, "corrupt: chk-1/_metadata" in done.out) == (4, True)
    assert ended("verify", replica, "--checkpoint", "chk-1").code == 5


class Killed(BaseException):
    """The process is killed: nothing that it holds is written any more."""


class TestARunThatWasKilledRightAfterItsCommit:
    @pytest.fixture
    def killed(self, monkeypatch):
        """Have the next sync end as soon as the `_metadata` is there."""
        publish = Publication._publish

        def and_die(publication, check):
            publish(publication, check)
            monkeypatch.setattr(JournalWriter, "flush", lambda _writer: None)
            raise Killed

        def prepare():
            monkeypatch.setattr(Publication, "_publish", and_die)

        return prepare

    def run(self, root, prepare, **options):
        prepare()
        request = SyncRequest(
            f"file:{root}/dcA/{JOB}",
            f"file:{root}/dcB",
            execution=ExecutionOptions(runner="inline"),
            **options,
        )
        with pytest.raises(Killed):
            sync(request, lambda _line: None)
        return root / "dcB" / JOB

    @pytest.mark.parametrize("packing", [OFF, ON], ids=["plain", "packed"])
    def test_of_a_first_checkpoint_leaves_a_replica_that_is_restorable(
        self, tmp_path, killed, packing
    ):
        write_checkpoint(tmp_path / "dcA", 1, FILES)
        replica = self.run(tmp_path, killed, packing=packing)
        found = verified(replica, True)
        assert found.restorable
        assert found.compared == len(FILES)
        assert promoted(replica).starting is not None

    @pytest.mark.parametrize("packing", [OFF, ON], ids=["plain", "packed"])
    def test_of_a_next_one_too(self, tmp_path, killed, packing):
        synced(tmp_path, {1: FILES}, packing=packing)
        write_checkpoint(tmp_path / "dcA", 2, NEXT)
        replica = self.run(tmp_path, killed, packing=packing)
        found = verified(replica, True)
        assert (found.checkpoint_id, found.restorable, found.compared) == (2, True, len(NEXT))
        assert promoted(replica).starting is not None

    @pytest.mark.parametrize("packing", [OFF, ON], ids=["plain", "packed"])
    def test_that_published_a_checkpoint_again_too(self, tmp_path, killed, packing):
        replica = synced(tmp_path, {1: FILES}, packing=OFF)
        for name in ("shared/a", "shared/b"):
            (replica / name).unlink()
        self.run(tmp_path, killed, packing=packing, paths="absolute")
        found = verified(replica, True)
        assert found.restorable
        assert found.compared == len(FILES)
        assert promoted(replica).starting is not None

    def test_that_published_repacked_members_again_too(self, tmp_path, killed):
        synced(tmp_path, {1: FILES}, packing=ON, paths="absolute")
        write_checkpoint(tmp_path / "dcA", 1, {name: FILES[name] for name in ("shared/a",)})
        replica = self.run(tmp_path, killed, packing=ON, allow_older=True)
        found = verified(replica, True)
        assert (found.restorable, found.compared) == (True, 1)
