"""The offsets that exist in the partitions of a Kafka, and positions that do not. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Literal, NamedTuple, TypeAlias

from cpreplicate.core.positions.fingerprints import Verdict
from cpreplicate.core.positions.model import PendingTransaction, Position, Positions
from cpreplicate.core.positions.offsets import Choice, Move, Partition
from cpreplicate.errors import Refused

Trouble = Literal[
    "no-topic",
    "no-rights",
    "no-partition",
    "beyond-end",
    "deleted",
    "skipped",
    "other-record",
    "pending",
    "other-servers",
    "unread",
]

_WORDS: dict[Trouble, str] = {
    "no-topic": "topics are missing",
    "no-rights": "the user may not describe topics",
    "no-partition": "partitions are missing",
    "beyond-end": "positions are beyond the end",
    "deleted": "positions are deleted",
    "skipped": "records that are younger than the checkpoint would be skipped",
    "other-record": "positions are behind other records than at the former Kafka",
    "pending": "transactions are pending",
    "other-servers": "a DynamicKafkaSource has other servers",
    "unread": "states could not be read",
}


_COARSEST_DATE = 1.0  # seconds: S3 and Azure cut the dates of objects to whole ones


class Range(NamedTuple):
    """The offsets of a partition: of its first record, and behind its last one."""

    begin: int
    end: int


class Span(NamedTuple):
    """Records of a partition to read: from an offset up to another one, and at most so many."""

    first: int
    last: int
    most: int = (1 << 31) - 1


class Stamp(NamedTuple):
    """The time of a record, in seconds since the epoch, and whether the broker set it."""

    time: float
    is_of_broker: bool


Ranges: TypeAlias = Mapping[Partition, Range]
"""Those of the partitions that exist."""


class Problem(NamedTuple):
    """What is in the way of a start at another Kafka: of a position, a transaction or a state.

    `range` is that of the partition, None if it does not exist. `reason` is why a state could not
    be read. `later` is the first record younger than the checkpoint, where the position is beyond.
    `verdict` is what is known of the record before a position.
    """

    trouble: Trouble
    operator: str
    position: Position | None = None
    transaction: PendingTransaction | None = None
    range: Range | None = None
    reason: str | None = None
    later: int | None = None
    verdict: Verdict | None = None

    @property
    def skipped(self) -> int | None:
        """How many younger records would be skipped, None if that is not the problem."""
        position, found = self.position, self.range
        if self.later is None or found is None or position is None or position.offset is None:
            return None
        return min(position.offset, found.end) - self.later


def described(problems: Sequence[Problem]) -> str:
    """Return how many problems there are of each kind, with what the first one is about."""
    counts = Counter(each.trouble for each in problems)
    return "; ".join(
        f"{_WORDS[trouble]} ({count}: {_first(trouble, problems)})"
        for trouble, count in counts.items()
    )


def _first(trouble: Trouble, problems: Sequence[Problem]) -> str:
    """Return what the first problem of a kind is about."""
    first = next(each for each in problems if each.trouble == trouble)
    if first.transaction is not None:
        return first.transaction.transactional_id
    if first.position is None:
        return first.reason or first.operator
    return f"{first.position.topic} partition {first.position.partition}"


def partitions_of(positions: Positions) -> list[Partition]:
    """Return the partitions of some positions in Kafka, each once, in order."""
    return sorted(
        {(each.topic, each.partition) for each in positions.positions if each.detail is None}
    )


def problems(
    held: Positions,
    ranges: Ranges,
    topics: Collection[str],
    is_same_kafka: bool = False,
    servers: str | None = None,
    later: Mapping[Partition, int] = MappingProxyType({}),
    proofs: Mapping[Position, Verdict] = MappingProxyType({}),
) -> Iterator[Problem]:
    """Yield why a job cannot go on from these positions at a Kafka with these ranges and topics.

    `is_same_kafka`: it is the one that the job read from and wrote to, which knows its
    transactions. `servers` are its bootstrap servers: a DynamicKafkaSource reads from those that
    its state holds. `later` has the first record younger than the checkpoint, of partitions where
    one is known. `proofs` are what fingerprints show, which is more than what times show.
    """
    if not is_same_kafka and servers is not None:
        yield from _of_servers(held, servers)
    for position in checkable(held, servers):
        trouble = trouble_of(position, ranges, topics)
        found = ranges.get((position.topic, position.partition))
        proof = proofs.get(position)
        if trouble is not None:
            yield Problem(trouble, position.operator, position, range=found, verdict=proof)
        elif proof is not None and is_disproved(proof):
            yield Problem("other-record", position.operator, position, range=found, verdict=proof)
        if not is_decided(proof):
            yield from skipped(position, ranges, later)
    for transaction in () if is_same_kafka else held.pending:
        yield Problem("pending", transaction.operator, transaction=transaction)
    for unread in held.unread:
        if unread.is_obstacle:
            yield Problem("unread", unread.operator, reason=unread.reason)


def is_disproved(proof: Verdict) -> bool:
    """Return whether a position that exists is not where the job goes on."""
    return proof.is_other or proof.kind == "behind"


def is_decided(proof: Verdict | None) -> bool:
    """Return whether a fingerprint shows where a position belongs, or that it is wrong."""
    return proof is not None and (proof.position is not None or is_disproved(proof))


def checkable(held: Positions, servers: str | None) -> Iterator[Position]:
    """Yield the positions in Kafka that one cluster can be asked for.

    Of a DynamicKafkaSource with several clusters, those of the cluster that has these `servers`.
    """
    is_one = len(clusters_of(held)) < 2
    for position in held.positions:
        is_there = position.cluster is None or is_one or is_at(position, servers)
        if is_there and position.detail is None:
            yield position


def clusters_of(held: Positions) -> list[str]:
    """Return the ids of the clusters of a DynamicKafkaSource, in order."""
    return sorted({each.cluster for each in held.positions if each.cluster is not None})


def is_at(position: Position, servers: str | None) -> bool:
    """Return whether the position of a DynamicKafkaSource is at a Kafka with these servers."""
    return servers is None or _hosts(position.servers or "") == _hosts(servers)


def _hosts(servers: str) -> set[str]:
    return {each.strip().lower() for each in servers.split(",") if each.strip()}


def _of_servers(held: Positions, servers: str) -> Iterator[Problem]:
    """Yield a problem for each cluster of a DynamicKafkaSource that has other servers."""
    seen = set()
    for position in held.positions:
        key = position.operator, position.cluster
        if position.cluster is not None and key not in seen and not is_at(position, servers):
            seen.add(key)
            yield Problem("other-servers", position.operator, position)


def trouble_of(position: Position, ranges: Ranges, topics: Collection[str]) -> Trouble | None:
    """Return why a position does not exist at a Kafka with these ranges, None if it does."""
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


def skipped(
    position: Position, ranges: Ranges, later: Mapping[Partition, int]
) -> Iterator[Problem]:
    """Yield the problem that a job would skip records that are younger than its checkpoint."""
    partition = position.topic, position.partition
    first = later.get(partition)
    if first is not None and first < skipping([position], ranges).get(partition, 0):
        found = ranges[partition]
        yield Problem("skipped", position.operator, position, range=found, later=first)


def skipping(positions: Iterable[Position], ranges: Ranges) -> dict[Partition, int]:
    """Return up to where records of each partition are not read, where there are any."""
    found: dict[Partition, int] = {}
    for each in positions:
        partition = each.topic, each.partition
        range_ = ranges.get(partition)
        if range_ is not None and each.offset is not None and each.offset > range_.begin:
            end = min(each.offset, range_.end)
            found[partition] = max(end, found.get(partition, 0))
    return found


def younger_from(completed: float) -> float:
    """Return the time from which on a record is younger than a checkpoint for certain.

    `completed` is the date of its `_metadata`. One in whole seconds may have been cut: the job has
    read records up to a second later. Where it matters that something is older than the checkpoint
    for certain, as for MirrorMaker's syncs, `completed` itself is the bound.
    """
    return completed + _COARSEST_DATE if completed % 1 == 0 else completed


def nearest_records(positions: Iterable[Position], ranges: Ranges) -> dict[Partition, int]:
    """Return the last record before a position of each partition, or the nearest that exists."""
    found: dict[Partition, int] = {}
    for each in positions:
        range_ = ranges.get((each.topic, each.partition))
        if range_ is not None and each.offset is not None and range_.end > range_.begin:
            last = min(max(each.offset - 1, range_.begin), range_.end - 1)
            found.setdefault((each.topic, each.partition), last)
    return found


def behind(held: Positions, ranges: Ranges) -> int:
    """Return by how many records the ends of these ranges trail some positions."""
    return sum(
        max(0, position.offset - ranges[position.topic, position.partition].end)
        for position in held.positions
        if position.offset is not None and (position.topic, position.partition) in ranges
    )


def absent(held: Positions, ranges: Ranges) -> list[str]:
    """Return the topics of which a partition does not exist, each once, in order."""
    return sorted({each[0] for each in partitions_of(held) if each not in ranges})


def clamped(ranges: Callable[[Sequence[Partition]], Ranges]) -> Choice:
    """Return the choice of the nearest offset that exists, by the ranges that are looked up.

    It says how many records are not read, or read again once they are there. Markers stay. The
    choice raises `Refused` for a partition that does not exist.
    """

    def choose(moves: Sequence[Move]) -> Sequence[Move]:
        asked = {move.partition for move in moves if move.position.detail is None}
        found = ranges(sorted(asked))
        return [_clamped(move, found) if move.position.detail is None else move for move in moves]

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
