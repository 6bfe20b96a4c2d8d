"""The commands that maintain a replica and hand it over to a job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from cpreplicate.cli import groups, options, recording, storage_options
from cpreplicate.cli.commands import cli
from cpreplicate.cli.requests import (
    ContentOptions,
    execution_of,
    start_narration,
    storage_of,
)
from cpreplicate.cli.results import change_code, read_code

if TYPE_CHECKING:
    from cpreplicate.core.plan import Cap
    from cpreplicate.core.restore import PathsMode


@cli.command(
    short_help="Remove files that no checkpoint references.",
    examples=(
        "cpreplicate sweep --dry-run hdfs://dcB/flink/replicas/55d1...",
        "cpreplicate sweep --trash hdfs://dcB/flink/replicas/55d1...",
    ),
    exit_codes={**options.REPLICA_CODES, **options.STOPPED_CODES},
)
@click.argument("replica", callback=options.location)
@options.dry_run
@groups.basic("--trash", is_flag=True, help="Move orphans to .cpreplicate/trash/ instead.")
@groups.basic(
    "--empty-trash",
    is_flag=True,
    help="Delete what has been in the trash for longer than --min-age.",
)
@groups.limit(
    "--min-age",
    metavar="TIME",
    default="24h",
    show_default=True,
    callback=storage_options.parsed(storage_options.seconds),
    help="Leave files that were modified within this time: another run may have written them.",
)
@groups.limit(
    "--max-delete",
    metavar="N|P%",
    default="50%",
    show_default=True,
    callback=options.cap,
    help="Do nothing, and exit with 6, if there are more orphans, or if they are a larger share of"
    " the files.",
)
@options.runner_options
@storage_options.target_conf
@storage_options.access
@options.actions
@options.output_options
@recording.option
def sweep(
    replica: str,
    dry_run: bool,
    trash: bool,
    empty_trash: bool,
    min_age: float,
    max_delete: Cap,
    lock_wait: float,
    actions: bool,
    metrics_file: str | None,
    output: Any,
    **values: Any,
) -> int:
    """Remove orphans: files of a replica that none of its committed checkpoints references."""
    from cpreplicate.operations.upkeep import sweep as operation
    from cpreplicate.output import show_sweep
    from cpreplicate.storage import Sides

    notify = start_narration(values)
    side = storage_of(values).target_side()
    request = operation.SweepRequest(
        replica=replica,
        min_age=min_age,
        max_delete=max_delete,
        trash=trash,
        empty_trash=empty_trash,
        lock_wait=lock_wait,
        sides=Sides(side, side),
        execution=execution_of(values),
    )
    with (
        options.showing_refused_plan(lambda report: show_sweep(report, output, actions)),
        recording.sweep_metrics(metrics_file, replica) as record,
    ):
        report = operation.check(request) if dry_run else operation.sweep(request, notify)
        record(report)
    unwritten = show_sweep(report, output, actions)
    return read_code(unwritten) if dry_run else change_code(unwritten)


@cli.command(
    short_help="Rewrite the paths of a replica.",
    examples=(
        "cpreplicate relocate hdfs://dcB/flink/moved/55d1...",
        "cpreplicate relocate --paths absolute hdfs://dcB/flink/replicas/55d1...",
        "cpreplicate relocate --unpack hdfs://dcB/flink/replicas/55d1...",
    ),
    exit_codes={
        **options.REPLICA_CODES,
        3: "--unpack: some packed files could not be written; no _metadata was changed",
        **options.STOPPED_CODES,
    },
)
@click.argument("replica", callback=options.location)
@groups.basic(
    "--unpack",
    is_flag=True,
    help="Write the members of all packs as files of their own, then delete the packs. Needed for"
    " Flink 1.19 and older; see docs/packs.md.",
)
@options.paths
@groups.path(
    "--root",
    metavar="URI",
    callback=options.optional_location,
    help="Where Flink will find the replica. Default: REPLICA.",
)
@groups.path(
    "--moved-from",
    metavar="URI",
    callback=options.optional_location,
    help="Where the replica was before. Default: derived from its paths.",
)
@options.runner_options
@storage_options.target_conf
@storage_options.access
@options.output_options
def relocate(
    replica: str,
    unpack: bool,
    paths: PathsMode,
    root: str | None,
    moved_from: str | None,
    lock_wait: float,
    output: Any,
    **values: Any,
) -> int:
    """Rewrite the paths of a replica, in place or after it was moved by other means.

    The source is not needed.
    """
    from cpreplicate.operations.upkeep import relocate as operation
    from cpreplicate.output import show_relocation

    notify = start_narration(values)
    request = operation.RelocateRequest(
        replica=replica,
        paths=paths,
        root=root,
        moved_from=moved_from,
        lock_wait=lock_wait,
        unpack=unpack,
        side=storage_of(values).target_side(),
        execution=execution_of(values),
    )
    return change_code(show_relocation(operation.relocate(request, notify), output))


@cli.command(
    short_help="Seal a replica and print how to start the job from it.",
    examples=(
        "cpreplicate promote hdfs://dcB/flink/replicas/55d1...",
        "cpreplicate promote --content --output json hdfs://dcB/flink/replicas/55d1...",
    ),
    exit_codes={
        **options.REPLICA_CODES,
        4: "the replica cannot be restored; it was left unchanged",
        **options.STOPPED_CODES,
    },
)
@click.argument("replica", callback=options.location)
@groups.basic(
    "--checkpoint",
    metavar="chk-N",
    help="The checkpoint to promote. Default: the newest committed one.",
)
@options.content_options
@options.runner_options
@storage_options.target_conf
@storage_options.access
@options.output_options
def promote(
    replica: str, checkpoint: str | None, lock_wait: float, output: Any, **values: Any
) -> int:
    """Hand a replica over to a job.

    Verify the replica, make its paths absolute, seal it against further syncs, and print how to
    start the job from it.
    """
    from cpreplicate.operations.upkeep import promote as operation
    from cpreplicate.output import show_promotion

    notify = start_narration(values)
    request = operation.PromoteRequest(
        replica=replica,
        checkpoint=checkpoint,
        content=ContentOptions.from_mapping(values).as_sample(),
        lock_wait=lock_wait,
        side=storage_of(values).target_side(),
        execution=execution_of(values),
    )
    promotion = operation.promote(request, notify)
    code = change_code(show_promotion(promotion, output))
    return code if promotion.verification.restorable else 4


@cli.command(
    short_help="Remove the seal of a promoted replica.",
    examples=(
        "cpreplicate unseal hdfs://dcB/flink/replicas/55d1... --job hdfs://dcB/flink/checkpoints"
        "/7f0c...",
        "cpreplicate unseal hdfs://dcB/flink/replicas/55d1... --no-job-uses-it",
    ),
    exit_codes=options.REPLICA_CODES,
)
@click.argument("replica", callback=options.location)
@groups.basic(
    "--job",
    metavar="DIR",
    callback=options.optional_location,
    help="The checkpoint directory of the job that was started from the replica. The seal stays"
    " (exit 6) while a checkpoint there references the replica, or none has completed since the"
    " promotion. Where a job has a fixed id, a checkpoint of an earlier run counts, too: give --job"
    " only after the job has completed a checkpoint since it was started from the replica.",
)
@groups.basic(
    "--no-job-uses-it",
    is_flag=True,
    help="Instead of --job: you know that no job needs the replica's files.",
)
@storage_options.target_conf
@storage_options.access
@options.progress_options
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
    side = storage_of(values).target_side()
    sealed = operation.unseal(operation.UnsealRequest(replica, job, side))
    notify(f"unsealed {replica}, which was sealed {sealed}")
