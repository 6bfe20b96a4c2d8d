"""A source that lacks files: which are named, which `--remap` is suggested, and what it costs to
find out.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from shutil import copytree

import pytest

from cpreplicate.core.uri import Remap
from cpreplicate.errors import Misplaced, Refused, SourceBroken, SourceMovedOn
from cpreplicate.operations.sync.diff import diff
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.operations.sync.sync import sync
from cpreplicate.runners import Copy, ExecutionOptions
from cpreplicate.runners.inline import InlineRunner
from cpreplicate.storage import Side, Sides
from tests.support.commandline import run
from tests.support.jobs import JOB, metadata, write_checkpoint
from tests.support.registry import serving
from tests.support.tracing import Tracing

pytestmark = pytest.mark.usefixtures("still_source")

FILES = {f"shared/{name}": 10 for name in "abcdefgh"} | {"taskowned/t": 5, "chk-1/x": 3}
OTHER = "fedcba9876543210fedcba9876543210"


def request(root: Path, **options: object) -> SyncRequest:
    return SyncRequest(
        f"file:{root}/{JOB}/chk-1",
        f"file:{root}/dcB",
        execution=ExecutionOptions(runner="inline"),
        **options,
    )


def silent(_line: str) -> None:
    """Narration is not what these tests look at."""


def recorded_elsewhere(actual: Path, recorded: str, files: dict[str, int] = FILES) -> None:
    """A checkpoint in `actual` whose `_metadata` records its files below `recorded`."""
    checkpoint = write_checkpoint(actual, 1, files)
    (checkpoint / "_metadata").write_bytes(metadata(recorded, 1, files))


@pytest.mark.parametrize(
    ("recorded", "actual", "suggested"),
    [
        ("file:{0}/srv/flink/ckpt", "copy/flink/ckpt", "--remap file:{0}/srv=file:{0}/copy"),
        ("file:{0}/srv/flink/ckpt", "mounted", "--remap file:{0}/srv/flink/ckpt=file:{0}/mounted"),
        ("file:/a/{1}/copy/ckpt", "copy/ckpt", "--remap file:/a=file:{2}"),
        # The shortest pair would map what is at the source, too:
        ("file:{0}/flink/ckpt", "copy/flink/ckpt", "--remap file:{0}/flink=file:{0}/copy/flink"),
    ],
)
def test_a_missing_remap_is_suggested_and_the_suggestion_works(
    tmp_path, recorded, actual, suggested
):
    root = tmp_path / actual
    recorded_elsewhere(root, recorded.format(tmp_path, tmp_path.name))
    suggestion = suggested.format(tmp_path, tmp_path.name, tmp_path.parent)
    with pytest.raises(
        Misplaced, match="10 referenced files are missing where its _metadata records them"
    ) as raised:
        diff(request(root))
    assert raised.value.exit_code == 10
    assert f"Run again with {suggestion}. " in str(raised.value)
    remap = Remap(*suggestion.removeprefix("--remap ").split("="))
    assert sync(request(root, remaps=(remap,)), silent).committed


def test_sync_copies_nothing_and_shows_at_most_five_missing_files(tmp_path):
    recorded_elsewhere(tmp_path / "copy", "file:/nowhere/ckpt")
    with pytest.raises(Misplaced) as raised:
        sync(request(tmp_path / "copy"), silent)
    assert [path for path in (tmp_path / "copy" / "dcB").rglob("*") if path.is_file()] == []
    assert str(raised.value).count("file:/nowhere/ckpt/") == 5
    assert str(raised.value).endswith("and 5 more")


def test_files_of_an_earlier_job_are_covered_by_the_same_suggestion(tmp_path):
    files = {**FILES, f"../{OTHER}/shared/z": 7}
    recorded_elsewhere(tmp_path / "copy" / "ckpt", "file:/nowhere/ckpt", files)
    with pytest.raises(
        Misplaced, match=f"Run again with --remap file:/nowhere=file:{tmp_path}/copy. "
    ) as raised:
        diff(request(tmp_path / "copy" / "ckpt"))
    assert str(raised.value).startswith(
        f"file:{tmp_path}/copy/ckpt/{JOB}/chk-1: 11 referenced files are missing"
    )


def moved(tmp_path: Path, *others: str) -> Path:
    """Return where a job was moved to, whose files of other jobs are still where it was."""
    old, new = tmp_path / "srv" / "ckpt", tmp_path / "copy" / "ckpt"
    theirs = {f"../{other}/shared/z": 7 for other in others}
    recorded_elsewhere(new, f"file:{old}", {**FILES, **theirs})
    for other in others:
        (old / other).parent.mkdir(parents=True, exist_ok=True)
        (new / other).rename(old / other)
    return new


def suggested_for(root: Path) -> Remap:
    with pytest.raises(Misplaced) as raised:
        diff(request(root))
    recorded, actual = str(raised.value).split("--remap ")[1].split(". ")[0].split("=")
    return Remap(recorded, actual)


def test_a_suggestion_maps_no_file_elsewhere_that_is_where_it_is_recorded(tmp_path):
    new = moved(tmp_path, OTHER)
    remap = suggested_for(new)
    assert remap == Remap(f"file:{tmp_path}/srv/ckpt/{JOB}", f"file:{new}/{JOB}")
    assert sync(request(new, remaps=(remap,)), silent).committed


def test_a_suggestion_for_one_earlier_job_leaves_those_of_another_one(tmp_path):
    third = "89abcdef" * 4
    new = moved(tmp_path, OTHER, third)
    (tmp_path / "srv" / "ckpt" / OTHER).rename(new / OTHER)
    with pytest.raises(Misplaced) as raised:
        diff(request(new))
    options = str(raised.value).split("Run again with ")[1].split(". ")[0]
    pairs = [each.split("=") for each in options.removeprefix("--remap ").split(" --remap ")]
    assert {Path(recorded).name for recorded, _ in pairs} == {JOB, OTHER}
    assert sync(request(new, remaps=tuple(Remap(*each) for each in pairs)), silent).committed


def test_a_suggestion_stays_short_where_all_files_of_the_checkpoint_are_at_both_places(tmp_path):
    new = moved(tmp_path, OTHER)
    copytree(tmp_path / "srv" / "ckpt" / OTHER, new / OTHER)
    assert suggested_for(new) == Remap(f"file:{tmp_path}/srv", f"file:{tmp_path}/copy")


def test_the_wrong_remap_is_named_beside_the_right_one(tmp_path):
    recorded_elsewhere(tmp_path / "copy", "file:/nowhere/ckpt")
    wrong = Remap("file:/nowhere", "file:/elsewhere")
    right = (
        f"--remap file:/nowhere/ckpt=file:{tmp_path}/copy instead of --remap"
        " file:/nowhere=file:/elsewhere"
    )
    with pytest.raises(Misplaced, match=right):
        diff(request(tmp_path / "copy", remaps=(wrong,)))


def test_files_that_lie_nowhere_make_the_source_incomplete_and_suggest_nothing(tmp_path):
    write_checkpoint(tmp_path, 1, FILES)
    for name in "abc":
        (tmp_path / JOB / "shared" / name).unlink()
    with pytest.raises(
        SourceBroken, match="is incomplete at the source: 3 referenced files are missing"
    ) as raised:
        diff(request(tmp_path))
    assert not isinstance(raised.value, Misplaced)
    assert f"file:{tmp_path}/{JOB}/shared/b" in str(raised.value)
    assert "Run again" not in str(raised.value)


def refused(verb: str, root: Path) -> str:
    """The message of `diff` or `sync`, which ends because the source is incomplete."""
    with pytest.raises(SourceBroken) as raised:
        diff(request(root)) if verb == "diff" else sync(request(root), silent)
    assert raised.value.exit_code == 10
    return str(raised.value)


@pytest.mark.parametrize("verb", ["diff", "sync"])
def test_one_missing_file_among_many_is_named(tmp_path, verb):
    write_checkpoint(tmp_path, 1, FILES)
    missing = tmp_path / JOB / "shared" / "e"
    missing.unlink()
    message = refused(verb, tmp_path)
    assert "is incomplete at the source: 1 referenced file is missing" in message
    assert f"Missing: file:{missing}" in message


def test_a_checkpoint_subsumed_meanwhile_has_moved_on_although_its_files_are_missing(tmp_path):
    checkpoint = write_checkpoint(tmp_path, 1, FILES)

    class Subsumed(Tracing):
        """Has the checkpoint deleted once its `_metadata` was read."""

        def listing(self, uri):
            if uri.endswith(f"/{JOB}/shared"):
                (checkpoint / "_metadata").unlink(missing_ok=True)
                (tmp_path / JOB / "shared" / "a").unlink(missing_ok=True)
            return super().listing(uri)

    with (
        serving("file", Subsumed(Side().storage("file:/"))),
        pytest.raises(SourceMovedOn, match="was subsumed meanwhile"),
    ):
        diff(request(tmp_path))


class SlowlyDeleted(Tracing):
    """Flink deletes a file of the checkpoint, and after some looks its `_metadata`."""

    def __init__(self, checkpoint: Path) -> None:
        super().__init__(Side().storage("file:/"))
        self._metadata, self.looks = checkpoint / "_metadata", 0
        (checkpoint.parent / "shared" / "a").unlink()

    def stat(self, uri):
        if uri == f"file:{self._metadata}":
            self.looks += 1
            if self.looks == 9:
                self._metadata.unlink()
        return super().stat(uri)


def test_a_subsumed_checkpoint_that_flink_deletes_slowly_has_moved_on(tmp_path):
    storage = SlowlyDeleted(write_checkpoint(tmp_path, 1, FILES))
    write_checkpoint(tmp_path, 2, {"shared/new": 5})
    with serving("file", storage), pytest.raises(SourceMovedOn, match="was subsumed meanwhile"):
        diff(request(tmp_path))


def test_the_newest_checkpoint_is_not_looked_for_again_and_again(tmp_path):
    storage = SlowlyDeleted(write_checkpoint(tmp_path, 1, FILES))
    with serving("file", storage), pytest.raises(SourceBroken):
        diff(request(tmp_path))
    assert storage.looks < 9


def spread(root: Path, directories: int) -> Tracing:
    """A checkpoint of 1000 files in so many directories, and a record of the calls.

    The replica is not new: of a new one, it is checked that its source is another directory.
    """
    write_checkpoint(root, 1, {"taskowned/t": 5})
    sync(request(root), silent)
    files = {f"shared/{number % directories}/{number}": 1 for number in range(1000)}
    write_checkpoint(root, 2, files)
    return Tracing(Side().storage("file:/"))


def spread_request(root: Path) -> SyncRequest:
    return replace(request(root), source=f"file:{root}/{JOB}")


def calls_at_source(storage: Tracing, verb: str, root: Path) -> list[str]:
    shared = f"file:{root}/{JOB}/shared/"
    return [uri for name, uri in storage.calls if name == verb and uri.startswith(shared)]


@pytest.mark.parametrize(("directories", "listed"), [(3, 3), (64, 64), (65, 64), (1000, 64)])
def test_diff_lists_each_directory_once_and_64_at_most(tmp_path, directories, listed):
    storage = spread(tmp_path, directories)
    with serving("file", storage):
        report = diff(spread_request(tmp_path))
    places = calls_at_source(storage, "list", tmp_path)
    assert len(places) == len(set(places)) == listed
    assert calls_at_source(storage, "stat", tmp_path) == []
    assert bool(report.warnings) is (listed < directories)


def test_a_sample_is_said_and_is_the_same_each_time(tmp_path):
    storage = spread(tmp_path, 1000)
    with serving("file", storage):
        first = diff(spread_request(tmp_path))
        places = calls_at_source(storage, "list", tmp_path)
        assert diff(spread_request(tmp_path)).warnings == first.warnings
    assert calls_at_source(storage, "list", tmp_path) == 2 * places
    (warning,) = first.warnings
    assert "only 64 of the 1000 files to be copied were looked for" in warning
    assert "in 64 of 1000 directories" in warning
    words = (f"file:{tmp_path}/{JOB}", f"file:{tmp_path}/dcB")
    assert run("diff", *words, "--output", "json").json()["warnings"] == [warning]
    assert f"warning: {warning}" in run("sync", "--dry-run", *words).out


def test_sync_pays_no_listing_of_the_source_for_the_look(tmp_path):
    storage = spread(tmp_path, 1000)
    with serving("file", storage):
        sync(spread_request(tmp_path), silent)
    assert calls_at_source(storage, "list", tmp_path) == []
    assert len(calls_at_source(storage, "stat", tmp_path)) == 63


def test_a_directory_that_may_be_read_but_not_listed_is_said(tmp_path):
    class Unlistable(Tracing):
        def listing(self, uri):
            if uri == f"file:{tmp_path}/{JOB}/shared":
                raise PermissionError(13, "Permission denied", uri)
            return super().listing(uri)

    write_checkpoint(tmp_path, 1, FILES)
    with serving("file", Unlistable(Side().storage("file:/"))):
        (warning,) = diff(request(tmp_path)).warnings
        assert "only 2 of the 10 files to be copied were looked for" in warning
        assert sync(request(tmp_path), silent).committed


def test_files_that_the_replica_holds_are_not_looked_for(tmp_path):
    write_checkpoint(tmp_path, 1, FILES)
    sync(request(tmp_path), silent)
    for name in "abcdefgh":
        (tmp_path / JOB / "shared" / name).unlink()
    assert diff(request(tmp_path)).plan.empty


def test_files_on_another_filesystem_are_refused_with_a_remap_to_the_source(
    tmp_path,
):
    recorded_elsewhere(tmp_path / "copy" / "ckpt", "hdfs://dcA/flink/ckpt")
    with pytest.raises(
        Refused, match=f"to read these, add --remap hdfs://dcA/flink=file:{tmp_path}/copy. "
    ):
        diff(request(tmp_path / "copy" / "ckpt"))
    (tmp_path / "copy" / "ckpt" / JOB / "shared" / "a").unlink()
    files = {"shared/a": 10}
    (tmp_path / "copy" / "ckpt" / JOB / "chk-1" / "_metadata").write_bytes(
        metadata("hdfs://dcA/flink/ckpt", 1, files)
    )
    with pytest.raises(Refused, match="name their directory with --source-root") as raised:
        diff(request(tmp_path / "copy" / "ckpt"))
    assert "to read these" not in str(raised.value)


def test_a_suggestion_is_never_looked_for_outside_the_source_roots(tmp_path):
    files = {**FILES, f"../{OTHER}/shared/z": 7}
    recorded_elsewhere(tmp_path / "copy", "file:/nowhere/ckpt", files)
    storage = Tracing(Side().storage("file:/"))
    with serving("file", storage), pytest.raises(Refused):
        diff(request(tmp_path / "copy", source_roots=(f"file:{tmp_path}/other",)))
    assert [place for _, place in storage.calls if OTHER in place] == []


@pytest.mark.parametrize("verb", ["diff", "sync"])
def test_a_source_file_shorter_than_its_extent_is_incomplete_at_the_source(tmp_path, verb):
    write_checkpoint(tmp_path, 1, FILES)
    short = tmp_path / JOB / "shared" / "c"
    short.write_bytes(b"1234")
    message = refused(verb, tmp_path)
    assert (
        "is incomplete at the source: 1 referenced file is shorter than the checkpoint needs"
        in message
    )
    assert f"Too short: file:{short} has 4 bytes, the checkpoint needs 10" in message
    assert not (tmp_path / "dcB" / JOB / "chk-1" / "_metadata").exists()


def test_a_file_that_is_too_short_is_opened_only_where_it_may_be_open(tmp_path):
    write_checkpoint(tmp_path, 1, FILES)
    (tmp_path / JOB / "shared" / "c").write_bytes(b"1234")
    storage = Tracing(Side().storage("file:/"))
    with serving("file", storage), pytest.raises(SourceBroken):
        diff(request(tmp_path))
    assert [place for verb, place in storage.calls if verb == "open" and "shared" in place] == []


@pytest.mark.parametrize("verb", ["diff", "sync"])
def test_files_that_are_missing_and_files_that_are_too_short_are_named_apart(tmp_path, verb):
    write_checkpoint(tmp_path, 1, FILES)
    (tmp_path / JOB / "shared" / "c").write_bytes(b"1234")
    (tmp_path / JOB / "shared" / "d").unlink()
    message, shared = refused(verb, tmp_path), f"file:{tmp_path}/{JOB}/shared"
    assert (
        "1 referenced file is missing and 1 referenced file is shorter than the checkpoint needs"
        in message
    )
    assert f" Missing: {shared}/d. Too short: {shared}/c has 4 bytes" in message


def test_a_source_file_that_is_too_short_is_copied_once_only(tmp_path):
    (tmp_path / "a").write_bytes(b"1234")
    storage = Tracing(Side().storage("file:/"))
    with serving("file", storage), InlineRunner(Sides()) as runner:
        outcome = runner.run([Copy(f"file:{tmp_path}/a", f"file:{tmp_path}/b", 10)])[0]
    assert (outcome.short, outcome.is_worth_a_try) == (True, False)
    assert len([verb for verb, _ in storage.calls if verb == "put"]) == 1
