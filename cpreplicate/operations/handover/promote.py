"""`promote`: make a replica the one that the job runs from.

It is verified, rewritten to absolute paths, and sealed against further syncs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from cpreplicate.core import restore
from cpreplicate.core.closure import closure
from cpreplicate.core.metadata import Metadata
from cpreplicate.core.notify import Notify
from cpreplicate.core.placement import PACKED
from cpreplicate.core.short_repr import short_repr
from cpreplicate.core.sizes import counted, plural
from cpreplicate.core.start import NEVER_SEALED, Starting, starting
from cpreplicate.errors import Lagging, Refused, described
from cpreplicate.operations.change.change import some
from cpreplicate.operations.change.probe import refuse_held, try_change
from cpreplicate.operations.change.target_root import refuse_no_replica
from cpreplicate.operations.handover import as_of
from cpreplicate.operations.handover.ended import refuse_to_go_back
from cpreplicate.operations.kafka import check as kafka_check
from cpreplicate.operations.kafka import part_files
from cpreplicate.operations.kafka.check import KafkaAsked, KafkaCheck
from cpreplicate.operations.kafka.positions import CheckpointPositions, positions_in, positions_of
from cpreplicate.operations.replicas.source_look import (
    Behind,
    SourceSeen,
    checkpoints_of,
    may_have_gone_further,
    source_of,
)
from cpreplicate.operations.upkeep import orphans
from cpreplicate.operations.upkeep.relocate import RelocateRequest, relocate_held, would_rewrite
from cpreplicate.operations.verify.verify import NOTHING, Sample, Verification, verify
from cpreplicate.protocol import seal
from cpreplicate.protocol.held import HeldReplica
from cpreplicate.protocol.lease import acquire
from cpreplicate.protocol.ledger import Examined
from cpreplicate.protocol.readiness import held, unready, unready_sealed
from cpreplicate.protocol.replica import Replica
from cpreplicate.protocol.replica_state import State
from cpreplicate.protocol.seal import Seal
from cpreplicate.protocol.source import MetadataFile, read_metadata
from cpreplicate.runners import ExecutionOptions
from cpreplicate.storage import Side, Transient

if TYPE_CHECKING:
    from cpreplicate.flink import FlinkRest


@dataclass(frozen=True)
class PromoteRequest:
    """What to promote: the newest committed checkpoint of a replica, or the one named.

    `as_of`: the newest one that was completed at or before this time, in seconds since the epoch.
    With `dry_run`, everything is checked and tried, and nothing is changed. `with_positions`:
    positions are also read from small files that hold some. `with_files`: the part files of sinks
    are looked for, but not those of the operators `not_read`, by id or name. With `kafka`, the
    newest checkpoint is the newest one that a job can go on from at that Kafka, and one that is
    named must be such a checkpoint. By the side `source`, the source that the replica records is
    asked how far it is ahead, unless that was `seen` before. More than `max_lag` seconds are
    refused, unless the replica is promoted already: its job is started all the same. So is a source
    that holds no checkpoint any more, without `allow_older` or a checkpoint that is asked for. The
    JobManagers `clusters` are asked then for the savepoint with which its job was stopped.
    `is_synced`: the caller has just replicated into it, so it is a replica, and is examined under
    the lease only.
    """

    replica: str
    checkpoint: str | None = None
    content: Sample = NOTHING
    lock_wait: float = 0.0
    side: Side = field(default=Side())
    execution: ExecutionOptions = field(default=ExecutionOptions())
    as_of: float | None = None
    dry_run: bool = False
    with_positions: bool = False
    with_files: bool = False
    not_read: tuple[str, ...] = ()
    kafka: KafkaAsked | None = None
    source: Side | None = None
    seen: SourceSeen | None = None
    max_lag: float | None = None
    allow_older: bool = False
    clusters: tuple[FlinkRest, ...] = ()
    is_synced: bool = False

    @property
    def is_chosen(self) -> bool:
        """Whether the checkpoint is the operator's choice."""
        return self.allow_older or self.checkpoint is not None or self.as_of is not None


