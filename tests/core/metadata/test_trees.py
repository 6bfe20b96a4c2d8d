"""Properties over trees of every version and handle, and what is refused that a count or a length
alone would not betray.
"""

import io
import struct
import tracemalloc

import pytest
from hypothesis import HealthCheck, given, settings

from cpreplicate.core.metadata import Absolute, decode, decoder, rewrite, window
from cpreplicate.errors import MetadataError
from tests.support.encoder import (
    Empty,
    File,
    FinishedSubtask,
    Incremental,
    Inline,
    InMemoryChanges,
    KeyGroups,
    Master,
    MergedChannel,
    Nested,
    OperatorEntry,
    OperatorState,
    PlainChannel,
    RelativeFile,
    Segment,
    Subtask,
    Tree,
    encode,
)
from tests.support.flinkrows import same_spelling
from tests.support.generate import synthetic, trees, written

BASE = "hdfs://dcA/job/chk-7"
EVERY_TREE = settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def one(subtask, version=6):
    """The bytes of a file with one operator of parallelism 1 and this subtask."""
    return bytes(encode(Tree(version, (OperatorEntry(bytes(16), 1, 1, (subtask,)),))).data)


def listed(*files):
    """The bytes of a file with a list of shared files."""
    return one(Subtask(0, keyed=Incremental(11, 1, "backend", (0, 1), 0, None, files, ())))


class OneKilobyteAtATime(io.RawIOBase):
    """An unbuffered stream: a read may return less than was asked for."""

    def __init__(self, data):
        self.inner = io.BytesIO(data)

    def seek(self, offset, whence=0):
        return self.inner.seek(offset, whence)

    def read(self, size=-1):
        return self.inner.read(min(size, 1024) if size >= 0 else size)


@pytest.mark.slow
@EVERY_TREE
@given(trees())
def test_exactly_the_handles_that_were_encoded_are_found(tree):
    expected = written(tree)
    metadata = decode(expected.data, BASE)
    assert list(metadata.handles) == expected.rows
    assert list(metadata.handles.paths()) == [row.path for row in expected.rows]
    assert metadata.handles.state_sizes().tolist() == expected.state_sizes
    assert (metadata.inline_bytes, metadata.changelog) == (
        expected.inline_bytes,
        expected.changelog,
    )
    assert metadata.file_merging == expected.file_merging
    assert [operator.subtasks for operator in metadata.operators] == [
        len(o.subtasks or ()) for o in tree.operators
    ]


@pytest.mark.slow
@EVERY_TREE
@given(trees())
def test_any_tree_reads_the_same_through_a_tiny_window_and_is_respelled_to_the_same_bytes(tree):
    expected = written(tree)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(window, "MARGIN", 2048)
        metadata = decoder.decode(io.BytesIO(expected.data), BASE, window=1)
    assert list(metadata.handles) == expected.rows
    assert metadata.handles.state_sizes().tolist() == expected.state_sizes
    assert b"".join(rewrite(io.BytesIO(expected.data), metadata, same_spelling)) == expected.data


@pytest.mark.parametrize("size", [65_535, 60_000, 3])
def test_a_window_that_slides_within_an_entry_of_the_longest_texts_loses_nothing(size):
    files = (
        ("n" * size, File("p" * 65_535, 7)),
        ("n" * size, Segment(1, 2, 0, "q" * 65_535, "l" * 65_535)),
    )
    sink = encode(
        Tree(
            6,
            (
                OperatorEntry(
                    bytes(16),
                    1,
                    1,
                    (Subtask(0, keyed=Incremental(11, 1, "b", (0, 1), 0, None, files * 20, ())),),
                ),
            ),
        )
    )
    assert list(decode(io.BytesIO(bytes(sink.data)), BASE, window=1).handles) == sink.handles


def test_a_stream_that_returns_less_than_asked_for_is_read_and_rewritten_in_full():
    data = b"".join(synthetic(20_000))
    metadata = decode(OneKilobyteAtATime(data), BASE)
    assert len(metadata.handles) == 20_002
    assert b"".join(rewrite(OneKilobyteAtATime(data), metadata, same_spelling)) == data


