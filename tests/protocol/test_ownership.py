"""cpreplicate changes only what its own records say it wrote.

Whoever else writes in a directory is respected.
"""

import errno
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from cpreplicate.errors import (
    CpreplicateError,
    NotNewer,
    NotThere,
    Refused,
    UsageError,
    exit_code_of,
)
from cpreplicate.operations.handover import promote, unseal
from cpreplicate.operations.handover.promote import PromoteRequest
from cpreplicate.operations.handover.unseal import UnsealRequest
from cpreplicate.operations.sync.diff import diff
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.operations.sync.sync import sync as run_sync
from cpreplicate.operations.upkeep import relocate, sweep
from cpreplicate.operations.upkeep.relocate import RelocateRequest
from cpreplicate.operations.upkeep.sweep import SweepRequest
from cpreplicate.operations.verify.verify import ALL, verify
from cpreplicate.protocol import seal
from cpreplicate.protocol.replica import Replica
from cpreplicate.runners import ExecutionOptions
from cpreplicate.storage import Side, Transient
from tests.support import checker
from tests.support.encoder import File, Incremental, OperatorEntry, Subtask, Tree, encode
from tests.support.faults import Faulty
from tests.support.jobs import JOB, pattern, write_checkpoint
from tests.support.registry import serving
from tests.support.replicas import FILES, NEXT, aged, paths

OTHER_JOB = "f" * 32
SHARED = {path: size for path, size in FILES.items() if path.startswith("shared/")}


def request(root, source="dcA", target="dcB", job=JOB, **options):
    return SyncRequest(
        f"file:{root}/{source}/{job}",
        f"file:{root}/{target}",
        execution=ExecutionOptions(runner="inline"),
        **options,
    )


def sync(root, *places, **options):
    return run_sync(request(root, *places, **options), lambda _line: None)


def everything(root):
    """Each file, link and directory below a root: its bytes, where it leads, or nothing."""
    found = {}
    for directory, directories, names in os.walk(root):
        for name in [*directories, *names]:
            path = Path(directory, name)
            found[str(path)] = (
                path.readlink()
                if path.is_symlink()
                else path.read_bytes()
                if path.is_file()
                else None
            )
    return found


def refused(root, match, run=None):
    """The run ends with exit 6 and that message, and changes nothing below the root."""
    before = everything(root)
    with pytest.raises(Refused, match=match) as error:
        (run or (lambda: sync(root)))()
    assert error.value.exit_code == 6
    assert everything(root) == before


def with_a_bind_mount(root, directory, place, command):
    """Run cpreplicate in a mount namespace of its own, as root or as root of a user namespace."""
    script = f"mount --bind {directory} {place} && exec cpreplicate {command}"
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    words = ["unshare", "--mount", "--map-root-user", "sh", "-c", script]
    return subprocess.run(
        words, cwd=root, env=environment, capture_output=True, text=True, check=False
    )


def equals_its_source(root, files, replica="dcB", source="dcA"):
    """The newest checkpoint of the replica references just these files, with the bytes of the
    source.
    """
    found = verify(f"file:{root}/{replica}/{JOB}", None, ALL, lambda _line: None, Side())
    assert found.restorable
    for path in files:
        assert (root / replica / JOB / path).read_bytes() == (
            root / source / JOB / path
        ).read_bytes(), path
    assert checker.faults(root / replica / JOB) == []


@pytest.fixture
def job(tmp_path):
    """A job in data centre A with one checkpoint."""
    write_checkpoint(tmp_path / "dcA", 1, FILES)
    return tmp_path


