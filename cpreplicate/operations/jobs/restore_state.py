"""From which checkpoint of a replica a job is started, and whether the replica is sealed."""

from __future__ import annotations

from typing import NamedTuple

from cpreplicate.core import uri
from cpreplicate.core.placement import CHECKPOINT_NAME, METADATA
from cpreplicate.core.restore import mode_of
from cpreplicate.core.start import NEVER_SEALED, Starting, starting
from cpreplicate.errors import NotThere, Obstacle
from cpreplicate.protocol import replica_state, seal
from cpreplicate.protocol.checkpoint_record import read_record
from cpreplicate.protocol.readiness import held, unready, unready_sealed
from cpreplicate.protocol.replica import Replica
from cpreplicate.protocol.source import read_metadata


class RestoreState(NamedTuple):
    """What a job is started from: the newest checkpoint of a replica, or the promoted one.

    `starting` is None if there is none. `completed` is when it was completed at the source, in
    seconds since the epoch, None if that is not known. `sealed` is the seal, None without one.
    `refusal` is why `promote` refuses the replica, as of `readiness`, and `obstacle` of what kind
    that is. `committed` are the checkpoints among which `starting` was the newest, None if they are
    not known.
    """

    starting: Starting | None = None
    completed: float | None = None
    sealed: seal.Seal | None = None
    refusal: str | None = None
    obstacle: Obstacle | None = None
    committed: frozenset[str] | None = None


def restore_state_of(replica: Replica, known: RestoreState | None) -> RestoreState:
    """Return what the job of a replica is started from, of which `known` was seen last.

    Costs a listing and two small calls if that still holds, else what an examination of the replica
    does, and the read of one `_metadata`. Raises `CpreplicateError` and `OSError`.
    """
    sealed = seal.read(replica)
    is_there = known is not None and known.sealed == sealed and _is_there(replica, known)
    if known is not None and is_there and (sealed is not None or _is_newest(replica, known)):
        return known
    if sealed is None:
        return _examined(replica)
    reason = unready_sealed(replica, sealed)
    if reason is not None:
        return RestoreState(None, None, sealed, str(reason), reason.obstacle)
    record = read_record(replica, sealed.checkpoint)
    completed = record.completed if record is not None else None
    return RestoreState(_starting(replica, sealed.checkpoint, sealed), completed, sealed)


def _is_there(replica: Replica, known: RestoreState) -> bool:
    if known.starting is None or known.refusal is not None:
        return False
    metadata = uri.join(known.starting.checkpoint, METADATA)
    return replica.storage.stat(metadata) is not None


def _is_newest(replica: Replica, known: RestoreState) -> bool:
    """Return whether no checkpoint was committed since; each that is being copied costs a call."""
    if known.committed is None:
        return False
    names = {child.name for child in replica.children() if CHECKPOINT_NAME.fullmatch(child.name)}
    metadata = (replica.uri_of(f"{name}/{METADATA}") for name in names - known.committed)
    return all(replica.storage.stat(each) is None for each in metadata)


def _examined(replica: Replica) -> RestoreState:
    """Return what a job is started from by the newest checkpoint that cpreplicate committed."""
    state = replica_state.examine(replica)
    reason, found = unready(replica, held(replica, state)), state.census
    refusal, obstacle = (None, None) if reason is None else (str(reason), reason.obstacle)
    if found.newest is None:
        return RestoreState(refusal=refusal, obstacle=obstacle)
    start, names = _starting(replica, found.newest, None), frozenset(state.metadata_files)
    return RestoreState(start, found.completed(found.newest), None, refusal, obstacle, names)


def _starting(replica: Replica, name: str, sealed: seal.Seal | None) -> Starting | None:
    place = replica.uri_of(name)
    try:
        metadata = read_metadata(place, replica.side).metadata
    except NotThere:  # a job that claimed it deleted it
        return None
    # that of `promote`, which prints it for the same seal
    nonce = int(sealed.modified) if sealed is not None else NEVER_SEALED
    return starting(metadata, place, nonce, mode_of(metadata))
