"""`promote`: make a replica the one that the job runs from.

It is verified, rewritten to absolute paths, and sealed against further syncs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from cpreplicate.core import restore
from cpreplicate.core.closure import closure
from cpreplicate.core.metadata import Metadata
from cpreplicate.core.notify import Notify
from cpreplicate.core.placement import PACKED
from cpreplicate.core.start import Starting, starting
from cpreplicate.errors import LeaseHeld, NotThere, Refused
from cpreplicate.operations.change import some
from cpreplicate.operations.positions import CheckpointPositions, positions_in, positions_of
from cpreplicate.operations.target_root import refuse_no_replica
from cpreplicate.operations.upkeep import as_of, kafka_check, orphans
from cpreplicate.operations.upkeep.kafka_check import KafkaAsked, KafkaCheck
from cpreplicate.operations.upkeep.relocate import RelocateRequest, relocate_held
from cpreplicate.operations.verify import NOTHING, Sample, Verification, verify
from cpreplicate.protocol import ownership, seal
from cpreplicate.protocol.lease import Lease, acquire
from cpreplicate.protocol.replica import Replica
from cpreplicate.protocol.replica_state import State
from cpreplicate.protocol.source import read_metadata
from cpreplicate.runners import ExecutionOptions
from cpreplicate.storage import Side, Transient


@dataclass(frozen=True)
class PromoteRequest:
    """What to promote: the newest committed checkpoint of a replica, or the one named.

    `as_of`: the newest one that was completed at or before this time, in seconds since the epoch.
    With `dry_run`, everything is checked and nothing is changed. `with_positions`: positions are
    also read from small files that hold some. With `kafka`, the newest checkpoint is the newest one
    that a job can go on from at that Kafka, and one that is named must be such a checkpoint.
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
    kafka: KafkaAsked | None = None


@dataclass(frozen=True)
class Promotion:
    """A sealed replica and how a job is started from it.

    `starting` is None if the replica cannot be restored, or nothing was to be changed; then it was
    left as it was. `warnings` are about its packs, files of others in it, and its Kafka. `kafka` is
    which checkpoints were checked there before this one was chosen.
    """

    verification: Verification
    checkpoint: str
    starting: Starting | None
    sealed: str | None
    warnings: tuple[str, ...] = ()
    positions: CheckpointPositions | None = None
    kafka: KafkaCheck | None = None


def promote(request: PromoteRequest, notify: Notify) -> Promotion:
    """Verify a replica, rewrite it to absolute paths, and seal it.

    A replica that is sealed already is verified again, and the same result is returned. Raises
    `NotAtKafka` before anything is changed.
    """
    replica = Replica(request.replica, request.side)
    refuse_no_replica(replica.root, replica.side)
    _refuse_foreign(replica, request)  # before a lease is written where no replica is
    with _leased(replica, request, notify) as lease:
        state = _refuse_foreign(replica, request)
        strays = _strays(replica, state) if state is not None else ()
        verification, checked = _verified(replica, state, request, notify)
        name = verification.checkpoint
        sealed = seal.describe(replica)
        of_kafka = checked.warnings if checked is not None else ()
        if lease is None or not verification.restorable:
            found = positions_in(replica, name) if request.with_positions else None
            warnings = (*strays, *of_kafka)
            return Promotion(verification, name, None, sealed, warnings, found, checked)
        if sealed is None:
            relocate_held(replica, [name], RelocateRequest(request.replica, "absolute"), lease)
            lease.check()
            seal.seal(replica, name)
            notify(
                f"sealed {replica.root}: sync, watch and sweep refuse it until `cpreplicate unseal`"
            )
    promotion = _promoted(replica, verification, request.with_positions)
    warnings = (*strays, *promotion.warnings, *of_kafka)
    return replace(promotion, warnings=warnings, kafka=checked)


def _promoted(replica: Replica, verification: Verification, with_positions: bool) -> Promotion:
    """Return how a job is started from a replica that is sealed."""
    name = verification.checkpoint
    file = read_metadata(replica.uri_of(name), replica.side)
    made = seal.read(replica)
    # the time of the seal: the same for the same promotion, another one after it was unsealed
    nonce = int(made.modified) if made is not None else 0
    warnings = (*_of_packs(replica, file.metadata), *as_of.warnings_of_newer(replica, name))
    start = starting(file.metadata, replica.uri_of(name), nonce)
    found = positions_of(file, replica.side, is_listed=with_positions)
    return Promotion(verification, name, start, seal.describe(replica), warnings, found)


def _verified(
    replica: Replica, state: State | None, request: PromoteRequest, notify: Notify
) -> tuple[Verification, KafkaCheck | None]:
    """Choose the checkpoint and verify it. At a Kafka, only one that can be restored is checked."""
    asked = as_of.asked(replica, request.checkpoint, request.as_of)
    checked = None
    if request.kafka is not None and asked is None and state is not None:
        names = [each.name for each in state.committed]
        checked = kafka_check.check(replica, names, request.kafka)
        assert checked.chosen is not None, "else it raises"
        asked = checked.chosen.checkpoint
    verification = verify(
        request.replica, asked, request.content, notify, request.side, request.execution
    )
    if request.kafka is not None and checked is None and verification.restorable:
        checked = kafka_check.check(replica, [verification.checkpoint], request.kafka)
    return verification, checked


@contextmanager
def _leased(replica: Replica, request: PromoteRequest, notify: Notify) -> Iterator[Lease | None]:
    """Take the lease. If nothing is to be changed, only raise `LeaseHeld` if that is not free."""
    if not request.dry_run:
        with acquire(replica.root, replica.side, request.lock_wait, notify) as lease:
            yield lease
        return
    held = Lease(replica.root, replica.side).refusal()
    if held is not None:
        raise LeaseHeld(held)
    yield None


def _strays(replica: Replica, state: State) -> tuple[str, ...]:
    """Return warnings of files of others, also that they could not be looked for.

    That must not stop a promotion, which is urgent.
    """
    try:
        return _of_strays(replica, orphans.strays(replica, state))
    except Transient:
        raise
    except (Refused, OSError) as error:
        return (
            f"{replica.root} could not be searched for files that cpreplicate did not write. The"
            " promotion does not need it, but a job may write its checkpoints here: stop it before"
            f" you start another one. The reason: {error}",
        )


def _of_strays(replica: Replica, strays: Sequence[str]) -> tuple[str, ...]:
    """Return a warning of files that cpreplicate did not write.

    They do not stop a promotion, which deletes nothing but its own way back.
    """
    if not strays:
        return ()
    return (
        f"{replica.root} holds {len(strays)} files that cpreplicate did not write, which were left"
        f" as they are: {some(strays)}. If a job writes its checkpoints here, stop it before you"
        " start another one. If none does, remove them: unseal refuses while they are there",
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


def _refuse_foreign(replica: Replica, request: PromoteRequest) -> State | None:
    """Return the state of a replica that may be promoted, or None if it is sealed already.

    A job may write into a sealed replica. To print again how it is started changes nothing.
    """
    if seal.describe(replica) is not None:
        return None
    state = orphans.examine(replica)
    if request.checkpoint in state.adopted:
        raise Refused(ownership.of_adopted(replica.uri_of(str(request.checkpoint))))
    if not state.committed:
        raise NotThere(
            f"{replica.root} holds no committed checkpoint. REPLICA is <target root>/<job-id>"
        )
    return state