class TestWhereFlinkKeepsAJobItself:
    """TARGET_ROOT is Flink's checkpoint directory, and a job there has the same id."""

    @pytest.mark.parametrize("number", [1, 9])
    def test_a_sync_is_refused(self, job, number):
        write_checkpoint(job / "dcB", number, {"shared/of-b": 5})
        refused(job, "is not empty and is not a replica")

    def test_so_is_a_sync_where_a_job_has_not_completed_a_checkpoint_yet(self, job):
        (job / "dcB" / JOB / "chk-1").mkdir(parents=True)
        refused(job, "is not empty and is not a replica")

    def test_so_is_fail_back_into_the_original_directory(self, job):
        sync(job)
        write_checkpoint(job / "dcB", 2, {"shared/a": 100, "shared/of-b": 5})
        refused(job, f"{job}/dcA/{JOB} is not empty", lambda: sync(job, "dcB", "dcA"))

    def test_so_is_a_sync_with_source_and_target_swapped(self, job):
        sync(job)
        refused(job, f"{job}/dcA/{JOB} is not empty", lambda: sync(job, "dcB", "dcA"))

    def test_so_is_a_sync_into_a_replica_in_which_a_job_writes_now(self, job):
        sync(job)
        write_checkpoint(job / "dcB", 7, {"shared/of-b": 5})
        write_checkpoint(job / "dcA", 2, NEXT)
        refused(job, "chk-7/_metadata was not written by cpreplicate")

    def test_so_is_a_sync_after_a_job_replaced_a_checkpoint_of_the_replica(self, job):
        sync(job)
        write_checkpoint(job / "dcB", 1, {"shared/of-b": 5})
        write_checkpoint(job / "dcA", 2, NEXT)
        refused(job, "chk-1/_metadata was not written by cpreplicate")

    def test_a_dry_run_shows_the_plan_and_warns_that_sync_would_be_refused(self, job):
        write_checkpoint(job / "dcB", 9, {"shared/of-b": 5})
        before = everything(job)
        report = diff(request(job))
        assert len(report.plan.copies) == len(FILES)
        assert report.plan.deletes == ()
        assert "sync would be refused" in report.warnings[0]
        assert "is not empty and is not a replica" in str(report.refusal)
        assert everything(job) == before

    @pytest.mark.parametrize("upkeep", ["sweep", "relocate", "promote"])
    def test_upkeep_of_a_directory_of_flinks_is_refused(self, job, upkeep):
        aged(job / "dcA")
        refused(job, "is not a replica of cpreplicate", lambda: maintain(upkeep, job / "dcA" / JOB))

    @pytest.mark.parametrize("upkeep", ["sweep", "relocate", "promote"])
    def test_upkeep_of_a_replica_in_which_a_job_writes_is_refused(self, job, upkeep):
        sync(job)
        write_checkpoint(job / "dcB", 7, {"shared/of-b": 5})
        refused(
            job,
            "chk-7/_metadata was not written by cpreplicate",
            lambda: maintain(upkeep, job / "dcB" / JOB),
        )

    @pytest.mark.parametrize("upkeep", ["sweep", "relocate"])
    def test_upkeep_of_a_replica_into_which_a_job_uploads_is_refused(self, job, upkeep):
        sync(job)
        (job / "dcB" / JOB / "shared" / "upload").write_text("in flight")
        before = paths(job / "dcB" / JOB)
        with pytest.raises(Refused, match="1 file that cpreplicate did not write"):
            maintain(upkeep, job / "dcB" / JOB)
        assert paths(job / "dcB" / JOB) == before


def maintain(upkeep, replica):
    silent = lambda _line: None  # noqa: E731  # prints nothing
    if upkeep == "sweep":
        return sweep.sweep(
            SweepRequest(
                f"file:{replica}", min_age=-1, execution=ExecutionOptions(runner="inline")
            ),
            silent,
        )
    if upkeep == "relocate":
        return relocate.relocate(RelocateRequest(f"file:{replica}", "absolute"), silent)
    return promote.promote(PromoteRequest(f"file:{replica}"), silent)


class TestOneDirectoryUnderTwoNames:
    def test_a_link_to_the_target_root_is_noticed(self, job):
        (job / "alias").symlink_to(job / "dcA")
        refused(job, "would be in its own source", lambda: sync(job, "dcA", "alias"))

    def test_a_link_to_the_jobs_directory_is_noticed(self, job):
        (job / "dcB").mkdir()
        (job / "dcB" / JOB).symlink_to(job / "dcA" / JOB)
        refused(job, "would be in its own source")

    def test_a_replica_nested_in_its_source_by_a_link_is_noticed(self, job):
        (job / "alias").symlink_to(job / "dcA" / JOB / "shared")
        refused(job, "would be in its own source", lambda: sync(job, "dcA", "alias"))

    def test_a_source_nested_in_the_replica_by_a_link_is_noticed(self, job):
        sync(job)
        inner = job / "dcB" / JOB / "kept" / JOB
        shutil.copytree(job / "dcA" / JOB, inner)
        (job / "alias").symlink_to(inner.parent)
        refused(job, "would be in its own source", lambda: sync(job, "alias", "dcB"))

    def test_a_file_of_the_source_with_the_name_of_the_target_root_is_no_replica(self, job):
        (target,) = [path.name for path in (job / "dcA" / JOB / "shared").iterdir()][:1]
        assert sync(job, "dcA", target).committed

    @pytest.mark.slow  # a process each
    @pytest.mark.parametrize(
        "inner", ["dcA", f"dcA/{JOB}", f"dcA/{JOB}/shared", f"dcA/{JOB}/chk-1"]
    )
    def test_a_bind_mount_is_noticed(self, job, inner):
        (job / "bound").mkdir()
        before = everything(job)
        done = with_a_bind_mount(job, inner, "bound", f"sync dcA/{JOB} bound --runner inline")
        assert done.returncode == 6, done.stderr
        assert "its own source" in done.stderr
        assert everything(job) == before

    def test_a_replica_and_its_copy_are_not_synced_into_each_other(self, job):
        sync(job)
        shutil.copytree(job / "dcB", job / "dcC")
        refused(job, "have the same replica id", lambda: sync(job, "dcB", "dcC", same_source=True))


