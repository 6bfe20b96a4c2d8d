"""100,000 damaged files: each raises `MetadataError`, or can be rewritten and placed."""

import random
import tracemalloc
from collections import Counter

import pytest

from cpreplicate.core.metadata.handle import KINDS, PARTS, STATES
from tests.support import parts
from tests.support.fuzz import (
    DAMAGES,
    VERSIONS,
    corpus,
    generated,
    read,
    rows,
    rows_one_by_one,
    seed,
    survives,
)
from tests.support.generate import synthetic

MUTATIONS = 100_000
# later versions end with properties that nobody looks into: cut there, a file can be read
ENDING_WITH_THE_BODY = (
    2,
    3,
)


def seeds(version):
    """All files to be damaged, and those of one version."""
    every = [*corpus(), *(one for each in VERSIONS for one in generated(each))]
    return every, [one for one in every if one.version == version]


@pytest.mark.parametrize("mutations", [MUTATIONS // 6, parts.rest(MUTATIONS)])
@pytest.mark.parametrize("version", VERSIONS)
def test_damage_of_every_kind_gives_metadata_errors_or_readings_that_can_be_used(
    version, mutations
):
    draw, (every, own) = random.Random(version * mutations), seeds(version)
    rounds = mutations // len(VERSIONS) // len(DAMAGES)
    accepted: Counter[object] = Counter()
    for _ in range(rounds):
        for name, damaged in DAMAGES.items():
            accepted[name] += survives(damaged(draw.choice(own), draw, every))
    whole = {"truncation"} if version in ENDING_WITH_THE_BODY else set()
    assert {name for name in DAMAGES if not accepted[name]} == whole
    assert max(accepted.values()) < rounds


@pytest.mark.parametrize("version", VERSIONS)
def test_damaged_files_are_read_the_same_from_bytes_from_a_stream_and_entry_by_entry(version):
    draw, (every, own) = random.Random(version), seeds(version)
    for _ in range(100):
        for damaged in DAMAGES.values():
            data = damaged(draw.choice(own), draw, every)
            assert rows(data) == rows(data, stream=True) == rows_one_by_one(data)


def test_damaged_files_larger_than_the_window_are_read_the_same_from_a_stream():
    draw, large = random.Random(8), seed(b"".join(synthetic(references=9000, subtasks=3)))
    for name in ("bit flip", "lie anywhere", "lie of a field", "piece repeated"):
        for _ in range(20):
            data = DAMAGES[name](large, draw, ())
            assert rows(data) == rows(data, stream=True, window=1)


def test_no_lie_costs_memory():
    draw, (every, _) = random.Random(9), seeds(2)
    for one in every:
        for _ in range(10):
            data = DAMAGES["lie of a field"](one, draw, ())
            assert peak(data) < 40 * len(data) + (1 << 20)


def peak(data):
    """Bytes allocated at most while a file is read."""
    tracemalloc.start()
    try:
        read(data)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("version", VERSIONS)
def test_the_files_that_are_damaged_have_every_handle_and_can_be_placed(version):
    handles = [handle for one in generated(version) for handle in read(one.data).handles]
    assert {handle.kind for handle in handles} == set(KINDS)
    assert {handle.part for handle in handles} == set(PARTS)
    assert {handle.state for handle in handles} == {
        state for state in STATES if version > 2 or state in STATES[1:5]
    }
    assert all(survives(one.data) for one in seeds(version)[1])
