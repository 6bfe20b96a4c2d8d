"""Whether a job can go on from a checkpoint at the Kafka at which it is to start.

The begin and the end of each partition there are read once, for all checkpoints. Nothing is written
to the Kafka.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from cpreplicate.core.positions.fingerprints import Fingerprint, Seen, Verdict
from cpreplicate.core.positions.model import Position, Positions, Unread
from cpreplicate.core.positions.offsets import Move, Partition
from cpreplicate.core.positions.ranges import (
    Problem,
    Ranges,
    Span,
    Stamp,
    checkable,
    partitions_of,
    problems,
)
from cpreplicate.core.positions.remedies import Remedy, remedy, renamed
from cpreplicate.core.positions.topics import Topics, alias_of, is_copy, mirrored, names_of
from cpreplicate.core.sizes import counted
from cpreplicate.errors import MetadataError, NotAtKafka, NotThere, Refused, described
from cpreplicate.operations.kafka.evidence import Evidence, Kafka, evidence, of_pending
from cpreplicate.operations.kafka.fingerprints import proofs
from cpreplicate.operations.kafka.mirror_maker import translated
from cpreplicate.operations.kafka.positions import CheckpointPositions, positions_in
from cpreplicate.protocol import json_files
from cpreplicate.protocol.checkpoint_record import read_record
from cpreplicate.protocol.fingerprint_record import read_fingerprints
from cpreplicate.protocol.replica import Replica
from cpreplicate.storage import DamagedFile

_AT_ONCE = 8  # `_metadata` that are read at the same time


class ListedOnce:
    """A cluster whose topics are listed once, for all replicas that are checked there.

    Raises `Transient` and `Refused` if it does not answer.
    """

    def __init__(self, cluster: Kafka) -> None:
        self._cluster, self._topics = cluster, cluster.topics()

    @property
    def servers(self) -> str:
        """Its bootstrap servers."""
        return self._cluster.servers

    def topics(self) -> Topics:
        """Return the partitions of each topic when this object was made."""
        return self._topics

    def denied(self, topics: Sequence[str]) -> Collection[str]:
        """Return those of some topics that the user may not describe."""
        return self._cluster.denied(topics)

    def ranges(self, partitions: Sequence[Partition], topics: Topics) -> Ranges:
        """Return the offsets of those of these partitions that exist."""
        return self._cluster.ranges(partitions, topics)

    def since(self, time: float, partitions: Sequence[Partition]) -> Mapping[Partition, int]:
        """Return the offset of the first record with this time or later, where there is one."""
        return self._cluster.since(time, partitions)

    def stamps(self, offsets: Mapping[Partition, int]) -> Mapping[Partition, Stamp]:
        """Return the time of the record at an offset of each partition, where it may be read."""
        return self._cluster.stamps(offsets)

    def first_at(self, times: Mapping[Partition, int]) -> Mapping[Partition, int]:
        """Return the offset of the first record with a time in milliseconds or later."""
        return self._cluster.first_at(times)

    def records(
        self, spans: Mapping[Partition, Span], within: float
    ) -> Mapping[Partition, Sequence[Seen]]:
        """Return the records in a span of each partition that may be read, within some seconds."""
        return self._cluster.records(spans, within)

    def log(self, topic: str) -> Iterator[tuple[bytes, bytes, float]]:
        """Yield key, value and time of the records in the first partition of a topic."""
        return self._cluster.log(topic)

    def stable_ends(self, partitions: Sequence[Partition]) -> Mapping[Partition, int]:
        """Return up to where no transaction is open."""
        return self._cluster.stable_ends(partitions)

    def transaction_limit(self) -> float | None:
        """Return how long a transaction may be open, in seconds."""
        return self._cluster.transaction_limit()


@dataclass(frozen=True)
class KafkaAsked:
    """The Kafka at which a job is to start.

    `conf` is the file with its properties. `is_same`: the job read from it and wrote to it before.
    `not_read` are operators, by id or name, whose state may be one that cannot be read.
    """

    cluster: Kafka
    conf: str | None = None
    is_same: bool = False
    not_read: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Listing:
    """What a Kafka holds: its topics, and the ranges of the partitions that were asked for.

    `denied` are topics that the user may not describe.
    """

    topics: Topics
    ranges: Ranges
    denied: frozenset[str] = frozenset()

    @property
    def names(self) -> frozenset[str]:
        """The topics that are there, those included that may not be described."""
        return frozenset((*self.topics, *self.denied))


@dataclass(frozen=True)
class Checked:
    """What is in the way of a start from one checkpoint: nothing without `problems`.

    `completed` is when it was completed at the source, in seconds since the epoch. `command` is the
    `rebase` that solves the problems, those that `remedy` names as unsolved excepted; None if it
    solves none. `stamps` are those of the last records before its positions there, or of the
    nearest ones that exist. `proofs` are what fingerprints show of those positions that have one.
    """

    checkpoint: str
    completed: float | None
    of: CheckpointPositions
    problems: tuple[Problem, ...]
    warnings: tuple[str, ...] = ()
    remedy: Remedy = field(default=Remedy())
    command: str | None = None
    stamps: Mapping[Partition, Stamp] = field(default_factory=dict)
    proofs: Mapping[Position, Verdict] = field(default_factory=dict)


@dataclass(frozen=True)
class KafkaCheck:
    """The checkpoints of a replica that were checked, the newest first.

    The last one is the first that a job can go on from, unless all have problems.
    """

    replica: str
    servers: str
    is_same: bool
    checked: tuple[Checked, ...]

    @property
    def chosen(self) -> Checked | None:
        """The checkpoint that a job can go on from, None if there is none."""
        return next((each for each in self.checked if not each.problems), None)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What an operator has to know of the checkpoint that was chosen, or of the newest one."""
        shown = self.chosen or self.checked[0]
        left = None if self.is_same else unknown_of(shown.of.found, shown.proofs, self.servers)
        return (*shown.warnings, *([] if left is None else [left]))


