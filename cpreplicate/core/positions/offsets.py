"""Which offsets the positions of a derived checkpoint get: from a CSV file, or as they were."""

from __future__ import annotations

import csv
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from cpreplicate.core.positions.model import Position
from cpreplicate.core.positions.topics import TOPIC_RULE, Topics, is_topic
from cpreplicate.core.sizes import counted
from cpreplicate.errors import Refused, UsageError

Partition: TypeAlias = tuple[str, int]
"""A topic and the number of a partition of it."""

_HEAD = ["topic", "partition", "offset"]
_OPERATOR = "operator"  # the name of a fourth column
_MOST = (1 << 63) - 1
_DIGITS = 19  # of the largest number
_SHOWN = 60  # letters of a topic in a message
_NAMED = 3  # partitions in a message


class Move(NamedTuple):
    """One position of a checkpoint, and what it becomes.

    `topic` is its new name. `offset` is the new one, None if the position stays. `lost` and
    `doubled` count the records that are not read, or read again, None if that is not known. `name`
    is that of the operator, where the checkpoint has it.
    """

    position: Position
    topic: str
    offset: int | None = None
    lost: int | None = None
    doubled: int | None = None
    name: str | None = None

    @property
    def partition(self) -> Partition:
        """The partition, by its new name."""
        return self.topic, self.position.partition


Choice: TypeAlias = Callable[[Sequence[Move]], Sequence[Move]]
"""Return positions with their new offsets, of positions with their new topics."""


def unchanged(moves: Sequence[Move]) -> Sequence[Move]:
    """Return the positions as they are."""
    return moves


class Row(NamedTuple):
    """An offset that is given for a partition, of one operator or of the only one that holds it.

    `operator` is an id or a name. `place` is where it is written: a file and a line.
    """

    topic: str
    partition: int
    offset: int
    operator: str | None = None
    place: str | None = None


def as_given(offsets: Mapping[Partition, int]) -> Choice:
    """Return the choice of these offsets. Partitions without one keep their position.

    The choice raises as that of `as_rows`.
    """
    return as_rows([Row(*partition, offset) for partition, offset in offsets.items()])


def as_rows(rows: Sequence[Row], there: Topics | None = None) -> Choice:
    """Return the choice of the offsets in some rows. Partitions without one keep their position.

    `there` are the topics of the Kafka that the offsets are of, where it is asked. The choice
    raises `UsageError` for a row with a place, else `Refused`: if its partition is not in the
    checkpoint or not at that Kafka, if several operators hold it and the row names none of them, or
    if another row is for the same one. It raises `Refused` for a partition that no reader holds and
    whose coordinator has no offsets.
    """

    def choose(moves: Sequence[Move]) -> Sequence[Move]:
        by_partition: dict[Partition, list[int]] = {}
        for index, move in enumerate(moves):
            by_partition.setdefault(move.partition, []).append(index)
        offsets: dict[int, int] = {}
        for row in rows:
            _refuse_absent(row, by_partition, there)
            index = _of_row(row, by_partition[row.topic, row.partition], moves)
            if index in offsets:
                raise _wrong(row, f"{row.topic} partition {row.partition} is there twice")
            offsets[index] = row.offset
        return [_moved(move, offsets.get(index)) for index, move in enumerate(moves)]

    return choose


def _refuse_absent(row: Row, held: Collection[Partition], there: Topics | None) -> None:
    """Raise if a row's partition is not in the checkpoint, or not at the Kafka that was asked."""
    named = f"{row.topic} partition {row.partition}"
    if (row.topic, row.partition) not in held:
        raise _wrong(
            row,
            f"an offset is given for {named}, which the checkpoint does not hold. Nothing was"
            " written. Topics are named as at B: --rename-topic maps those of the checkpoint to"
            " them",
        )
    if there is not None and row.partition not in there.get(row.topic, ()):
        raise _wrong(row, f"{named} is not at --kafka. Nothing was written")


