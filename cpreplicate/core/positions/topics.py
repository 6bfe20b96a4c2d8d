"""Names of topics: what Kafka takes, new ones that are given, and those of a mirror. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping
from typing import NamedTuple, TypeAlias

from cpreplicate.core.positions.model import Positions
from cpreplicate.errors import UsageError

Topics: TypeAlias = Mapping[str, Collection[int]]
"""The partitions of each topic that exists."""

TOPIC_RULE = "letters, digits, dots, dashes and underscores, at most 249"
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_SHOWN = 60  # letters of a name in a message
_SEPARATOR = "."  # of MirrorMaker 2, unless `replication.policy.separator` is set
_SEPARATORS = (_SEPARATOR, "_", "-")
_OWN = [
    re.compile(pattern)
    for each in map(re.escape, _SEPARATORS)
    for pattern in (
        rf"mm2-offset-syncs{each}(?P<alias>.+){each}internal",
        rf"(?P<alias>.+){each}checkpoints{each}internal",
    )
]


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


class OwnTopics(NamedTuple):
    """The topics at a target in which MirrorMaker 2 records offsets of one source, None if absent.

    `syncs` is there only with `offset-syncs.topic.location=target`, or if the source is the target
    of another MirrorMaker. `checkpoints` is there unless `emit.checkpoints.enabled=false`.
    """

    syncs: str | None = None
    checkpoints: str | None = None

    @property
    def are_absent(self) -> bool:
        """Whether neither is there."""
        return self.syncs is None and self.checkpoints is None


def own_topics(alias: str, topics: Collection[str]) -> OwnTopics:
    """Return the topics of MirrorMaker 2 for a source with this alias (`ReplicationPolicy`)."""
    syncs = (f"mm2-offset-syncs{each}{alias}{each}internal" for each in _SEPARATORS)
    checkpoints = (f"{alias}{each}checkpoints{each}internal" for each in _SEPARATORS)
    return OwnTopics(
        next((each for each in syncs if each in topics), None),
        next((each for each in checkpoints if each in topics), None),
    )


def alias_of(held: Positions, topics: Collection[str]) -> str | None:
    """Return the alias of the source of which MirrorMaker 2 plainly copies the topics of positions.

    By the names that `mirrored` returns. Without any, by the only source of which there are topics
    of MirrorMaker's own: `IdentityReplicationPolicy` keeps the names.
    """
    found = {new.removesuffix(old)[:-1] for old, new in mirrored(held, topics).items()}
    if not found and not twins(held, topics) and names_of(held).issubset(topics):
        matches = (pattern.fullmatch(each) for each in topics for pattern in _OWN)
        found = {match["alias"] for match in matches if match is not None}
    aliases = [each for each in found if not own_topics(each, topics).are_absent]
    return aliases[0] if len(aliases) == 1 else None


def mirror_of(topic: str, alias: str, topics: Collection[str]) -> str | None:
    """Return the name that MirrorMaker 2 gives a topic of a source, if there is one of it."""
    prefixes = _mirrors(topics).get(topic, ())
    names = (f"{alias}{each}{topic}" for each in _SEPARATORS if f"{alias}{each}" in prefixes)
    return next(names, None)


def is_copy(topic: str, alias: str, topics: Collection[str]) -> bool:
    """Return whether a topic is one that MirrorMaker 2 copied from a source, with a new name."""
    found = [each for each in _SEPARATORS if topic.startswith(f"{alias}{each}")]
    return any(each == _SEPARATOR or _has_own(alias, each, topics) for each in found)


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
