"""The offsets that exist in the partitions of a Kafka, and positions that do not. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from cpreplicate.core.positions.model import PendingTransaction, Position, Positions
from cpreplicate.core.positions.offsets import Choice, Move, Partition
from cpreplicate.errors import Refused

Trouble = Literal["no-topic", "no-partition", "beyond-end", "deleted", "pending", "other-servers"]


class Range(NamedTuple):
    """The offsets of a partition: of its first record, and behind its last one."""

    begin: int
    end: int


Ranges = Mapping[Partition, Range]
"""Those of the partitions that exist."""


class Problem(NamedTuple):
    """What is in the way of a start at another Kafka: a position, or a pending transaction.

    `range` is that of the partition, None if it does not exist.
    """

    trouble: Trouble
    operator: str
    position: Position | None = None
    transaction: PendingTransaction | None = None
    range: Range | None = None


def partitions_of(positions: Positions) -> list[Partition]:
    """Return the partitions of some positions, each once, in order."""
    return sorted({(each.topic, each.partition) for each in positions.positions})


def problems(
    held: Positions, ranges: Ranges, topics: Collection[str], is_same_kafka: bool = False
) -> Iterator[Problem]:
    """Yield why a job cannot go on from these positions at a Kafka with these ranges and topics.

    `is_same_kafka`: it is the one that the job wrote to, which knows its transactions.
    """
    for position in held.positions:
        trouble = _trouble(position, ranges, topics)
        if trouble is not None:
            found = ranges.get((position.topic, position.partition))
            yield Problem(trouble, position.operator, position, range=found)
    for transaction in () if is_same_kafka else held.pending:
        yield Problem("pending", transaction.operator, transaction=transaction)


def _trouble(position: Position, ranges: Ranges, topics: Collection[str]) -> Trouble | None:
    if position.topic not in topics:
        return "no-topic"
    found = ranges.get((position.topic, position.partition))
    if found is None:
        return "no-partition"
    if position.offset is None:
        return None
    if position.offset > found.end:
        return "beyond-end"
    return "deleted" if position.offset < found.begin else None


def behind(held: Positions, ranges: Ranges) -> int:
    """Return by how many records the ends of these ranges trail some positions."""
    return sum(
        max(0, position.offset - ranges[position.topic, position.partition].end)
        for position in held.positions
        if position.offset is not None and (position.topic, position.partition) in ranges
    )


def clamped(ranges: Callable[[Sequence[Partition]], Ranges]) -> Choice:
    """Return the choice of the nearest offset that exists, by the ranges that are looked up.

    It says how many records are not read, or read again once they are there. Markers stay. The
    choice raises `Refused` for a partition that does not exist.
    """

    def choose(moves: Sequence[Move]) -> Sequence[Move]:
        found = ranges(sorted({move.partition for move in moves}))
        return [_clamped(move, found) for move in moves]

    return choose


def _clamped(move: Move, ranges: Ranges) -> Move:
    range_, offset = ranges.get(move.partition), move.position.offset
    if range_ is None:
        raise Refused(
            f"{move.topic} has no partition {move.position.partition} there. Nothing was written."
            " Create the topic with as many partitions, or give its name there with --rename-topic"
        )
    if offset is None:
        return move
    new = min(max(offset, range_.begin), range_.end)
    counts = move._replace(lost=max(0, new - offset), doubled=max(0, offset - new))
    return counts if new == offset else counts._replace(offset=new)