@pytest.mark.parametrize("stream", [False, True], ids=["bytes", "stream"])
def test_a_rewrite_yields_no_chunk_beyond_8_mib_though_inline_state_is_larger(stream):
    data = one(
        Subtask(
            0,
            OperatorState((), Inline("x", bytes(30 << 20))),
            OperatorState((), File("file:/x", 1)),
        )
    )
    metadata = decode(data, BASE)
    chunks = list(
        rewrite(
            io.BytesIO(data) if stream else data,
            metadata,
            lambda _: Absolute("file:/" + "y" * 60_000),
        )
    )
    assert max(map(len, chunks)) <= 8 << 20
    assert len(b"".join(chunks)) == len(data) + 60_006 - len("file:/x")


@pytest.mark.parametrize("stream", [False, True], ids=["bytes", "stream"])
def test_a_file_that_shrank_since_it_was_decoded_is_not_rewritten(stream):
    data = one(Subtask(0, OperatorState((), File("file:/x", 1))))
    metadata = decode(data, BASE)
    with pytest.raises(MetadataError, match="byte"):
        list(rewrite(io.BytesIO(data[:-1]) if stream else data[:-1], metadata, same_spelling))


def test_what_decoding_long_paths_takes_beyond_the_input_is_their_own_bytes_and_64_mib():
    entry = b"\0\1n\x02" + struct.pack(">qH", 1, 60_000) + b"p" * 60_000
    head, tail = listed(("n", File("p" * 60_000, 1))).split(struct.pack(">i", 1) + entry)
    data = head + struct.pack(">i", 2000) + entry * 2000 + tail  # 120 MB
    tracemalloc.start()
    try:
        decode(data, BASE)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < len(data) + (64 << 20)


@pytest.mark.slow
def test_paths_of_thousands_of_lengths_are_read_as_they_are():
    paths = ["p" * (1 + index * 7 % 4000) for index in range(8000)]
    metadata = decode(listed(*[("n", RelativeFile(path, 1)) for path in paths]), BASE)
    assert list(metadata.handles.paths()) == paths


@pytest.mark.parametrize("place", [63, 64, 65, 319, 320, 321])
@pytest.mark.parametrize(
    ("usual", "odd"),
    [
        (("a.sst", File("file:/x", 5)), ("a.sst", File("file:/xyz", 5))),
        (("a.sst", File("file:/x", 5)), ("b", File("file:/x", 5))),
        (("a.sst", File("file:/x", 5)), ("é.ss", File("file:/x", 5))),
        (("a.sst", File("file:/x", 5)), ("a.sst", File("file:/é", 5))),
        (("a.sst", File("file:/x", 5)), ("a.sst", RelativeFile("file:/x", 5))),
        (("a.sst", File("file:/x", 5)), ("a.sst", None)),
        (("a.sst", RelativeFile("x", 5)), ("a.sst", RelativeFile("yz", 5))),
        (("a.sst", Segment(1, 2, 0, "x", "id")), ("a.sst", Segment(1, 2, 1, "x", "id"))),
        (("a.sst", Segment(1, 2, 0, "x", "id")), ("a.sst", Segment(1, 2, 0, "x", "é"))),
        (("a.sst", Segment(1, 2, 0, "x", "id")), ("a.sst", Segment(1, 2, 0, "x", "idx"))),
        (("a.sst", Nested(0, (1,), File("x", 5))), ("a.sst", Empty())),
    ],
)
def test_one_odd_entry_anywhere_in_a_run_is_read_as_what_it_is(usual, odd, place):
    files = (*[usual] * place, odd, *[usual] * 70)
    sink = encode(
        Tree(
            6,
            (
                OperatorEntry(
                    bytes(16),
                    1,
                    1,
                    (Subtask(0, keyed=Incremental(11, 1, "b", (0, 1), 0, None, files, ())),),
                ),
            ),
        )
    )
    assert list(decode(bytes(sink.data), BASE).handles) == sink.handles


