"""Large files are split into ranges that several tasks copy, and appear joined."""

from __future__ import annotations

import errno
import functools
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import google_crc32c
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpreplicate.protocol.lease import LeaseToken
from cpreplicate.runners import Copy, Delete, Outcome, Part, Read
from cpreplicate.runners.batch import perform
from cpreplicate.runners.batching import batches
from cpreplicate.runners.copy_rows import WithRanges
from cpreplicate.runners.ranges import Splitting, joining
from cpreplicate.runners.tasks import CopyRange, Task, size_of
from cpreplicate.storage import Checksum, Side, Sides, Storage
from cpreplicate.storage.base import RANGE
from cpreplicate.storage.statuses import Attributes
from cpreplicate.storage.transfer import joined
from cpreplicate.storage.wrappers.base import StorageWrapper

UNIT = 1 << 20
SLOTS = Splitting(slots=4, unit=UNIT)


@given(st.lists(st.binary(max_size=200), max_size=6))
def test_the_checksum_of_a_file_is_that_of_its_ranges_joined(ranges: list[bytes]) -> None:
    parts = [Checksum(len(each), google_crc32c.value(each)) for each in ranges]
    whole = b"".join(ranges)
    assert joined(parts) == (len(whole), google_crc32c.value(whole))


@given(st.integers(1, 300), st.lists(st.integers(0, 1 << 42), min_size=1, max_size=50))
def test_a_file_that_has_no_more_than_half_the_share_of_a_slot_is_one_stream(
    slots: int, sizes: list[int]
) -> None:
    """So at most two files a slot are split, however many there are."""
    length = Splitting(slots).length(np.array(sizes))
    assert length % RANGE == 0
    assert length >= RANGE
    assert 4 * length * slots >= sum(sizes)
    assert sum(size >= 2 * length for size in sizes) <= 2 * slots


def test_a_range_is_no_larger_than_a_batch_may_be() -> None:
    sizes = np.array([100 * RANGE])
    assert Splitting(slots=2).length(sizes) == 13 * RANGE
    assert Splitting(slots=2, most=5 * RANGE + 1).length(sizes) == 5 * RANGE
    assert Splitting(slots=2, most=1).length(sizes) == RANGE


class Tree:
    """Files at the source, of random bytes."""

    def __init__(self, directory: Path) -> None:
        self.source, self.target = directory / "a", directory / "b"
        self.source.mkdir()

    def copy(self, name: str, length: int, extent: int | None = None, **more: object) -> Copy:
        (self.source / name).write_bytes(os.urandom(length))
        places = f"file:{self.source}/{name}", f"file:{self.target}/{name}"
        return Copy(*places, length if extent is None else extent)._replace(**more)

    def is_copied(self, name: str) -> bool:
        return (self.target / name).read_bytes() == (self.source / name).read_bytes()

    @property
    def there(self) -> list[str]:
        return sorted(path.name for path in self.target.iterdir())


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def test_a_large_file_is_copied_as_ranges_and_is_one_outcome(tree: Tree) -> None:
    large = tree.copy("large", 9 * UNIT + 77)
    small = [tree.copy(f"{number}", 1000 * number) for number in range(3)]
    seen: list[Outcome] = []
    with joining([large, *small], SLOTS, Sides(), seen.append) as files:
        ranges = [task for task in files.tasks if isinstance(task, CopyRange)]
        assert [size_of(each) for each in ranges] == 9 * [UNIT] + [77]
        assert [task for task in files.tasks if isinstance(task, Copy)] == small
        outcomes = perform(files.tasks, Sides())
        assert tree.there == [tree_name(ranges), *"012"]
        for outcome in reversed(outcomes):
            assert files.done is not None
            files.done(outcome)
        results = {each.target: each for each in files.results(outcomes)}
        assert files.unjoined == []
    assert tree.there == [*"012", "large"]
    assert tree.is_copied("large")
    assert results.keys() == {each.target for each in (large, *small)}
    assert seen[-1] == results[large.target]
    data = (tree.source / "large").read_bytes()
    assert results[large.target][:3] == (large.target, len(data), google_crc32c.value(data))


def tree_name(ranges: Sequence[CopyRange]) -> str:
    (joint,) = {each.joint for each in ranges}
    return joint.rpartition("/")[2]


def test_the_last_range_has_what_the_source_has_beyond_its_extent(tree: Tree) -> None:
    large = tree.copy("large", 5 * UNIT + 3, extent=4 * UNIT)
    with joining([large], SLOTS, Sides(), None) as files:
        (result,) = files.results(perform(files.tasks, Sides()))
    assert (result.bytes, result.error) == (5 * UNIT + 3, None)
    assert tree.is_copied("large")