class TestASecondSource:
    def test_of_another_cluster_with_the_same_id_leaves_the_replica_of_the_first_alone(self, job):
        first = sync(job).plan.replica
        before = everything(Path(first.removeprefix("file:")))
        write_checkpoint(job / "dcC", 5, {"shared/of-c": 5})
        second = sync(job, "dcC", "dcB").plan.replica
        assert second.startswith(f"{first}-")
        assert everything(Path(first.removeprefix("file:"))) == before

    def test_of_two_savepoints_with_one_name_both_have_replicas(self, tmp_path):
        for root in ("one", "two"):
            checkpoint = write_checkpoint(tmp_path / root, 3, {"shared/a": 5})
            (tmp_path / root / "savepoint-1").mkdir()
            shutil.copy(checkpoint / "_metadata", tmp_path / root / "savepoint-1")
        made = [sync(tmp_path, root, "dcB", "savepoint-1").plan.replica for root in ("one", "two")]
        assert made[0] == f"file:{tmp_path}/dcB/savepoint-1"
        assert made[1].startswith(f"{made[0]}-")

    def test_whose_uri_leads_elsewhere_by_now_is_refused_and_both_are_named(self, job):
        (job / "link").symlink_to(job / "dcA")
        sync(job, "link")
        write_checkpoint(job / "dcC", 5, {"shared/of-c": 5})
        (job / "link").unlink()
        (job / "link").symlink_to(job / "dcC")
        refused(
            job,
            f"is a replica of .*dcA/{JOB}.* not of .*dcC/{JOB}.*--same-source",
            lambda: sync(job, "link", "dcB"),
        )

    def test_is_accepted_as_another_name_of_the_first(self, job):
        sync(job)
        (job / "dcA").rename(job / "moved")
        made = sync(job, "moved", "dcB", remaps=())
        assert f"remove {made.plan.replica}, and sync with --same-source" in made.warnings[0]
        shutil.rmtree(made.plan.replica.removeprefix("file:"))
        for number in (2, 3):
            write_checkpoint(job / "moved", number, NEXT)
            sync(job, "moved", "dcB", same_source=number == 2)
        equals_its_source(job, NEXT, source="moved")