def _of_row(row: Row, indices: Sequence[int], moves: Sequence[Move]) -> int:
    """Return which of the moves of a partition a row is for."""
    fitting = [
        index
        for index in indices
        if row.operator is None
        or row.operator in (moves[index].position.operator, moves[index].name)
    ]
    if len(fitting) == 1:
        return fitting[0]
    some = ", ".join(sorted({moves[index].position.operator for index in indices}))
    named = f"{row.topic} partition {row.partition}"
    raise _wrong(
        row,
        f"{named} is not held by exactly one operator of this name. Nothing was written. Those that"
        f" hold it: {some}"
        if row.operator is not None
        else f"{named} is held {len(fitting)} times, each with a position of its own, by {some}."
        " Nothing was written. Give a CSV file with a fourth column, operator: its id or its name",
    )


def _wrong(row: Row, text: str) -> UsageError | Refused:
    """Return the error about a row: the mistake of who wrote it, if it has a place."""
    return Refused(text) if row.place is None else UsageError(f"{row.place}: {text}")


def looked_up(lookup: Callable[[Sequence[Partition]], Mapping[Partition, int]]) -> Choice:
    """Return the choice of the offsets that `lookup` has of the partitions.

    Partitions without an offset of their own keep what they have, unless it has one. The choice
    raises `Refused` if it has none of another partition: what is left would be of another Kafka.
    """

    def choose(moves: Sequence[Move]) -> Sequence[Move]:
        asked = {
            move.partition: move.position.offset
            for move in moves
            if move.position.detail is None
            and (move.position.offset is not None or move.position.marker is not None)
        }
        found = lookup(sorted(asked))
        absent = [each for each in asked if each not in found and asked[each] is not None]
        if absent:
            some = ", ".join(f"{topic} partition {each}" for topic, each in absent[:_NAMED])
            raise Refused(
                f"the group has no offset of {len(absent)} of {counted(len(asked), 'partition')}:"
                f" {some}. Nothing was written. A mirror that does not translate them yet leaves"
                " them out: wait for it, or give offsets by a CSV file"
            )
        return as_given(found)(moves)

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


def parse(lines: Iterable[str], name: str) -> list[Row]:
    """Return the rows of a CSV file: topic, partition, offset, and optionally the operator.

    A head with these words may come first. Raises `UsageError`, which names the file and the line.
    """
    rows: dict[tuple[str, int, str | None], Row] = {}
    reader = csv.reader(lines, strict=True)
    while (cells := _next(reader, name)) is not None:
        place = f"{name}, line {reader.line_num}"
        if not any(cells) or (not rows and cells in (_HEAD, [*_HEAD, _OPERATOR])):
            continue
        row = _row(cells, place)
        if rows.setdefault((row.topic, row.partition, row.operator), row) is not row:
            raise UsageError(f"{place}: {row.topic} partition {row.partition} is there twice")
    if not rows:
        raise UsageError(f"{name} has no offset. Each line is topic,partition,offset")
    return list(rows.values())


def _next(reader: Any, name: str) -> list[str] | None:
    """Return the cells of the next row, None at the end. Raises `UsageError` if it is no CSV."""
    try:
        cells: list[str] | None = next(reader, None)
    except csv.Error as error:
        raise UsageError(f"{name}, line {reader.line_num}: it is not CSV: {error}") from error
    return None if cells is None else [cell.strip() for cell in cells]


def _row(cells: list[str], place: str) -> Row:
    numbers = cells[1 : len(_HEAD)]
    has_operator = len(cells) == len(_HEAD) + 1
    is_form = len(cells) == len(_HEAD) or has_operator
    if not is_form or not all(cell.isascii() and cell.isdecimal() for cell in numbers):
        raise UsageError(f"{place}: expected topic,partition,offset, such as orders,0,4711")
    if not is_topic(cells[0]):
        raise UsageError(f"{place}: {cells[0][:_SHOWN]} is no name of a topic: {TOPIC_RULE}")
    if any(len(cell.lstrip("0")) > _DIGITS for cell in numbers):
        raise UsageError(f"{place}: a number is larger than Kafka has")
    partition, offset = (int(cell[-_DIGITS:]) for cell in numbers)
    if partition >= 1 << 31 or offset > _MOST:
        raise UsageError(f"{place}: a number is larger than Kafka has")
    operator = cells[len(_HEAD)] or None if has_operator else None
    return Row(cells[0], partition, offset, operator, place)
