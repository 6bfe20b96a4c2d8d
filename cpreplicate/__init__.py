"""cpreplicate replicates Apache Flink checkpoints between data centres.

What other programs use is described in `cpreplicate.api` and docs/api.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cpreplicate.version import __version__

if TYPE_CHECKING:  # imported on use: `cpreplicate --help` needs none of it
    from cpreplicate.api import Cancellation as Cancellation
    from cpreplicate.api import Checkpoint as Checkpoint
    from cpreplicate.api import Place as Place
    from cpreplicate.api import SyncOptions as SyncOptions
    from cpreplicate.api import plan as plan
    from cpreplicate.api import status as status
    from cpreplicate.api import sync as sync
    from cpreplicate.api import verify as verify

__all__ = (
    "Cancellation",
    "Checkpoint",
    "Place",
    "SyncOptions",
    "__version__",
    "plan",
    "status",
    "sync",
    "verify",
)


def __getattr__(name: str) -> Any:
    """Import what is used of the API."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from cpreplicate import api

    return getattr(api, name)