class TestLinksInAReplica:
    @pytest.mark.parametrize(
        "name", [".cpreplicate", "shared", "taskowned", "foreign", "packed", "chk-1", "chk-99"]
    )
    @pytest.mark.parametrize("leads", ["to the source", "elsewhere", "nowhere"])
    def test_a_directory_that_is_a_link_is_refused(self, job, name, leads):
        sync(job)
        place = job / "dcB" / JOB / name
        if place.exists():
            shutil.rmtree(place)
        to = {
            "to the source": job / "dcA" / JOB / "shared",
            "elsewhere": job / "elsewhere",
            "nowhere": job / "none",
        }[leads]
        (job / "elsewhere").mkdir()
        place.symlink_to(to)
        write_checkpoint(job / "dcA", 2, NEXT)
        refused(job, f"{name} is a symbolic link")

    @pytest.mark.parametrize(
        "command",
        [
            f"sync dcA/{JOB} dcB --runner inline",
            f"sync dcA/{JOB} dcB --dry-run",
            f"sweep dcB/{JOB} --min-age 0s",
            f"relocate dcB/{JOB} --paths absolute",
            f"verify dcB/{JOB}",
            f"promote dcB/{JOB}",
        ],
    )
    @pytest.mark.slow  # a process each
    @pytest.mark.parametrize("name", ["shared", "shared/inner"])
    def test_a_mount_is_refused_since_its_files_may_be_those_of_the_source(
        self, tmp_path, command, name
    ):
        write_checkpoint(tmp_path / "dcA", 1, {"shared/a": 5, "shared/inner/b": 5})
        sync(tmp_path)
        write_checkpoint(tmp_path / "dcA", 2, NEXT)
        before = everything(tmp_path)
        place = f"dcB/{JOB}/{name}"
        done = with_a_bind_mount(tmp_path, f"dcA/{JOB}/{name}", place, command)
        assert done.returncode == 6, done.stderr
        assert f"{place} is a symbolic link or a mount" in done.stderr
        assert everything(tmp_path) == before

    def test_a_file_that_is_a_link_counts_as_absent_and_is_replaced(self, job):
        sync(job)
        linked = job / "dcB" / JOB / "shared" / "e"
        linked.unlink()
        linked.symlink_to(job / "dcA" / JOB / "shared" / "e")
        before = (job / "dcA" / JOB / "shared" / "e").read_bytes()
        plan = sync(job).plan
        assert [(each.target, each.reason) for each in plan.copies] == [
            ("shared/e", "missing in the replica")
        ]
        assert not linked.is_symlink()
        assert (job / "dcA" / JOB / "shared" / "e").read_bytes() == before
        equals_its_source(job, FILES)


class TestAnAdoptedDirectory:
    """What was in it before is never changed, and kept where it equals the source's."""

    def test_keeps_what_is_equal_and_never_deletes_it(self, job):
        write_checkpoint(job / "dcB", 50, {**SHARED, "shared/of-b": 5})
        before = everything(job / "dcB")
        report = sync(job, adopt=True)
        assert {each.target for each in report.plan.copies} == {"chk-1/x"}
        write_checkpoint(job / "dcA", 2, NEXT)
        report = sync(job)
        assert {each.target for each in report.plan.deletes} == {"chk-1/x"}
        assert before.items() <= everything(job / "dcB").items()
        equals_its_source(job, NEXT)
        assert sync(job).plan.empty

    @pytest.mark.parametrize("text", [b"", b"other", pattern("shared/b", 200), b"\0" * 100])
    def test_is_refused_if_a_file_differs(self, job, text):
        write_checkpoint(job / "dcB", 50, {"shared/of-b": 5})
        (job / "dcB" / JOB / "shared" / "a").write_bytes(text)
        before = everything(job / "dcB" / JOB / "shared")
        with pytest.raises(
            Refused, match=r"1 file of .* was not written by cpreplicate and differs"
        ):
            sync(job, adopt=True)
        assert everything(job / "dcB" / JOB / "shared") == before

    def test_gets_a_copy_of_what_its_job_deletes_while_it_is_compared(self, job):
        write_checkpoint(job / "dcB", 50, {"shared/a": 100})
        compared = job / "dcB" / JOB / "shared" / "a"

        def delete_before(verb, uri):
            if verb == "open" and uri == f"file:{compared}":
                compared.unlink(missing_ok=True)

        with serving("file", Faulty(Side().storage("file:/"), delete_before)):
            report = sync(job, adopt=True)
        assert "shared/a" in {action.target for action in report.plan.copies}
        equals_its_source(job, FILES)

    def test_is_refused_once_a_job_writes_there_again(self, job):
        write_checkpoint(job / "dcB", 50, {"shared/of-b": 5})
        sync(job, adopt=True)
        write_checkpoint(job / "dcB", 51, {"shared/of-b": 5, "shared/more": 5})
        write_checkpoint(job / "dcA", 2, NEXT)
        refused(job, "chk-51/_metadata was not written by cpreplicate")

    def test_has_no_checkpoint_replaced(self, job):
        write_checkpoint(job / "dcB", 1, {"shared/of-b": 5})
        refused(job, "another program's and would be replaced", lambda: sync(job, adopt=True))

    def test_is_swept_of_nothing_but_what_cpreplicate_wrote(self, job):
        write_checkpoint(job / "dcB", 50, {"shared/of-b": 5})
        aged(job / "dcB")
        before = everything(job / "dcB")
        sync(job, adopt=True)
        write_checkpoint(job / "dcA", 2, NEXT)
        report = sync(job, async_deletes=True)
        assert report.undeleted
        removed = {
            each.target
            for each in maintain("sweep", job / "dcB" / JOB).deletes
            if ".cpreplicate" not in each.target
        }
        assert removed == set(report.undeleted)
        assert before.items() <= everything(job / "dcB").items()


