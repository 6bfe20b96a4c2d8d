"""The marker of a replica: which sources it names."""

from __future__ import annotations

import pytest

from cpreplicate.protocol.held import HeldReplica
from cpreplicate.protocol.lease import acquire
from cpreplicate.protocol.marker import (
    Marker,
    SourceName,
    add_source,
    create_marker,
    read_marker,
)
from cpreplicate.storage import Side

FORMER = {  # a URI, what 0.2.0 recorded of it, and what it is now
    "default": ("hdfs:/cp/job", "hdfs:/cp/job", "hdfs://a:8020/cp/job"),
    "view": ("viewfs://cmt/cp/job", "viewfs://cmt:8020/cp/job", "hdfs://a:8020/x/job"),
    "default view": ("viewfs:/cp/job", "viewfs:/cp/job", "hdfs://a:8020/x/job"),
    "bucket": ("gs://b/job", "gs://b/job", "gs://b at http://a.example/job"),
    "container": ("abfs://c/job", "abfs://c/job", "abfs://c at a.blob.core.windows.net/job"),
}


@pytest.mark.parametrize(("given", "former", "resolved"), FORMER.values(), ids=FORMER)
def test_a_source_is_known_by_what_0_2_0_recorded_and_recorded_anew_by_its_place(
    tmp_path, given, former, resolved
):
    now = SourceName(given, resolved)
    with acquire(f"file:{tmp_path}/replica", Side(), 0.0, print) as lease:
        replica = HeldReplica(f"file:{tmp_path}/replica", Side(), lease)
        marker = create_marker(replica, "job", SourceName(given, former), adopted=False)
        assert marker.names(now)
        assert not marker.records(now)
        add_source(replica, marker, now)
    written = read_marker(Side(), replica.root)
    assert written is not None
    assert written.sources == (now,)
    assert not written.names(SourceName(given, resolved.replace("a", "other", 1)))


@pytest.mark.parametrize(
    ("known", "source"),
    [
        (("hdfs://a/job", "hdfs://a:8020/job"), ("hdfs://a/job", "hdfs://b:8020/job")),
        (("hdfs:/job", "hdfs:/job"), ("hdfs:/other", "hdfs://a:8020/other")),
        (("s3://b/job", "s3://b at None/job"), ("s3://b/job", "s3://b at http://c/job")),
        (
            ("abfs://c/job", "abfs://c at a.blob.core.windows.net/job"),
            ("abfs://c/job", "abfs://c at b.blob.core.windows.net/job"),
        ),
    ],
    ids=["nameservice", "path", "endpoint", "account"],
)
def test_a_source_elsewhere_is_not_known(known, source):
    marker = Marker("id", "job", (SourceName(*known),))
    assert not marker.names(SourceName(*source))
