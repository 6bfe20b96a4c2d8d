"""`rebase`: write a derived checkpoint, for a job that starts at another Kafka.

It is the same checkpoint with other positions, topics or servers, or without pending transactions.
It references the files of the replica, and is beside the replica's own checkpoints, which stay as
they are.
"""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Literal

from cpreplicate.core import uri
from cpreplicate.core.closure import closure
from cpreplicate.core.ledger import LedgerEntry
from cpreplicate.core.metadata import decode, rewrite
from cpreplicate.core.metadata.splice import spliced
from cpreplicate.core.notify import Notify
from cpreplicate.core.packs import is_written
from cpreplicate.core.path_columns import chosen, texts, without
from cpreplicate.core.placement import REBASED, ReplicaLayout, is_derived
from cpreplicate.core.positions.fingerprints import Fingerprint, by_proofs
from cpreplicate.core.positions.kafka import Split
from cpreplicate.core.positions.kafka_rewrite import Changes
from cpreplicate.core.positions.model import PartFile, PendingTransaction, Position, Positions
from cpreplicate.core.positions.offsets import Choice, Move, unchanged
from cpreplicate.core.positions.ranges import partitions_of
from cpreplicate.core.positions.topics import refuse_mistakes, refuse_unknown
from cpreplicate.core.restore import PathSpeller
from cpreplicate.core.sizes import counted, plural
from cpreplicate.core.start import Starting, starting
from cpreplicate.core.tables import Lengths
from cpreplicate.errors import NotThere, Refused, UsageError
from cpreplicate.operations.change.change import Change, opened, refuse_links, some
from cpreplicate.operations.change.probe import refuse_held, try_opened
from cpreplicate.operations.change.target_root import refuse_no_replica
from cpreplicate.operations.kafka.evidence import Kafka, left_out, named, of_times
from cpreplicate.operations.kafka.fingerprints import proofs
from cpreplicate.operations.kafka.mirror_maker import translated
from cpreplicate.operations.kafka.positions import CheckpointPositions, positions_of
from cpreplicate.operations.kafka.rebasing import NewFile, Rebasing, rebasing
from cpreplicate.operations.upkeep import orphans
from cpreplicate.operations.verify.verify import NOTHING, verify
from cpreplicate.protocol import json_files, needed, ownership, publication, replica_state, seal
from cpreplicate.protocol.digest import digest_of
from cpreplicate.protocol.fingerprint_record import read_fingerprints, record_fingerprints
from cpreplicate.protocol.journal import JournalRow
from cpreplicate.protocol.ledger import Ledger
from cpreplicate.protocol.publication import Publication
from cpreplicate.protocol.replica import CommittedCheckpoint, Replica
from cpreplicate.protocol.replica_state import State
from cpreplicate.protocol.source import MetadataFile, read_metadata
from cpreplicate.storage import Side
from cpreplicate.storage.base import CHUNK

_OF_SAME = {"clamp": "the nearest offsets", "mm2": "the offsets by MirrorMaker's topics"}


@dataclass(frozen=True)
class RebaseRequest:
    """What to derive from a checkpoint of a replica, by default the newest one.

    `choice` returns the new offsets. `topics` maps old names to new ones, `servers` the clusters of
    a DynamicKafkaSource to their new bootstrap servers. `kafka` is where the job is to start, if it
    is asked, and `by` what the new offsets are of, if they are of it: those of fingerprints are not
    in `choice`, nor are those with an `alias`, which MirrorMaker 2 recorded there of the source
    with this alias. `name` is that of the derived checkpoint behind `rebased/`. The states of sinks
    in `not_read`, by id or name of the operator, may be ones that cannot be read. With `dry_run`,
    nothing is written.
    """

    replica: str
    checkpoint: str | None = None
    name: str | None = None
    choice: Choice = unchanged
    topics: Mapping[str, str] = field(default_factory=dict)
    servers: Mapping[str, str] = field(default_factory=dict)
    kafka: Kafka | None = None
    by: Literal["clamp", "group", "fingerprint", "mm2"] | None = None
    alias: str | None = None
    drops_pending: bool = False
    not_read: tuple[str, ...] = ()
    lock_wait: float = 0.0
    side: Side = field(default=Side())
    dry_run: bool = False