class TestUnsealing:
    @pytest.fixture
    def promoted(self, job):
        sync(job)
        maintain("promote", job / "dcB" / JOB)
        return job

    def unseal(self, root, of_job=None):
        place = None if of_job is None else f"file:{root}/{of_job}"
        return unseal.unseal(UnsealRequest(f"file:{root}/dcB/{JOB}", place))

    def test_is_refused_while_a_checkpoint_of_the_job_references_the_replica(self, promoted):
        claimed = write_checkpoint(promoted / "flink", 2, {"shared/new": 5})
        state = Incremental(
            11,
            2,
            "b",
            (0, 128),
            1,
            None,
            (("0.sst", File(f"file:{promoted}/dcB/{JOB}/shared/a", 100)),),
            (),
        )
        tree = Tree(6, (OperatorEntry(bytes(16), 1, 128, (Subtask(0, keyed=state),)),), 2)
        (claimed / "_metadata").write_bytes(encode(tree).data)
        refused(promoted, "references 1 file ", lambda: self.unseal(promoted, f"flink/{JOB}"))

    def test_is_refused_under_another_name_of_the_replica_too(self, promoted):
        (promoted / "alias").symlink_to(promoted / "dcB")
        claimed = write_checkpoint(promoted / "flink", 2, {"shared/new": 5})
        state = Incremental(
            11,
            2,
            "b",
            (0, 128),
            1,
            None,
            (("0.sst", File(f"file:{promoted}/alias/{JOB}/shared/a", 100)),),
            (),
        )
        tree = Tree(6, (OperatorEntry(bytes(16), 1, 128, (Subtask(0, keyed=state),)),), 2)
        (claimed / "_metadata").write_bytes(encode(tree).data)
        refused(promoted, "references 1 file ", lambda: self.unseal(promoted, f"flink/{JOB}"))

    def test_is_refused_before_the_job_has_completed_a_checkpoint(self, promoted):
        (promoted / "flink" / OTHER_JOB).mkdir(parents=True)
        refused(
            promoted,
            "no checkpoint that was completed since",
            lambda: self.unseal(promoted, f"flink/{OTHER_JOB}"),
        )

    def test_removes_the_seal_once_the_job_has_a_checkpoint_of_its_own(self, promoted):
        write_checkpoint(promoted / "flink", 2, {"shared/new": 5})
        assert "for chk-1" in self.unseal(promoted, f"flink/{JOB}").sealed
        assert seal.describe(Replica(f"file:{promoted}/dcB/{JOB}", Side())) is None
        with pytest.raises(NotThere, match="not sealed"):
            self.unseal(promoted)

    @pytest.mark.parametrize("days", [0, 2])
    def test_is_refused_where_a_file_lies_that_cpreplicate_did_not_write(self, promoted, days):
        upload = promoted / "dcB" / JOB / "shared" / "upload"
        upload.write_text("of a job")
        aged(upload, days)
        refused(promoted, "1 file that cpreplicate did not write", lambda: self.unseal(promoted))

    def test_is_refused_where_a_job_completed_a_checkpoint_in_the_replica(self, promoted):
        write_checkpoint(promoted / "dcB", 7, {"shared/of-b": 5})
        refused(promoted, "chk-7/_metadata was not written", lambda: self.unseal(promoted))


DAMAGES = {
    "empty": lambda data: data[:0],
    "truncated": lambda data: data[:-1],
    "extended": lambda data: data + b"more",
    "zero-filled": lambda data: bytes(len(data)),
    "of equal length": lambda data: bytes([data[0] ^ 1]) + data[1:],
}


