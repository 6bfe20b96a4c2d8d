"""The list states of operators, read from a `_metadata` and the small files that it names."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter
from typing import BinaryIO, NamedTuple

from cpreplicate.core import uri
from cpreplicate.core.closure import Uris
from cpreplicate.core.metadata.operator_states import CoordinatorState, ListStates, operator_states
from cpreplicate.core.positions import kafka_legacy
from cpreplicate.core.positions.fields import Fields
from cpreplicate.core.positions.list_states import (
    MOST_BYTES,
    elements,
    raw_elements,
    raw_head,
)
from cpreplicate.core.positions.model import SourceState, Unreadable
from cpreplicate.core.positions.sinks import part_files
from cpreplicate.errors import described
from cpreplicate.protocol.source import MetadataFile
from cpreplicate.runners import ExecutionOptions, choose_runner
from cpreplicate.storage import DamagedFile, Side, Sides
from cpreplicate.storage.streams.resuming import resuming

_MOST_OF_OPERATOR = 64 << 20  # bytes of elements: over a million partitions


class OperatorStates(NamedTuple):
    """Where the states of one operator are: its coordinator's, and the lists of its subtasks."""

    operator: str
    coordinator: CoordinatorState | None
    lists: tuple[ListStates, ...]

    @property
    def names(self) -> frozenset[str]:
        """The names of its lists."""
        return frozenset(name for states in self.lists for name in states.offsets)

    def wanted(self, names: frozenset[str]) -> frozenset[str]:
        """Return those of its lists that have these names, and may be of a connector."""
        return (self.names & names) - (kafka_legacy.LISTS - kafka_legacy.own_lists(self.names))


class ReadOperator(NamedTuple):
    """The states of one operator as they were read.

    `streams` are those of the subtasks that hold elements, in the order of the elements in `state`.
    """

    state: SourceState
    streams: tuple[tuple[ListStates, bytes], ...]


class _Part(NamedTuple):
    """A part of a file that holds operator state: where it begins and ends, in bytes."""

    file: str
    start: int
    end: int


@dataclass
class _Gathered:
    """The elements of one operator's list states."""

    elements: dict[str, list[bytes]] = field(default_factory=dict)
    size: int = 0

    def add(self, states: ListStates, stream: bytes, names: frozenset[str]) -> None:
        """Add the elements of a subtask, of lists of these names. Raises `Unreadable`."""
        for name, offsets in states.offsets.items():
            if name not in names:
                continue
            if offsets is None:
                raise Unreadable("it has more elements than a source has splits")
            for element in self._of(states, stream, name, offsets):
                self.size += len(element)
                if self.size > _MOST_OF_OPERATOR:
                    raise Unreadable(f"it holds more than {_MOST_OF_OPERATOR >> 20} MiB of states")
                self.elements[name].append(element)

    def _of(
        self, states: ListStates, stream: bytes, name: str, offsets: tuple[int, ...]
    ) -> Iterator[bytes]:
        """Return the elements of one list. Those of legacy connectors have other serializers."""
        every = {each: places or () for each, places in states.offsets.items()}
        if name in part_files.BYTES:
            return (Fields(each).block() for each in raw_elements(stream, every, name))
        if name not in kafka_legacy.LISTS:
            return elements(stream, offsets)
        kafka_legacy.refuse_others(name, raw_head(stream, every)[0])
        return raw_elements(stream, every, name)


@dataclass(frozen=True)
class OperatorReader:
    """Reads the list states of a checkpoint's operators.

    Without `with_files`, no file but the `_metadata` is read.
    """

    file: MetadataFile
    side: Side
    remaps: tuple[uri.Remap, ...]
    with_files: bool

    def operators(
        self, data: bytes | BinaryIO, names: frozenset[str] | None
    ) -> Iterator[OperatorStates]:
        """Yield where the states are of each operator that has list states, or a coordinator.

        `data` is the `_metadata`. Without `names`, all lists of a subtask are given.
        """
        states = operator_states(data, self.file.metadata, names)
        for index, group in groupby(states, attrgetter("operator")):
            coordinator, lists = None, []
            for state in group:
                if isinstance(state, CoordinatorState):
                    coordinator = state
                else:
                    lists.append(state)
            operator = self.file.metadata.operators[index].id
            yield OperatorStates(operator, coordinator, tuple(lists))

    def read(self, found: OperatorStates, names: frozenset[str]) -> ReadOperator:
        """Return the states of an operator, of lists with these names. Raises `Unreadable`."""
        wanted = found.names & names
        holding = [
            states
            for states in found.lists
            if any(states.offsets[name] != () for name in wanted if name in states.offsets)
        ]
        streams = tuple(self._with_streams(holding))
        gathered = _Gathered({name: [] for name in wanted})
        for states, stream in streams:
            gathered.add(states, stream, wanted)
        parts = {name: tuple(each) for name, each in gathered.elements.items()}
        coordinator = None if found.coordinator is None else found.coordinator.state
        return ReadOperator(SourceState(found.operator, parts, coordinator), streams)

    def _with_streams(self, lists: Sequence[ListStates]) -> Iterator[tuple[ListStates, bytes]]:
        yield from ((states, states.inline) for states in lists if states.inline is not None)
        others = [states for states in lists if states.inline is None]
        yield from zip(others, self._streams(others), strict=True)

    def _streams(self, lists: Sequence[ListStates]) -> list[bytes]:
        """Return the streams of states that are in files, many of which are read at once."""
        if not lists:
            return []
        if not self.with_files:
            count = "a file" if len(lists) == 1 else f"{len(lists)} files"
            raise Unreadable(f"its state is in {count}, which --positions reads")
        parts = [self._part_of(states) for states in lists]
        sides, places = Sides(self.side, self.side), [part.file for part in parts]
        with choose_runner(ExecutionOptions(runner="inline"), 0, 0, sides) as runner:
            return runner.map(self._read, parts, places)

    def _part_of(self, states: ListStates) -> _Part:
        handle = states.handle
        if handle is None or handle.path is None:
            raise Unreadable("its state is not in one stream")
        if handle.size > MOST_BYTES:
            raise Unreadable(f"its state of {handle.size} bytes is longer than that of a source")
        file = Uris(self.file.metadata.base_uri, self.remaps)[handle.path]
        allowed = {uri.filesystem(self.file.uri), *(uri.filesystem(to) for _, to in self.remaps)}
        if uri.filesystem(file) not in allowed:
            raise Unreadable(f"its state is in {file}, on another filesystem")
        start = handle.position or 0
        return _Part(file, start, start + handle.size)

    def _read(self, part: _Part) -> bytes:
        try:
            with resuming(self.side.storage(part.file), part.file) as opened:
                opened.seek(part.start, io.SEEK_SET)
                data = opened.read(part.end - part.start)
        except FileNotFoundError as error:
            raise Unreadable(f"its state is in {part.file}, which is not there") from error
        except (DamagedFile, PermissionError) as error:
            raise Unreadable(f"its state cannot be read: {described(error)}") from error
        if len(data) < part.end - part.start:
            raise Unreadable(f"{part.file} ends before its state does")
        return data
