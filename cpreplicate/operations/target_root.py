"""Check what TARGET_ROOT names: the directory of replicas, not a replica."""

from __future__ import annotations

from cpreplicate.core import uri
from cpreplicate.core.placement import CHECKPOINT_NAME, OWN
from cpreplicate.errors import UsageError
from cpreplicate.protocol.marker import MARKER
from cpreplicate.storage import Storage


def refuse_replica_as_root(target_root: str, job: str, storage: Storage) -> None:
    """Raise `UsageError` if TARGET_ROOT is, or lies in, a replica or is a job's directory.

    The new replica would be nested in it. Costs a stat of each directory above TARGET_ROOT, and one
    listing more if TARGET_ROOT has the name of the job.
    """
    directories = uri.upwards(target_root)
    replica = next((path for path in directories if _is_replica(path, storage)), None)
    if replica is not None:
        problem, instead = f"or lies in a replica: {replica} holds {OWN}", uri.parent(replica)
    elif uri.name(target_root) == job and _holds_checkpoints(target_root, storage):
        problem = "the directory of this job: it holds checkpoints"
        instead = "a directory that only cpreplicate writes"
    else:
        return
    raise UsageError(
        f"TARGET_ROOT {target_root} is {problem}. The replica is created inside TARGET_ROOT, in"
        f" {job}/. Give {instead} instead"
    )


def _is_replica(directory: str, storage: Storage) -> bool:
    return storage.stat(uri.join(directory, f"{OWN}/{MARKER}")) is not None


def _holds_checkpoints(directory: str, storage: Storage) -> bool:
    return any(CHECKPOINT_NAME.fullmatch(child.name) for child in storage.list(directory))
