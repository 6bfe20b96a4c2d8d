"""Batches and outcomes arrive as they were sent."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpreplicate.core.closure import File, FileTable
from cpreplicate.protocol.lease import LeaseToken
from cpreplicate.runners import Copies, Copy, Delete, Outcome, Part, Planned, Read
from cpreplicate.runners.spark.transport import (
    IndexedOutcome,
    decode,
    decode_outcomes,
    encode,
    encode_outcomes,
)
from cpreplicate.runners.tasks import CopyRange

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
NUMBER = st.integers(0, (1 << 63) - 1)
CRC32C = st.integers(0, (1 << 32) - 1)
STEM = "hdfs://b/replica/packed/run"
TOKEN = LeaseToken("hdfs://b/replica/.cpreplicate/lease", "0123")
ACTIONS = st.one_of(
    st.builds(
        Copy,
        TEXT,
        TEXT,
        NUMBER,
        NUMBER,
        st.sampled_from([None, TOKEN]),
        st.sampled_from([None, STEM]),
        st.none() | st.builds(Part, NUMBER, CRC32C),
        st.just("hdfs://b/replica"),
    ),
    st.builds(
        CopyRange,
        *(TEXT, TEXT, NUMBER, NUMBER, NUMBER, st.booleans(), TEXT),
        st.just("hdfs://b/replica"),
    ),
    st.builds(Read, TEXT, NUMBER, st.none() | TEXT, NUMBER),
    st.builds(Delete, TEXT, st.floats(allow_nan=False), st.none() | TEXT),
)
OUTCOMES = st.builds(
    Outcome,
    st.just("t"),
    NUMBER,
    st.none() | CRC32C,
    st.floats(allow_nan=False),
    st.none() | TEXT,
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.none() | TEXT,
    NUMBER,
    st.booleans(),
    st.none() | NUMBER,
    st.none() | CRC32C,
    st.booleans(),
    st.none() | TEXT,
)


@given(st.lists(ACTIONS))
def test_a_batch_arrives_as_it_was_sent(batch):
    assert decode(encode(batch)) == batch


@given(
    st.sampled_from(["", "hdfs://a/job/"]),
    st.lists(st.builds(File, TEXT, NUMBER, NUMBER, st.booleans())),
    st.data(),
)
def test_copies_of_a_plan_arrive_as_those_that_they_are_when_looked_at(origin, files, data):
    targets = [f"shared/{number}" for number in range(len(files))]
    beside = data.draw(st.sets(st.sampled_from(targets))) if targets else ()
    files = [
        file._replace(uri=origin + target) if target in beside else file
        for file, target in zip(files, targets, strict=True)
    ]
    packed = frozenset(data.draw(st.sets(st.sampled_from(targets))) if targets else ())
    table = FileTable.of(dict(zip(targets, files, strict=True)))
    planned = Copies(Planned(origin, "hdfs://b/replica/", table, TOKEN, STEM, packed))
    assert list(planned.sizes()) == [max(copy.extent, copy.size) for copy in planned]
    picked = planned.take(
        np.array(data.draw(st.permutations(range(len(files)))), np.int64)[: len(files) // 2 + 1]
    )
    assert decode(encode(picked)) == list(picked)
    assert [copy.source for copy in planned] == [file.uri for file in files]
    assert [planned[index] for index in range(len(planned))] == list(planned)
    assert set(picked) <= set(planned)
    assert set(planned.places()) >= {"hdfs://b/replica/"} | {
        file.uri for file in files if not file.uri.startswith(origin)
    }


@given(st.lists(OUTCOMES))
def test_outcomes_arrive_with_the_place_of_their_action(outcomes):
    indexed = [IndexedOutcome(position, outcome) for position, outcome in enumerate(outcomes)]
    batch = [Delete("t")] * len(outcomes)
    assert decode_outcomes(encode_outcomes(reversed(indexed)), batch) == indexed[::-1]


@pytest.mark.parametrize("count", [1_000, 10_000])
def test_a_file_takes_few_bytes_on_its_way(count):
    names = [f"{n * 2654435761 % 2**32:08x}-{n:024x}" for n in range(count)]
    batch = [
        Copy(f"hdfs://dcA/flink/{'5' * 32}/shared/{name}", f"hdfs://dcB/flink/{name}", 1 << 20)
        for name in names
    ]
    assert len(encode(batch)) < 41 * count
