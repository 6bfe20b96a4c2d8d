"""The commands that maintain a replica and hand it over to a job."""

from __future__ import annotations

from typing import Any

import click

from cpreplicate.cli import exit_codes, options
from cpreplicate.cli.commands import cli
from cpreplicate.cli.metrics_file import sweep_metrics
from cpreplicate.cli.option import location
from cpreplicate.cli.requests import build, execution_of, sample_of, start_narration, target_side
from cpreplicate.cli.results import show_change, show_read, showing_refused_plan


@cli.command(
    short_help="Remove files that no checkpoint references.",
    examples=(
        "cpreplicate sweep --dry-run hdfs://dcB/flink/replicas/55d1...",
        "cpreplicate sweep --trash hdfs://dcB/flink/replicas/55d1...",
    ),
    exit_codes={**exit_codes.REPLICA, **exit_codes.STOPPED},
    options=(
        options.DRY_RUN,
        *options.SWEEP,
        *options.RUNNER,
        options.ACTIONS,
        *options.OF_REPLICA,
        options.METRICS_FILE,
    ),
)
@click.argument("replica", callback=location)
def sweep(
    dry_run: bool, actions: bool, metrics_file: str | None, output: Any, **values: Any
) -> int:
    """Remove orphans: files of a replica that none of its committed checkpoints references."""
    from cpreplicate.operations.upkeep import sweep as operation
    from cpreplicate.storage import Sides

    notify = start_narration(values)
    side = target_side(values)
    request = build(
        operation.SweepRequest, values, sides=Sides(side, side), execution=execution_of(values)
    )
    with (
        showing_refused_plan(output, actions),
        sweep_metrics(metrics_file, request.replica) as record,
    ):
        report = operation.check(request) if dry_run else operation.sweep(request, notify)
        record(report)
    show = show_read if dry_run else show_change
    return show(report, output, actions)


@cli.command(
    short_help="Rewrite the paths of a replica.",
    examples=(
        "cpreplicate relocate hdfs://dcB/flink/moved/55d1...",
        "cpreplicate relocate --paths absolute hdfs://dcB/flink/replicas/55d1...",
        "cpreplicate relocate --unpack hdfs://dcB/flink/replicas/55d1...",
    ),
    exit_codes={
        **exit_codes.REPLICA,
        3: "--unpack: some packed files could not be written; no _metadata was changed",
        **exit_codes.STOPPED,
    },
    options=(*options.RELOCATE, *options.RUNNER, *options.OF_REPLICA),
)
@click.argument("replica", callback=location)
def relocate(output: Any, **values: Any) -> int:
    """Rewrite the paths of a replica, in place or after it was moved by other means.

    The source is not needed.
    """
    from cpreplicate.operations.upkeep import relocate as operation

    notify = start_narration(values)
    request = build(
        operation.RelocateRequest, values, side=target_side(values), execution=execution_of(values)
    )
    return show_change(operation.relocate(request, notify), output)


@cli.command(
    short_help="Seal a replica and print how to start the job from it.",
    examples=(
        "cpreplicate promote hdfs://dcB/flink/replicas/55d1...",
        "cpreplicate promote --as-of 2026-11-24T03:00Z hdfs://dcB/flink/replicas/55d1...",
        "cpreplicate promote --content --output json hdfs://dcB/flink/replicas/55d1...",
    ),
    exit_codes={
        **exit_codes.REPLICA,
        4: "the replica cannot be restored; it was left unchanged",
        **exit_codes.STOPPED,
    },
    options=(
        options.PROMOTED,
        options.AS_OF,
        *options.CONTENT,
        *options.RUNNER,
        *options.OF_REPLICA,
    ),
)
@click.argument("replica", callback=location)
def promote(output: Any, **values: Any) -> int:
    """Hand a replica over to a job.

    Verify the replica, make its paths absolute, seal it against further syncs, and print how to
    start the job from it.
    """
    from cpreplicate.operations.upkeep import promote as operation

    if values["checkpoint"] is not None and values["as_of"] is not None:
        raise click.UsageError("--checkpoint and --as-of both choose a checkpoint: give one")
    notify = start_narration(values)
    request = build(
        operation.PromoteRequest,
        values,
        content=sample_of(values),
        side=target_side(values),
        execution=execution_of(values),
    )
    promotion = operation.promote(request, notify)
    code = show_change(promotion, output)
    return code if promotion.verification.restorable else 4


@cli.command(
    short_help="Remove the seal of a promoted replica.",
    examples=(
        "cpreplicate unseal hdfs://dcB/flink/replicas/55d1... --job hdfs://dcB/flink/checkpoints"
        "/7f0c...",
        "cpreplicate unseal hdfs://dcB/flink/replicas/55d1... --no-job-uses-it",
    ),
    exit_codes=exit_codes.REPLICA,
    options=(*options.UNSEAL, options.TARGET_CONF, *options.ACCESS, *options.PROGRESS),
)
@click.argument("replica", callback=location)
def unseal(replica: str, job: str | None, no_job_uses_it: bool, **values: Any) -> None:
    """Remove the seal of a promoted replica, so that sync, watch and sweep may change it again.

    Name the job that was started from the replica with --job, or state with --no-job-uses-it that
    there is none.
    """
    from cpreplicate.operations.upkeep import unseal as operation

    if (job is None) != no_job_uses_it:
        raise click.UsageError(
            "give either --job DIR, the checkpoint directory of the job that was started from the"
            " replica, or --no-job-uses-it"
        )
    notify = start_narration(values)
    request = operation.UnsealRequest(replica, job, target_side(values))
    sealed = operation.unseal(request)
    notify(f"unsealed {replica}, which was sealed {sealed}")
