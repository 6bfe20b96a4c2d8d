"""Positions, pending transactions and part files, and what a decoder of them takes and returns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol

Marker = Literal["earliest", "latest", "committed"]
FileKind = Literal["in-progress", "pending", "to-remove", "bucket"]


class Unreadable(ValueError):
    """A state that cannot be read; the message says why, to be put behind the operator's name."""


class AnotherConnector(Unreadable):
    """A state that has the name of one that is read, and is of another connector."""


class Position(NamedTuple):
    """Where a job reads on in one partition of a source.

    `offset` is the next record to read. It is None while `marker` says where the job begins, and
    both are None for a partition that no reader holds and that has no offset yet: the source's
    initializer decides. `stop` is where a bounded source ends, and `stop_marker` where it ends
    while that is not resolved. `cluster` and `servers` are those of a DynamicKafkaSource. `detail`
    is the position of another kind of source, which has no offset.
    """

    operator: str
    topic: str
    partition: int
    offset: int | None = None
    marker: Marker | None = None
    stop: int | None = None
    stop_marker: Marker | None = None
    cluster: str | None = None
    servers: str | None = None
    detail: str | None = None


class PendingTransaction(NamedTuple):
    """A transaction that a checkpoint completed and that the restored job is to commit.

    `checkpoint` is None of a `FlinkKafkaProducer`, which does not record it.
    """

    operator: str
    transactional_id: str
    producer_id: int
    epoch: int
    checkpoint: int | None


class PartFile(NamedTuple):
    """A file outside of the checkpoint that the state of a sink of files names.

    A restored job goes on with one that is `in-progress`, commits a `pending` one, and removes one
    `to-remove`, where it is there. `path` is where it is until it is committed, and `target` behind
    that; its first `length` bytes are what the checkpoint counts on. One in an object store is a
    multipart `upload`, and `path` an object with its last bytes, None if there is none. A `bucket`
    is a directory without such a file, to which the restored job writes.
    """

    operator: str
    kind: FileKind
    target: str
    path: str | None
    length: int
    upload: str | None = None
    checkpoint: int | None = None

    @property
    def is_needed(self) -> bool:
        """Whether records are missing without it."""
        return self.kind in ("in-progress", "pending")


class Unread(NamedTuple):
    """A state of an operator that holds positions or transactions, and why it was not read.

    `is_obstacle`: it may hold positions in Kafka. Else it is of another kind of source, or holds no
    position at all, and the restored job begins where its initializer says. `is_of_files`: it is of
    a sink, and may name files outside of the checkpoint.
    """

    operator: str
    reason: str
    is_obstacle: bool = True
    is_of_files: bool = False


@dataclass(frozen=True)
class Positions:
    """The positions, pending transactions and part files of a checkpoint.

    `unread` is what could not be read.
    """

    positions: tuple[Position, ...] = ()
    pending: tuple[PendingTransaction, ...] = ()
    unread: tuple[Unread, ...] = ()
    part_files: tuple[PartFile, ...] = ()

    @classmethod
    def joined(cls, parts: Iterable[Positions]) -> Positions:
        """Return what several parts hold, in their order."""
        every = list(parts)
        return cls(
            tuple(row for part in every for row in part.positions),
            tuple(row for part in every for row in part.pending),
            tuple(row for part in every for row in part.unread),
            tuple(row for part in every for row in part.part_files),
        )


@dataclass(frozen=True)
class SourceState:
    """What a checkpoint holds of one operator, as a decoder takes it.

    `elements` are the serialized elements of each list state that a decoder asked for, of all
    subtasks; a list state without elements is there, too. `coordinator` is the state of the
    operator's coordinator, None if it has none.
    """

    operator: str
    elements: Mapping[str, tuple[bytes, ...]] = field(default_factory=dict)
    coordinator: bytes | None = None


class PositionDecoder(Protocol):
    """Decodes the positions of one connector. The entry point `cpreplicate.positions` names it."""

    @property
    def states(self) -> frozenset[str]:
        """The names of the list states that it reads."""

    def decode(self, state: SourceState) -> Positions | None:
        """Return what an operator's state holds, or None if it is not of this connector.

        Raises `Unreadable` if it is of this connector and cannot be read.
        """
