"""Bytes by kind of state and by place are those of the handles, one by one."""

from collections import Counter

import numpy as np
import pytest

from cpreplicate.core import uri
from cpreplicate.core.closure import closure
from cpreplicate.core.contents import KINDS, PLACES, Directories, contents, sums
from cpreplicate.core.metadata import decode
from tests.support.corpus import ROOT

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
    held = contents(metadata, needed, Directories(checkpoint, root), {})
    kinds: Counter[tuple[int | None, str]] = Counter()
    places: Counter[tuple[int | None, str]] = Counter()
    files = []
    for handle in metadata.handles:
        if handle.kind != "directory":
            kind = "changelog" if handle.part == "delta" else KIND_OF[handle.state]
            kinds[handle.operator, kind] += handle.size
            place = place_of(handle, needed.uris, checkpoint, root)
            places[handle.operator, place] += handle.size
            files.append(None if handle.path is None else needed.uris[handle.path])
    for column, names, expected in ((held.kind, KINDS, kinds), (held.place, PLACES, places)):
        found = sums(held.operator.astype(np.int64) * len(names) + column, held.size)
        named = {(key // len(names), names[key % len(names)]): size for key, size in found.items()}
        assert named == expected
    known = list(needed.files)
    assert [None if each < 0 else known[each] for each in held.file.tolist()] == files


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