@short_repr("verification.replica", "checkpoint", "is_promoted", "is_dry_run", "sealed", "warnings")
@dataclass(frozen=True)
class Promotion:
    """A sealed replica and how a job is started from it; with `is_dry_run`, what would be.

    `starting` is None if the replica cannot be restored; then it was left as it was. `sealed` is
    None if it is not. `warnings` are about its part files, its packs, files of others in it, and
    its Kafka. `kafka`
    is which checkpoints were checked there before this one was chosen. `behind` is how far its
    source was ahead.
    """

    verification: Verification
    checkpoint: str
    starting: Starting | None
    sealed: str | None
    warnings: tuple[str, ...] = ()
    positions: CheckpointPositions | None = None
    kafka: KafkaCheck | None = None
    behind: Behind | None = None
    is_dry_run: bool = False

    @property
    def is_promoted(self) -> bool:
        """Whether the replica is promoted now, by this run or by one before."""
        return self.starting is not None and not self.is_dry_run


def promote(request: PromoteRequest, notify: Notify) -> Promotion:
    """Verify a replica, rewrite it to absolute paths, and seal it.

    A replica that is sealed already is verified again, and the same result is returned. Raises
    `NotAtKafka`, `PartFilesMissing` and `Lagging` before anything is changed, and `Refused` if the
    checkpoint that a sealed one was promoted with is not there any more.
    """
    replica = Replica(request.replica, request.side)
    before = None
    if not request.is_synced:  # before a lease is written where no replica is
        refuse_no_replica(replica.root, replica.side)
        before = _refuse_unready(replica, request)
    marker = None if before is None else before.marker
    seen = request.seen or source_of(replica, request.source, marker)
    sealed = None
    with _leased(replica, request, notify) as held:
        state = _refuse_unready(replica, request, before)
        known = None if state is None else Examined(replica, state)
        strays = () if known is None else _strays(known)
        verification, checked = _verified(replica, known, request, notify)
        found = _found(replica, state, verification, checked, seen, strays, request.dry_run)
        if not verification.restorable:
            if held is None:  # a sync may have replaced meanwhile what was verified
                refuse_held(replica)
            name, is_asked = found.checkpoint, request.with_positions
            return replace(found, positions=positions_in(replica, name) if is_asked else None)
        if state is not None and found.behind is not None:
            found = replace(
                found, behind=_as_it_ended(found.behind, found.checkpoint, replica, state)
            )
        if state is not None:
            _refuse_to_go_back(found, replica, state, request)
            _refuse_lagging(found, request.max_lag)
        if request.with_files:
            part_files.refuse_missing(replica, found.checkpoint, request.not_read)
        if held is None:
            _try(replica, state, found.checkpoint)
        elif state is not None:
            sealed = _seal(held, state, found.checkpoint, notify)
    sealed = sealed or _sealed_before(replica, found.checkpoint)
    return _with_start(found, sealed, replica, state, request)


def _as_it_ended(behind: Behind, name: str, replica: Replica, state: State) -> Behind:
    """Return how far a checkpoint is behind, not known if its job may have gone further."""
    savepoint = state.records[name].savepoint
    is_ended = may_have_gone_further(behind.source, behind.look, replica, name, savepoint)
    return replace(behind, is_ended=is_ended)


def _refuse_to_go_back(
    found: Promotion, replica: Replica, state: State, request: PromoteRequest
) -> None:
    if found.behind is not None and not request.is_chosen:
        name = found.checkpoint
        held = state.records[name].savepoint if name in state.records else None
        refuse_to_go_back(found.behind, name, replica, held, request.source, request.clusters)