def unknown_of(held: Positions, proofs: Mapping[Position, Verdict], servers: str) -> str | None:
    """Return what is not known of positions at a Kafka, None if fingerprints show it of all."""
    if not proofs:
        return unknown(servers)
    asked = [each for each in checkable(held, servers) if each.offset is not None]
    found = [proofs.get(each) for each in asked]
    count = sum(proof is None or proof.position is None for proof in found)
    of = f"of {count} of {counted(len(asked), 'position')} "
    return unknown(servers, of) if count else None


def unknown(servers: str, of: str = "") -> str:
    """Return what no check of offsets can know, of all positions or of some."""
    return (
        f"{of}it is not known whether an offset at {servers} means the same record as at the former"
        " Kafka: a mirror that does not keep offsets is not noticed, and records are lost or"
        " doubled then"
    )


def check(replica: Replica, names: Sequence[str], kafka: KafkaAsked) -> KafkaCheck:
    """Return which of some checkpoints, the newest first, a job can go on from at a Kafka.

    Raises `NotAtKafka` if there is none, `Transient` and `Refused` if the Kafka does not answer.
    """
    held = _read_all(replica, names)
    listing = listed(kafka.cluster, [each.found for each in held])
    found: list[Checked] = []
    for name, of in zip(names, held, strict=True):
        found.append(_checked(replica, name, of, kafka, listing))
        if not found[-1].problems:
            break
    result = KafkaCheck(replica.root, kafka.cluster.servers, kafka.is_same, tuple(found))
    if result.chosen is None:
        raise NotAtKafka(_refusal(result), result)
    return result


def listed(kafka: Kafka, held: Sequence[Positions]) -> Listing:
    """Return what a Kafka holds of the partitions of some checkpoints, also under new names."""
    topics = kafka.topics()
    missing = sorted({topic for one in held for topic in names_of(one)}.difference(topics))
    listing = Listing(topics, {}, frozenset(kafka.denied(missing) if missing else ()))
    both = (each for one in held for each in _both(one, listing))
    partitions = {partition for one in both for partition in partitions_of(one)}
    return replace(listing, ranges=kafka.ranges(sorted(partitions), topics))


def _both(held: Positions, listing: Listing) -> tuple[Positions, Positions]:
    """Return positions by their names, and by those that a mirror gives their topics."""
    return held, renamed(held, mirrored(held, listing.names))


