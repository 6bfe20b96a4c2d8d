"""A file that is written under a temporary name leaves none behind."""

import errno

import pytest

from cpreplicate.storage import Transient
from cpreplicate.storage.backends.rename_commit import RenamingStorage
from cpreplicate.storage.wrappers.retry import Pauses, Retrying
from tests.support.memory import MemoryStorage

URI = "memory:/a/f"
CALLS = ["write", "rename", "delete"]


class LosesAnswers(MemoryStorage, RenamingStorage):
    """A filesystem whose connection breaks: a call is carried out, then calls fail for a while."""

    put = RenamingStorage.put
    create_exclusive = RenamingStorage.create_exclusive

    def __init__(self, lost, failing):
        super().__init__()
        self._lost, self._failing, self._calls = lost, failing, 0

    def write_new(self, uri, content):
        length = MemoryStorage.put(self, uri, content)
        self._answer()
        return length

    def rename(self, uri, new_uri, replace):
        if replace:
            MemoryStorage.delete(self, new_uri)
        was_there = MemoryStorage.move(self, uri, new_uri)
        self._answer()
        return was_there

    def delete(self, uri, durable=False):
        self._call()
        return MemoryStorage.delete(self, uri, durable)

    def _answer(self):
        self._call()

    def _call(self):
        self._calls += 1
        if self._lost < self._calls <= self._lost + self._failing:
            raise Transient(errno.EIO, "the connection broke", URI)


@pytest.mark.parametrize("failing", [1, 2, 3, 4])
@pytest.mark.parametrize("lost", range(5))
def test_a_write_that_is_tried_again_leaves_no_temporary_file(lost, failing):
    inner = LosesAnswers(lost, failing)
    storage = Retrying(inner, 60.0, Pauses(0.0, 0.0))
    storage.put(URI, lambda: [b"first"])
    storage.put("memory:/a/g", lambda: [b"second"])
    assert {status.name for status in inner.list("memory:/a")} == {"f", "g"}
    assert storage.read(URI) == b"first"


def test_a_temporary_file_that_cannot_be_deleted_is_deleted_by_a_later_write():
    inner = LosesAnswers(0, 2)
    with pytest.raises(Transient):
        inner.put(URI, lambda: [b"first"])
    assert len(inner.list("memory:/a")) == 1
    inner.put("memory:/a/g", lambda: [b"second"])
    assert [status.name for status in inner.list("memory:/a")] == ["g"]


@pytest.mark.parametrize("lost", range(3))
def test_a_lease_that_is_tried_again_leaves_no_temporary_file(lost):
    inner = LosesAnswers(lost, 2)
    storage = Retrying(inner, 60.0, Pauses(0.0, 0.0))
    assert storage.create_exclusive(URI, b"mine")
    storage.put("memory:/a/g", lambda: [b"second"])
    assert {status.name for status in inner.list("memory:/a")} == {"f", "g"}
