"""Positions translated by the topics that MirrorMaker 2 keeps at the target, read from there."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cpreplicate.core.positions.mirror_maker import Recorded, Translation, translate
from cpreplicate.core.positions.model import Unreadable
from cpreplicate.core.positions.offsets import Move
from cpreplicate.core.positions.topics import OwnTopics, Topics, is_copy, mirror_of, own_topics
from cpreplicate.core.sizes import counted
from cpreplicate.errors import NotThere, Refused
from cpreplicate.operations.kafka.evidence import Kafka

_ABSENT = (
    "{servers} has no topic in which MirrorMaker 2 records offsets of a source with the alias"
    " {alias}: neither mm2-offset-syncs.{alias}.internal, which is at the source unless MirrorMaker"
    " has offset-syncs.topic.location=target, nor {alias}.checkpoints.internal, which needs"
    " emit.checkpoints.enabled and a consumer group of the job at the source. Nothing was written"
)


def translated(
    kafka: Kafka, alias: str, moves: Sequence[Move], completed: float | None
) -> Translation:
    """Return positions as offsets of a Kafka, by what MirrorMaker 2 recorded of this source.

    `moves` have the names of topics there, and `completed` is when their checkpoint was completed.
    Raises `NotThere` if MirrorMaker's topics are not there, and `Refused` as `translate` does, if
    another topic than a named one is the mirror, or if a record is not MirrorMaker's.
    """
    topics = kafka.topics()
    own = own_topics(alias, topics)
    if own.are_absent:
        raise NotThere(_ABSENT.format(servers=kafka.servers, alias=alias))
    of_kafka = [move for move in moves if move.position.detail is None]
    _refuse_other_names(of_kafka, alias, topics)
    asked = {move.partition for move in of_kafka}
    asked |= {(move.position.topic, move.position.partition) for move in of_kafka}
    ranges = kafka.ranges(sorted(asked), topics)
    return translate(moves, _recorded(kafka, own, of_kafka), ranges, completed)


def _refuse_other_names(moves: Sequence[Move], alias: str, topics: Topics) -> None:
    """Raise `Refused` if the mirror of a topic has another name than is given."""
    names = {move.position.topic: move.topic for move in moves}
    for old, new in names.items():
        if old == new and is_copy(old, alias, topics):
            raise Refused(
                f"{old} is the name of MirrorMaker's copy: the positions in it are not those of the"
                " source. Nothing was written. Take the checkpoint of the job at the source"
            )
    mirrors = {old: mirror_of(old, alias, topics) for old in names}
    wrong = {old: new for old, new in mirrors.items() if new is not None and new != names[old]}
    if wrong:
        options = " ".join(f"--rename-topic {old}={new}" for old, new in sorted(wrong.items()))
        raise Refused(
            f"MirrorMaker's copies of {counted(len(wrong), 'topic')} have other names there."
            f" Nothing was written. Add {options}"
        )


def _recorded(kafka: Kafka, own: OwnTopics, moves: Sequence[Move]) -> Recorded:
    """Return what MirrorMaker recorded of some positions. Raises `Refused`."""
    found = Recorded(moves, own.checkpoints is not None, own.syncs is not None)
    for topic, add in ((own.syncs, found.add_sync), (own.checkpoints, found.add_checkpoint)):
        if topic is not None:
            _read(kafka, topic, add)
    return found


def _read(kafka: Kafka, topic: str, add: Callable[[bytes, bytes, float], None]) -> None:
    for key, value, time in kafka.log(topic):
        try:
            add(key, value, time)
        except Unreadable as error:
            raise Refused(
                f"{topic} at {kafka.servers} holds a record that is not MirrorMaker's: {error}."
                " Nothing was written"
            ) from error
