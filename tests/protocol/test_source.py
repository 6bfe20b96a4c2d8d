"""The newest completed checkpoint of a job's directory."""

import shutil

import pytest

from cpreplicate.errors import NotThere
from cpreplicate.protocol.source import find
from cpreplicate.storage import Side
from cpreplicate.storage.wrappers.base import StorageWrapper
from tests.support import jobs
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
