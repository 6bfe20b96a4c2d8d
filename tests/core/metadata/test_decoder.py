"""Decoding and rewriting over generated files of every version and every handle."""

import io
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpreplicate.core.metadata import Absolute, Relative, decode, decoder, rewrite, window
from cpreplicate.errors import MetadataError
from tests.support.flinkrows import same_spelling
from tests.support.generate import PROPERTIES, Written, generate, java_utf, synthetic

BASE = "hdfs://dcA/job/chk-7"
FILES = st.builds(generate, st.integers(0, 1 << 32), st.integers(2, 6))


def rows(data):
    return list(decode(data, BASE).handles)


@given(FILES)
def test_what_was_written_is_read(written: Written):
    metadata = decode(bytes(written.data), BASE)
    assert list(metadata.handles) == written.rows
    assert metadata.handles.state_sizes().tolist() == written.state_sizes
    assert [
        (o.id, o.name, o.uid, o.parallelism, o.max_parallelism, o.finished)
        for o in metadata.operators
    ] == written.operators
    assert (metadata.version, metadata.checkpoint_id) == (written.version, written.checkpoint_id)
    assert (metadata.master_states, metadata.inline_bytes) == (
        written.master_states,
        written.inline_bytes,
    )
    assert metadata.length == len(written.data)


@given(FILES)
def test_encoding_what_was_decoded_gives_the_same_bytes(written: Written):
    data = bytes(written.data)
    assert b"".join(rewrite(data, decode(data, BASE), same_spelling)) == data


@given(FILES, st.integers(0, 1 << 32))
def test_what_is_rewritten_reads_as_asked_and_everything_else_stays(written: Written, seed):
    data = bytes(written.data)
    metadata = decode(data, BASE)

    def respell(handle):
        if handle.path is None or hash((seed, handle.start)) % 3 == 0:
            return None
        path = f"hdfs://dcB/{'x' * (hash((seed, handle.start)) % 40)}"
        return (
            Absolute(path)
            if handle.kind in ("segment", "directory") or seed % 2
            else Relative("../shared/x")
        )

    rewritten = b"".join(rewrite(data, metadata, respell))
    assert rewritten == b"".join(rewrite(io.BytesIO(data), metadata, respell))
    expected = []
    for handle in metadata.handles:
        spelling = respell(handle)
        if spelling is not None:
            kind = (
                "relative"
                if isinstance(spelling, Relative)
                else handle.kind.replace("relative", "file")
            )
            handle = handle._replace(path=spelling.path, kind=kind)
        expected.append(handle._replace(start=0, length=0))
    found = decode(rewritten, BASE)
    assert [handle._replace(start=0, length=0) for handle in found.handles] == expected
    assert between(rewritten, found) == between(data, metadata)


def between(data, metadata):
    """The bytes outside of all handles that name a place."""
    kept, done = [], 0
    for handle in metadata.handles:
        if handle.path is not None:
            kept.append(data[done : handle.start])
            done = handle.start + handle.length
    return [*kept, data[done:]]


@pytest.mark.slow
@pytest.mark.parametrize("version", range(2, 7))
def test_a_stream_through_a_small_window_reads_as_the_whole(version, monkeypatch):
    monkeypatch.setattr(window, "MARGIN", 2048)
    for seed in range(60):
        data = bytes(generate(seed, version, size=8).data)
        through = decoder.decode(io.BytesIO(data), BASE, window=4096, flush=50)
        assert list(through.handles) == rows(data)
        sizes = decode(data, BASE).handles.state_sizes()
        assert through.handles.state_sizes().tolist() == sizes.tolist()


def test_long_lists_of_files_read_the_same_in_runs_and_one_by_one(monkeypatch):
    data = b"".join(synthetic(references=3000, subtasks=7))
    in_runs = rows(data)
    monkeypatch.setattr(decoder, "uniform", lambda *_: 0)
    assert rows(data) == in_runs
    assert len(in_runs) == 3000 + 7 + 1


def test_a_list_whose_entries_alternate_is_read_in_full():
    entries = [
        (b"\x00\x01a" if n % 2 else b"\x00\x02ab") + b"\x02" + struct.pack(">q", n) + java_utf("f")
        for n in range(500)
    ]
    head = (
        struct.pack(">iiqii", 0x4960672D, 3, 1, 0, 1) + bytes(16) + struct.pack(">ii", 1, 1) + b"\0"
    )
    body = (
        struct.pack(">iiii", 1, 0, 0, 0)
        + b"\x0b"
        + struct.pack(">q", 1)
        + java_utf("")
        + struct.pack(">iiq", 0, 1, 1)
        + b"\0"
    )
    data = (
        head
        + body
        + struct.pack(">i", 500)
        + b"".join(entries)
        + struct.pack(">i", 0)
        + java_utf("")
        + b"\0"
        + bytes(8)
    )
    assert [row.size for row in rows(data)] == list(range(500))


