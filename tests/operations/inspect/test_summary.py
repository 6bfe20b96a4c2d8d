"""`inspect`: operators, kinds of state, skew, jobs it depends on, and packed files as files."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from cpreplicate.cli.commands.replication import cli
from cpreplicate.core.packs import PackOptions
from cpreplicate.operations.inspect import PackSummary, inspect
from cpreplicate.operations.inspect.depending import Dependency
from cpreplicate.operations.inspect.earlier import Increment
from cpreplicate.operations.inspect.summary import Skew
from cpreplicate.operations.sync import sync
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.runners import ExecutionOptions
from cpreplicate.storage import Side
from cpreplicate.storage.wrappers.base import StorageWrapper
from tests.support.commandline import printed
from tests.support.corpus import DataCentre
from tests.support.encoder import (
    Changelog,
    ChangelogFiles,
    File,
    Inline,
    InMemoryChanges,
    KeyGroups,
    OperatorEntry,
    PlainChannel,
    RelativeFile,
    Subtask,
    Tree,
    encode,
)
from tests.support.jobs import JOB, NEXT_JOB, put_restored, write_checkpoint
from tests.support.registry import serving
from tests.support.replicas import FILES, NEXT, synced

PACKED = PackOptions("on", 700)
IN_PACKS = {name: size for name, size in FILES.items() if size < 700}


@pytest.fixture
def replica(tmp_path: Path) -> Path:
    return synced(tmp_path, {1: FILES}, packing=PACKED)


def test_a_packed_replica_has_the_files_and_bytes_of_its_source(replica, tmp_path):
    of_source = inspect(f"file:{tmp_path}/dcA/{replica.name}", Side(), ())
    of_replica = inspect(f"file:{replica}/chk-1", Side(), ())
    assert of_source.files == of_replica.files == len(FILES)
    assert of_source.bytes == of_replica.bytes == sum(FILES.values())
    assert of_source.operators == of_replica.operators
    assert of_source.packed is None
    whole = sum(IN_PACKS.values())
    assert of_replica.packed == PackSummary(len(IN_PACKS), 1, whole, 0)


def test_bytes_that_the_checkpoint_does_not_need_are_dead(tmp_path):
    replica = synced(tmp_path, {1: FILES, 2: NEXT}, packing=PACKED)
    kept = {name: size for name, size in NEXT.items() if size < 700}
    live = sum(kept.values())
    dead = sum(size for name, size in IN_PACKS.items() if name not in kept)
    result = inspect(f"file:{replica}/chk-2", Side(), ())
    assert result.packed == PackSummary(len(kept), 2, live, dead)
    assert dead > 0


def test_text_and_json_show_the_packs(replica):
    shown = CliRunner().invoke(cli, ["inspect", str(replica)]).stdout
    assert "packed      7 files in 1 pack; 2.1 KiB live, 0 B dead" in shown
    printed = CliRunner().invoke(cli, ["inspect", "--output", "json", str(replica)]).stdout
    packed = json.loads(printed)["packed"]
    assert packed == {"files": 7, "packs": 1, "live_bytes": 2130, "dead_bytes": 0}


class Counting(StorageWrapper):
    """Counts the listings of each directory."""

    listed: tuple[str, ...] = ()

    def list(self, uri):
        self.listed += (uri,)
        return super().list(uri)


def test_packed_is_listed_once_and_only_if_there_are_packs(replica, tmp_path):
    storage = Counting(Side().storage("file:/"))
    with serving("file", storage):
        inspect(f"file:{replica}/chk-1", Side(), ())
        inspect(f"file:{tmp_path}/dcA/{replica.name}/chk-1", Side(), ())
    assert [uri for uri in storage.listed if uri.endswith("/packed")] == [f"file:{replica}/packed"]


def write(root: Path, number: int, operators: Sequence[OperatorEntry]) -> str:
    """A checkpoint of these operators, whose files need not exist."""
    directory = root / JOB / f"chk-{number}"
    directory.mkdir(parents=True)
    data = bytes(encode(Tree(6, tuple(operators), number)).data)
    (directory / "_metadata").write_bytes(data)
    return f"file:{directory}"


def operator_of(sizes: Sequence[int], coordinator: int = 0, name: str = "op") -> OperatorEntry:
    """An operator whose subtasks have keyed state of these sizes, 0 for none."""
    subtasks = tuple(
        Subtask(index, keyed=KeyGroups(12, 0, (0,), RelativeFile(f"{name}-{index}", size)))
        if size
        else Subtask(index)
        for index, size in enumerate(sizes)
    )
    state = Inline("c", bytes(coordinator)) if coordinator else None
    return OperatorEntry(name.encode().ljust(16), len(sizes), 128, subtasks, state, name, "u")


@pytest.mark.parametrize(
    ("sizes", "skew", "is_marked"),
    [
        ([100, 100, 100, 301], Skew(3, 301, 100), True),
        ([100, 100, 100, 300], Skew(3, 300, 100), False),
        ([10, 20, 30, 40], Skew(3, 40, 25), False),
        ([0, 0, 7], Skew(2, 7, 0), True),
        ([0, 0], None, False),
    ],
)
def test_the_largest_subtask_is_compared_with_the_median_and_marked_if_it_exceeds_three(
    tmp_path, sizes, skew, is_marked
):
    place = write(tmp_path, 1, [operator_of(sizes, coordinator=5000)])
    (operator,) = inspect(place, Side(), ()).operators
    assert operator.skew == skew  # the state of the coordinator is of no subtask
    assert operator.bytes == sum(sizes) + 5000
    shown = CliRunner().invoke(cli, ["inspect", place]).stdout
    assert ("! op: subtask" in shown) == is_marked
    fields = json.loads(CliRunner().invoke(cli, ["inspect", place, "--output", "json"]).stdout)
    assert fields["operators"][0]["is_skewed"] == is_marked


def channels_of(sizes: Sequence[int]) -> OperatorEntry:
    """An operator whose subtasks have channel state of these sizes, all in one file."""
    whole = RelativeFile("channels", sum(sizes) + 4)
    subtasks = tuple(
        Subtask(index, inputs=(PlainChannel((index, 0, 0), (4,), size, whole),))
        for index, size in enumerate(sizes)
    )
    return OperatorEntry(bytes(16), len(sizes), 128, subtasks, name="op")


def test_channels_have_the_bytes_that_they_record_and_not_those_of_the_file_that_they_share(
    tmp_path,
):
    place = write(tmp_path, 1, [channels_of([1000, 10, 10, 10])])
    found = inspect(place, Side(), ())
    (operator,) = found.operators
    assert (operator.bytes, operator.files, operator.kinds["channel"]) == (1030, 1, 1030)
    assert operator.skew == Skew(0, 1000, 10)
    assert (found.kinds["channel"], found.places["exclusive"], found.bytes) == (1030, 1030, 1034)


def test_a_changelog_file_counts_once_for_each_operator_and_subtask_and_once_in_all(tmp_path):
    file = File(f"file:{tmp_path}/dstl/a", 100)
    changes = ChangelogFiles(13, (0, 1), ((0, file), (50, file)))
    subtasks = tuple(Subtask(index, keyed=changes) for index in range(2))
    names = ("first", "second")
    operators = [OperatorEntry(each.encode().ljust(16), 2, 128, subtasks) for each in names]
    found = inspect(write(tmp_path, 1, operators), Side(), ())
    assert [each.bytes for each in found.operators] == [100, 100]
    assert [each.places["foreign"] for each in found.operators] == [100, 100]
    assert [each.skew for each in found.operators] == [Skew(0, 100, 100)] * 2
    assert (found.bytes, found.kinds["changelog"], found.places["foreign"]) == (100, 100, 100)


@pytest.mark.parametrize("folder", ["1.20.5-unaligned", "2.3.0-changelog", "2.3.0-filemerge"])
def test_kinds_and_places_divide_the_state_that_flink_wrote(tmp_path, folder):
    datacentre = DataCentre(folder, tmp_path)
    for number in datacentre.numbers(datacentre.jobs()[0]):
        place = f"file:{datacentre.job_root(datacentre.jobs()[0])}/chk-{number}"
        found = inspect(place, Side(), [datacentre.remap])
        whole = sum(found.kinds.values())
        assert whole == sum(found.places.values()) == sum(each.bytes for each in found.operators)
        assert found.places["inline"] == found.inline_bytes
        of_files = whole - found.inline_bytes
        # a file of channel state begins with four bytes that are of no channel
        assert of_files == found.bytes - (4 if found.kinds["channel"] else 0)


@pytest.mark.parametrize("folder", ["1.20.5-unaligned", "2.3.0-changelog"])
def test_a_packed_replica_has_the_state_of_its_source_by_operator_and_kind(tmp_path, folder):
    datacentre = DataCentre(folder, tmp_path)
    (job,) = datacentre.jobs()
    place = f"file:{datacentre.job_root(job)}/chk-{datacentre.numbers(job)[-1]}"
    request = SyncRequest(
        place,
        f"file:{tmp_path}/dcB",
        remaps=(datacentre.remap,),
        execution=ExecutionOptions(runner="inline"),
        packing=PackOptions("on", 1 << 20),
    )
    sync.sync(request, lambda _line: None)
    of_source = inspect(place, Side(), [datacentre.remap])
    of_replica = inspect(f"file:{tmp_path}/dcB/{job}", Side(), ())
    assert of_replica.packed.files == of_source.files
    whole = (of_replica.kinds, of_source.kinds)
    operators = zip(of_replica.operators, of_source.operators, strict=True)
    for ours, theirs in [whole, *((one.kinds, other.kinds) for one, other in operators)]:
        # a segment has the length of its file: a file of a changelog has a byte more than Flink's
        # handles record
        more = sum(of_source.foreign.values()) if theirs["changelog"] else 0
        assert ours == {**theirs, "changelog": theirs["changelog"] + more}


def test_a_subtask_that_has_state_while_most_have_none_is_marked_with_its_bytes(tmp_path):
    place = write(tmp_path, 1, [operator_of([0, 0, 7])])
    shown = CliRunner().invoke(cli, ["inspect", place]).stdout
    assert "! op: subtask 2 has 7 B, and most subtasks have none\n" in shown


def test_operators_are_shown_with_id_name_uid_and_both_parallelisms(tmp_path):
    place = write(tmp_path, 1, [operator_of([1], name="map")])
    lines = CliRunner().invoke(cli, ["inspect", place]).stdout.splitlines()
    head = next(line for line in lines if line.startswith("operator id"))
    row = lines[lines.index(head) + 1]
    assert head.split()[:6] == ["operator", "id", "name", "uid", "parallelism", "max"]
    assert row.split()[1:5] == ["map", "u", "1", "128"]
    assert len(row.split()[0]) == 32


def test_changelog_increments_in_memory_count_as_inline_changelog(tmp_path):
    keyed = Changelog(14, (0, 1), 1, (), (InMemoryChanges((0, 1), (0, 1), ((0, bytes(40)),)),))
    operator = OperatorEntry(bytes(16), 1, 128, (Subtask(0, keyed=keyed),))
    found = inspect(write(tmp_path, 1, [operator]), Side(), ())
    assert (found.kinds["changelog"], found.places["inline"], found.inline_bytes) == (40, 40, 40)


def test_the_jobs_whose_files_are_needed_are_named(tmp_path):
    root = f"file:{tmp_path}/dcA"
    write_checkpoint(tmp_path / "dcA", 1, {"shared/a": 100, "shared/b": 50})
    earlier = {"shared/a": 100, "shared/b": 50}
    place = put_restored(Side(), root, 2, {"shared/n": 7}, earlier)
    found = inspect(place, Side(), ())
    assert found.depends_on == (Dependency(f"{root}/{JOB}", (JOB,), 2, 150),)
    assert found.foreign == {f"{root}/{JOB}": 2}
    assert found.places == {"shared": 7, "exclusive": 0, "inline": 0, "foreign": 150}
    assert f"depends on  2 files, 150 B of {root}/{JOB}" in printed("inspect", place).stdout
    request = SyncRequest(
        place, f"file:{tmp_path}/dcB", execution=ExecutionOptions(runner="inline")
    )
    sync.sync(replace(request, name="orders"), lambda _line: None)
    replica = f"file:{tmp_path}/dcB/{NEXT_JOB}"
    (dependency,) = inspect(replica, Side(), ()).depends_on
    assert dependency == Dependency(f"{replica}/foreign", (JOB,), 2, 150, is_in_replica=True)
    assert inspect(replica, Side(), ()).foreign == {}


def test_files_of_a_chain_of_restores_are_counted_by_the_job_that_they_are_of(tmp_path):
    datacentre = DataCentre("2.3.0-chain-claim", tmp_path)
    jobs = datacentre.jobs()
    found = [
        inspect(f"file:{datacentre.job_root(job)}/chk-{number}", Side(), [datacentre.remap])
        for job in jobs
        for number in datacentre.numbers(job)
    ]
    chained = [each for each in found if each.depends_on]
    assert chained
    for each in chained:
        assert each.foreign == {one.directory: one.files for one in each.depends_on}
        assert {job for one in each.depends_on for job in one.jobs} <= set(jobs)
        assert each.places["foreign"] == sum(one.bytes for one in each.depends_on)


def test_the_changelog_of_the_job_itself_is_no_other_job(tmp_path):
    datacentre = DataCentre("2.3.0-changelog", tmp_path)
    (job,) = datacentre.jobs()
    place = f"file:{datacentre.job_root(job)}"
    (dependency,) = inspect(place, Side(), [datacentre.remap]).depends_on
    assert dependency.is_own
    assert dependency.jobs == (job,)


def test_the_oldest_file_is_shown_with_stat_and_files_that_are_missing_are_counted(tmp_path):
    write_checkpoint(tmp_path, 1, {"shared/a": 10, "shared/b": 10, "chk-1/c": 10})
    job = tmp_path / JOB
    os.utime(job / "shared" / "b", (1000, 1000))
    place = f"file:{job}/chk-1"
    assert inspect(place, Side(), ()).dating is None
    found = inspect(place, Side(), (), with_stat=True).dating
    assert (found.oldest, found.modified, found.missing) == (f"file:{job}/shared/b", 1000.0, 0)
    assert found.age == pytest.approx(time.time() - 1000, abs=3600)
    (job / "shared" / "b").unlink()
    assert inspect(place, Side(), (), with_stat=True).dating.missing == 1
    fields = printed("inspect", place, "--stat", "--output", "json").stdout
    assert json.loads(fields)["stat"]["oldest"] in {f"file:{job}/shared/a", f"file:{job}/chk-1/c"}


def test_the_increment_is_what_the_checkpoint_before_has_not(tmp_path):
    assert inspect(f"file:{write_checkpoint(tmp_path, 2, FILES)}", Side(), ()).increment is None
    files = {name: size for name, size in FILES.items() if name != "shared/a"}
    place = write_checkpoint(tmp_path, 3, {**files, "shared/y": 60, "chk-3/x": 40})
    assert inspect(f"file:{place}", Side(), ()).increment == Increment("chk-2", 2, 100)


@pytest.mark.parametrize("packing", [PackOptions(), PACKED])
def test_the_increment_of_a_replica_follows_from_a_manifest_that_is_kept(tmp_path, packing):
    replica = synced(tmp_path, {1: FILES, 2: NEXT}, packing=packing, keep=2)
    expected = Increment("chk-1", 2, 100)
    assert inspect(f"file:{replica}/chk-2", Side(), ()).increment == expected
    (replica / "chk-1" / "_metadata").unlink()
    assert inspect(f"file:{replica}/chk-2", Side(), ()).increment == expected
    (replica / ".cpreplicate" / "chk-1.parquet").write_bytes(b"damaged")
    assert inspect(f"file:{replica}/chk-2", Side(), ()).increment is None


def test_what_nobody_need_know_is_shown_if_details_are_asked_for(tmp_path):
    place = write_checkpoint(tmp_path, 1, FILES)
    assert "metadata v" not in printed("inspect", place).stdout
    assert "metadata v6" in printed("inspect", place, "-v").stdout


@pytest.mark.parametrize(
    "options",
    [
        ("--refs", "--positions"),
        ("--refs", "--stat"),
        ("dcA", "--refs"),
        ("dcA", "--stat"),
        ("--to", "a.parquet"),
        ("--refs", "--to", "a.csv"),
    ],
)
def test_options_that_exclude_each_other_are_a_mistake(tmp_path, options):
    assert printed("inspect", "dcA", *options, cwd=tmp_path).returncode == 2