class TestWhatIsKept:
    """A committed replica equals its source byte for byte, whatever lay at the target before."""

    @pytest.mark.parametrize("kind", DAMAGES)
    def test_what_another_tool_copied_is_neither_made_official_nor_overwritten(self, job, kind):
        sync(job)
        write_checkpoint(job / "dcA", 2, NEXT)
        for name in ("shared/y", "chk-2/x"):
            place = job / "dcB" / JOB / name
            place.parent.mkdir(exist_ok=True)
            place.write_bytes(DAMAGES[kind](pattern(name, NEXT[name])))
        refused(job, r"2 files of .* were not written by cpreplicate and differ")
        equals_its_source(job, FILES)

    @pytest.mark.parametrize("kind", ["empty", "truncated", "extended"])
    def test_damage_of_another_length_is_repaired(self, job, kind):
        sync(job)
        place = job / "dcB" / JOB / "shared" / "e"
        place.write_bytes(DAMAGES[kind](place.read_bytes()))
        assert not verify(f"file:{job}/dcB/{JOB}", None, ALL, lambda _line: None, Side()).restorable
        report = sync(job)
        assert [each.target for each in report.plan.copies] == ["shared/e"]
        equals_its_source(job, FILES)

    def test_damage_to_a_changelog_file_whose_extent_is_0_is_repaired(self, job):
        files = {"dstl/log": 0}
        write_checkpoint(job / "dcA", 3, files)
        (job / "dcA" / JOB / "dstl" / "log").write_bytes(
            b"a changelog is longer than its handle records"
        )
        sync(job)
        copy = next((job / "dcB" / JOB / "foreign").iterdir())
        for damaged in (b"", b"a changelog"):
            copy.write_bytes(damaged)
            sync(job)
            assert copy.read_bytes() == b"a changelog is longer than its handle records"

    @pytest.mark.parametrize("kind", ["zero-filled", "of equal length"])
    def test_damage_of_equal_length_is_never_made_official_and_repaired_by_check_content(
        self, job, kind
    ):
        sync(job)
        place = job / "dcB" / JOB / "shared" / "e"
        place.write_bytes(DAMAGES[kind](place.read_bytes()))
        write_checkpoint(job / "dcA", 2, NEXT)
        sync(job)
        found = verify(f"file:{job}/dcB/{JOB}", None, ALL, lambda _line: None, Side())
        assert found.corrupt == ("shared/e",)
        report = sync(job, check_content=True)
        assert [(each.target, each.reason) for each in report.plan.copies] == [
            ("shared/e", "damaged: its content is not the recorded one")
        ]
        equals_its_source(job, NEXT)
        assert sync(job, check_content=True).plan.copies == ()

    def test_a_torn_metadata_is_found_by_verify(self, job):
        sync(job)
        place = job / "dcB" / JOB / "chk-1" / "_metadata"
        place.write_bytes(place.read_bytes()[:-1])
        found = verify(f"file:{job}/dcB/{JOB}", None, ALL, lambda _line: None, Side())
        assert found.corrupt == ("chk-1/_metadata",)
        assert not found.restorable


class TestTheNewestCheckpoint:
    """A job that is started from scratch under the same id counts from 1 again."""

    @pytest.fixture
    def restarted(self, job):
        """The replica holds chk-8; the job has completed chk-2 since."""
        shutil.rmtree(job / "dcA" / JOB / "chk-1")
        write_checkpoint(job / "dcA", 8, SHARED)
        sync(job)
        aged(job / "dcA" / JOB / "chk-8", days=1)
        write_checkpoint(job / "dcA", 2, NEXT)
        return job

    def test_is_ambiguous_if_a_lower_number_was_completed_later(self, restarted):
        refused(restarted, "chk-2 was completed after chk-8.*--allow-older")

    def test_of_a_directory_that_was_copied_is_the_one_that_the_message_names(self, restarted):
        with pytest.raises(Refused) as error:
            sync(restarted)
        (place,) = re.findall("copied, .*, name (\\S+) as SOURCE", str(error.value))
        named = replace(request(restarted), source=place)
        run_sync(named, lambda _line: None)
        assert [each.name for each in (restarted / "dcB" / JOB).glob("chk-*")] == ["chk-8"]

    def test_is_the_one_completed_last_if_allowed(self, restarted):
        report = sync(restarted, allow_older=True)
        assert report.committed
        assert report.plan.dropped == ("chk-8",)
        assert [each.name for each in (restarted / "dcB" / JOB).glob("chk-*")] == ["chk-2"]
        equals_its_source(restarted, NEXT)
        assert sync(restarted, allow_older=True).plan.empty

    def test_follows_the_new_run_from_there(self, restarted):
        sync(restarted, allow_older=True)
        write_checkpoint(restarted / "dcA", 3, SHARED)
        shutil.rmtree(restarted / "dcA" / JOB / "chk-8")
        assert sync(restarted).plan.checkpoint == "chk-3"

    def test_does_not_go_back_unasked_where_the_former_run_left_nothing(self, restarted):
        shutil.rmtree(restarted / "dcA" / JOB / "chk-8")
        refused(restarted, "holds chk-8, newer than .*--allow-older")

    @pytest.mark.parametrize("keep", [1, 3])
    def test_of_the_former_run_none_with_a_higher_number_is_kept(self, restarted, keep):
        report = sync(restarted, allow_older=True, keep=keep)
        assert report.plan.dropped == ("chk-8",)

    @pytest.fixture
    def gone(self, job):
        """The replica holds chk-8, which the job has no more: only chk-1, of the same run."""
        write_checkpoint(job / "dcA", 8, SHARED)
        sync(job)
        shutil.rmtree(job / "dcA" / JOB / "chk-8")
        return job

    def test_is_no_earlier_one_of_the_same_run_also_with_allow_older(self, gone):
        for allowed in (False, True):
            with pytest.raises(NotNewer, match="also with --allow-older"):
                sync(gone, allow_older=allowed)

    def test_is_an_earlier_one_that_the_operator_names_with_allow_older(self, gone):
        named = SyncRequest(
            f"file:{gone}/dcA/{JOB}/chk-1",
            f"file:{gone}/dcB",
            allow_older=True,
            execution=ExecutionOptions(runner="inline"),
        )
        assert run_sync(named, lambda _line: None).plan.dropped == ("chk-8",)

    def test_is_what_allow_older_follows_where_no_time_is_recorded(self, gone):
        record = gone / "dcB" / JOB / ".cpreplicate" / "chk-8.json"
        fields = json.loads(record.read_text())
        del fields["completed"]
        record.write_text(json.dumps(fields))
        assert sync(gone, allow_older=True).plan.dropped == ("chk-8",)

    def test_that_is_named_is_not_ambiguous(self, restarted):
        named = SyncRequest(
            f"file:{restarted}/dcA/{JOB}/chk-8",
            f"file:{restarted}/dcB",
            execution=ExecutionOptions(runner="inline"),
        )
        assert run_sync(named, lambda _line: None).plan.empty


