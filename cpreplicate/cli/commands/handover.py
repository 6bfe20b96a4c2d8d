"""The commands that hand replicas over to jobs, and take them back."""

from __future__ import annotations

from typing import Any

import click

from cpreplicate.cli.commands.fleet import every_replica
from cpreplicate.cli.commands.rebase import asked_kafka
from cpreplicate.cli.commands.replication import cli
from cpreplicate.cli.options import options, upkeep_options
from cpreplicate.cli.options.option import files, location
from cpreplicate.cli.running import exit_codes
from cpreplicate.cli.running.requests import (
    build,
    execution_of,
    sample_of,
    sides_of,
    start_narration,
    target_side,
)
from cpreplicate.cli.running.results import show_change, showing_refused_plan
from cpreplicate.cli.running.selection import confirm, selected
from cpreplicate.cli.running.services import clusters_of
from cpreplicate.core.sizes import counted, plural

_ONLY_WITH_ALL = ("include", "skip_lagging", "yes", "sealed_after")
_NOT_WITH_ALL = (
    *("job", "checkpoint", "as_of", "with_positions", "content", "sample", "replica_of"),
)


@cli.command(
    short_help="Seal a replica and print how to start the job from it.",
    examples=(
        "cpreplicate promote hdfs://dcB/flink/replicas/55d1...",
        "cpreplicate promote hdfs://dcB/flink/replicas --job orders",
        "cpreplicate promote --as-of 2026-11-24T03:00Z hdfs://dcB/flink/replicas/55d1...",
        "cpreplicate promote --kafka kafka-b:9092 hdfs://dcB/flink/replicas/55d1...",
        "cpreplicate promote --all --dry-run hdfs://dcB/flink/replicas",
        "cpreplicate promote --all --yes --max-lag 15m --output json hdfs://dcB/flink/replicas",
    ),
    exit_codes={
        **exit_codes.REPLICA,
        **exit_codes.RUNNER,
        3: "--all: not every replica was promoted; the result has the exit code of each",
        4: "the replica cannot be restored; it was left unchanged",
        6: "refused for safety; also if the checkpoint that it was promoted with is gone, or if the"
        " source holds none any more",
        21: "--max-lag: the source is, or may be, further ahead; nothing was changed",
        **exit_codes.STOPPED,
    },
    essentials=(
        "dry-run job checkpoint as-of go-back content all include max-lag skip-lagging yes "
        "flink kafka kafka-conf source-conf target-conf lock-wait output"
    ),
    options=(
        options.DRY_RUN,
        upkeep_options.SELECTED_JOB,
        options.PROMOTED,
        upkeep_options.AS_OF,
        upkeep_options.GOING_BACK,
        options.POSITIONS,
        *upkeep_options.PROMOTE_ALL,
        *upkeep_options.ASKED_FLINK,
        *upkeep_options.CHECKED_KAFKA,
        upkeep_options.LOOKED_FOR_FILES,
        *options.CONTENT,
        *options.CHANGE,
        *options.OF_SOURCE,
        *options.OF_REPLICA,
    ),
)
@click.argument("replica", callback=location, shell_complete=files)
def promote(replica: str, job: str | None, every: bool, output: Any, **values: Any) -> int:
    """Hand a replica over to a job.

    Verify the replica, make its paths absolute, seal it against further syncs, and print how to
    start the job from it. With --all, REPLICA is the TARGET_ROOT, or a TOML file of `fleet`.
    """
    from cpreplicate.operations.handover import promote as operation

    _refuse_mixed({**values, "job": job}, every)
    if every:
        return _promote_all(replica, output, values)
    if values["checkpoint"] is not None and values["as_of"] is not None:
        raise click.UsageError("--checkpoint and --as-of both choose a checkpoint: give one")
    notify = start_narration(values)
    sides = sides_of(values)
    request = build(
        operation.PromoteRequest,
        values,
        replica=selected(replica, job, sides.target, sides.source),
        content=sample_of(values),
        side=sides.target,
        source=sides.source,
        execution=execution_of(values),
        kafka=asked_kafka(values),
        clusters=clusters_of(values),
    )
    with showing_refused_plan(output):
        promotion = operation.promote(request, notify)
    code = show_change(promotion, output, is_dry_run=request.dry_run)
    return code if promotion.verification.restorable else 4