@dataclass(frozen=True)
class Findings:
    """What keeps a job from going on from a checkpoint at a Kafka, and what helps."""

    problems: tuple[Problem, ...]
    warnings: tuple[str, ...]
    remedy: Remedy
    stamps: Mapping[Partition, Stamp]
    proofs: Mapping[Position, Verdict]


def findings(
    of: CheckpointPositions,
    completed: float | None,
    kafka: KafkaAsked,
    listing: Listing,
    fingerprints: Sequence[Fingerprint] = (),
) -> Findings:
    """Return what is in the way of a start from a checkpoint, which was completed at this time.

    `fingerprints` are those that were kept with it.
    """
    of = _stated(of, kafka.not_read)
    held, cluster = of.found, kafka.cluster
    known = _evidence(held, completed, kafka, listing)
    proven = _proofs(held, kafka, listing, fingerprints)
    there = listing.ranges, listing.topics
    found = tuple(
        _with_rights(each, listing)
        for each in problems(held, *there, kafka.is_same, cluster.servers, known.later, proven)
    )
    tried = _Tried(of, completed, kafka)
    made = remedy(
        held,
        found,
        listing.ranges,
        listing.names,
        cluster.servers,
        known.later,
        proven,
        tried.translates,
    )
    warnings = [*warnings_of(of, cluster.servers), *known.warnings, *tried.warnings]
    if not kafka.is_same and not found:
        warnings += _of_mirror_maker(held, listing.names, proven)
    return Findings(found, tuple(warnings), made, known.stamps, proven)


def _proofs(
    held: Positions, kafka: KafkaAsked, listing: Listing, fingerprints: Sequence[Fingerprint]
) -> Mapping[Position, Verdict]:
    """Return what fingerprints show. The Kafka that they are of needs none."""
    if kafka.is_same or not fingerprints:
        return {}
    names = mirrored(held, listing.names)
    return proofs(kafka.cluster, held, fingerprints, listing.ranges, names)


def _of_mirror_maker(
    held: Positions, topics: Collection[str], proven: Mapping[Position, Verdict]
) -> Iterator[str]:
    """Yield that a MirrorMaker 2 copies to the topics of positions, unless these are proven."""
    alias = alias_of(held, topics)
    left = [each for each in held.positions if each.offset is not None and each not in proven]
    if alias is not None and left and not any(is_copy(each.topic, alias, topics) for each in left):
        yield (
            f"MirrorMaker 2 copies topics of {alias} to here, and keeps no offsets. Unless the"
            f" checkpoint was derived for them, `cpreplicate rebase` with --positions mm2:{alias}"
            " translates its positions"
        )


class _Tried:
    """Whether MirrorMaker 2 has recorded what positions become at a Kafka."""

    def __init__(self, of: CheckpointPositions, completed: float | None, kafka: KafkaAsked) -> None:
        self._of, self._completed, self._kafka = of, completed, kafka
        self.warnings: list[str] = []

    def translates(self, alias: str, names: Mapping[str, str]) -> bool:
        """Return whether `rebase` can translate them. Why it cannot is a warning."""
        if self._kafka.is_same:
            return False
        positions = self._of.found.positions
        moves = [Move(each, names.get(each.topic, each.topic)) for each in positions]
        try:
            translated(self._kafka.cluster, alias, moves, self._completed)
        except Refused as error:
            self.warnings.append(f"--positions mm2:{alias} does not help: {error}")
            return False
        return True


def _stated(of: CheckpointPositions, not_read: frozenset[str]) -> CheckpointPositions:
    """Return positions in which the states that are stated not to be read are no obstacle."""

    def stated(each: Unread) -> Unread:
        if not each.is_obstacle or not_read.isdisjoint(
            (each.operator, of.names.get(each.operator))
        ):
            return each
        return Unread(each.operator, f"{each.reason}; --not-read takes it as it is", False)

    return replace(of, found=replace(of.found, unread=tuple(map(stated, of.found.unread))))


