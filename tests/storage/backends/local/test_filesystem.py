"""Filesystems without hard links or without fsync of directories, such as mounted buckets."""

import ctypes
import errno
import os
import stat
import threading

import pytest

from cpreplicate.operations.doctor import diagnose
from cpreplicate.operations.doctor.case import Configured
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.operations.sync.sync import sync
from cpreplicate.runners import ExecutionOptions
from cpreplicate.storage import Side
from tests.support.jobs import JOB, write_checkpoint
from tests.support.replicas import FILES


@pytest.fixture(params=[errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.EIO])
def without_links(monkeypatch, request):
    def link(_path, new_path):
        raise OSError(request.param, os.strerror(request.param), new_path)

    monkeypatch.setattr(os, "link", link)


@pytest.fixture(params=[errno.EINVAL, errno.EOPNOTSUPP])
def without_fsync(monkeypatch, request):
    of_files = os.fsync

    def fsync(descriptor):
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(request.param, os.strerror(request.param))
        of_files(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)


@pytest.fixture
def request_of(tmp_path):
    write_checkpoint(tmp_path, 1, FILES)
    inline = ExecutionOptions(runner="inline")
    return SyncRequest(f"file:{tmp_path}/{JOB}", f"file:{tmp_path}/B", execution=inline)


@pytest.mark.usefixtures("without_links")
def test_of_many_contenders_one_creates_a_file(tmp_path):
    uri, won = f"file:{tmp_path}/lease", []
    storage, start = Side().storage(uri), threading.Barrier(8)

    def contend(number):
        start.wait()
        if storage.create_exclusive(uri, bytes([number])):
            won.append(number)

    threads = [threading.Thread(target=contend, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [bytes([number]) for number in won] == [(tmp_path / "lease").read_bytes()]
    assert [each.name for each in tmp_path.iterdir()] == ["lease"]


@pytest.mark.usefixtures("without_links", "without_fsync")
def test_a_sync_works_without_either_and_doctor_names_what_is_lacking(request_of):
    assert sync(request_of, lambda _line: None).committed
    found = {each.check: each for each in diagnose(request_of, Configured()).findings}
    assert found["target write"].status == "warning"
    assert "no hard links and no fsync of directories" in found["target write"].message


@pytest.mark.usefixtures("without_links")
def test_where_no_rename_leaves_what_is_there_the_message_names_that(request_of, monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda *_arguments, **_options: object())
    with pytest.raises(OSError, match=r"the filesystem has no hard links .*no lease can be held"):
        sync(request_of, lambda _line: None)
