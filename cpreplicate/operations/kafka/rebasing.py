"""What a derived checkpoint changes: the edits of its `_metadata`, and new small files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import BinaryIO, NamedTuple

from cpreplicate.core.metadata.operator_states import ListStates
from cpreplicate.core.metadata.splice import Edit, file_edit, inline_edit, offsets_edit
from cpreplicate.core.positions import kafka_legacy
from cpreplicate.core.positions.kafka import KafkaPositions
from cpreplicate.core.positions.kafka_rewrite import Changes, rewritten
from cpreplicate.core.positions.list_states import rebuilt
from cpreplicate.core.positions.model import AnotherConnector, Unreadable
from cpreplicate.errors import Refused
from cpreplicate.operations.kafka.operator_reader import (
    OperatorReader,
    OperatorStates,
    ReadOperator,
)
from cpreplicate.protocol.replica import Replica
from cpreplicate.protocol.source import MetadataFile


class NewFile(NamedTuple):
    """A small file that holds changed states, by its path in the replica."""

    path: str
    content: bytes


@dataclass
class Rebasing:
    """The edits of a `_metadata`, and the files that they reference."""

    edits: list[Edit] = field(default_factory=list)
    files: list[NewFile] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        """Whether nothing changes."""
        return not self.edits


def rebasing(
    file: MetadataFile, replica: Replica, name: str, changes: Callable[[str], Changes]
) -> Rebasing:
    """Return what becomes of a checkpoint of a replica whose derived one is called `name`.

    `changes` returns those of an operator. Raises `Refused` if a state cannot be read that may have
    to be changed.
    """
    reader = OperatorReader(file, replica.side, (), with_files=True)
    plan = Rebasing()
    with ExitStack() as stack:
        data = file.open(stack)
        for found in reader.operators(data, None):
            wanted = found.wanted(KafkaPositions.states)
            if not wanted:
                continue
            try:
                read = reader.read(found, wanted)
                _Operator(found, read, data, replica, name, plan).change(changes(found.operator))
            except AnotherConnector:
                continue
            except Unreadable as error:
                raise Refused(
                    f"{file.uri}: the state of operator {found.operator} cannot be changed:"
                    f" {error}. Nothing was written"
                ) from error
    return plan


@dataclass(frozen=True)
class _Operator:
    """One operator whose states are changed."""

    found: OperatorStates
    read: ReadOperator
    data: bytes | BinaryIO
    replica: Replica
    name: str
    plan: Rebasing

    def change(self, changes: Changes) -> None:
        """Add what changes to the plan."""
        new = rewritten(self.read.state, changes)
        coordinator = self.found.coordinator
        if new.coordinator is not None and coordinator is not None:
            former = len(coordinator.state or b"")
            self.plan.edits.append(
                inline_edit(coordinator.start, coordinator.end, former, new.coordinator)
            )
        for states, stream, elements in self._of_subtasks(new.elements):
            self._change_subtask(states, stream, elements)

    def _of_subtasks(
        self, elements: Mapping[str, tuple[bytes, ...]]
    ) -> Iterator[tuple[ListStates, bytes, dict[str, tuple[bytes, ...]]]]:
        """Yield the states of each subtask that changes, its stream and its new elements."""
        taken = dict.fromkeys(elements, 0)
        for states, stream in self.read.streams:
            own: dict[str, tuple[bytes, ...]] = {}
            for name in elements.keys() & states.offsets.keys():
                first = taken[name]
                taken[name] += len(states.offsets[name] or ())
                part = slice(first, taken[name])
                if elements[name][part] != self.read.state.elements[name][part]:
                    own[name] = elements[name][part]
            if own:
                yield states, stream, own

    def _change_subtask(
        self, states: ListStates, stream: bytes, elements: Mapping[str, tuple[bytes, ...]]
    ) -> None:
        """Plan the change of one subtask's state: inline where it is so, else in a new file."""
        every = {name: each or () for name, each in states.offsets.items()}
        new = rebuilt(stream, every, elements, kafka_legacy.LISTS)
        for name, offsets in new.offsets.items():
            if offsets != states.offsets[name]:
                self.plan.edits.append(offsets_edit(states.places[name], offsets))
        handle = states.handle
        assert handle is not None, "a state that was read has a handle"
        if states.inline is not None:
            end = handle.start + handle.length
            self.plan.edits.append(inline_edit(handle.start, end, len(stream), new.stream))
            return
        file = NewFile(f"{self.name}/state-{len(self.plan.files)}", new.stream)
        self.plan.files.append(file)
        place, size = self.replica.uri_of(file.path), len(file.content)
        original = _bytes_of(self.data, handle.start, handle.length)
        self.plan.edits.append(file_edit(handle, original, place, size, file.path))


def _bytes_of(data: bytes | BinaryIO, start: int, length: int) -> bytes:
    if isinstance(data, bytes):
        return data[start : start + length]
    data.seek(start)
    return data.read(length)