def _promote_all(place: str, output: Any, values: dict[str, Any]) -> int:
    from cpreplicate.operations.handover import promote_all as operation

    if values["skip_lagging"] and values["max_lag"] is None:
        raise click.UsageError("--skip-lagging needs --max-lag TIME")
    notify = start_narration(values)
    sides = sides_of(values)
    replicas = every_replica(place, sides)
    request = build(
        operation.PromoteAllRequest,
        values,
        replicas=replicas,
        sides=sides,
        kafka=asked_kafka(values),
        clusters=clusters_of(values),
    )
    jobs = operation.candidates(request)
    taken = sum(job.is_taken for job in jobs)
    which = plural(
        taken, "replica of 1 job, so that it is", (f"replicas of {taken} jobs, so that they are")
    )
    confirm(f"Seal the {which} not synced further?", values)
    report = operation.promote_all(jobs, request, notify)
    return show_change(report, output, is_dry_run=request.dry_run) or report.exit_code


@cli.command(
    short_help="Remove the seal of a promoted replica.",
    examples=(
        "cpreplicate unseal hdfs://dcB/flink/replicas/55d1... --job hdfs://dcB/flink/checkpoints"
        "/7f0c...",
        "cpreplicate unseal hdfs://dcB/flink/replicas/55d1... --no-job-uses-it",
        "cpreplicate unseal hdfs://dcB/flink/replicas --all --sealed-after 2026-11-24T03:00Z"
        " --no-job-uses-it --yes",
    ),
    exit_codes={
        **exit_codes.REPLICA,
        3: "--all: not every replica was unsealed; the result has the exit code of each",
    },
    essentials=(
        "dry-run replica-of job no-job-uses-it all include sealed-after yes target-conf output"
    ),
    options=(
        options.DRY_RUN,
        *upkeep_options.UNSEAL,
        *upkeep_options.UNSEAL_ALL,
        options.UNSAFE_LEASE,
        *options.OF_REPLICA,
    ),
)
@click.argument("replica", callback=location, shell_complete=files)
def unseal(
    replica: str,
    replica_of: str | None,
    job: str | None,
    no_job_uses_it: bool,
    every: bool,
    output: Any,
    **values: Any,
) -> int:
    """Remove the seal of a promoted replica, so that sync, watch and sweep may change it again.

    Name the job that was started from the replica with --job, or state with --no-job-uses-it that
    there is none.
    """
    from cpreplicate.operations.handover import unseal as operation

    _refuse_mixed({**values, "replica_of": replica_of}, every)
    if (job is None) != no_job_uses_it:
        raise click.UsageError(
            "give either --job DIR, the checkpoint directory of the job that was started from the"
            " replica, or --no-job-uses-it"
        )
    if every:
        if job is not None:
            raise click.UsageError("--all needs --no-job-uses-it: --job is of one replica")
        return _unseal_all(replica, output, values)
    start_narration(values)
    side = target_side(values)
    replica = selected(replica, replica_of, side, option="--replica-of")
    request = operation.UnsealRequest(replica, job, side, values["dry_run"])
    return show_change(operation.unseal(request), output, is_dry_run=request.dry_run)


def _unseal_all(place: str, output: Any, values: dict[str, Any]) -> int:
    from cpreplicate.operations.handover import unseal_all as operation
    from cpreplicate.storage import Sides

    if values["sealed_after"] is None:
        raise click.UsageError(
            "--all needs --sealed-after TIME, the time of the switch that is taken back: jobs may"
            " run from replicas that were sealed before"
        )
    start_narration(values)
    side = target_side(values)
    replicas = every_replica(place, Sides(target=side))
    confirm(
        f"Remove the seals of up to {counted(len(replicas), 'replica')}, which no job uses?", values
    )
    request = build(operation.UnsealAllRequest, values, replicas=replicas, side=side)
    report = operation.unseal_all(request)
    return show_change(report, output, is_dry_run=request.dry_run) or report.exit_code


def _refuse_mixed(values: dict[str, Any], every: bool) -> None:
    """Raise `click.UsageError` for options of one replica with --all, and the reverse."""
    names = _NOT_WITH_ALL if every else _ONLY_WITH_ALL
    given = [name for name in names if values.get(name) not in (None, False, ())]
    if given:
        options_given = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        reason = "does not go with --all" if every else "needs --all"
        raise click.UsageError(f"{options_given} {reason}")