def test_files_that_are_not_read_whole_from_the_source_once_are_not_split(tree: Tree) -> None:
    token = LeaseToken("file:/r/.cpreplicate/lease", "0")
    actions: list[Task] = [
        tree.copy("grows", 9 * UNIT, token=token),
        tree.copy("packed", 9 * UNIT, pack="file:/r/packed/1"),
        tree.copy("moved", 9 * UNIT, part=Part(None, 0)),
        tree.copy("has no extent", 9 * UNIT, extent=0, size=9 * UNIT),
        Read(f"file:{tree.source}/grows", 9 * UNIT),
        Delete(f"file:{tree.target}/old"),
    ]
    with joining(actions, SLOTS, Sides(), None) as files:
        assert files.tasks is actions
    large = [tree.copy("large", 9 * UNIT)]
    with joining(large, SLOTS._replace(slots=1), Sides(), None) as files:
        assert files.tasks is large


def test_a_range_that_is_tried_again_is_the_only_one(tree: Tree) -> None:
    large = tree.copy("large", 4 * UNIT)
    with joining([large], SLOTS, Sides(), None) as files:
        first, *others = perform(files.tasks, Sides())
        assert first.receipt is not None
        broken = first._replace(error="OSError: the line broke", receipt=None)
        for outcome in (broken, *others):
            assert files.done is not None
            files.done(outcome)
        assert tree.there == [
            tree_name([each for each in files.tasks if isinstance(each, CopyRange)])
        ]
        (result,) = files.results([first, *others])
    assert result.error is None
    assert tree.is_copied("large")


@pytest.mark.parametrize("change", ["missing", "short"])
def test_a_file_of_which_a_range_fails_is_reported_with_its_error_and_leaves_nothing(
    tree: Tree, change: str
) -> None:
    large = tree.copy("large", 4 * UNIT)
    with joining([large], SLOTS, Sides(), None) as files:
        if change == "missing":
            (tree.source / "large").unlink()
        else:
            os.truncate(tree.source / "large", 3 * UNIT + 5)
        (result,) = files.results(perform(files.tasks, Sides()))
    assert result.target == large.target
    assert (result.missing, result.short) == (change == "missing", change == "short")
    assert tree.there == []


def test_a_run_that_is_broken_off_leaves_nothing(tree: Tree) -> None:
    large = tree.copy("large", 4 * UNIT)
    with pytest.raises(RuntimeError, match="broken off"):
        broken_off([large])
    assert tree.there == []


def broken_off(copies: Sequence[Copy]) -> None:
    with joining(copies, SLOTS, Sides(), None) as files:
        perform(files.tasks[:2], Sides())
        raise RuntimeError("broken off")


def test_ranges_get_the_attributes_of_the_source_with_preserve(tree: Tree) -> None:
    large = tree.copy("large", 4 * UNIT)
    (tree.source / "large").chmod(0o640)
    os.utime(tree.source / "large", (1e9, 1e9))
    sides = Sides(preserve=True)
    with joining([large], SLOTS, sides, None) as files:
        files.results(perform(files.tasks, sides))
    status = (tree.target / "large").stat()
    assert (status.st_mode & 0o777, status.st_mtime) == (0o640, 1e9)


class Refusing(StorageWrapper):
    """A storage that begins files, and does not join them."""

    def join(
        self,
        uri: str,
        joint: str,  # noqa: ARG002
        receipts: Sequence[str],  # noqa: ARG002
        length: int,  # noqa: ARG002
        attributes: Attributes | None = None,  # noqa: ARG002
    ) -> None:
        raise OSError(errno.EIO, "not here", uri)


@dataclass(frozen=True)
class RefusingSide(Side):
    """A side with such a storage."""

    def storage(self, uri: str, inside: str = "") -> Storage:
        return _refusing(super().storage(uri, inside))


@functools.cache
def _refusing(storage: Storage) -> Storage:
    return Refusing(storage)


def test_a_file_that_cannot_be_joined_is_to_be_copied_whole(
    tree: Tree, caplog: pytest.LogCaptureFixture
) -> None:
    large, small = tree.copy("large", 4 * UNIT), tree.copy("small", 100)
    sides = Sides(target=RefusingSide())
    with joining([large, small], SLOTS, sides, None) as files:
        results = files.results(perform(files.tasks, sides))
        assert files.unjoined == [large]
    assert [each.target for each in results] == [small.target]
    assert tree.there == ["small"]
    assert f"{large.target} is copied again as a whole" in caplog.text


def test_batches_have_ranges_and_files_apart_the_most_bytes_first() -> None:
    copies = [Copy(f"file:/a/{number}", f"file:/b/{number}", 1 << 20) for number in range(500)]
    ranges = [
        CopyRange("file:/a/x", "file:/b/x", start << 28, 1 << 28, 1 << 28, False, "j")
        for start in range(16)
    ]
    actions = WithRanges(copies, ranges)
    made = batches(actions, slots=8)
    held = [each.target for batch in made for each in batch]
    assert sorted(held) == sorted(each.target for each in actions)
    bytes_ = [sum(map(size_of, batch)) for batch in made]
    assert bytes_ == sorted(bytes_, reverse=True)
    assert max(bytes_) == 1 << 28