def one_file(path: bytes) -> bytes:
    head = (
        struct.pack(">iiqii", 0x4960672D, 3, 1, 0, 1) + bytes(16) + struct.pack(">ii", 1, 1) + b"\0"
    )
    body = struct.pack(">iiii", 1, 0, 0, 0) + b"\x0c" + struct.pack(">ii", 0, 0)
    return (
        head
        + body
        + b"\x02"
        + struct.pack(">qH", 9, len(path))
        + path
        + java_utf("")
        + b"\0"
        + bytes(8)
    )


def test_the_longest_path_is_rewritten_and_a_longer_one_is_a_clear_error():
    data = one_file(b"x" * 65_535)
    metadata = decode(data, BASE)
    assert next(iter(metadata.handles)).path == "x" * 65_535
    longest = b"".join(rewrite(data, metadata, lambda _: Relative("y" * 65_535)))
    assert rows(longest)[0].path == "y" * 65_535
    for path in ("y" * 65_536, "ü" * 32_768):
        with pytest.raises(MetadataError, match="65536 bytes"):
            list(rewrite(data, metadata, lambda _, path=path: Relative(path)))


def test_a_segment_has_no_relative_form():
    data = next(
        bytes(w.data)
        for w in (generate(seed, 6) for seed in range(99))
        if any(r.kind == "segment" for r in w.rows)
    )
    with pytest.raises(ValueError, match="no relative form"):
        list(
            rewrite(
                data, decode(data, BASE), lambda h: Relative("x") if h.kind == "segment" else None
            )
        )


@pytest.mark.parametrize("version", [-1, 0, 1, 7, 1 << 30])
def test_a_version_that_is_not_understood_is_named(version):
    with pytest.raises(MetadataError, match=f"version {version} "):
        decode(struct.pack(">iiq", 0x4960672D, version, 1), BASE)


def test_legacy_state_of_version_2_is_refused_by_its_offset():
    data = (
        struct.pack(">iiqii", 0x4960672D, 2, 1, 0, 1)
        + bytes(16)
        + struct.pack(">iiiiiqi", 1, 1, 0, 1, 0, 0, 1)
        + bytes(64)
    )
    with pytest.raises(MetadataError, match="byte 68: expected no legacy operator state"):
        decode(data, BASE)


def test_errors_name_the_offset_and_what_was_expected():
    for data, message in [
        (b"", "byte 0: expected 4 more bytes"),
        (b"PAR1" + bytes(90), "byte 0: expected the magic number 0x4960672d"),
        (
            struct.pack(">iiqi", 0x4960672D, 6, 1, 1 << 31 - 1 & 0x7FFFFFFF),
            "byte 16: expected a number of master states",
        ),
        (
            struct.pack(">iiqii", 0x4960672D, 4, 1, 0, 0) + b"none",
            "byte 24: expected the serialized checkpoint properties",
        ),
        (
            struct.pack(">iiqii", 0x4960672D, 3, 1, 0, 0) + b"more",
            "byte 24: expected the end of the file, 4 bytes follow",
        ),
        (
            struct.pack(">iiqii", 0x4960672D, 4, -1, 0, 0) + PROPERTIES,
            "byte 8: expected a checkpoint id, found -1",
        ),
    ]:
        with pytest.raises(MetadataError, match=message):
            decode(data, BASE)


def test_state_handles_nested_without_end_are_refused():
    head = (
        struct.pack(">iiqii", 0x4960672D, 3, 1, 0, 1) + bytes(16) + struct.pack(">ii", 1, 1) + b"\0"
    )
    nested = b"\x03" + bytes(8)
    data = head + struct.pack(">iiii", 1, 0, 0, 0) + b"\x0c" + bytes(8) + nested * 100_000
    with pytest.raises(MetadataError, match="deep"):
        decode(data, BASE)
    changelog = (b"\x0e" + bytes(16) + struct.pack(">i", 1)) * 100_000
    with pytest.raises(MetadataError, match="deep"):
        decode(head + struct.pack(">iiii", 1, 0, 0, 0) + changelog, BASE)
