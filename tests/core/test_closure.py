"""From handles to the files that a restore needs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpreplicate.core import uri
from cpreplicate.core.closure import closure, job_directory
from cpreplicate.core.metadata import decode
from cpreplicate.core.uri import Remap
from cpreplicate.errors import Refused
from tests.support.corpus import RECORDED, ROOT
from tests.support.generate import generate

BASE = "hdfs://dcA/ckpt/job/chk-7"


def corpus(folder, name):
    place = next((ROOT / folder).glob(f"ckpt/*/{name}"))
    return decode((place / "_metadata").read_bytes(), f"{RECORDED}/{place.relative_to(ROOT)}")


@given(st.integers(0, 1 << 32), st.integers(2, 6))
def test_every_file_that_a_handle_names_is_there_once_with_its_greatest_extent(seed, version):
    metadata = decode(generate(seed, version).data, BASE)
    remaps = (Remap("hdfs://dcA", "file:/mnt"), Remap("file:", "s3:"))
    try:
        places = {
            handle: uri.remap(uri.resolve(handle.path, BASE), remaps)
            for handle in metadata.handles
            if handle.path
        }
    except Refused:
        with pytest.raises(Refused):
            closure(metadata, remaps)
        return
    found = closure(metadata, remaps)
    extents: dict[str, int] = {}
    for handle, place in places.items():
        if handle.kind != "directory":
            extent = (
                0
                if handle.part == "delta" and handle.kind != "segment"
                else min(handle.size + (handle.position or 0), 2**63 - 1)
            )
            extents[place] = max(extent, extents.get(place, 0))
        assert found.uri_of(handle) == place
    assert {file.uri: file.extent for file in found.files.values()} == extents
    assert found.parents == uri.directories(extents)
    files = [(handle.path, place) for handle, place in places.items() if handle.kind != "directory"]
    odd = {
        place
        for path, place in files
        if not (uri.plain_name(uri.name(path)) and uri.plain_name(uri.name(place)))
    }
    assert found.plain == found.parents - uri.directories(odd)


def test_segments_of_one_file_need_it_up_to_the_end_of_the_last():
    metadata = corpus("2.3.0-filemerge", "chk-5")
    found = closure(metadata)
    for file in found.files.values():
        ends = [
            h.position + h.size
            for h in metadata.handles
            if h.kind == "segment" and found.uri_of(h) == file.uri
        ]
        assert file.extent == max(ends)
        assert file.segment


def test_a_changelog_file_needs_no_length_because_its_handles_record_another():
    found = closure(corpus("2.3.0-changelog", "chk-8"))
    assert {file.extent for place, file in found.files.items() if "/dstl/" in place} == {0}
    assert all(file.extent > 0 for place, file in found.files.items() if "/taskowned/" in place)


@pytest.mark.parametrize("below", ["shared/a", "taskowned/a", "chk-7/a"])
def test_the_directory_of_a_job_is_found_from_each_kind_of_file(below):
    assert job_directory(f"hdfs://dcA/ckpt/job1/{below}") == "hdfs://dcA/ckpt/job1"
