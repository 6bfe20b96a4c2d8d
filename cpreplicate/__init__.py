"""cpreplicate replicates Apache Flink checkpoints between data centres.

What other programs use is described in `cpreplicate.api` and docs/api.md.
"""

from __future__ import annotations

from cpreplicate.version import __version__

TYPE_CHECKING = False  # that of `typing`, whose import a signal at the start would have to wait for

if TYPE_CHECKING:  # imported on use: `cpreplicate --help` needs none of it
    from typing import Any

    from cpreplicate.api.cancellation import Cancellation as Cancellation
    from cpreplicate.api.observation import status as status
    from cpreplicate.api.observation import verify as verify
    from cpreplicate.api.places import Checkpoint as Checkpoint
    from cpreplicate.api.places import Place as Place
    from cpreplicate.api.replication import SyncOptions as SyncOptions
    from cpreplicate.api.replication import plan as plan
    from cpreplicate.api.replication import sync as sync
    from cpreplicate.core.retention import Retention as Retention
    from cpreplicate.runners import ExecutionOptions as ExecutionOptions

_MODULES = {  # of what is imported on use
    "Cancellation": "cpreplicate.api.cancellation",
    "Checkpoint": "cpreplicate.api.places",
    "ExecutionOptions": "cpreplicate.runners",
    "Place": "cpreplicate.api.places",
    "Retention": "cpreplicate.core.retention",
    "SyncOptions": "cpreplicate.api.replication",
    "plan": "cpreplicate.api.replication",
    "status": "cpreplicate.api.observation",
    "sync": "cpreplicate.api.replication",
    "verify": "cpreplicate.api.observation",
}
__all__ = (
    "Cancellation",
    "Checkpoint",
    "ExecutionOptions",
    "Place",
    "Retention",
    "SyncOptions",
    "__version__",
    "plan",
    "status",
    "sync",
    "verify",
)


def __getattr__(name: str) -> Any:
    """Import what is used of the API."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_MODULES[name]), name)
