"""Which replica, or which replicas, the arguments of a command name."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from cpreplicate.errors import Refused, UsageError

if TYPE_CHECKING:
    from cpreplicate.operations.replicas.selection import Selected
    from cpreplicate.storage import Side


def selected(
    place: str,
    job: str | None,
    side: Side,
    source: Side | None = None,
    option: str = "--job",
) -> str:
    """Return the replica: `place`, or below it the one of a job, by its name or its id's beginning.

    By the side `source`, by default that of the replica, sources of jobs of one name are asked.
    Messages name the `option` that gave the job. Raises as `select`.
    """
    return place if job is None else select_replica(place, job, side, source, option).replica


def select_replica(
    target_root: str,
    job: str,
    side: Side,
    source: Side | None = None,
    option: str = "--job",
) -> Selected:
    """Select the replica of a job, and report which it is, and why. Raises as `select`."""
    from cpreplicate.operations.replicas.selection import select
    from cpreplicate.output.log import narrate, write_warning

    chosen = select(target_root, side, job, source or side, option)
    for warning in chosen.warnings:
        write_warning(warning)
    narrate(f"{chosen.replica}: {chosen.why}")
    return chosen


def confirm(question: str, values: Mapping[str, Any]) -> None:
    """Ask on a terminal before many replicas are changed, unless `--yes` or `--dry-run` is given.

    Raises `Refused` if the answer is no, and `UsageError` if there is no terminal.
    """
    from cpreplicate.output.streams import is_terminal

    if values["yes"] or values["dry_run"]:
        return
    if not (is_terminal(sys.stdin) and is_terminal(sys.stderr)):
        raise UsageError(f"{question} Nothing was done. Give --yes, or --dry-run to see them")
    if not click.confirm(question, err=True):
        raise Refused("the answer was no. Nothing was done")
