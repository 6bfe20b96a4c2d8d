"""The commands that maintain a replica."""

from __future__ import annotations

from typing import Any

import click

from cpreplicate.cli.commands.replication import cli
from cpreplicate.cli.options import options, upkeep_options
from cpreplicate.cli.options.option import files, location
from cpreplicate.cli.running import exit_codes
from cpreplicate.cli.running.metrics_file import sweep_metrics
from cpreplicate.cli.running.requests import build, execution_of, start_narration, target_side
from cpreplicate.cli.running.results import listing_of, show_change, showing_refused_plan
from cpreplicate.cli.running.selection import selected


@cli.command(
    short_help="Remove files that no checkpoint references.",
    examples=(
        "cpreplicate sweep --dry-run hdfs://dcB/flink/replicas/55d1...",
        "cpreplicate sweep --trash hdfs://dcB/flink/replicas/55d1...",
    ),
    exit_codes={**exit_codes.REPLICA, **exit_codes.RUNNER, **exit_codes.STOPPED},
    options=(
        options.DRY_RUN,
        upkeep_options.SELECTED_JOB,
        *upkeep_options.SWEEP,
        *options.CHANGE,
        options.ACTIONS,
        *options.OF_REPLICA,
        options.METRICS_FILE,
    ),
)
@click.argument("replica", callback=location, shell_complete=files)
def sweep(
    replica: str,
    job: str | None,
    dry_run: bool,
    actions: bool,
    metrics_file: str | None,
    output: Any,
    **values: Any,
) -> int:
    """Remove orphans: files of a replica that none of its committed checkpoints references."""
    from cpreplicate.operations.upkeep import sweep as operation
    from cpreplicate.storage import Sides

    notify = start_narration(values)
    side = target_side(values)
    replica = selected(replica, job, side)
    request = build(
        operation.SweepRequest,
        values,
        replica=replica,
        sides=Sides(side, side),
        execution=execution_of(values),
    )
    with (
        showing_refused_plan(output, listing_of(actions)),
        sweep_metrics(metrics_file, request.replica) as record,
    ):
        report = operation.check(request) if dry_run else operation.sweep(request, notify)
        record(report)
    return show_change(report, output, listing_of(actions), is_dry_run=dry_run)


@cli.command(
    short_help="Rewrite the paths of a replica.",
    examples=(
        "cpreplicate relocate hdfs://dcB/flink/moved/55d1...",
        "cpreplicate relocate --paths absolute hdfs://dcB/flink/replicas/55d1...",
        "cpreplicate relocate --unpack hdfs://dcB/flink/replicas/55d1...",
    ),
    exit_codes={
        **exit_codes.REPLICA,
        **exit_codes.RUNNER,
        3: "--unpack: some packed files could not be written; no _metadata was changed",
        **exit_codes.STOPPED,
    },
    options=(
        upkeep_options.SELECTED_JOB,
        *upkeep_options.RELOCATE,
        *options.CHANGE,
        *options.OF_REPLICA,
    ),
)
@click.argument("replica", callback=location, shell_complete=files)
def relocate(replica: str, job: str | None, output: Any, **values: Any) -> int:
    """Rewrite the paths of a replica, in place or after it was moved by other means.

    The source is not needed.
    """
    from cpreplicate.operations.upkeep import relocate as operation

    notify = start_narration(values)
    side = target_side(values)
    request = build(
        operation.RelocateRequest,
        values,
        replica=selected(replica, job, side),
        side=side,
        execution=execution_of(values),
    )
    return show_change(operation.relocate(request, notify), output)
