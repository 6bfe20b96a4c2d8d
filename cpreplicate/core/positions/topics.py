"""Names of topics: what Kafka takes, new ones that are given, and those of a mirror. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping
from typing import TypeAlias

from cpreplicate.core.positions.model import Positions
from cpreplicate.errors import UsageError

Topics: TypeAlias = Mapping[str, Collection[int]]
"""The partitions of each topic that exists."""

TOPIC_RULE = "letters, digits, dots, dashes and underscores, at most 249"
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_SHOWN = 60  # letters of a name in a message
_SEPARATOR = "."  # of MirrorMaker 2, unless `replication.policy.separator` is set
_SEPARATORS = (_SEPARATOR, "_", "-")


def is_topic(name: str) -> bool:
    """Return whether Kafka takes a name for a topic."""
    return _TOPIC.fullmatch(name) is not None and name not in (".", "..")


def names_of(held: Positions) -> set[str]:
    """Return the topics of some positions in Kafka."""
    return {position.topic for position in held.positions if position.detail is None}


def refuse_mistakes(
    names: Mapping[str, str], held: Positions, there: Collection[str] | None = None
) -> None:
    """Raise `UsageError` if a new name is none, or if two topics of a checkpoint would become one.

    `there` are the topics of the Kafka where the job is to start, where it is asked.
    """
    for old, new in names.items():
        if not is_topic(new):
            raise UsageError(f"{_shown(old, new)}: that is no name of a topic: {TOPIC_RULE}")
        if there is not None and new not in there:
            raise UsageError(
                f"{_shown(old, new)}: no topic has the new name at --kafka. Nothing was written"
            )
    taken = Counter(names.get(topic, topic) for topic in names_of(held))
    for new, count in taken.items():
        if count > 1:
            raise UsageError(
                f"--rename-topic: {count} topics of the checkpoint would be {new}. Nothing was"
                " written. Then each partition would have two positions"
            )


def refuse_unknown(names: Mapping[str, str], held: Positions) -> None:
    """Raise `UsageError` if a topic that gets a new name is not one of a checkpoint."""
    known = names_of(held)
    for old, new in names.items():
        if old not in known:
            some = ", ".join(sorted(known)) or "none"
            raise UsageError(
                f"{_shown(old, new)}: the checkpoint reads no topic of the old name. Nothing was"
                f" written. It reads: {some}"
            )


def _shown(old: str, new: str) -> str:
    return f"--rename-topic {old[:_SHOWN]}={new[:_SHOWN]}"


def mirrored(held: Positions, topics: Collection[str]) -> dict[str, str]:
    """Return the new name of each topic that is missing there, if one mirror plainly has it.

    By the rule of MirrorMaker 2, `orders` of the cluster A is `A.orders`: an alias that has no
    separator in it, the separator, and the whole name. Another separator than a dot counts only
    if MirrorMaker's own topics there have it, too. No name is returned if several mirrors have one
    of the topics, or that another topic of the checkpoint has.
    """
    known, mirrors = names_of(held), _mirrors(topics)
    found = {
        (old, prefix): f"{prefix}{old}"
        for old in known.difference(topics)
        for prefix in mirrors.get(old, ())
    }
    if len({prefix for _, prefix in found}) != 1:
        return {}
    return {old: new for (old, _), new in sorted(found.items()) if new not in known}


def twins(held: Positions, topics: Collection[str]) -> dict[str, list[str]]:
    """Return, of each topic that is there, the mirrored topics there that have its name, too."""
    known, mirrors = names_of(held), _mirrors(topics)
    every = {
        topic: sorted({f"{prefix}{topic}" for prefix in mirrors.get(topic, ())}.difference(known))
        for topic in sorted(known.intersection(topics))
    }
    return {topic: names for topic, names in every.items() if names}


def _mirrors(topics: Collection[str]) -> dict[str, set[str]]:
    """Return the alias and separator of each mirror that has a topic, by the names of topics."""
    found: dict[str, set[str]] = {}
    for separator in _SEPARATORS:
        for name in topics:
            alias, _, topic = name.partition(separator)
            is_mirror = separator == _SEPARATOR or _has_own(alias, separator, topics)
            if alias and topic and is_mirror:
                found.setdefault(topic, set()).add(f"{alias}{separator}")
    return found


def _has_own(alias: str, separator: str, topics: Collection[str]) -> bool:
    """Return whether MirrorMaker 2 keeps topics of its own there for this cluster."""
    own = ("heartbeats", "checkpoints.internal", f"checkpoints{separator}internal")
    return any(f"{alias}{separator}{each}" in topics for each in own)
