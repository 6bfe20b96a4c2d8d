"""Bytes by kind of state and by place are those of the handles, one by one, each file once."""

from collections import Counter

import numpy as np
import pytest

from cpreplicate.core import uri
from cpreplicate.core.closure import closure
from cpreplicate.core.metadata import decode
from cpreplicate.core.state_sizes import KINDS, PLACES, Directories, state_sizes, sums
from tests.support.corpus import ROOT
from tests.support.encoder import (
    ChangelogFiles,
    File,
    Inline,
    MergedChannel,
    OperatorEntry,
    PlainChannel,
    RelativeFile,
    Segment,
    Subtask,
    Tree,
    encode,
)

CHECKPOINTS = sorted(ROOT.rglob("_metadata"))
KIND_OF = {
    "coordinator": "coordinator",
    "operator": "operator",
    "operator-raw": "operator",
    "keyed": "keyed",
    "keyed-raw": "keyed",
    "channel-in": "channel",
    "channel-out": "channel",
}


def place_of(handle, uris, checkpoint, root):
    if handle.path is None:
        return "inline"
    file_uri = uris[handle.path]
    if file_uri.startswith(f"{checkpoint}/"):
        return "exclusive"
    return "shared" if file_uri.startswith(f"{root}/") else "foreign"


@pytest.mark.parametrize("path", CHECKPOINTS, ids=lambda path: "-".join(path.parts[-5:-1:2]))
def test_handles_in_columns_are_of_the_kind_and_in_the_place_of_each_handle(path):
    checkpoint = f"file:{path.parent}"
    metadata = decode(path.read_bytes(), checkpoint)
    needed, root = closure(metadata), uri.parent(checkpoint)
    held = state_sizes(metadata, needed, Directories(checkpoint, root), {})
    kinds: Counter[tuple[int | None, str]] = Counter()
    places: Counter[tuple[int | None, str]] = Counter()
    files, counted = [], set()
    sizes = metadata.handles.state_sizes().tolist()
    for handle, size in zip(metadata.handles, sizes, strict=True):
        if handle.kind != "directory":
            kind = "changelog" if handle.part == "delta" else KIND_OF[handle.state]
            piece = (handle.operator, handle.path, handle.position)
            if handle.path is not None and kind != "channel":
                size = 0 if piece in counted else size
                counted.add(piece)
            kinds[handle.operator, kind] += size
            place = place_of(handle, needed.uris, checkpoint, root)
            places[handle.operator, place] += size
            files.append(None if handle.path is None else needed.uris[handle.path])
    sizes = held.sizes_once(held.operator)
    for column, names, expected in ((held.kind, KINDS, kinds), (held.place, PLACES, places)):
        found = sums(held.operator.astype(np.int64) * len(names) + column, sizes)
        named = {(key // len(names), names[key % len(names)]): size for key, size in found.items()}
        assert named == expected
    known = list(needed.files)
    assert [None if each < 0 else known[each] for each in held.file.tolist()] == files


def held_of(*operators, at="hdfs://dcA/job/chk-1"):
    """The state handles of operators, each of which has these subtasks."""
    entries = tuple(
        OperatorEntry(bytes([number] * 16), len(subtasks), 128, subtasks)
        for number, subtasks in enumerate(operators)
    )
    metadata = decode(bytes(encode(Tree(6, entries, 1)).data), at)
    return state_sizes(metadata, closure(metadata), Directories(at, uri.parent(at)), {})


def changes(index, *streams):
    files = tuple((offset, stream) for offset, stream in enumerate(streams))
    return Subtask(index, keyed=ChangelogFiles(13, (0, 1), files))


def test_a_file_that_several_rows_need_counts_once_for_each_owner_with_its_greatest_size():
    a, b = File("hdfs://dcA/dstl/a", 100), File("hdfs://dcA/dstl/b", 7)
    longer = File("hdfs://dcA/dstl/a", 120)
    held = held_of(
        (changes(0, a, a, b), changes(1, longer, b)),
        (changes(0, a),),
    )
    assert sum(held.size.tolist()) == 3 * 100 + 120 + 2 * 7
    assert sum(held.sizes_once().tolist()) == 120 + 7
    assert sums(held.operator, held.sizes_once(held.operator)) == {0: 127, 1: 100}
    of_subtasks = held.sizes_once(held.operator, held.subtask)
    assert sums(held.operator * 10 + held.subtask, of_subtasks) == {0: 107, 1: 127, 10: 100}


def test_segments_of_one_file_count_each_and_a_segment_that_several_need_once():
    first, second = (Segment(place, 10, 1, "hdfs://dcA/f", f"id-{place}") for place in (0, 10))
    held = held_of((changes(0, first, second), changes(1, second)))
    assert held.sizes_once().tolist() == [10, 10, 0]


@pytest.mark.parametrize("channel", [PlainChannel, MergedChannel])
@pytest.mark.parametrize("stream", [RelativeFile("f", 510), Inline("f", bytes(510))])
def test_a_channel_has_the_bytes_that_it_records_whatever_file_it_shares(channel, stream):
    place, offsets = ((0, 0, 0), (0,)) if channel is PlainChannel else (0, b"")

    def one(size):
        if channel is PlainChannel:
            return PlainChannel(place, offsets, size, stream)
        return MergedChannel(place, size, stream, offsets)

    held = held_of((Subtask(0, inputs=(one(500), one(2))), Subtask(1, outputs=(one(3), one(3)))))
    for owners in ((), (held.operator,), (held.operator, held.subtask)):
        assert held.sizes_once(*owners).tolist() == [500, 2, 3, 3]


def test_sums_do_not_wrap():
    keys, most = np.array([7, 3, 7]), np.iinfo(np.int64).max
    assert sums(keys, np.array([most, 5, most])) == {3: 5, 7: 2 * int(most)}
    assert sums(np.zeros(0, np.int64), np.zeros(0, np.int64)) == {}


@pytest.mark.parametrize(
    ("file", "place"),
    [
        ("chk-7/a", "exclusive"),
        ("shared/a", "shared"),
        ("chk-6/a", "shared"),
        ("taskowned/a", "shared"),
        ("foreign/1234-a", "foreign"),
    ],
)
def test_files_of_other_jobs_are_foreign_also_in_a_replica(file, place):
    directories = Directories("hdfs://b/job/chk-7", "hdfs://b/job")
    assert PLACES[directories.place(f"hdfs://b/job/{file}")] == place
    assert PLACES[directories.place(f"hdfs://b/other/{file}")] == "foreign"
