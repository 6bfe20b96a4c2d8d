"""Check what TARGET_ROOT names: the directory of replicas, not a replica."""

from __future__ import annotations

from cpreplicate import uri
from cpreplicate.errors import UsageError
from cpreplicate.placement import CHECKPOINT_NAME, OWN
from cpreplicate.storage import Storage


def refuse_replica_as_root(target_root: str, job: str, storage: Storage) -> None:
    """Raise `UsageError` if TARGET_ROOT is a replica or a job's directory: the new replica would be nested in it.

    Costs one stat; one listing more where TARGET_ROOT is called like the job.
    """
    if storage.stat(uri.join(target_root, OWN)) is not None:
        what, instead = f"a replica: it holds {OWN}", uri.parent(target_root)
    elif uri.name(target_root) == job and _holds_checkpoints(target_root, storage):
        what, instead = "the directory of this job: it holds checkpoints", "a directory that only cpreplicate writes"
    else:
        return
    raise UsageError(
        f"TARGET_ROOT {target_root} is {what}. The replica is made inside TARGET_ROOT, in {job}/. Give {instead} instead"
    )


def _holds_checkpoints(directory: str, storage: Storage) -> bool:
    return any(CHECKPOINT_NAME.fullmatch(child.name) for child in storage.list(directory))
