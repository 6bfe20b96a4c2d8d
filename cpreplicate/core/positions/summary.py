"""Positions by topic: how many partitions, and the smallest and largest offset."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from cpreplicate.core.positions.model import Position


class TopicSummary(NamedTuple):
    """The positions of one source operator in one topic.

    `smallest` and `largest` are offsets, None if no partition has one. `without_offset` counts the
    partitions of which nothing was read yet.
    """

    operator: str
    topic: str
    cluster: str | None
    servers: str | None
    partitions: int
    smallest: int | None
    largest: int | None
    without_offset: int


def by_topic(positions: Iterable[Position]) -> list[TopicSummary]:
    """Return a summary for each operator, cluster and topic, in this order."""
    groups: dict[tuple[str, str, str], list[Position]] = {}
    for position in positions:
        key = (position.operator, position.cluster or "", position.topic)
        groups.setdefault(key, []).append(position)
    return [_summary(groups[key]) for key in sorted(groups)]


def _summary(positions: list[Position]) -> TopicSummary:
    """Return the summary of the positions of one topic."""
    first = positions[0]
    offsets = [each.offset for each in positions if each.offset is not None]
    return TopicSummary(
        operator=first.operator,
        topic=first.topic,
        cluster=first.cluster,
        servers=first.servers,
        partitions=len(positions),
        smallest=min(offsets, default=None),
        largest=max(offsets, default=None),
        without_offset=len(positions) - len(offsets),
    )
