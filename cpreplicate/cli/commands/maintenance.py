"""The commands that maintain a replica."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from cpreplicate.cli.commands.replication import cli
from cpreplicate.cli.options import kinds, options, upkeep_options
from cpreplicate.cli.options.option import files, location
from cpreplicate.cli.running import exit_codes
from cpreplicate.cli.running.metrics_file import sweep_metrics
from cpreplicate.cli.running.report_file import page_writer
from cpreplicate.cli.running.requests import (
    build,
    execution_of,
    sides_of,
    start_narration,
    target_side,
)
from cpreplicate.cli.running.results import listing_of, show_change, showing_refused_plan
from cpreplicate.cli.running.selection import confirm, select_replica, selected
from cpreplicate.cli.running.services import clusters_of
from cpreplicate.core.sizes import counted

if TYPE_CHECKING:
    from cpreplicate.core.notify import Notify
    from cpreplicate.operations.replicas.forget import ForgetRequest
    from cpreplicate.storage import Sides


@cli.command(
    short_help="Remove files that no checkpoint references.",
    examples=(
        "cpreplicate sweep --dry-run hdfs://dcB/flink/replicas/55d1...",
        "cpreplicate sweep --trash hdfs://dcB/flink/replicas/55d1...",
    ),
    exit_codes={**exit_codes.REPLICA, **exit_codes.RUNNER, **exit_codes.STOPPED},
    essentials=(
        "dry-run job trash empty-trash min-age max-delete actions runner master target-conf "
        "metrics-file output"
    ),
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
    short_help="Remove a replica whole.",
    examples=(
        "cpreplicate forget --dry-run hdfs://dcB/flink/replicas/55d1...",
        "cpreplicate forget --job orders hdfs://dcB/flink/replicas",
        "cpreplicate forget --all --ended --older-than 30d --dry-run hdfs://dcB/flink/replicas",
        "cpreplicate forget --last-point hdfs://dcB/flink/replicas/55d1...",
    ),
    exit_codes={
        **exit_codes.REPLICA,
        **exit_codes.RUNNER,
        3: "not all files, or with --all not all replicas, were removed; run again to resume",
        **exit_codes.STOPPED,
    },
    essentials=(
        "dry-run job all ended older-than last-point leave-others yes max-delete flink "
        "source-conf target-conf report output"
    ),
    options=(
        options.DRY_RUN,
        *upkeep_options.FORGET,
        *options.CHANGE,
        *options.OF_SOURCE,
        *options.OF_REPLICA,
        options.REPORT,
    ),
)
@click.argument("replica", shell_complete=files)
def forget(replica: str, job: str | None, every: bool, output: Any, **values: Any) -> int:
    """Remove a replica whole: its checkpoints first, and only what cpreplicate wrote.

    It stays if it holds the newest point of its job, is sealed, or another run holds its lease.
    What was stopped is resumed by the same command.
    """
    _refuse_contradictions(replica, job, every, values)
    place = kinds.LOCATION.value(replica)
    request = _forget_request(values)
    notify = start_narration(values)
    if every:
        return _forget_many(_places(place, request.sides), request, notify, output, values)
    if job is not None:
        chosen = select_replica(place, job, request.sides.target, request.sides.source)
        if chosen.others:
            return _forget_many((*chosen.others, chosen.replica), request, notify, output, values)
        place = chosen.replica
    return _forget_one(place, request, notify, output, values)


def _refuse_contradictions(
    place: str, job: str | None, every: bool, values: dict[str, Any]
) -> None:
    """Raise `click.UsageError` for what may be meant otherwise: the whole replica would go."""
    if every and job is not None:
        raise click.UsageError("--all and --job both choose replicas: give one")
    if every and not (values["ended"] or values["older_than"] is not None):
        raise click.UsageError("--all needs --ended, --older-than TIME, or both")
    if every and values["last_point"]:
        raise click.UsageError("--last-point is for one replica, and --all is given")
    if not every and job is None and place.endswith("/"):
        raise click.UsageError(
            f"{place} ends with a slash: behind it a name may be missing, such as that of a shell"
            " variable that is empty. Nothing was removed. Give the replica without the slash"
        )


def _forget_request(values: dict[str, Any]) -> ForgetRequest:
    from cpreplicate.operations.replicas import forget as operation

    clusters = clusters_of(values)
    return build(
        operation.ForgetRequest,
        values,
        sides=sides_of(values),
        execution=execution_of(values),
        refuse=lambda replica: operation.refuse_running(replica, clusters),
    )


def _places(target_root: str, sides: Sides) -> tuple[str, ...]:
    from cpreplicate.operations.replicas.replicas import replicas_below
    from cpreplicate.output.log import write_warning

    found = replicas_below(target_root, [], sides, write_warning)
    places = tuple(ref.replica for ref in found)
    if target_root in places:
        raise click.UsageError(f"{target_root} is a replica, and --all is for a TARGET_ROOT")
    return places


def _forget_one(
    place: str, request: ForgetRequest, notify: Notify, output: Any, values: dict[str, Any]
) -> int:
    from cpreplicate.operations.replicas import forget as operation

    chosen = operation.candidate(place, request)
    confirm(f"Remove {place} whole ({chosen.why})?", values)
    with showing_refused_plan(output):
        removed = operation.forget(chosen, request, notify)
    page = page_writer(values["report_file"], operation.of_one(removed))
    return show_change(removed, output, page=page, is_dry_run=request.dry_run)


def _forget_many(
    places: tuple[str, ...],
    request: ForgetRequest,
    notify: Notify,
    output: Any,
    values: dict[str, Any],
) -> int:
    from cpreplicate.operations.replicas import forget as operation

    chosen = operation.candidates(places, request)
    going = sum(isinstance(each, operation.Candidate) for each in chosen)
    if going:
        confirm(f"Remove {going} of {counted(len(chosen), 'replica')} whole?", values)
    with showing_refused_plan(output):
        report = operation.forget_all(chosen, request, notify)
    page = page_writer(values["report_file"], report)
    code = show_change(report, output, page=page, is_dry_run=request.dry_run)
    return code or report.exit_code


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
    essentials="job paths root moved-from unpack runner master target-conf output",
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
