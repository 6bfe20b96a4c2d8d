"""What executes a plan's copies and deletes: Spark executors, or threads of this process."""

from cpreplicate.runners.base import Runner
from cpreplicate.runners.choose import choose_runner, seconds_by_spark
from cpreplicate.runners.copies import Copies, Planned
from cpreplicate.runners.options import Engine
from cpreplicate.runners.progress import ShowProgress, Snapshot
from cpreplicate.runners.shared import SharedRunner
from cpreplicate.runners.tasks import Action, Copy, Delete, Outcome, Read, Stopped

__all__ = [
    "Action",
    "Copies",
    "Copy",
    "Delete",
    "Engine",
    "Outcome",
    "Planned",
    "Read",
    "Runner",
    "SharedRunner",
    "ShowProgress",
    "Snapshot",
    "Stopped",
    "choose_runner",
    "seconds_by_spark",
]