def _evidence(
    held: Positions, completed: float | None, kafka: KafkaAsked, listing: Listing
) -> Evidence:
    if not kafka.is_same:
        both = _both(held, listing)
        return evidence(kafka.cluster, both, completed, listing.ranges, listing.topics)
    age = None if completed is None else json_files.now() - completed
    return Evidence({}, tuple(of_pending(kafka.cluster, held.pending, age)))


def _with_rights(problem: Problem, listing: Listing) -> Problem:
    """Return a problem with a topic that the user may not describe as what it is."""
    topic = problem.position.topic if problem.position is not None else None
    is_denied = problem.trouble == "no-topic" and topic in listing.denied
    return problem._replace(trouble="no-rights") if is_denied else problem


def _read_all(replica: Replica, names: Sequence[str]) -> list[CheckpointPositions]:
    """Return the positions of each checkpoint, several of which are read at the same time."""
    with ThreadPoolExecutor(min(_AT_ONCE, len(names)), "positions") as pool:
        return list(pool.map(lambda name: _read(replica, name), names))


def _read(replica: Replica, name: str) -> CheckpointPositions:
    """Return the positions of a checkpoint. A `_metadata` that cannot be read has none."""
    try:
        found = positions_in(replica, name)
    except (MetadataError, DamagedFile, NotThere) as error:
        return CheckpointPositions(Positions(unread=(Unread("", described(error)),)), True, {})
    assert found is not None, "it is returned wherever it is asked for"
    return found


def _checked(
    replica: Replica, name: str, of: CheckpointPositions, kafka: KafkaAsked, listing: Listing
) -> Checked:
    """Return what keeps a job from going on from a checkpoint at a Kafka, and what helps."""
    record = read_record(replica, name)
    completed = record.completed if record is not None else None
    fingerprints = read_fingerprints(replica, name, completed)
    found = findings(of, completed, kafka, listing, fingerprints)
    made = found.remedy
    command = None if made.is_empty else _command(replica.root, name, made, kafka)
    shown = found.stamps, found.proofs
    return Checked(name, completed, of, found.problems, found.warnings, made, command, *shown)


def warnings_of(of: CheckpointPositions, servers: str) -> Iterator[str]:
    """Yield what does not hinder a start and was not, or cannot be, checked."""
    held = of.found
    if not (held.positions or held.pending or held.unread):
        yield "the checkpoint holds no position and no transaction of Kafka: nothing was checked"
    for topic in sorted({each.topic for each in held.positions if each.marker == "committed"}):
        yield (
            f"partitions of {topic} begin where their consumer group has committed: the group needs"
            f" offsets at {servers}"
        )
    for each in held.unread:
        if not each.is_obstacle:
            yield f"operator {of.names.get(each.operator, each.operator)}: {each.reason}"
    checked = set(checkable(held, servers))
    for topic in sorted({each.topic for each in held.positions if each not in checked}):
        yield f"positions of {topic} are of another cluster or service, and were not checked"


def _command(root: str, name: str, made: Remedy, kafka: KafkaAsked) -> str:
    """Return the `rebase` that makes these changes."""
    servers = kafka.cluster.servers
    words = ["cpreplicate", "rebase", root, "--checkpoint", name]
    for old, new in made.topics.items():
        words += ["--rename-topic", f"{old}={new}"]
    for cluster in made.clusters:
        words += ["--servers", f"{cluster}={servers}"]
    words += ["--drop-pending"] if made.drops_pending else []
    if made.is_moved:
        recorded = "clamp" if made.alias is None else f"mm2:{made.alias}"
        way = "fingerprint" if made.is_translated else recorded
        words += ["--positions", way, "--kafka", servers]
        words += [] if kafka.conf is None else ["--kafka-conf", kafka.conf]
    return shlex.join(words)


def _refusal(result: KafkaCheck) -> str:
    count = len(result.checked)
    which = result.checked[0].checkpoint if count == 1 else f"any of the {count} checkpoints"
    return (
        f"no job can go on at {result.servers} from {which} of {result.replica}. Nothing was"
        " changed. The result lists what is in the way and, for each checkpoint, the `cpreplicate"
        " rebase` that solves it; promote what that writes with --checkpoint. If the mirror still"
        " runs, wait until it has caught up instead"
    )
