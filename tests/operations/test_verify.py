"""`verify` approves what `promote` accepts, and refuses what it refuses."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from cpreplicate.core.packs import PackOptions
from cpreplicate.errors import Refused
from cpreplicate.operations import verify as verify_operation
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.operations.sync.sync import sync
from cpreplicate.operations.upkeep import promote
from cpreplicate.operations.verify import ALL, NOTHING, Verification, verify
from cpreplicate.protocol.checkpoint_record import newest_first
from cpreplicate.protocol.journal import JournalWriter
from cpreplicate.protocol.publication import Publication
from cpreplicate.runners import ExecutionOptions
from cpreplicate.storage import Side
from tests.support.jobs import JOB, write_checkpoint
from tests.support.replicas import FILES, NEXT, synced

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


def test_a_checkpoint_that_is_committed_meanwhile_is_compared_by_its_manifest(
    tmp_path, monkeypatch
):
    replica = synced(tmp_path, {1: FILES})

    def then_another_is_committed(place):
        names = newest_first(place)
        synced(tmp_path, {2: NEXT})
        damage(replica, "shared/y")
        return names

    monkeypatch.setattr(verify_operation, "newest_first", then_another_is_committed)
    found = verified(replica, True)
    assert (found.checkpoint_id, found.corrupt) == (2, ("shared/y",))
    assert found.compared == len(NEXT)


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
        replica = self.run(tmp_path, killed, packing=ON)
        found = verified(replica, True)
        assert (found.restorable, found.compared) == (True, 1)
