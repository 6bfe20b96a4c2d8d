"""What `rebase` has to change so that a job can go on at another Kafka. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from cpreplicate.core.positions.model import Position, Positions
from cpreplicate.core.positions.offsets import Partition
from cpreplicate.core.positions.ranges import (
    Problem,
    Ranges,
    Trouble,
    checkable,
    clusters_of,
    skipped,
    trouble_of,
)
from cpreplicate.core.positions.topics import mirrored

_OFFSETS: tuple[Trouble, ...] = ("beyond-end", "deleted")


@dataclass(frozen=True)
class Remedy:
    """The changes of a `rebase`, and the problems that none of them solves.

    `topics` are the new names of topics, `clusters` those of a DynamicKafkaSource that get the
    servers of the Kafka. `is_clamped`: each position becomes the nearest one that exists.
    """

    topics: Mapping[str, str] = field(default_factory=dict)
    clusters: tuple[str, ...] = ()
    is_clamped: bool = False
    drops_pending: bool = False
    unsolved: tuple[Problem, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether nothing is changed."""
        return not (self.topics or self.clusters or self.is_clamped or self.drops_pending)


def renamed(held: Positions, topics: Mapping[str, str]) -> Positions:
    """Return the positions with new names of topics."""
    positions = (
        position._replace(topic=topics.get(position.topic, position.topic))
        for position in held.positions
    )
    return replace(held, positions=tuple(positions))


def remedy(
    held: Positions,
    found: Sequence[Problem],
    ranges: Ranges,
    topics: Collection[str],
    servers: str | None = None,
    later: Mapping[Partition, int] = MappingProxyType({}),
) -> Remedy:
    """Return what solves the problems that were found of a checkpoint.

    `ranges` has those of the topics that `mirrored` returns, too. A clamp is refused where a
    partition is missing, and where it would skip records that are younger than the checkpoint, by
    `later`: then positions that do not exist stay unsolved.
    """
    names = mirrored(held, topics)
    moved = list(checkable(renamed(held, names), servers))
    after = {
        position: trouble
        for position in moved
        if (trouble := trouble_of(position, ranges, topics)) is not None
    }
    skips = [problem for position in moved for problem in skipped(position, ranges, later)]
    can_clamp = len(clusters_of(held)) < 2 and {*after.values()} <= {*_OFFSETS} and not skips
    made = Remedy(
        names,
        _clusters(held, found),
        is_clamped=bool(after) and can_clamp,
        drops_pending=any(each.transaction is not None for each in found),
    )
    left = [each for each in found if each.trouble != "skipped" and not _solves(made, each, after)]
    return replace(made, unsolved=(*left, *skips))


def _clusters(held: Positions, found: Sequence[Problem]) -> tuple[str, ...]:
    """Return the cluster whose servers are replaced. Of several, it is not known which is where."""
    clusters = clusters_of(held)
    is_elsewhere = any(each.trouble == "other-servers" for each in found)
    return tuple(clusters) if is_elsewhere and len(clusters) == 1 else ()


def _solves(made: Remedy, problem: Problem, after: Mapping[Position, Trouble]) -> bool:
    """Return whether a change solves a problem; `after` is what is left of positions' problems."""
    position = problem.position
    if problem.trouble == "other-servers":
        return bool(made.clusters)
    if position is None:
        return problem.trouble == "pending" and made.drops_pending
    trouble = after.get(position._replace(topic=made.topics.get(position.topic, position.topic)))
    return trouble is None or (trouble in _OFFSETS and made.is_clamped)