@dataclass(frozen=True)
class Rebase:
    """A derived checkpoint, and what it has changed.

    `checkpoint` is the one that it was derived from, `name` its own path in the replica. `moves`
    are all positions, changed or not, `dropped` the transactions that it does not hold any more,
    and `dropped_files` the part files.
    `starting` is None if nothing was written. `is_sealed`: the replica is, so that no sync changes
    what a job needs. `names` are those of operators, by their id.
    """

    replica: str
    checkpoint: str
    name: str
    moves: tuple[Move, ...]
    dropped: tuple[PendingTransaction, ...]
    starting: Starting | None
    warnings: tuple[str, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    is_sealed: bool = False
    dropped_files: tuple[PartFile, ...] = ()


@dataclass(frozen=True)
class Forgotten:
    """A derived checkpoint that was removed, or would be."""

    replica: str
    name: str
    dry_run: bool
    failed: tuple[str, ...] = ()


def rebase(request: RebaseRequest, notify: Notify) -> Rebase:
    """Write a derived checkpoint under the lease.

    A sealed replica is no obstacle. Raises `Refused` if the checkpoint cannot be restored, if a
    state that is to be changed cannot be read, or if nothing would change.
    """
    replica = Replica(request.replica, request.side)
    refuse_no_replica(replica.root, replica.side)
    state = _examine(replica)
    if request.dry_run:
        planned = _planned(replica, state, request, notify)
        _refuse_files_of_others(replica, Ledger(replica, state), planned.result.name)
        _try(replica, state, request.lock_wait, notify)
        return planned.result
    with opened(replica, _examine, request.lock_wait, notify) as change:
        planned = _planned(replica, change.state, request, notify)
        return _write(planned, change)


def forget(
    root: str, name: str, side: Side, dry_run: bool, lock_wait: float, notify: Notify
) -> Forgotten:
    """Remove a derived checkpoint, and the files that no other checkpoint needs.

    Raises `NotThere` if there is none of this name, and `Sealed` if the replica is sealed: a job
    may need files that no checkpoint in the replica references any more.
    """
    replica = Replica(root, side)
    refuse_no_replica(replica.root, replica.side)
    state = orphans.examine_unsealed(replica)
    checkpoint = _derived(replica, state, name)
    if dry_run:
        _try(replica, state, lock_wait, notify)
        return Forgotten(replica.root, checkpoint.name, True)
    with opened(replica, orphans.examine_unsealed, lock_wait, notify) as change:
        failed = _forget(change, _derived(replica, change.state, name))
    return Forgotten(replica.root, checkpoint.name, False, tuple(failed))


def _try(replica: Replica, state: State, lock_wait: float, notify: Notify) -> None:
    """Raise as taking the lease and writing in the replica would."""
    if not lock_wait:
        refuse_held(replica)
    try_opened(replica, state, "rebase", notify)


def _forget(change: Change, checkpoint: CommittedCheckpoint) -> list[str]:
    """Withdraw a derived checkpoint, then delete the files that only it needs and that are ours.

    Returns what failed: then its records and the journal stay, for the next run. Raises `Refused`
    and `LeaseHeld`.
    """
    replica, state, name = change.replica, change.state, checkpoint.name
    others = [each.name for each in state.ours if each.name != name]
    paths = without(checkpoint.files.paths, needed.needed(replica, state, [name])).to_pylist()
    written = change.ledger.written
    ours = [path for path in paths if is_written(path, written)]
    left = set(change.ledger.left_over(others).to_pylist()).difference(ours)
    refuse_links(uri.directories(ours), replica)
    proven = _proven(ours, change)
    with change.recording(proven, left):
        needed.refuse_later(replica, state, others)
        publication.withdraw(replica, name)
        failed = change.delete(proven) or change.forget([name])
    if not failed:
        change.end(left, change.described(others))
    return failed


def _proven(paths: Sequence[str], change: Change) -> list[str]:
    """Return the paths that have what is recorded there: the others may be another's."""
    asked = texts(paths)
    lengths = change.replica.lengths_of(asked, asked).at(asked)
    is_there = lengths >= 0
    there = Lengths(chosen(asked, is_there), lengths[is_there])
    proven: list[str] = chosen(there.paths, change.ledger.are_proven(there)).to_pylist()
    return proven


def _derived(replica: Replica, state: State, name: str) -> CommittedCheckpoint:
    path = name if name.startswith(f"{REBASED}/") else f"{REBASED}/{name}"
    for checkpoint in state.derived:
        if checkpoint.name == path:
            return checkpoint
    held = ", ".join(each.name for each in state.derived) or "none"
    raise NotThere(f"{replica.root} holds no derived checkpoint {path}. It holds {held}")


def _examine(replica: Replica) -> State:
    """Return the state of the replica. In a sealed one a job may have its own checkpoints."""
    if not seal.is_sealed(replica):
        return orphans.examine(replica)
    state = replica_state.examine(replica)
    if state.links:
        raise Refused(ownership.of_link(replica.uri_of(state.links[0])))
    return state


@dataclass(frozen=True)
class _Planned:
    """What is to be written, and the result without the way to start a job."""

    file: MetadataFile
    rebasing: Rebasing
    result: Rebase
    completed: float | None
    fingerprints: tuple[Fingerprint, ...] = ()


def _planned(replica: Replica, state: State, request: RebaseRequest, notify: Notify) -> _Planned:
    base = _base(replica, request, notify)
    name = _name(request.name, base, replica, state)
    file = read_metadata(replica.uri_of(base), replica.side)
    found = positions_of(file, replica.side)
    assert found is not None, "it is returned wherever it is asked for"
    held = found.found
    if request.topics:
        refuse_mistakes(
            request.topics, held, None if request.kafka is None else request.kafka.topics()
        )
    record = state.records.get(base)
    completed = record.completed if record is not None else None
    known = _Fingerprints.of(replica, base, completed, request)
    choose = request.choice if known is None else known.choice(held, request)
    renamed = [_renamed(each, request.topics, found.names) for each in held.positions]
    moves, notes = _chosen(renamed, choose, request, completed)
    by_clock = list(_by_clock(moves, request, completed))
    if request.drops_pending:
        _refuse_unread_sinks(found, request)
    left = {
        each.id
        for each in file.metadata.operators
        if {each.id, found.names.get(each.id)}.intersection(request.not_read)
    }
    plan = rebasing(file, replica, name, _Changes(moves, request), left)
    refuse_unknown(request.topics, held)  # behind what could not be read
    if plan.is_empty:
        raise Refused(
            f"{replica.uri_of(base)} holds nothing that would change. Nothing was written."
            " `cpreplicate inspect --positions` shows what it holds"
        )
    dropped = held.pending if request.drops_pending else ()
    files = held.part_files if request.drops_pending else ()
    warnings = (*_warnings(held, request), *_ahead(moves, request), *notes, *by_clock)
    is_sealed = seal.NAME in state.own
    result = Rebase(
        replica.root,
        base,
        name,
        tuple(moves),
        dropped,
        None,
        warnings,
        found.names,
        is_sealed,
        files,
    )
    return _Planned(file, plan, result, completed, () if known is None else known.moved(moves))


@dataclass(frozen=True)
class _Fingerprints:
    """The fingerprints of a checkpoint, whose positions become those of the same records."""

    of_checkpoint: tuple[Fingerprint, ...]

    @classmethod
    def of(
        cls, replica: Replica, base: str, completed: float | None, request: RebaseRequest
    ) -> _Fingerprints | None:
        """Return those of a checkpoint, None if others choose the offsets. Raises `Refused`."""
        if request.by != "fingerprint":
            return None
        found = read_fingerprints(replica, base, completed)
        if not found:
            raise Refused(
                f"no fingerprints were kept with {replica.uri_of(base)}. Nothing was written. `sync"
                " --kafka-source` keeps them with each checkpoint from then on. Give offsets by a"
                " CSV file, or those of a group"
            )
        return cls(found)

    def choice(self, held: Positions, request: RebaseRequest) -> Choice:
        """Return what chooses the offsets of the same records at the Kafka that is asked."""
        assert request.kafka is not None, "the command line has refused that"
        names, topics = request.topics, request.kafka.topics()
        places = {(names.get(each[0], each[0]), each[1]) for each in partitions_of(held)}
        ranges = request.kafka.ranges(sorted(places), topics)
        return by_proofs(proofs(request.kafka, held, self.of_checkpoint, ranges, names))

    def moved(self, moves: Sequence[Move]) -> tuple[Fingerprint, ...]:
        """Return those of the derived checkpoint, at its own topics and offsets."""
        by_position = {(each.place, each.position): each for each in self.of_checkpoint}
        found: dict[Fingerprint, None] = {}
        for move in moves:
            position = move.position
            one = by_position.get(((position.topic, position.partition), position.offset or 0))
            if one is not None and position.offset is not None:
                found[one.moved(move.topic, move.offset or position.offset)] = None
        return tuple(found)


def _refuse_unread_sinks(of: CheckpointPositions, request: RebaseRequest) -> None:
    """Raise `Refused` for a sink whose state cannot be read: nothing could be left out of it."""
    for each in of.found.unread:
        name = of.names.get(each.operator, each.operator)
        if each.is_of_files and not {each.operator, name}.intersection(request.not_read):
            raise Refused(
                f"--drop-pending cannot leave out what the state of operator {name} names:"
                f" {each.reason}. Nothing was written. --not-read {shlex.quote(name)} leaves that"
                " state as it is"
            )


def _base(replica: Replica, request: RebaseRequest, notify: Notify) -> str:
    """Return the checkpoint to derive from, all of whose files are there."""
    verification = verify(replica.root, request.checkpoint, NOTHING, notify, request.side)
    base = verification.checkpoint
    if not verification.restorable:
        raise Refused(
            f"{replica.uri_of(base)} cannot be restored. Nothing was written. `cpreplicate verify"
            f" {shlex.quote(replica.root)} --checkpoint {base}` lists what it lacks"
        )
    return base


def _name(asked: str | None, base: str, replica: Replica, state: State) -> str:
    """Return the path of the derived checkpoint, which must not be there yet.

    One that is not asked for has no directory: a run that died, or another program, may have
    written there.
    """
    taken = {each.name for each in state.derived}.union(state.adopted, state.unrecorded)
    if asked is None:
        stem = f"{REBASED}/{uri.name(base)}"
        names = (f"{stem}-{nth}" for nth in count(1))
        return next(
            name for name in names if name not in taken and not len(replica.present([name]))
        )
    name = f"{REBASED}/{asked.removeprefix(f'{REBASED}/')}"
    if not is_derived(name):
        raise UsageError(
            f"--name {asked}: expected letters, digits, dots, dashes and underscores, at most 100"
        )
    if name in taken:
        raise Refused(
            f"{name} is there already. Nothing was written. Choose another --name, or remove it"
            " with --forget"
        )
    return name


def _renamed(position: Position, topics: Mapping[str, str], names: Mapping[str, str]) -> Move:
    topic = topics.get(position.topic, position.topic)
    return Move(position, topic, name=names.get(position.operator))


def _chosen(
    moves: Sequence[Move], choose: Choice, request: RebaseRequest, completed: float | None
) -> tuple[Sequence[Move], Sequence[str]]:
    """Return positions with their new offsets, and what is to be known of them."""
    if request.alias is None:
        return choose(moves), ()
    assert request.kafka is not None, "an alias is of its MirrorMaker"
    return translated(request.kafka, request.alias, moves, completed)


class _Changes:
    """The changes of each operator: two sources may read one topic from different offsets."""

    def __init__(self, moves: Sequence[Move], request: RebaseRequest) -> None:
        self._request = request
        self._offsets = {
            (move.position.operator, move.position.cluster, *move.partition): move.offset
            for move in moves
        }

    def __call__(self, operator: str) -> Changes:
        request = self._request

        def offset(split: Split) -> int | None:
            return self._offsets.get((operator, split.cluster, split.topic, split.partition))

        return Changes(request.topics, offset, request.servers, request.drops_pending)


def _warnings(held: Positions, request: RebaseRequest) -> Iterator[str]:
    for unread in held.unread:
        yield f"the state of operator {unread.operator} was left as it is: {unread.reason}"
    if held.pending and not request.drops_pending:
        pending = counted(len(held.pending), "transaction is", "transactions are")
        yield (
            f"{pending} pending, and the derived checkpoint keeps"
            f" {plural(len(held.pending), 'it', 'them')}: at another Kafka the job does not start."
            " --drop-pending leaves them out"
        )
    files = [each for each in held.part_files if each.is_needed]
    if files and not request.drops_pending:
        yield (
            f"{counted(len(files), 'part file is', 'part files are')} outside of the checkpoint,"
            f" and the derived one keeps {plural(len(files), 'it', 'them')}: without such a file"
            " the job does not start, or lacks records. --drop-pending leaves out part files,"
            " with their records"
        )
    if any(position.stop is not None for position in held.positions):
        yield "a bounded source ends at offsets of the former Kafka, which stay as they are"


def _ahead(moves: Sequence[Move], request: RebaseRequest) -> Iterator[str]:
    """Yield where a group has an offset behind that of the checkpoint."""
    found = [
        (move, move.offset - move.position.offset)
        for move in moves
        if move.offset is not None and move.position.offset is not None
        if request.by == "group" and move.offset > move.position.offset
    ]
    if found:
        places = [
            f"{named(move.partition)} ({move.offset}, in the checkpoint {move.position.offset}:"
            f" {count})"
            for move, count in found
        ]
        yield (
            f"the group is ahead of the checkpoint in {counted(len(found), 'partition')}:"
            f" {some(places)}. If offsets mean the same records there, so many are not read"
        )


def _by_clock(
    moves: Sequence[Move], request: RebaseRequest, completed: float | None
) -> Iterator[str]:
    """Yield where records would be skipped that are younger than the checkpoint.

    Raises `Refused` for offsets that are to be of the same records: then they are not.
    """
    offsets = {
        move.partition: offset
        for move in moves
        if move.position.detail is None
        and (offset := move.position.offset if move.offset is None else move.offset) is not None
    }
    if request.kafka is None or completed is None or not offsets or request.by == "fingerprint":
        return
    texts, unproven = left_out(request.kafka, completed, offsets)
    if texts and request.by in _OF_SAME:
        raise Refused(
            f"{_OF_SAME[request.by]} would skip records that are younger than the checkpoint:"
            f" {some(texts)}. Nothing was written. Offsets there do not mean the same records, or"
            " producers went on there: give offsets by a CSV file"
        )
    if texts:
        yield f"records that are younger than the checkpoint would be skipped: {some(texts)}"
    yield from of_times(unproven, request.kafka.servers)


def _write(planned: _Planned, change: Change) -> Rebase:
    replica, result = change.replica, planned.result
    files = planned.rebasing.files
    _refuse_files_of_others(replica, change.ledger, result.name)
    replica.keep_unfinished()
    left = set(change.ledger.left_over([each.name for each in change.state.ours]).to_pylist())
    paths = [file.path for file in files]
    with ExitStack() as resources, change.recording(paths, left.difference(paths)):
        written = {file.path: _put(file, change) for file in files}
        final = resources.enter_context(_metadata(planned, replica))
        stream = resources.enter_context(final.open("rb"))
        metadata = decode(stream, replica.uri_of(result.name))
        content = partial(_pieces, final)
        commit = Publication(replica, result.name, content, change.state, planned.completed)
        resources.enter_context(commit)
        referenced = replica.referenced_by(result.name, commit.digest, stream, metadata)
        change.ledger.prove(written)
        listed = change.ledger.manifest_of(referenced)
        pending = resources.enter_context(replica.writing_manifest(result.name, listed))
        commit.publish(change.lease.check, pending)
        if planned.fingerprints:
            kept = planned.fingerprints, planned.completed
            record_fingerprints(replica, result.name, *kept)
        change.notify(f"wrote {replica.uri_of(result.name)}")
    change.end(left, [*change.described(), listed])
    # a number that no promotion had: see `Starting`
    start = starting(metadata, replica.uri_of(result.name), int(json_files.now()))
    return replace(result, starting=start)


def _refuse_files_of_others(replica: Replica, ledger: Ledger, name: str) -> None:
    """Raise `Refused` if files of another program are where the derived checkpoint is to be."""
    refuse_links([name], replica)
    if others := _others_in(name, replica, ledger):
        raise Refused(
            f"{replica.uri_of(name)} holds files that cpreplicate did not write: {some(others)}."
            " Nothing was written. Choose another --name"
        )


def _others_in(name: str, replica: Replica, ledger: Ledger) -> list[str]:
    """Return the files in a directory of which no record proves that cpreplicate wrote them."""
    present = replica.present([name])
    others: list[str] = chosen(present.paths, ~ledger.are_proven(present)).to_pylist()
    return others


def _put(file: NewFile, change: Change) -> LedgerEntry:
    """Write a new small file, and record it in the journal."""
    replica, digest = change.replica, digest_of([file.content])
    replica.storage.put(replica.uri_of(file.path), lambda: [file.content])
    change.journal.done(JournalRow(file.path, digest.length, digest.crc32c))
    return LedgerEntry(digest.length, digest.crc32c, True)


@contextmanager
def _metadata(planned: _Planned, replica: Replica) -> Iterator[Path]:
    """Provide a local file with the `_metadata` to publish: its paths to the replica are absolute.

    It may have gigabytes. It is read by the thread that writes it into the replica, too.
    """
    result, original = planned.result, planned.file
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cpreplicate-")))
        data, changed, final = original.open(stack), directory / "changed", directory / "final"
        with changed.open("wb") as file:
            file.writelines(spliced(data, original.metadata.length, planned.rebasing.edits))
        with changed.open("rb") as stream, final.open("wb") as file:
            # relative paths are still those of the checkpoint that it was derived from
            metadata = decode(stream, replica.uri_of(result.checkpoint))
            layout = ReplicaLayout(result.name, (replica.root,))
            rewriter = PathSpeller(closure(metadata), layout, replica.root, "absolute")
            file.writelines(rewrite(stream, metadata, rewriter))
        yield final


def _pieces(file: Path) -> Iterator[bytes]:
    with file.open("rb") as stream:
        while piece := stream.read(CHUNK):
            yield piece
