"""What is particular to hdfs-native: its close sleeps if a block has not been reported yet."""

import threading
from typing import Any, cast

import pytest

from cpreplicate.storage.backends.native.hdfs import HdfsStorage
from cpreplicate.storage.base import WriteSettings
from cpreplicate.storage.waiting.closing import close_promptly
from tests.support import parts
from tests.support.hdfs import HdfsCluster
from tests.support.waiting import PATIENCE

pytestmark = pytest.mark.xdist_group("hdfs")

MILLISECONDS = "300"  # between two reports of a DataNode, so that each `complete` comes too early
BYTES = bytes(range(256)) * 300


@pytest.fixture(scope="module")
def reporting_late():
    """A cluster whose DataNodes report blocks a while after they were written."""
    conf = {"dfs.blockreport.incremental.intervalMsec": MILLISECONDS}
    with HdfsCluster(datanodes=1, conf=conf) as cluster:
        yield cluster


@pytest.fixture
def storage(reporting_late):
    settings = WriteSettings(block_size=1 << 20)
    return HdfsStorage(reporting_late.uri, reporting_late.conf, settings, deadline=PATIENCE)


@pytest.fixture
def closes(monkeypatch):
    """For each close: whether the caller had to wait for hdfs-native."""
    waited = []

    def observed(close, is_closed, round_trip):
        ended = threading.Event()

        def close_and_report():
            close()
            ended.set()

        close_promptly(close_and_report, is_closed, round_trip)
        waited.append(ended.is_set())

    monkeypatch.setattr("cpreplicate.storage.backends.native.hdfs.close_promptly", observed)
    return waited


@pytest.mark.parametrize(
    "data", [parts.rest(BYTES, id="one block"), pytest.param(BYTES * 20, id="two blocks")]
)
def test_a_file_is_complete_once_it_was_put_though_its_block_was_reported_late(
    reporting_late, storage, closes, data
):
    for number in range(100):
        uri = f"{reporting_late.uri}/late/{len(data)}-{number}"
        assert storage.put(uri, lambda: [data]) == len(data)
        with storage.open(uri) as stream:
            assert stream.read() == data
        assert len(closes) == number + 1
        # that of a file that was closed while hdfs-native slept: we may ask too late each time
        if number >= 7 and False in closes:
            break
    assert False in closes


def test_a_file_that_is_deleted_while_hdfs_native_sleeps_leaves_nothing(reporting_late, storage):
    uri = f"{reporting_late.uri}/deleted/file"
    for _ in range(4):
        assert storage.create_exclusive(uri, BYTES)
        assert storage.delete(uri)
    assert storage.list(f"{reporting_late.uri}/deleted") == []


class Client:
    def __init__(self):
        self.asked = []

    def get_file_info(self, path):
        self.asked.append(("get_file_info", path))
        raise FileNotFoundError(path)

    def delete(self, path, _recursive):
        self.asked.append(("delete", path))
        return True


def test_after_a_silence_a_question_precedes_the_change_once():
    """hdfs-native turns to the other NameNode for questions only."""
    namenodes = ["127.0.0.1:1", "127.0.0.1:2"]
    storage = HdfsStorage("hdfs://127.0.0.1:1", {}, WriteSettings(), 1800.0, namenodes)
    client = Client()
    storage._client = cast(Any, client)
    storage._break()
    for _ in range(2):
        assert storage.carry_out(
            "delete", "hdfs://ns/directory", lambda: storage.delete("hdfs://ns/directory")
        )
    deleted = ("delete", "/directory")
    assert client.asked == [("get_file_info", "/directory"), deleted, deleted]
