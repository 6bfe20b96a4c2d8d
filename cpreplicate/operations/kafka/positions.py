"""Positions in sources, and pending transactions and part files of sinks, as a checkpoint has them.

They are in the `_metadata`, or in small files that it names. Decoders of other connectors than
Kafka's are found by the entry point `cpreplicate.positions`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points

from cpreplicate.core import uri
from cpreplicate.core.positions import others
from cpreplicate.core.positions.kafka import KafkaPositions, are_of_known_versions
from cpreplicate.core.positions.model import (
    AnotherConnector,
    PositionDecoder,
    Positions,
    SourceState,
    Unread,
    Unreadable,
)
from cpreplicate.core.positions.sinks.committables import COMMITTER
from cpreplicate.core.positions.sinks.part_files import BYTES, STATES, PartFiles
from cpreplicate.operations.kafka.operator_reader import OperatorReader, OperatorStates
from cpreplicate.protocol.replica import Replica
from cpreplicate.protocol.source import MetadataFile, read_metadata
from cpreplicate.storage import Side

ENTRY_POINTS = "cpreplicate.positions"
READERS = "SourceReaderState"


@cache
def decoders() -> tuple[PositionDecoder, ...]:
    """Return the decoders of sinks of files, of Kafka's connector, and those of other packages."""
    installed = entry_points(group=ENTRY_POINTS)
    return (PartFiles(), KafkaPositions(), *(each.load()() for each in installed))


@dataclass(frozen=True)
class CheckpointPositions:
    """What a checkpoint holds of positions, pending transactions and part files.

    `is_listed`: each one is asked for, and the small files that hold some were read. `names` are
    those of operators by their id, where the `_metadata` has them.
    """

    found: Positions
    is_listed: bool
    names: Mapping[str, str]


def positions_of(
    file: MetadataFile, side: Side, remaps: Sequence[uri.Remap] = (), is_listed: bool = True
) -> CheckpointPositions | None:
    """Return the positions, pending transactions and part files of a checkpoint.

    Unless `is_listed`, nothing is read that is not in memory: what is in other files is `unread`,
    and of a `_metadata` that is not in memory nothing is returned. What cannot be read is `unread`.
    """
    if not is_listed and file.in_memory is None:
        return None
    known = decoders()
    names = frozenset((*others.LISTS, *others.SINKS)).union(*(each.states for each in known))
    reader = OperatorReader(file, side, tuple(remaps), is_listed)
    reading = _Reading(reader, known, names)
    with ExitStack() as stack:
        operators = reader.operators(file.open(stack), names)
        found = Positions.joined([reading.of_operator(each) for each in operators])
    named = {each.id: name for each in file.metadata.operators if (name := each.name or each.uid)}
    return CheckpointPositions(found, is_listed, named)


def positions_in(replica: Replica, checkpoint: str) -> CheckpointPositions | None:
    """Return the positions of a checkpoint of a replica, which is named like `chk-42`."""
    return positions_of(read_metadata(replica.uri_of(checkpoint), replica.side), replica.side)


@dataclass(frozen=True)
class _Reading:
    """Decodes the states of one operator after the other."""

    reader: OperatorReader
    decoders: Sequence[PositionDecoder]
    names: frozenset[str]

    def of_operator(self, found: OperatorStates) -> Positions:
        """Return what the states of one operator hold."""
        wanted = found.wanted(self.names)
        if not wanted:
            return Positions()
        if (sink := others.of_sinks(wanted - self._decoded_names())) is not None:
            return Positions(unread=(_of_sink(found.operator, sink),))
        if (other := others.of_lists(wanted)) is not None and not self._is_decoded(wanted):
            return Positions(unread=(_of_other(found.operator, other),))
        try:
            return self._decoded(self.reader.read(found, wanted).state)
        except AnotherConnector as error:
            return Positions(unread=(Unread(found.operator, str(error), is_obstacle=False),))
        except Unreadable as error:
            is_of_kafka = not wanted <= BYTES  # no connector of Kafka has these lists
            is_of_files = not wanted.isdisjoint(STATES)
            unread = Unread(found.operator, str(error), is_of_kafka, is_of_files)
            return Positions(unread=(unread,))

    def _decoded_names(self) -> frozenset[str]:
        return frozenset[str]().union(*(decoder.states for decoder in self.decoders))

    def _is_decoded(self, names: frozenset[str]) -> bool:
        return any(not decoder.states.isdisjoint(names) for decoder in self.decoders)

    def _decoded(self, state: SourceState) -> Positions:
        for decoder in self.decoders:
            found = decoder.decode(state)
            if found is not None:
                return found
        return Positions(unread=tuple(_unread(state)))


def _of_other(operator: str, source: str) -> Unread:
    return Unread(operator, f"it is {source}, whose positions are not read", is_obstacle=False)


def _of_sink(operator: str, sink: str) -> Unread:
    reason = f"it is {sink}, and what its state names outside of the checkpoint is not read"
    return Unread(operator, reason, is_obstacle=False, is_of_files=True)


def _unread(state: SourceState) -> Iterator[Unread]:
    """Yield why no decoder knows the state of an operator, if it is one that holds positions.

    Committables of another sink are named, too: they are of what it has not committed.
    """
    sink = others.of_committables(state.elements.get(COMMITTER, ()))
    if sink is not None:
        yield _of_sink(state.operator, sink)
    if READERS not in state.elements:
        return
    if not state.elements[READERS]:
        reason = "its readers hold no split: the restored job starts where its initializer says"
        yield Unread(state.operator, reason, is_obstacle=False)
    elif (other := others.of_splits(state.elements[READERS])) is not None:
        yield _of_other(state.operator, other)
    elif are_of_known_versions(state.elements[READERS]):
        yield Unread(state.operator, "its source is not Kafka's", is_obstacle=False)
    else:
        yield Unread(state.operator, "its source is not Kafka's, or of a version that is not known")
