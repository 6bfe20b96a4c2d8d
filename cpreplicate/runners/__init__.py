"""What executes a plan's copies and deletes: Spark executors, or threads of this process."""

from cpreplicate.runners.base import Runner
from cpreplicate.runners.choose import choose_runner
from cpreplicate.runners.work import Action, Copy, Delete, Outcome, Read

__all__ = ["Action", "Copy", "Delete", "Outcome", "Read", "Runner", "choose_runner"]
