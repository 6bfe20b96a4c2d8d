"""A NameNode that is silent, busy, or counts: what is reported, and whether it is asked again."""

import pytest

from cpreplicate.storage import Side, Transient
from cpreplicate.storage.backends.hdfs.errors import translated
from cpreplicate.storage.backends.native.errors import NativeErrors
from tests.support.silent import silent_server

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
