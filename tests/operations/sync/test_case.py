"""A target whose filesystem takes names for one that differ only in case."""

import pytest

from cpreplicate.errors import CopyFailed
from cpreplicate.operations.sync import sync
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.runners import ExecutionOptions
from tests.support.jobs import JOB, write_checkpoint
from tests.support.memory import MemoryStorage
from tests.support.registry import serving


class IgnoringCase(MemoryStorage):
    """Keeps a file under the name by which it was created, as ext4 with casefold does."""

    def __init__(self):
        super().__init__()
        self.names = {}

    def put(self, uri, content, expect=None, attributes=None, replace=True):
        name = self.names.setdefault(uri.casefold(), uri)
        return super().put(name, content, expect, attributes, replace)

    def open(self, uri):
        return super().open(self.names.get(uri.casefold(), uri))

    def stat(self, uri):
        return super().stat(self.names.get(uri.casefold(), uri))


class Losing(MemoryStorage):
    """Another program deletes each file of state right after it was written."""

    def put(self, uri, content, expect=None, attributes=None, replace=True):
        length = super().put(uri, content, expect, attributes, replace)
        if "/shared/" in uri:
            self.delete(uri)
        return length


def replicate(tmp_path, storage, files):
    write_checkpoint(tmp_path / "dcA", 1, files)
    inline = ExecutionOptions(runner="inline")
    request = SyncRequest(f"file:{tmp_path}/dcA/{JOB}", "memory:/dcB", execution=inline)
    with serving("memory", storage):
        return sync.sync(request, lambda _line: None)


def test_names_that_differ_only_in_case_are_named_with_the_reason(tmp_path):
    files = {"shared/Part-1": 100, "shared/part-1": 100, "shared/other": 50}
    with pytest.raises(CopyFailed) as raised:
        replicate(tmp_path, IgnoringCase(), files)
    message = str(raised.value)
    assert "differ only in upper and lower case" in message
    assert "shared/Part-1 and shared/part-1" in message
    assert "None" not in message
    assert "run again" not in message  # which does not help


def test_where_no_names_are_alike_case_is_no_obstacle(tmp_path):
    assert replicate(tmp_path, IgnoringCase(), {"shared/Part-1": 100, "shared/b": 50}).committed


def test_files_that_go_after_they_were_written_are_named(tmp_path):
    with pytest.raises(CopyFailed, match="went after being written"):
        replicate(tmp_path, Losing(), {"shared/a": 100, "shared/b": 50})
