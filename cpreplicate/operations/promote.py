"""`promote`: make a replica the one that the job runs from: verified, absolute, sealed against
further syncs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from cpreplicate.core import restore
from cpreplicate.core.metadata import Metadata
from cpreplicate.core.restore import Restore
from cpreplicate.errors import NotThere, Refused
from cpreplicate.operations import orphans
from cpreplicate.operations.relocate import RelocateRequest, relocate_held
from cpreplicate.operations.verify import NOTHING, Sample, Verification, verify
from cpreplicate.protocol import seal
from cpreplicate.protocol.lease import acquire
from cpreplicate.protocol.replica import Replica
from cpreplicate.protocol.replica_state import State
from cpreplicate.protocol.source import read_metadata
from cpreplicate.storage import Side

Notify = Callable[[str], None]


@dataclass(frozen=True)
class PromoteRequest:
    """What to promote: the newest committed checkpoint of a replica, or the one named."""

    replica: str
    checkpoint: str | None = None
    content: Sample = NOTHING
    lock_wait: float = 0.0
    side: Side = field(default=Side())


@dataclass(frozen=True)
class Starting:
    """How a job is started from a promoted checkpoint: with the CLI, by the REST API, under the
    Kubernetes operator.
    """

    checkpoint: str
    restore: Restore
    rest: Mapping[str, str]
    configuration: Mapping[str, str]


@dataclass(frozen=True)
class Promotion:
    """A sealed replica and how a job is started from it.

    None where it was found wanting, and left as it was.
    """

    verification: Verification
    checkpoint: str
    starting: Starting | None
    sealed: str | None


def promote(request: PromoteRequest, notify: Notify) -> Promotion:
    """Verify, rewrite to absolute paths, seal.

    Promoting again what is sealed verifies it and tells the same once more.
    """
    replica = Replica(request.replica, request.side)
    _refuse_foreign(replica, request)  # before a lease is written where no replica is
    with acquire(replica.root, replica.side, request.lock_wait, notify) as lease:
        if (state := _refuse_foreign(replica, request)) is not None:
            orphans.refuse_newer_files(replica, state)
        found = verify(request.replica, request.checkpoint, request.content, notify, request.side)
        name = f"chk-{found.checkpoint_id}"
        if not found.restorable:
            return Promotion(found, name, None, seal.describe(replica))
        if seal.describe(replica) is None:
            relocate_held(replica, [name], RelocateRequest(request.replica, "absolute"), lease)
            lease.check()
            seal.seal(replica, name)
            notify(
                f"sealed {replica.root}: sync, watch and sweep refuse it until `cpreplicate unseal`"
            )
    metadata = read_metadata(replica.uri_of(name), replica.side).metadata
    return Promotion(found, name, _starting(metadata, replica.uri_of(name)), seal.describe(replica))


def _refuse_foreign(replica: Replica, request: PromoteRequest) -> State | None:
    """What is sealed may have a job that writes here.

    To print again how it was started changes nothing.
    """
    if seal.describe(replica) is not None:
        return None
    state = orphans.examine(replica)
    if not state.committed:
        raise NotThere(
            f"{replica.root} holds no committed checkpoint; REPLICA is <target root>/<job-id>"
        )
    if request.checkpoint in state.adopted:
        raise Refused(
            f"{replica.uri_of(str(request.checkpoint))} was here before the directory was adopted, and"
            " is never changed"
        )
    return state


def _starting(metadata: Metadata, checkpoint: str) -> Starting:
    """The REST field is of `JarRunRequestBody`, the option of `StateRecoveryOptions`, or their
    names before 1.20.
    """
    safe = restore.restore(metadata, "absolute", checkpoint)
    if not restore.knows_claim_modes(metadata) or safe.claim_mode is None:
        return Starting(checkpoint, safe, {"savepointPath": checkpoint}, {})
    field, option = restore.claim_mode_names(metadata)
    return Starting(
        checkpoint,
        safe,
        {"savepointPath": checkpoint, field: safe.claim_mode},
        {option: safe.claim_mode},
    )
