"""A NameNode that is silent, busy, or counts: what is reported, and whether it is asked again."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from cpreplicate.storage import Side, Transient
from cpreplicate.storage.backends.hdfs.common import Usage
from cpreplicate.storage.backends.hdfs.errors import translated
from cpreplicate.storage.backends.native.errors import NativeErrors
from cpreplicate.storage.backends.native.hdfs import HdfsStorage
from tests.support.silent import silent_server
from tests.support.waiting import PATIENCE

URI = "hdfs://dcB/replicas"
BUSY = "org.apache.hadoop.ipc.RetriableException"


@pytest.mark.parametrize(
    "error",
    [
        translated(BUSY, "Server too busy", URI),
        NativeErrors({}, ()).translated(
            RuntimeError(f'FatalRPCError("{BUSY}", "Server too busy")'), URI
        ),
    ],
    ids=["Java", "native"],
)
def test_a_busy_namenode_is_there_and_is_asked_again(error):
    assert isinstance(error, Transient)
    assert error.strerror == (
        "the NameNode is there and takes no calls now: too many wait, or it is starting:"
        " Server too busy"
    )


def test_a_namenode_that_counts_for_long_is_not_asked_to_count_again():
    with silent_server() as server:
        side = Side((("", (("deadline", "300ms"),)),), retry_for=3600)
        directory = f"hdfs://{server.address}/flink/replicas/job"
        with pytest.raises(OSError, match="quotas are not known: the NameNode has not") as raised:
            side.storage(directory).space(directory, briefly=False)
        assert not isinstance(raised.value, Transient)


def test_syncs_that_ask_for_the_quotas_of_one_directory_at_once_are_all_answered(monkeypatch):
    at_once = threading.Barrier(2, timeout=PATIENCE)  # each waits for the other one's question

    def usage(_storage, _uri):
        at_once.wait()
        return Usage(name_quota=10, names=4, space_quota=-1, consumed=0)

    monkeypatch.setattr(HdfsStorage, "usage", usage)
    storage = Side().storage("hdfs://127.0.0.1:1/flink/replicas/job")
    with ThreadPoolExecutor(2) as pool:
        found = pool.map(lambda job: storage.space(f"hdfs://127.0.0.1:1/flink/{job}/x", True), "aa")
    assert [space.files for spaces in found for space in spaces] == [6, 6]


def test_a_file_in_place_of_a_directory_above_is_no_matter_of_rights():
    """The NameNode answers so to whom it asks for the right to pass through."""
    error = translated(
        "org.apache.hadoop.security.AccessControlException", "/replicas (is not a directory)", URI
    )
    assert isinstance(error, NotADirectoryError)
