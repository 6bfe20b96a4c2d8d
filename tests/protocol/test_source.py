"""The newest completed checkpoint of a job's directory."""

import os
import shutil

import pytest

from cpreplicate.errors import NoJob, NotThere, Refused
from cpreplicate.protocol.source import find
from cpreplicate.storage import Side
from cpreplicate.storage.wrappers.base import StorageWrapper
from tests.support import jobs
from tests.support.memory import MemoryStorage
from tests.support.registry import serving
from tests.support.replicas import FILES, NEXT


class Subsuming(StorageWrapper):
    """Does something just before the first look at a checkpoint, after the directory was listed."""

    def __init__(self, inner, action):
        super().__init__(inner)
        self._actions, self.listings = [action], 0

    def before(self, verb, uri):
        self.listings += verb == "list"
        if verb == "stat" and "/chk-" in uri and self._actions:
            self._actions.pop()()


def found(tmp_path, action):
    root = f"file:{tmp_path}/{jobs.JOB}"
    storage = Subsuming(Side().storage(root), action)
    with serving("file", storage):
        return find(root, Side(), False).checkpoint, storage.listings


def test_a_checkpoint_that_is_subsumed_between_two_calls_gives_way_to_the_next_one(tmp_path):
    former = jobs.write_checkpoint(tmp_path, 1, FILES)

    def subsume():
        jobs.write_checkpoint(tmp_path, 2, NEXT)
        shutil.rmtree(former)

    assert found(tmp_path, subsume) == (f"file:{tmp_path}/{jobs.JOB}/chk-2", 2)


def test_a_checkpoint_in_progress_beside_a_completed_one_costs_no_second_listing(tmp_path):
    jobs.write_checkpoint(tmp_path, 1, FILES)
    (tmp_path / jobs.JOB / "chk-2").mkdir()
    assert found(tmp_path, lambda: None) == (f"file:{tmp_path}/{jobs.JOB}/chk-1", 1)


def test_a_job_whose_first_checkpoint_is_in_progress_has_none(tmp_path):
    (tmp_path / jobs.JOB / "chk-1").mkdir(parents=True)
    with pytest.raises(NotThere, match="holds no completed checkpoint"):
        found(tmp_path, lambda: None)


def dated(tmp_path, times):
    """Return the newest of completed checkpoints whose `_metadata` have these times, by number."""
    for number, time in times.items():
        directory = jobs.write_checkpoint(tmp_path, number, FILES)
        os.utime(directory / "_metadata", (time, time))
        os.utime(directory, (time, time))
    return find(f"file:{tmp_path}/{jobs.JOB}", Side())


@pytest.mark.parametrize("undated", [0, -1, -(10**9)])
class TestAMetadataDated1970OrBefore:
    """Of a storage that dates no files, or a backup that was unpacked without their times."""

    def test_the_highest_number_is_the_newest(self, tmp_path, undated):
        source = dated(tmp_path, {2: undated, 10: undated, 9: undated})
        assert source.checkpoint.endswith("/chk-10")
        assert source.completed is None

    def test_so_it_is_among_dated_ones(self, tmp_path, undated):
        assert dated(tmp_path, {1: 100, 2: undated}).checkpoint.endswith("/chk-2")
        assert dated(tmp_path, {3: 300, 4: 400}).checkpoint.endswith("/chk-4")

    def test_dated_ones_stay_ambiguous_beside_it(self, tmp_path, undated):
        with pytest.raises(Refused, match="chk-1 was completed after chk-3"):
            dated(tmp_path, {3: 300, 2: undated, 1: 400})

    def test_a_single_one_is_taken_by_its_name_too(self, tmp_path, undated):
        assert dated(tmp_path, {7: undated}).checkpoint.endswith("/chk-7")
        named = find(f"file:{tmp_path}/{jobs.JOB}/chk-7", Side())
        assert named.completed is None


def test_of_checkpoints_with_equal_times_the_highest_number_is_the_newest(tmp_path):
    assert dated(tmp_path, {1: 100, 2: 100, 3: 100}).checkpoint.endswith("/chk-3")


def test_a_source_that_is_an_object_is_a_file():
    """An object store lists nothing below it."""
    storage = MemoryStorage()
    storage.put("memory:/dcA/object", lambda: [b"x"])
    with serving("memory", storage), pytest.raises(NoJob, match="is a file, or is below one"):
        find("memory:/dcA/object", Side())