@pytest.mark.parametrize("where", ["", "shared/", "chk-1/", ".cpreplicate/"])
def test_a_directory_named_like_a_temporary_file_is_left_alone(job, where):
    sync(job)
    strange = job / "dcB" / JOB / f"{where}.cpreplicate-tmp-0123"
    strange.mkdir()
    (strange / "inner").write_text("of somebody")
    write_checkpoint(job / "dcA", 2, NEXT)
    assert sync(job).committed
    aged(job / "dcB")
    maintain("sweep", job / "dcB" / JOB)
    maintain("relocate", job / "dcB" / JOB)
    assert (strange / "inner").read_text() == "of somebody"
    equals_its_source(job, NEXT)


def test_the_next_sync_removes_the_temporary_files_where_it_writes(job):
    sync(job)
    replica = job / "dcB" / JOB
    left = [
        replica / f"{where}/.cpreplicate-tmp-0123" for where in ("shared", "chk-1", ".cpreplicate")
    ]
    for file in left:
        file.write_text("half")
        aged(file)
    young = (
        replica / ".cpreplicate" / ".cpreplicate-tmp-4567"
    )  # perhaps of `verify --record`, at this moment
    young.write_text("half")
    write_checkpoint(job / "dcA", 2, NEXT)
    assert sync(job).committed
    assert not any(file.exists() for file in left)
    assert young.exists()
    equals_its_source(job, NEXT)


def test_a_marker_of_another_version_is_refused(job):
    sync(job)
    marker = job / "dcB" / JOB / ".cpreplicate" / "replica.json"
    marker.write_text(marker.read_text().replace('"format": 1', '"format": 2'))
    refused(job, "of another version of cpreplicate")


@pytest.mark.parametrize("name", ["before-relocate", "trash", "chk-1.parquet", "replica.json"])
def test_a_link_in_cpreplicates_own_directory_is_refused(job, name):
    """What is kept or moved there would be written to where it leads."""
    sync(job)
    (job / "other").mkdir()
    (job / "other" / "chk-1").write_text("precious")
    place = job / "dcB" / JOB / ".cpreplicate" / name
    place.unlink(missing_ok=True)
    place.symlink_to(job / "other")
    aged(job / "dcB")
    for upkeep in ("promote", "relocate", "sweep"):
        refused(
            job,
            f".cpreplicate/{name} is a symbolic link",
            lambda upkeep=upkeep: maintain(upkeep, job / "dcB" / JOB),
        )
    refused(job, f".cpreplicate/{name} is a symbolic link")


