"""What a derived checkpoint changes: the edits of its `_metadata`, and new small files."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import BinaryIO, NamedTuple

from cpreplicate.core.metadata.operator_states import ListStates
from cpreplicate.core.metadata.splice import Edit, file_edit, inline_edit, offsets_edit
from cpreplicate.core.positions import kafka_legacy, others
from cpreplicate.core.positions.kafka import KafkaPositions
from cpreplicate.core.positions.kafka_rewrite import Changes, Rewritten, rewritten
from cpreplicate.core.positions.list_states import rebuilt
from cpreplicate.core.positions.model import AnotherConnector, SourceState, Unreadable
from cpreplicate.core.positions.sinks import part_files
from cpreplicate.core.positions.sinks.rewrite import without_part_files
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
    file: MetadataFile,
    replica: Replica,
    name: str,
    changes: Callable[[str], Changes],
    left: Collection[str] = (),
) -> Rebasing:
    """Return what becomes of a checkpoint of a replica whose derived one is called `name`.

    `changes` returns those of an operator. The states of the operators in `left` stay as they are,
    and those of sinks of tables. Raises `Refused` if another state cannot be read that may have to
    be changed.
    """
    reader = OperatorReader(file, replica.side, (), with_files=True)
    plan = Rebasing()
    with ExitStack() as stack:
        data = file.open(stack)
        for found in reader.operators(data, None):
            if found.operator in left or others.of_sinks(found.names) is not None:
                continue
            own = changes(found.operator)
            # without part files to drop, no state is read that only may name some
            names = part_files.STATES if own.drops_pending else frozenset[str]()
            wanted = found.wanted(KafkaPositions.states | names)
            if not wanted:
                continue
            try:
                read = reader.read(found, wanted)
                new = _new(read.state, own)
                _Operator(found, read, data, replica, name, plan).change(new)
            except AnotherConnector:
                continue
            except Unreadable as error:
                raise Refused(
                    f"{file.uri}: the state of operator {found.operator} cannot be changed:"
                    f" {error}. Nothing was written"
                ) from error
    return plan


def _new(state: SourceState, changes: Changes) -> Rewritten:
    """Return the states of an operator with these changes, of whichever connector it is."""
    dropped = without_part_files(state) if changes.drops_pending else None
    if dropped is not None:
        return Rewritten(dropped.elements, None, dropped.emptied)
    return rewritten(state, changes)


@dataclass(frozen=True)
class _Operator:
    """One operator whose states are changed."""

    found: OperatorStates
    read: ReadOperator
    data: bytes | BinaryIO
    replica: Replica
    name: str
    plan: Rebasing

    def change(self, new: Rewritten) -> None:
        """Add what changes to the plan."""
        coordinator = self.found.coordinator
        if new.coordinator is not None and coordinator is not None:
            former = len(coordinator.state or b"")
            self.plan.edits.append(
                inline_edit(coordinator.start, coordinator.end, former, new.coordinator)
            )
        own = self._of_subtasks(new.elements)
        for index, (states, stream) in enumerate(self.read.streams):
            emptied = {name for name in new.emptied if states.offsets.get(name)}
            if index in own or emptied:
                self._change_subtask(states, stream, own.get(index, {}), emptied)

    def _of_subtasks(
        self, elements: Mapping[str, tuple[bytes, ...]]
    ) -> dict[int, dict[str, tuple[bytes, ...]]]:
        """Return the new elements of each subtask that has some, by its place in the streams."""
        found: dict[int, dict[str, tuple[bytes, ...]]] = {}
        taken = dict.fromkeys(elements, 0)
        for index, (states, _) in enumerate(self.read.streams):
            for name in elements.keys() & states.offsets.keys():
                first = taken[name]
                taken[name] += len(states.offsets[name] or ())
                part = slice(first, taken[name])
                if elements[name][part] != self.read.state.elements[name][part]:
                    found.setdefault(index, {})[name] = elements[name][part]
        return found

    def _change_subtask(
        self,
        states: ListStates,
        stream: bytes,
        elements: Mapping[str, tuple[bytes, ...]],
        emptied: Collection[str],
    ) -> None:
        """Plan the change of one subtask's state: inline where it is so, else in a new file."""
        every = {name: each or () for name, each in states.offsets.items()}
        new = rebuilt(stream, every, elements, kafka_legacy.LISTS, emptied)
        for name, offsets in new.offsets.items():
            if offsets != every[name]:
                former = len(every[name])
                self.plan.edits.append(offsets_edit(states.places[name], former, offsets))
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
