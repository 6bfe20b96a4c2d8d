"""cpreplicate replicates Apache Flink checkpoints between data centres.

What other programs use is described in `cpreplicate.api` and docs/api.md.
"""

from __future__ import annotations

from cpreplicate.version import __version__

TYPE_CHECKING = False  # that of `typing`, whose import a signal at the start would have to wait for

if TYPE_CHECKING:  # imported on use: `cpreplicate --help` needs none of it
    from typing import Any

    from cpreplicate import errors as errors
    from cpreplicate.api.cancellation import Cancellation as Cancellation
    from cpreplicate.api.fleet import FleetJob as FleetJob
    from cpreplicate.api.fleet import fleet as fleet
    from cpreplicate.api.fleet import jobs_below as jobs_below
    from cpreplicate.api.handover import promote as promote
    from cpreplicate.api.handover import unseal as unseal
    from cpreplicate.api.observation import list_points as list_points
    from cpreplicate.api.observation import status as status
    from cpreplicate.api.observation import verify as verify
    from cpreplicate.api.options import ExecutionOptions as ExecutionOptions
    from cpreplicate.api.options import Retention as Retention
    from cpreplicate.api.options import SyncOptions as SyncOptions
    from cpreplicate.api.places import Checkpoint as Checkpoint
    from cpreplicate.api.places import Place as Place
    from cpreplicate.api.replication import plan as plan
    from cpreplicate.api.replication import sync as sync
    from cpreplicate.api.results import to_dict as to_dict
    from cpreplicate.api.upkeep import sweep as sweep
    from cpreplicate.operations.handover.promote import Promotion as Promotion
    from cpreplicate.operations.handover.unseal import Unsealing as Unsealing
    from cpreplicate.operations.inspect import Inspection as Inspection
    from cpreplicate.operations.jobs.fleet import FleetReport as FleetReport
    from cpreplicate.operations.jobs.fleet import JobReplication as JobReplication
    from cpreplicate.operations.replicas.points import Point as Point
    from cpreplicate.operations.replicas.points import Points as Points
    from cpreplicate.operations.replicas.points import ReplicaPoints as ReplicaPoints
    from cpreplicate.operations.replicas.replica_status import FleetStatus as FleetStatus
    from cpreplicate.operations.replicas.replica_status import ReplicaStatus as ReplicaStatus
    from cpreplicate.operations.sync.report import Report as Report
    from cpreplicate.operations.upkeep.sweep import Sweep as Sweep
    from cpreplicate.operations.verify.verify import Verification as Verification
    from cpreplicate.runners.progress import Snapshot as Snapshot

_MODULES = {  # of what is imported on use
    "Cancellation": "cpreplicate.api.cancellation",
    "Checkpoint": "cpreplicate.api.places",
    "ExecutionOptions": "cpreplicate.api.options",
    "FleetJob": "cpreplicate.api.fleet",
    "FleetReport": "cpreplicate.operations.jobs.fleet",
    "FleetStatus": "cpreplicate.operations.replicas.replica_status",
    "Inspection": "cpreplicate.operations.inspect",
    "JobReplication": "cpreplicate.operations.jobs.fleet",
    "Place": "cpreplicate.api.places",
    "Point": "cpreplicate.operations.replicas.points",
    "Points": "cpreplicate.operations.replicas.points",
    "Promotion": "cpreplicate.operations.handover.promote",
    "ReplicaPoints": "cpreplicate.operations.replicas.points",
    "ReplicaStatus": "cpreplicate.operations.replicas.replica_status",
    "Report": "cpreplicate.operations.sync.report",
    "Retention": "cpreplicate.api.options",
    "Snapshot": "cpreplicate.runners.progress",
    "Sweep": "cpreplicate.operations.upkeep.sweep",
    "SyncOptions": "cpreplicate.api.options",
    "Unsealing": "cpreplicate.operations.handover.unseal",
    "Verification": "cpreplicate.operations.verify.verify",
    "fleet": "cpreplicate.api.fleet",
    "jobs_below": "cpreplicate.api.fleet",
    "list_points": "cpreplicate.api.observation",
    "plan": "cpreplicate.api.replication",
    "promote": "cpreplicate.api.handover",
    "status": "cpreplicate.api.observation",
    "sweep": "cpreplicate.api.upkeep",
    "sync": "cpreplicate.api.replication",
    "to_dict": "cpreplicate.api.results",
    "unseal": "cpreplicate.api.handover",
    "verify": "cpreplicate.api.observation",
}
__all__ = (
    "Cancellation",
    "Checkpoint",
    "ExecutionOptions",
    "FleetJob",
    "FleetReport",
    "FleetStatus",
    "Inspection",
    "JobReplication",
    "Place",
    "Point",
    "Points",
    "Promotion",
    "ReplicaPoints",
    "ReplicaStatus",
    "Report",
    "Retention",
    "Snapshot",
    "Sweep",
    "SyncOptions",
    "Unsealing",
    "Verification",
    "__version__",
    "errors",
    "fleet",
    "jobs_below",
    "list_points",
    "plan",
    "promote",
    "status",
    "sweep",
    "sync",
    "to_dict",
    "unseal",
    "verify",
)


def __getattr__(name: str) -> Any:
    """Import what is used of the API."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    if name == "errors":
        return import_module("cpreplicate.errors")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    """Return the names of the API, also those that were not used yet."""
    return sorted({*globals(), *__all__} - {"TYPE_CHECKING", "annotations"})