@pytest.mark.parametrize(
    "text", ["", "x", '{"sequence": 1e999, "digests": [], "adopted": false}', None]
)
def test_a_manifest_replaces_a_record_that_is_damaged_or_lost(job, text):
    sync(job)
    record = job / "dcB" / JOB / ".cpreplicate" / "chk-1.json"
    record.unlink() if text is None else record.write_text(text)
    assert maintain("promote", job / "dcB" / JOB).starting is not None


@pytest.mark.parametrize("offset", [4, 200, 600, -20])
@pytest.mark.parametrize("name", ["chk-1.parquet", "copied-00000000000001-a-000000.parquet"])
def test_a_manifest_or_journal_with_a_flipped_bit_counts_for_nothing(job, name, offset):
    sync(job)
    own = job / "dcB" / JOB / ".cpreplicate"
    if name != "chk-1.parquet":
        shutil.copy(own / "chk-1.parquet", own / name)
    data = bytearray((own / name).read_bytes())
    data[offset] ^= 4
    (own / name).write_bytes(data)
    write_checkpoint(job / "dcA", 2, NEXT)
    sync(job)
    equals_its_source(job, NEXT)
    assert maintain("promote", job / "dcB" / JOB).starting is not None


@pytest.mark.parametrize("inner", ["", "/shared", "/chk-1", "/shared/deeper"])
def test_a_target_root_in_a_replica_is_a_usage_error(job, inner):
    sync(job)
    with pytest.raises(UsageError, match="is a replica, or in one"):
        sync(job, "dcA", f"dcB/{JOB}{inner}")


@pytest.mark.parametrize("where", [".cpreplicate", "shared", "chk-5/_metadata"])
def test_a_file_where_a_directory_belongs_or_the_other_way_round_is_refused(job, where):
    sync(job)
    place = job / "dcB" / JOB / where
    if place.exists():
        shutil.rmtree(place)
    if where.endswith("_metadata"):
        place.mkdir(parents=True)
    else:
        place.write_text("a file")
    write_checkpoint(job / "dcA", 2, NEXT)
    with pytest.raises(CpreplicateError) as error:
        sync(job)
    assert error.value.exit_code in (3, 6)


@pytest.mark.parametrize("upkeep", ["sweep", "relocate", "promote"])
def test_upkeep_of_a_replica_that_cannot_be_reached_raises_transient(job, upkeep):
    sync(job)

    def fault(verb, _uri):
        return Transient(errno.EIO, "the connection was lost") if verb == "list" else None

    lost = Faulty(Side().storage("file:/"), fault)
    with serving("file", lost), pytest.raises(Transient) as error:
        maintain(upkeep, job / "dcB" / JOB)
    assert exit_code_of(error.value) == 7


def test_the_directory_of_the_job_must_be_there_to_unseal(job):
    sync(job)
    maintain("promote", job / "dcB" / JOB)
    with pytest.raises(NotThere, match="nowhere is not there"):
        unseal.unseal(UnsealRequest(f"file:{job}/dcB/{JOB}", f"file:{job}/nowhere"))


def test_a_promoted_checkpoint_whose_record_was_lost_stays_the_newest(job):
    write_checkpoint(job / "dcA", 2, NEXT)
    for number in (1, 2):
        named = SyncRequest(
            f"file:{job}/dcA/{JOB}/chk-{number}",
            f"file:{job}/dcB",
            keep=2,
            paths="relative",
            execution=ExecutionOptions(runner="inline"),
        )
        run_sync(named, lambda _line: None)
    (job / "dcB" / JOB / ".cpreplicate" / "chk-2.json").unlink()
    assert maintain("promote", job / "dcB" / JOB).checkpoint == "chk-2"
    assert verify(f"file:{job}/dcB/{JOB}", None, ALL, lambda _line: None, Side()).checkpoint_id == 2


def test_an_unknown_checkpoint_in_an_adopted_replica_may_be_adopted_in_another_it_must_go(job):
    write_checkpoint(job / "dcB", 90, FILES)
    sync(job, adopt=True)
    write_checkpoint(job / "dcB", 91, NEXT)
    refused(job, "Accept the checkpoint with `sync --adopt`: it is then never changed")


def test_an_unknown_checkpoint_in_a_replica_that_was_not_adopted_loses_its_files_if_it_goes(job):
    sync(job)
    write_checkpoint(job / "dcB", 91, NEXT)
    refused(
        job,
        "Move chk-91 out of the replica only if you no longer need it: the next sync deletes the"
        " files that it references",
    )