def _found(
    replica: Replica,
    state: State | None,
    verification: Verification,
    checked: KafkaCheck | None,
    seen: SourceSeen,
    strays: Sequence[str],
    is_dry_run: bool,
) -> Promotion:
    """Return what is known of a checkpoint before it is promoted, not how to start from it."""
    return Promotion(
        verification,
        verification.checkpoint,
        None,
        seal.describe(replica) if state is None else None,
        (*strays, *(checked.warnings if checked is not None else ())),
        kafka=checked,
        behind=seen.behind(verification.checkpoint_id, verification.completed),
        is_dry_run=is_dry_run,
    )


def _refuse_lagging(found: Promotion, limit: float | None) -> None:
    """Raise `Lagging` if the source is, or may be, ahead by more than a limit in seconds."""
    behind = found.behind
    if limit is None or behind is None or not behind.exceeds(limit):
        return
    raise Lagging(
        f"{found.verification.replica}: {found.checkpoint} {_lag_of(behind)}, and --max-lag allows"
        f" {limit:g} s. Nothing was changed."
        f"{'' if behind.checkpoints is None else ' Its storage answers: sync first.'}"
        " To promote it all the same, leave out --max-lag: the work since then is done again"
    )


def _lag_of(behind: Behind) -> str:
    newest = behind.look.newest
    if behind.checkpoints is not None and newest is not None:
        lag = "" if behind.seconds is None else f", {behind.seconds:.0f} s,"
        ahead = f"chk-{newest.checkpoint_id}, the newest of {behind.source}"
        return f"is {checkpoints_of(behind.checkpoints)}{lag} behind {ahead}"
    age = "not known" if not behind.own.is_dated else f"{behind.age:.0f} s"
    why = f"the source was not seen ({behind.look.error})"
    if behind.is_ended:
        why = f"{behind.source} holds no checkpoint any more"
    return f"lags by at most its age, which is {age}: {why}"


def _try(replica: Replica, state: State | None, name: str) -> None:
    """Raise the error with which the promotion would end. `state` is None if it is sealed."""
    rewritten: list[str] = []
    if state is not None:
        rewritten = would_rewrite(replica, state, [name], _absolute(replica))
    try_change(replica, "promote", rewritten)


def _absolute(replica: Replica) -> RelocateRequest:
    return RelocateRequest(replica.root, "absolute")


class _Sealed(NamedTuple):
    """A checkpoint and the seal for it; of a dry run, that may be None."""

    file: MetadataFile
    seal: Seal | None


def _seal(replica: HeldReplica, state: State, name: str, notify: Notify) -> _Sealed:
    relocate_held(replica, [name], _absolute(replica), state)
    file = read_metadata(replica.uri_of(name), replica.side)
    made = seal.seal(replica, name, (operator.id for operator in file.metadata.operators))
    notify(f"sealed {replica.root}: sync, watch and sweep refuse it until `cpreplicate unseal`")
    return _Sealed(file, made)


def _sealed_before(replica: Replica, name: str) -> _Sealed:
    return _Sealed(read_metadata(replica.uri_of(name), replica.side), seal.read(replica))


def _with_start(
    found: Promotion,
    sealed: _Sealed,
    replica: Replica,
    state: State | None,
    request: PromoteRequest,
) -> Promotion:
    """Return a promotion with how a job is started from the replica, as it is or would be."""
    name, (file, made) = found.checkpoint, sealed
    # the time of the seal: the same for the same promotion, another one after it was unsealed
    nonce = int(made.modified) if made is not None else NEVER_SEALED
    positions = positions_of(file, replica.side, is_listed=request.with_positions)
    warnings = (
        *part_files.warnings_of(positions),
        *_of_packs(replica, file.metadata),
        *as_of.warnings_of_newer(replica, state, name),
    )
    return replace(
        found,
        starting=starting(file.metadata, replica.uri_of(name), nonce),
        sealed=None if made is None else made.described,
        warnings=(*found.warnings, *warnings),
        positions=positions,
    )


