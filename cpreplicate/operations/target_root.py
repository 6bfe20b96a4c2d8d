"""Check what TARGET_ROOT names: the directory of replicas, not a replica."""

from __future__ import annotations

from cpreplicate.core import uri
from cpreplicate.core.placement import CHECKPOINT_NAME, OWN
from cpreplicate.errors import UsageError
from cpreplicate.protocol.marker import MARKER
from cpreplicate.storage import Storage


def refuse_replica_as_root(target_root: str, job: str, storage: Storage) -> None:
    """Raise `UsageError` if TARGET_ROOT is a replica or a job's directory: the new replica would be
    nested in it.

    Costs a stat of each directory above it; one listing more where TARGET_ROOT is called like the
    job.
    """
    within = next(
        (place for place in uri.upwards(target_root) if _is_replica(place, storage)), None
    )
    if within is not None:
        what, instead = f"or lies in a replica: {within} holds {OWN}", uri.parent(within)
    elif uri.name(target_root) == job and _holds_checkpoints(target_root, storage):
        what, instead = (
            "the directory of this job: it holds checkpoints",
            "a directory that only cpreplicate writes",
        )
    else:
        return
    raise UsageError(
        f"TARGET_ROOT {target_root} is {what}. The replica is made inside TARGET_ROOT, in {job}/."
        f" Give {instead} instead"
    )


def _is_replica(place: str, storage: Storage) -> bool:
    return storage.stat(uri.join(place, f"{OWN}/{MARKER}")) is not None


def _holds_checkpoints(directory: str, storage: Storage) -> bool:
    return any(CHECKPOINT_NAME.fullmatch(child.name) for child in storage.list(directory))
