"""Which offsets the positions of a derived checkpoint get: from a CSV file, or as they were."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from cpreplicate.core.positions.model import Position
from cpreplicate.errors import Refused, UsageError

Partition: TypeAlias = tuple[str, int]
"""A topic and the number of a partition of it."""

_HEAD = ["topic", "partition", "offset"]
_MOST = (1 << 63) - 1


class Move(NamedTuple):
    """One position of a checkpoint, and what it becomes.

    `topic` is its new name. `offset` is the new one, None if the position stays. `lost` and
    `doubled` count the records that are not read, or read again, None if that is not known.
    """

    position: Position
    topic: str
    offset: int | None = None
    lost: int | None = None
    doubled: int | None = None

    @property
    def partition(self) -> Partition:
        """The partition, by its new name."""
        return self.topic, self.position.partition


Choice: TypeAlias = Callable[[Sequence[Move]], Sequence[Move]]
"""Return positions with their new offsets, of positions with their new topics."""


def unchanged(moves: Sequence[Move]) -> Sequence[Move]:
    """Return the positions as they are."""
    return moves


def as_given(offsets: Mapping[Partition, int]) -> Choice:
    """Return the choice of these offsets. Partitions without one keep their position.

    The choice raises `Refused` for a partition that the checkpoint does not hold, and for one that
    no reader holds and whose coordinator has no offsets.
    """

    def choose(moves: Sequence[Move]) -> Sequence[Move]:
        held = {move.partition for move in moves}
        if absent := sorted(offsets.keys() - held):
            topic, partition = absent[0]
            raise Refused(
                f"an offset is given for {topic} partition {partition}, which the checkpoint does"
                " not hold. Nothing was written. Topics are named as at B: --rename-topic maps"
                " those of the checkpoint to them"
            )
        return [_moved(move, offsets.get(move.partition)) for move in moves]

    return choose


def looked_up(lookup: Callable[[Sequence[Partition]], Mapping[Partition, int]]) -> Choice:
    """Return the choice of the offsets that `lookup` has of the partitions that are there."""

    def choose(moves: Sequence[Move]) -> Sequence[Move]:
        return as_given(lookup(sorted({move.partition for move in moves})))(moves)

    return choose


def _moved(move: Move, offset: int | None) -> Move:
    position = move.position
    if offset is None or offset == position.offset:
        return move
    if position.offset is None and position.marker is None:
        raise Refused(
            f"{move.topic} partition {position.partition} is held by no reader, and this version of"
            " the connector records no offset of it: the initializer of the source decides where it"
            " begins. Nothing was written. Leave it out"
        )
    return move._replace(offset=offset)


def parse(lines: Iterable[str], name: str) -> dict[Partition, int]:
    """Return the offset of each partition from the lines of a CSV file: topic, partition, offset.

    A head with these words may come first. Raises `UsageError`, which names the file and the line.
    """
    offsets: dict[Partition, int] = {}
    reader = csv.reader(lines)
    for row in reader:
        place = f"{name}, line {reader.line_num}"
        cells = [cell.strip() for cell in row]
        if not any(cells) or (not offsets and cells == _HEAD):
            continue
        partition, offset = _row(cells, place)
        if partition in offsets:
            raise UsageError(f"{place}: {cells[0]} partition {cells[1]} is there twice")
        offsets[partition] = offset
    if not offsets:
        raise UsageError(f"{name} has no offset. Each line is topic,partition,offset")
    return offsets


def _row(cells: list[str], place: str) -> tuple[Partition, int]:
    if len(cells) != len(_HEAD) or not all(cell.isdecimal() for cell in cells[1:]):
        raise UsageError(f"{place}: expected topic,partition,offset, such as orders,0,4711")
    partition, offset = int(cells[1]), int(cells[2])
    if partition >= 1 << 31 or offset > _MOST:
        raise UsageError(f"{place}: a number is larger than Kafka has")
    return (cells[0], partition), offset
