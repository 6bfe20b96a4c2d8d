"""Every reference of any tree can become a segment of a pack, and a whole file again."""

import io

import pytest
from hypothesis import HealthCheck, given, settings

from cpreplicate.core.metadata import Absolute, Handle, decode, rewrite
from cpreplicate.core.metadata.rewrite import PlainSpelling, Segment, encoded
from cpreplicate.core.metadata.segments import SegmentRow, segments
from tests.support.generate import trees, written

BASE = "hdfs://dcA/job/chk-7"
EVERY_TREE = settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def to_segment(handle: Handle) -> Segment | None:
    """A spelling for every handle that names a file."""
    if handle.path is None or handle.kind == "directory":
        return None
    return Segment(
        "hdfs://dcB/job/packed/é", handle.start, handle.length, f"shared/{handle.start} ü"
    )


@pytest.mark.slow
@EVERY_TREE
@given(trees())
def test_every_file_can_be_spelled_as_a_segment_of_a_pack(tree):
    data = written(tree).data
    before = decode(data, BASE)
    after_data = b"".join(rewrite(data, before, to_segment))
    after = decode(after_data, BASE)
    wanted = [
        SegmentRow(spelling.path, spelling.position, spelling.size, spelling.logical_id)
        for handle in before.handles
        if (spelling := to_segment(handle)) is not None
    ]
    assert list(segments(after_data, after)) == wanted
    assert list(segments(io.BytesIO(after_data), after)) == wanted
    kinds = [handle.kind for handle in after.handles if handle.kind in ("file", "relative")]
    assert kinds == []
    assert [handle.state for handle in after.handles] == [handle.state for handle in before.handles]


@pytest.mark.slow
@EVERY_TREE
@given(trees())
def test_a_segment_becomes_the_whole_file_that_it_was(tree):
    data = written(tree).data
    before = decode(data, BASE)
    if any(handle.kind == "segment" for handle in before.handles):
        return  # a segment's own logical id is not kept
    packed_data = b"".join(rewrite(data, before, to_segment))
    packed = decode(packed_data, BASE)
    original = iter([handle for handle in before.handles if handle.kind in ("file", "relative")])

    def unpacked(handle: Handle) -> PlainSpelling | None:
        if handle.kind != "segment":
            return None
        was = next(original)
        return PlainSpelling(str(was.path), was.size, was.kind == "relative")

    assert b"".join(rewrite(packed_data, packed, unpacked)) == data


@pytest.mark.parametrize(("part", "scope"), [("shared", 1), ("private", 0)])
def test_the_scope_follows_from_the_part(part, scope):
    handle = Handle(0, 0, "keyed", part, "file", "x", 1, None, 0, 14)
    piece = encoded(handle, Segment("p", 0, 1, "id"), b"")
    assert int.from_bytes(piece[17:21], "big") == scope


def test_an_absolute_spelling_leaves_a_segment_a_segment():
    handle = Handle(0, 0, "keyed", "shared", "segment", "p", 1, 5, 0, 0)
    original = encoded(handle._replace(kind="file"), Segment("p", 5, 1, "id"), b"")
    moved = encoded(handle, Absolute("q"), original)
    assert moved == encoded(handle._replace(kind="file"), Segment("q", 5, 1, "id"), b"")
