"""Checkpoints of jobs that read from Kafka and write to it, made as a test wants them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cpreplicate.core.positions.offsets import as_given
from cpreplicate.operations.kafka.rebase import RebaseRequest, rebase
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.operations.sync.sync import sync
from cpreplicate.runners import ExecutionOptions
from tests.support import kafka_states as written
from tests.support.encoder import (
    Inline,
    OperatorEntry,
    OperatorState,
    RelativeFile,
    Segment,
    Stream,
    Subtask,
    Tree,
    encode,
)
from tests.support.jobs import JOB
from tests.support.kafka_states import Split, Transaction

ROOT = Path(__file__).parent.parent / "data" / "corpus-kafka"
SOURCE, SINK = bytes([7]) * 16, bytes([8]) * 16


def inline(data: bytes) -> Inline:
    return Inline("handle", data)


def subtask(index: int, states: written.Stream, delegate: Stream) -> Subtask:
    """A subtask whose operator state is in `delegate`."""
    lists = tuple((name, 0, offsets) for name, offsets in states.offsets.items())
    directories = ("file:/t/taskowned", "file:/t/shared") if isinstance(delegate, Segment) else None
    return Subtask(index, OperatorState(lists, delegate, directories))


def source_operator(subtasks: Sequence[Subtask], coordinator: bytes) -> OperatorEntry:
    state = inline(coordinator)
    return OperatorEntry(SOURCE, len(subtasks), 128, tuple(subtasks), state, "Source: orders")


def sink_operator(*transactions: Transaction, checkpoint: int = 1) -> OperatorEntry:
    states = written.stream({written.COMMITTER: [written.committables(checkpoint, transactions)]})
    subtasks = (subtask(0, states, inline(states.data)),)
    return OperatorEntry(SINK, 1, 16, subtasks, None, "out: Committer")


def kafka_metadata(
    splits: Sequence[Split],
    transactions: Sequence[Transaction] = (),
    number: int = 1,
    parallelism: int = 1,
) -> bytes:
    """The `_metadata` of a job with a Kafka source, all of whose state is inline."""
    subtasks = []
    for index in range(parallelism):
        own = [split.element for split in splits[index::parallelism]]
        states = written.stream({written.READERS: own})
        subtasks.append(subtask(index, states, inline(states.data)))
    operators = [source_operator(subtasks, written.coordinator(3, splits))]
    if transactions:
        operators.append(sink_operator(*transactions, checkpoint=number))
    return bytes(encode(Tree(6, tuple(operators), number)).data)


def put_kafka_checkpoint(
    root: Path,
    number: int,
    splits: Sequence[Split],
    transactions: Sequence[Transaction] = (),
    job: str = JOB,
) -> Path:
    """A completed checkpoint of a job under `root` that holds these positions."""
    directory = root / job / f"chk-{number}"
    directory.mkdir(parents=True)
    (directory / "_metadata").write_bytes(kafka_metadata(splits, transactions, number))
    return directory


def put_with_files(root: Path, number: int, splits: Sequence[Split]) -> Path:
    """The same, but each split's subtask has its state in a file of its own below `chk-N`."""
    directory = root / JOB / f"chk-{number}"
    directory.mkdir(parents=True)
    subtasks = []
    for index, split in enumerate(splits):
        states = written.stream({written.READERS: [split.element]})
        (directory / f"state-{index}").write_bytes(states.data)
        subtasks.append(subtask(index, states, RelativeFile(f"state-{index}", len(states.data))))
    tree = Tree(6, (source_operator(subtasks, written.coordinator(3, splits)),), number)
    (directory / "_metadata").write_bytes(encode(tree).data)
    return directory


def replicated_with_derived(root: Path) -> tuple[Path, str]:
    """The replica below `root/dcB` of chk-1, and the name of a checkpoint derived in it.

    The two share the file of one of two subtasks.
    """
    put_with_files(root / "dcA", 1, [Split("orders", 0, 7), Split("orders", 1, 8)])
    source, execution = f"file:{root}/dcA/{JOB}", ExecutionOptions(runner="inline")
    sync(SyncRequest(source, f"file:{root}/dcB", execution=execution), lambda _line: None)
    request = RebaseRequest(f"file:{root}/dcB/{JOB}", choice=as_given({("orders", 0): 9}))
    return root / "dcB" / JOB, rebase(request, lambda _line: None).name
