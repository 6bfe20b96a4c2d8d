"""How the clients of HDFS wait for answers, without a cluster."""

import contextlib
from typing import Any, cast

from cpreplicate.storage.backends import jvm_client
from cpreplicate.storage.backends.hadoop import HadoopStorage
from cpreplicate.storage.backends.hdfs import HdfsStorage
from cpreplicate.storage.settings import WriteSettings

URI = "hdfs://ns/directory"


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
        assert storage.carry_out("delete", URI, lambda: storage.delete(URI))
    deleted = ("delete", "/directory")
    assert client.asked == [("get_file_info", "/directory"), deleted, deleted]


class Large(HadoopStorage):
    """Has a directory and a file whose answers take long."""

    def __init__(self):
        self.waits = []

    @contextlib.contextmanager
    def translated_errors(self, _uri):
        with jvm_client.answering(25.0):
            yield self

    def statuses(self, _uri):
        self.waits.append(jvm_client._seconds.get())
        return []

    def path(self, uri):
        return uri

    def call(self, _method, *_arguments):
        self.waits.append(jvm_client._seconds.get())


def test_a_large_directory_and_a_checksum_have_no_limit_beyond_those_of_hadoops_client():
    storage = Large()
    assert storage.list(URI) == []
    assert storage.known_crc32c(URI) is None
    assert storage.waits == [None, None]