def _verified(
    replica: Replica, known: Examined | None, request: PromoteRequest, notify: Notify
) -> tuple[Verification, KafkaCheck | None]:
    """Choose the checkpoint and verify it. At a Kafka, only one that can be restored is checked."""
    state = None if known is None else known.state
    asked = as_of.asked(replica, state, request.checkpoint, request.as_of)
    checked = None
    if request.kafka is not None and asked is None and state is not None:
        names = [each.name for each in state.committed]
        checked = kafka_check.check(replica, names, request.kafka)
        assert checked.chosen is not None, "else it raises"
        asked = checked.chosen.checkpoint
    verification = verify(
        request.replica, asked, request.content, notify, request.side, request.execution, known
    )
    if request.kafka is not None and checked is None and verification.restorable:
        checked = kafka_check.check(replica, [verification.checkpoint], request.kafka)
    return verification, checked


@contextmanager
def _leased(
    replica: Replica, request: PromoteRequest, notify: Notify
) -> Iterator[HeldReplica | None]:
    """Take the lease, and yield the replica under it.

    A dry run takes none and yields None. It raises `LeaseHeld` as taking the lease at once would.
    """
    if not request.dry_run:
        with acquire(
            replica.root, replica.side, request.lock_wait, notify, makes_root=False
        ) as lease:
            lease.keep_room()
            yield HeldReplica(replica.root, replica.side, lease)
        return
    if not request.lock_wait:
        refuse_held(replica)
    yield None


def _strays(known: Examined) -> tuple[str, ...]:
    """Return warnings of files of others, also that they could not be looked for.

    That must not stop a promotion, which is urgent.
    """
    replica = known.replica
    try:
        return _of_strays(replica, orphans.strays(replica, known.state, known.ledger))
    except Transient:
        raise
    except (Refused, OSError) as error:
        return (
            f"{replica.root} could not be searched for files that cpreplicate did not write. The"
            " promotion does not need it, but a job may write its checkpoints here: stop it before"
            f" you start another one. The reason: {described(error)}",
        )


def _of_strays(replica: Replica, strays: Sequence[str]) -> tuple[str, ...]:
    """Return a warning of files that cpreplicate did not write.

    They do not stop a promotion, which deletes nothing but its own way back.
    """
    if not strays:
        return ()
    were = plural(len(strays), "was", "were")
    return (
        f"{replica.root} holds {counted(len(strays), 'file')} that cpreplicate did not write,"
        f" which {were} left as found: {some(strays)}. If a job writes its checkpoints here, stop"
        " it before you start another one. If none does, remove them: unseal refuses while they"
        " are there",
    )


def _of_packs(replica: Replica, metadata: Metadata) -> tuple[str, ...]:
    """Return what the operator must know about the packs that the checkpoint references."""
    packs = replica.uri_of(f"{PACKED}/")
    if not any(file_uri.startswith(packs) for file_uri in closure(metadata).files):
        return ()
    stay = (
        f"Flink never deletes the packs in {packs}. After a CLAIM restore they stay when the job no"
        f" longer needs them. Delete {replica.root} when no checkpoint of the job references it"
    )
    return (*restore.warnings_of_packs(metadata), stay)


def _refuse_unready(
    replica: Replica, request: PromoteRequest, former: State | None = None
) -> State | None:
    """Return the state of a replica that may be promoted, or None if it is sealed already.

    What is the same as at a `former` examination is not read again. A job may write into a sealed
    replica. To print again how it is started changes nothing.
    """
    sealed = seal.read(replica) if former is None else None
    state = None if sealed is not None else orphans.read(replica, former)
    if state is not None and seal.NAME in state.own:  # since the former examination
        sealed = seal.read(replica)
    if sealed is not None:
        reason = unready_sealed(replica, sealed)
        if reason is not None:
            raise reason.error
        return None
    assert state is not None, "it is read unless there is a seal"
    reason = unready(replica, held(replica, state), request.checkpoint)
    if reason is not None:
        raise reason.error
    return state
