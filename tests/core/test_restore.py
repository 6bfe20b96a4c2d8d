"""How the references of a replica's `_metadata` are spelled."""

import io
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpreplicate.core.closure import closure
from cpreplicate.core.ledger import Member, MemberTable
from cpreplicate.core.metadata import Handle, decode, rewrite
from cpreplicate.core.placement import Placement
from cpreplicate.core.restore import PathSpeller
from cpreplicate.errors import MetadataError, Refused
from tests.support.corpus import RECORDED, ROOT
from tests.support.generate import generate, synthetic

JOB = "hdfs://dcA/ckpt/job"
BASE = f"{JOB}/chk-7"
PLACEMENT = Placement(BASE, JOB, "chk-7")


def spelled(data, metadata, placement, mode, members, at_once):
    """Return the rewritten bytes, or the error; `at_once` moves what keeps its name together."""
    files = closure(metadata)
    arguments = (files, placement, "hdfs://dcB/job", mode, members)
    speller = PathSpeller(*arguments)
    try:
        return b"".join(rewrite(data, metadata, speller, speller.moves() if at_once else None))
    except (MetadataError, ValueError) as error:
        return str(error)


def some_packed(metadata, placement, number):
    """Return some of the files as members of packs."""
    needed = placement.place_all(closure(metadata).files)
    plain = [path for path, file in needed.items() if not file.segment]
    return MemberTable.of(
        {path: Member("packed/run-1", 10 * row, 7, 1) for row, path in enumerate(plain[:number])}
    )


@given(
    st.integers(0, 1 << 32),
    st.integers(2, 6),
    st.sampled_from(["relative", "absolute"]),
    st.integers(0, 3),
)
def test_what_is_moved_at_once_is_spelled_as_each_handle_by_itself(seed, version, mode, packed):
    data = bytes(generate(seed, version).data)
    metadata = decode(data, BASE)
    try:
        members = some_packed(metadata, PLACEMENT, packed)
    except Refused:
        return  # names a file that no filesystem could hold
    one_by_one = spelled(data, metadata, PLACEMENT, mode, members, at_once=False)
    assert spelled(data, metadata, PLACEMENT, mode, members, at_once=True) == one_by_one
    assert spelled(io.BytesIO(data), metadata, PLACEMENT, mode, members, True) == one_by_one


@pytest.mark.parametrize("mode", ["relative", "absolute"])
@pytest.mark.parametrize("place", sorted(ROOT.glob("*/ckpt/*/chk-*")), ids=lambda p: p.parts[-4])
def test_real_checkpoints_are_spelled_alike_at_once_and_one_by_one(place, mode):
    base = f"{RECORDED}/{place.relative_to(ROOT)}"
    data = (place / "_metadata").read_bytes()
    metadata = decode(data, base)
    placement = Placement(base, base.rpartition("/")[0], place.name)
    members = some_packed(metadata, placement, 2)
    at_once = spelled(data, metadata, placement, mode, members, at_once=True)
    assert at_once == spelled(data, metadata, placement, mode, members, at_once=False)


def test_a_plain_file_that_moves_with_its_directory_is_not_asked_for():
    data = b"".join(synthetic(10_000, 3, directory=JOB))
    metadata = decode(data, BASE)
    files = closure(metadata)
    arguments = (files, PLACEMENT, "hdfs://dcB/job", "relative", MemberTable.of({}))
    asked: list[Handle] = []
    pieces = rewrite(data, metadata, asked.append, PathSpeller(*arguments).moves())
    after = decode(b"".join(pieces), "hdfs://dcB/job/chk-7")
    assert asked == []
    first = next(path for path in islice(after.handles.paths(), 10) if path and "shared" in path)
    assert first.startswith("../shared/")


def test_a_directory_whose_new_path_is_too_long_for_the_format_is_refused():
    data = b"".join(synthetic(5, directory=JOB))
    metadata = decode(data, BASE)
    arguments = (closure(metadata), PLACEMENT, f"hdfs://dcB/{'x' * 65_530}", "absolute")
    speller = PathSpeller(*arguments)
    with pytest.raises(MetadataError, match="the format holds at most"):
        list(rewrite(data, metadata, speller, speller.moves()))
