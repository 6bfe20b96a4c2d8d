"""The list states of operators are found where they are, through any window."""

import io

import pytest

from cpreplicate.core.metadata import decode
from cpreplicate.core.metadata.operator_states import CoordinatorState, ListStates, operator_states
from tests.support import kafka_states as written
from tests.support.encoder import Inline, Master, OperatorEntry, Subtask, Tree, encode
from tests.support.kafka_jobs import inline, kafka_metadata, source_operator, subtask
from tests.support.kafka_states import Split, Transaction

BASE = "hdfs://dcA/job/chk-7"
NAMES = frozenset({written.READERS, written.COMMITTER})
SPLITS = [Split("orders", partition, partition) for partition in range(60_000)]


def found_in(data, names=NAMES, **options):
    metadata = decode(data, BASE)
    return list(operator_states(data, metadata, names, **options))


def test_a_stream_gives_the_same_states_as_bytes():
    data = kafka_metadata(SPLITS, [Transaction("tx", 1)], parallelism=16)
    wanted = found_in(data)
    assert len(data) > 4 << 20
    assert found_in(io.BytesIO(data), window=3 << 20) == wanted
    assert sum(len(each.offsets[written.READERS]) for each in wanted[1:17]) == len(SPLITS)
    assert [type(each) for each in wanted] == [CoordinatorState, *[ListStates] * 17]


def test_states_of_other_names_are_left_out():
    assert [type(each) for each in found_in(kafka_metadata(SPLITS[:4]), frozenset({"x"}))] == [
        CoordinatorState
    ]


def test_each_state_is_of_its_operator():
    empty = written.stream({written.READERS: []})
    first = OperatorEntry(bytes(16), 1, 16, (Subtask(0),))
    second = source_operator([subtask(0, empty, inline(empty.data))], b"coordinator")
    data = encode(Tree(6, (first, second), masters=(Master("m", b"x"),))).data
    coordinator, lists = found_in(data)
    assert coordinator[:2] == (1, b"coordinator")
    assert (lists.operator, lists.offsets, lists.inline) == (
        1,
        {written.READERS: ()},
        empty.data,
    )


@pytest.mark.parametrize("version", range(2, 7))
def test_every_version_of_the_metadata_is_read(version):
    states = written.stream({written.READERS: [b"element"]})
    subtasks = (subtask(0, states, Inline("name", states.data)),)
    operator = OperatorEntry(bytes(16), 1, 16, subtasks)
    (lists,) = found_in(encode(Tree(version, (operator,))).data)
    assert lists.inline == states.data


def test_a_coordinator_with_a_state_of_many_megabytes_is_not_read():
    operator = source_operator([], bytes(9 << 20))
    tree = Tree(6, (OperatorEntry(operator.identity, 1, 16, (), operator.coordinator),))
    (coordinator,) = found_in(encode(tree).data)
    assert coordinator[:2] == (0, None)
