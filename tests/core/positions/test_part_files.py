"""Part files in the states of sinks of files, as Flink 1.13 to 2.3 write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpreplicate.core.positions.model import PartFile, SourceState, Unreadable
from cpreplicate.core.positions.sinks.committables import COMMITTER, committables
from cpreplicate.core.positions.sinks.part_files import BUCKETS, WRITER, PartFiles
from cpreplicate.core.positions.sinks.rewrite import without_part_files
from tests.support import sink_states as written
from tests.support.sink_states import Part, Upload

OPERATOR = "f362c87ffabe89c8a91fa7d0a523ba6c"
HDFS = Part("hdfs://dcA/out/b/part-0", "hdfs://dcA/out/b/.part-0.inprogress.7", 4711)
LOCAL = Part("/out/b/part-0", "/out/b/.part-0.inprogress.7", 12, is_local=True)


def decoded(name: str, *elements: bytes) -> list[PartFile] | None:
    found = PartFiles().decode(SourceState(OPERATOR, {name: elements}))
    return None if found is None else list(found.part_files)


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("part", [HDFS, LOCAL])
def test_a_file_in_progress_has_its_paths_and_the_bytes_that_count(part, version):
    scheme = "file:" if part.is_local else ""
    assert decoded(WRITER, written.bucket(version, part, path="hdfs://dcA/out/b")) == [
        PartFile(OPERATOR, "in-progress", scheme + part.target, scheme + part.path, part.length)
    ]


@pytest.mark.parametrize("version", [1, 2])
def test_the_pending_files_of_a_streaming_file_sink_have_their_checkpoints(version):
    other = Part("hdfs://dcA/out/b/part-1", "hdfs://dcA/out/b/.part-1.inprogress.8", 9)
    found = decoded(BUCKETS, written.bucket(version, None, pending={3: [HDFS], 4: [other]}))
    assert found is not None
    assert [(each.kind, each.target, each.checkpoint) for each in found] == [
        ("pending", HDFS.target, 3),
        ("pending", other.target, 4),
    ]


def test_a_bucket_without_a_file_is_named_by_its_path():
    assert decoded(WRITER, written.bucket(3, None, path="hdfs://dcA/out/b")) == [
        PartFile(OPERATOR, "bucket", "hdfs://dcA/out/b", None, 0)
    ]


@pytest.mark.parametrize("collector", ["1.14", "1.17", "1.20", "2.3"])
@pytest.mark.parametrize("version", [1, 2])
def test_committables_are_read_as_each_flink_collects_them(collector, version):
    element = written.collected(
        collector,
        5,
        [
            written.committable(version, pending=HDFS),
            written.committable(version, in_progress=LOCAL),
        ],
    )
    checkpoint = None if collector == "1.14" else 5
    assert decoded(COMMITTER, element) == [
        PartFile(OPERATOR, "pending", HDFS.target, HDFS.path, 4711, checkpoint=checkpoint),
        PartFile(
            OPERATOR,
            "to-remove",
            f"file:{LOCAL.target}",
            f"file:{LOCAL.path}",
            12,
            checkpoint=checkpoint,
        ),
    ]


def test_a_committable_that_was_committed_is_not_pending():
    for state in (2, 3):  # failed, committed
        element = written.collected("2.3", 5, [written.committable(2, pending=HDFS)], state)
        assert decoded(COMMITTER, element) == []


def test_files_that_are_to_be_compacted_are_pending_at_both_operators():
    waiting = written.committable(2, pending=HDFS)
    removed = written.committable(2, compacted="hdfs://dcA/out/b/.uncompacted-part-3")
    coordinator = decoded("remaining_compact_commit_raw_state", written.versioned(2, waiting))
    assert coordinator is not None
    assert [(each.kind, each.target) for each in coordinator] == [("pending", HDFS.target)]
    requests = written.requests({-1: ([waiting], [removed]), 6: ([waiting], [])})
    compactor = decoded("remaining_requests_raw_state", requests)
    assert compactor is not None
    assert [(each.kind, each.checkpoint) for each in compactor] == [
        ("pending", None),
        ("to-remove", None),
        ("pending", 6),
    ]


@pytest.mark.parametrize("has_target", [False, True])
def test_an_upload_is_named_by_its_id_and_the_object_with_its_last_bytes(has_target):
    upload = Upload("out/b/part-0", "id-of-s3", [("1", 500), ("2", 600)], "out/_tmp_7", 33)
    target = "s3://bucket/out/b/part-0" if has_target else None
    element = written.bucket(3, upload, path="s3://bucket/out/b", target=target)
    assert decoded(WRITER, element) == [
        PartFile(
            OPERATOR,
            "in-progress",
            "s3://bucket/out/b/part-0",
            "s3://bucket/out/_tmp_7",
            1133,
            "id-of-s3",
        )
    ]


def test_an_upload_all_of_whose_bytes_are_in_parts_has_no_object():
    upload = Upload("out/b/part-0", "id-of-s3", [("1", 500)])
    (found,) = decoded(WRITER, written.bucket(3, upload, path="s3://bucket/out/b")) or []
    assert (found.path, found.length) == (None, 500)


def test_the_writer_of_another_sink_is_not_one_of_files():
    assert decoded(WRITER, written.versioned(2, written.utf("prefix"))) is None
    assert decoded(WRITER) is None


@pytest.mark.parametrize(
    ("element", "why"),
    [
        (written.bucket(4, HDFS), "version 4 of a bucket"),
        (written.bucket(3, HDFS, filesystem=7), "is resumed on its filesystem is not known"),
        (written.bucket(3, HDFS, recoverable=3), "version 3 of part files in progress"),
        (written.bucket(3, HDFS)[:-1], "do not fit"),
        (written.versioned(3, written.opened_bucket(3, HDFS) + b"\0"), "1 byte follows"),
    ],
)
def test_what_is_not_known_of_a_sink_of_files_is_named(element, why):
    if why == "do not fit":  # an element is not cut at its end, but within
        element = written.versioned(3, written.opened_bucket(3, HDFS)[:-1])
    with pytest.raises(Unreadable, match=why):
        decoded(WRITER, element)


def test_a_state_without_part_files_names_none():
    state = SourceState(
        OPERATOR,
        {
            WRITER: (written.bucket(3, HDFS), written.bucket(3, None)),
            COMMITTER: (written.collected("1.14", 5, [written.committable(1, pending=HDFS)]),),
            "max-part-counter": (b"7",),
        },
    )
    new = without_part_files(state)
    assert new is not None
    assert new.emptied == {WRITER}
    (element,) = new.elements[COMMITTER]
    assert list(committables(element)) == []
    assert element == written.collected("1.14", 5, [], version=1)


def test_a_state_of_another_sink_stays_as_it_is():
    state = SourceState(OPERATOR, {WRITER: (written.versioned(2, written.utf("prefix")),)})
    assert without_part_files(state) is None


PATHS = st.text(min_size=1, max_size=60)
PARTS = st.builds(Part, PATHS, PATHS, st.integers(0, (1 << 63) - 1), st.booleans())


@given(st.lists(PARTS, min_size=1, max_size=4), st.sampled_from(["1.14", "1.17", "1.20", "2.3"]))
def test_every_part_file_that_is_written_is_read(every, collector):
    element = written.collected(
        collector, 5, [written.committable(2, pending=each) for each in every]
    )
    found = decoded(COMMITTER, element)
    assert found is not None
    assert [(each.target, each.path, each.length) for each in found] == [
        tuple(
            [f"{'file:' if each.is_local else ''}{name}" for name in (each.target, each.path)]
            + [each.length]
        )
        for each in every
    ]


@given(st.integers(0, 300), st.integers(1, 255))
def test_a_damaged_bucket_gives_another_file_or_is_named(place, change):
    content = bytearray(written.bucket(3, HDFS))
    content[place % len(content)] ^= change
    try:
        decoded(WRITER, bytes(content))
    except Unreadable:
        return


@given(st.binary(max_size=400))
def test_bytes_behind_the_number_of_a_bucket_never_raise_another_error(data):
    try:
        decoded(WRITER, written.versioned(3, (0x1E764B79).to_bytes(4, "big") + data))
    except Unreadable:
        return
