"""What `rebase` has to change so that a job can go on at another Kafka. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from cpreplicate.core.positions.fingerprints import Verdict
from cpreplicate.core.positions.model import Position, Positions
from cpreplicate.core.positions.offsets import Partition
from cpreplicate.core.positions.ranges import (
    Problem,
    Ranges,
    Trouble,
    checkable,
    clusters_of,
    is_decided,
    skipped,
    trouble_of,
)
from cpreplicate.core.positions.topics import alias_of, mirrored

_OFFSETS: tuple[Trouble, ...] = ("beyond-end", "deleted")


@dataclass(frozen=True)
class Remedy:
    """The changes of a `rebase`, and the problems that none of them solves.

    `topics` are the new names of topics, `clusters` those of a DynamicKafkaSource that get the
    servers of the Kafka. `is_clamped`: each position becomes the nearest one that exists.
    `is_translated`: each becomes the one of the same record, by its fingerprint. With `alias`, each
    becomes what MirrorMaker 2 has recorded of the source with this alias.
    """

    topics: Mapping[str, str] = field(default_factory=dict)
    clusters: tuple[str, ...] = ()
    is_clamped: bool = False
    drops_pending: bool = False
    unsolved: tuple[Problem, ...] = ()
    is_translated: bool = False
    alias: str | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing is changed."""
        return not (self.topics or self.clusters or self.is_moved or self.drops_pending)

    @property
    def is_moved(self) -> bool:
        """Whether positions get offsets that exist."""
        return self.is_clamped or self.is_translated or self.alias is not None


def renamed(held: Positions, topics: Mapping[str, str]) -> Positions:
    """Return the positions with new names of topics."""
    positions = (_renamed(position, topics) for position in held.positions)
    return replace(held, positions=tuple(positions))


def remedy(
    held: Positions,
    found: Sequence[Problem],
    ranges: Ranges,
    topics: Collection[str],
    servers: str | None = None,
    later: Mapping[Partition, int] = MappingProxyType({}),
    proofs: Mapping[Position, Verdict] = MappingProxyType({}),
    translates: Callable[[str, Mapping[str, str]], bool] = lambda _alias, _names: False,
) -> Remedy:
    """Return what solves the problems that were found of a checkpoint.

    `ranges` has those of the topics that `mirrored` returns, too. A clamp is refused where a
    partition is missing, and where it would skip records that are younger than the checkpoint, by
    `later`: then positions that do not exist stay unsolved. So it is where `proofs` show a record
    at another offset: if all are proven, the positions are translated. Else, before a clamp,
    `translates` returns whether MirrorMaker 2 has recorded them, by the alias of the source and the
    new names.
    """
    names = mirrored(held, topics)
    known = {_renamed(position, names): proof for position, proof in proofs.items()}
    moved = list(checkable(renamed(held, names), servers))
    after = {
        position: trouble
        for position in moved
        if (trouble := trouble_of(position, ranges, topics)) is not None
    }
    skips = [
        problem
        for position in moved
        if not is_decided(known.get(position))
        for problem in skipped(position, ranges, later)
    ]
    is_one = len(clusters_of(held)) < 2
    is_elsewhere = any(proof.is_other for proof in known.values())
    are_proven, can_move = _are_proven(moved, known), is_one and {*after.values()} <= {*_OFFSETS}
    is_moved = bool(names or after or skips or is_elsewhere) and can_move and not are_proven
    alias = alias_of(held, topics) if is_moved else None
    alias = alias if alias is not None and translates(alias, names) else None
    skips = skips if alias is None else []
    made = Remedy(
        names,
        _clusters(held, found),
        is_clamped=bool(after) and can_move and not (skips or is_elsewhere or alias is not None),
        is_translated=is_elsewhere and is_one and are_proven,
        drops_pending=any(each.transaction is not None for each in found),
        alias=alias,
    )
    left = [each for each in found if each.trouble != "skipped" and not _solves(made, each, after)]
    return replace(made, unsolved=(*left, *skips))


def _renamed(position: Position, names: Mapping[str, str]) -> Position:
    return position._replace(topic=names.get(position.topic, position.topic))


def _are_proven(positions: Sequence[Position], proofs: Mapping[Position, Verdict]) -> bool:
    """Return whether it is known of each position with an offset where its record is."""
    found = [proofs.get(each) for each in positions if each.offset is not None]
    return all(proof is not None and proof.position is not None for proof in found)


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
    if problem.trouble == "other-record":
        return made.is_translated or made.alias is not None
    trouble = after.get(_renamed(position, made.topics))
    return trouble is None or (trouble in _OFFSETS and made.is_moved)