@pytest.mark.parametrize("place", [0, 1, 64, 65, 400])
@pytest.mark.parametrize(
    ("usual", "odd", "expected"),
    [
        (("a", File("x", 5)), ("a", File("x", -1)), "a file's size, found -1"),
        (("a", RelativeFile("x", 5)), ("a", RelativeFile("x", -1)), "a file's size, found -1"),
        (
            ("a", Segment(1, 2, 0, "x", "i")),
            ("a", Segment(-1, 2, 0, "x", "i")),
            "a segment's position, found -1",
        ),
        (
            ("a", Segment(1, 2, 0, "x", "i")),
            ("a", Segment(1, -1, 0, "x", "i")),
            "a segment's size, found -1",
        ),
        (("a", Segment(1, 2, 0, "x", "i")), ("a", Segment(1, 2, 2, "x", "i")), "a scope"),
        (("a", File("x", 5)), ("a", File("", 5)), "a path, found an empty one"),
    ],
)
def test_an_entry_that_is_wrong_is_an_error_wherever_it_lies_in_a_list(usual, odd, expected, place):
    with pytest.raises(MetadataError, match=f"byte \\d+: expected {expected}"):
        decode(listed(*[usual] * place, odd, *[usual] * 100), BASE)


@pytest.mark.parametrize("bad", [b"\xff", b"\xf0", b"\x80", b"\xc3"])
@pytest.mark.parametrize("field", [b"NNNNN", b"PPPPP", b"LLLLL", b"HHHHH"])
def test_text_that_is_not_modified_utf8_is_an_error_in_a_run_too(field, bad):
    entry = ("NNNNN", Segment(1, 2, 0, "PPPPP", "LLLLL"))
    data = one(
        Subtask(0, keyed=Incremental(11, 1, "b", (0, 1), 0, None, (entry,) * 200, (), "HHHHH"))
    )
    at = data.rindex(field) + 4
    with pytest.raises(MetadataError, match=r"byte \d+: .*modified UTF-8"):
        decode(data[:at] + bad + data[at + 1 :], BASE)


@pytest.mark.parametrize(
    ("subtask", "version", "expected"),
    [
        (Subtask(-5), 2, "a subtask of an operator of parallelism 1, found -5"),
        (Subtask(1), 6, "a subtask of an operator of parallelism 1, found 1"),
        (FinishedSubtask(1), 6, "a subtask of an operator of parallelism 1, found -2"),
        (Subtask(0, OperatorState((("s", 3, ()),), None)), 6, "a mode of distribution"),
        (
            Subtask(0, OperatorState((), File("x", 1), ("a", "b"))),
            6,
            "a stream state handle of type 15 or 16, found type 2",
        ),
        (
            Subtask(0, OperatorState((), Empty(), ("a", ""))),
            6,
            "a directory's path, found an empty one",
        ),
        (
            Subtask(0, keyed=Incremental(11, 1, "b", (0, -7), 0, None, (), ())),
            6,
            "a number of key groups, found -7",
        ),
        (Subtask(0, keyed=KeyGroups(12, -1, (1,), None)), 6, "a key group, found -1"),
        (Subtask(0, keyed=InMemoryChanges((0, 1), (0, 1), ((-2, b""),))), 6, "a key group, or -1"),
        (
            Subtask(0, inputs=(PlainChannel((0, 0, 0), (), -1, None),)),
            6,
            "a size of channel state, found -1",
        ),
        (
            Subtask(0, outputs=(MergedChannel(0, -1, None, b""),)),
            6,
            "a size of channel state, found -1",
        ),
    ],
)
def test_values_that_flink_never_writes_are_refused_by_their_offset(subtask, version, expected):
    with pytest.raises(MetadataError, match=f"byte \\d+: expected {expected}"):
        decode(one(subtask, version), BASE)


def test_a_channel_of_the_other_direction_is_refused():
    data = bytearray(one(Subtask(0, inputs=(PlainChannel((0, 0, 0), (), 1, None),))))
    at = data.index(bytes((0, 0, 0, 1, 1)) + bytes(16)) + 4
    data[at] = 2
    with pytest.raises(
        MetadataError, match=f"byte {at}: expected a channel state handle of type 1 or 3, found 2"
    ):
        decode(bytes(data), BASE)


def test_a_parallelism_above_its_maximum_is_refused():
    with pytest.raises(MetadataError, match="maximum parallelism of at least 5, found 4"):
        decode(bytes(encode(Tree(6, (OperatorEntry(bytes(16), 5, 4, ()),))).data), BASE)


def test_a_master_state_that_does_not_fill_its_length_is_refused():
    data = bytes(encode(Tree(6, masters=(Master("m", b"xx"),))).data)
    at = data.index(b"\0\x01m") + 3
    with pytest.raises(MetadataError, match="the end of a master state"):
        decode(data[:at] + b"\0\0\0\x01" + data[at + 4 :], BASE)
