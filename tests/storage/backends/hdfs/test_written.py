"""What new files on HDFS have, by the options of a command and Hadoop's configuration."""

import pytest

from cpreplicate.errors import UsageError
from cpreplicate.storage import Side, WriteSettings
from cpreplicate.storage.backends.hdfs.common import written_as
from cpreplicate.storage.backends.hdfs.errors import translated

UMASK = "fs.permissions.umask-mode"


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ({}, "permission 0644"),
        ({UMASK: "077"}, "permission 0600"),
        ({UMASK: "0027"}, "permission 0640"),
        ({UMASK: "u=rwx,g=rx,o="}, "permission 0640"),
        ({"dfs.umaskmode": "077"}, "permission 0600"),
        ({"dfs.replication": "2"}, "permission 0644, replication 2"),
        ({"dfs.blocksize": "1m"}, "permission 0644, blocks of 1048576 bytes"),
    ],
    ids=str,
)
def test_properties_of_hadoop_are_honoured(options, shown):
    assert str(written_as(WriteSettings(), options)) == shown


def test_the_options_of_a_command_win():
    written = written_as(WriteSettings(3, 1 << 20), {"dfs.replication": "2", "dfs.blocksize": "2m"})
    assert (written.replication, written.block_size) == (3, 1 << 20)


@pytest.mark.parametrize(
    "options", [{UMASK: "g+w"}, {UMASK: "999"}, {"dfs.blocksize": "much"}, {"dfs.replication": "x"}]
)
def test_a_value_that_hadoop_would_not_take_is_refused_by_name(options):
    with pytest.raises(UsageError, match=next(iter(options))):
        written_as(WriteSettings(), options)


def test_a_nameservice_has_no_port_but_the_default_one_is_left_out():
    options = (
        ("dfs.ha.namenodes.ns", "a"),
        ("dfs.namenode.rpc-address.ns.a", "localhost:9"),
    )
    side = Side((("", options),))
    assert side.place("hdfs://ns:8020/x") == side.place("hdfs://ns/x")
    assert side.namenodes("hdfs://ns:8020/x") == ("localhost:9",)
    side.storage("hdfs://ns:8020/x")
    with pytest.raises(UsageError, match="ns is a nameservice, which has no port"):
        side.storage("hdfs://ns:9000/x")


def test_a_view_without_a_fallback_has_nothing_beside_its_links():
    prefix = "fs.viewfs.mounttable.X."
    side = Side((("", ((f"{prefix}link./flink", "hdfs://localhost:9/flink"),)),))
    storage = side.storage("viewfs://X/flink").unwrapped
    with pytest.raises(OSError, match="no link of the mount table"):
        storage.put("viewfs://X/other/file", lambda: [b"x"])
    merged = Side((("", ((f"{prefix}linkMergeSlash", "hdfs://localhost:9/"),)),))
    with pytest.raises(UsageError, match="--hdfs-client hadoop"):
        merged.storage("viewfs://X/flink")


def test_an_encryption_zone_is_no_failure_that_may_pass():
    name = "org.apache.hadoop.crypto.UnknownCryptoProtocolVersionException"
    error = translated(name, "No crypto protocol versions provided", "hdfs://a/x")
    assert type(error) is OSError
    assert "--hdfs-client hadoop" in str(error.strerror)
