"""The commands and their options.

A command imports its operation when it runs, so that `--help` stays quick.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from cpreplicate.cli.files.config import VARIABLE, load_config
from cpreplicate.cli.options import options, service_options, upkeep_options
from cpreplicate.cli.options.kinds import absolute
from cpreplicate.cli.options.option import files, is_on_command_line, location
from cpreplicate.cli.running import exit_codes, groups, services
from cpreplicate.cli.running.metrics_file import sync_metrics, verify_metrics
from cpreplicate.cli.running.report_file import WritePage, page_writer
from cpreplicate.cli.running.requests import (
    build,
    execution_of,
    planned_sync,
    sample_of,
    start_narration,
    target_side,
)
from cpreplicate.cli.running.results import listing_of, show_change, show_read, showing_refused_plan
from cpreplicate.cli.running.selection import selected
from cpreplicate.core.shard import WHOLE
from cpreplicate.core.sizes import counted
from cpreplicate.errors import LeaseHeld, Refused
from cpreplicate.version import __version__

if TYPE_CHECKING:
    from cpreplicate.operations.inspect.overview import Overview
    from cpreplicate.operations.sync.report import Report
    from cpreplicate.operations.sync.request import SyncRequest
    from cpreplicate.output import Listing

_DAMAGED = 4


def source_and_target(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the arguments of a command that plans a sync."""
    target_root = click.argument("target_root", callback=location, shell_complete=files)(command)
    return click.argument("source", callback=location, shell_complete=files)(target_root)


@click.group(
    cls=groups.Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, "-V", "--version")
@click.option("--debug", is_flag=True, expose_value=False, help="Print the traceback of an error.")
def cli() -> None:
    """Replicate Apache Flink checkpoints between data centres.

    SOURCE is a checkpoint (.../chk-42), a job's directory (its newest completed checkpoint) or a
    savepoint. TARGET_ROOT is a directory that only cpreplicate writes, such as .../flink/replicas
    beside Flink's own .../flink/checkpoints. The job's directory is created inside it: the REPLICA.
    """


cli.params.insert(1, groups.config_option(load_config, VARIABLE))


@cli.command(
    short_help="Show what a sync would do.",
    only_reads=True,
    examples=(
        "cpreplicate diff hdfs://dcA/flink/checkpoints/55d1... hdfs://dcB/flink/replicas",
        "cpreplicate diff --combined SOURCE TARGET_ROOT",
        "cpreplicate diff --actions --output ndjson SOURCE TARGET_ROOT",
    ),
    exit_codes={**exit_codes.REPLICATE, 20: "--exit-code: there are differences"},
    shows="sync",
    essentials=(
        "keep keep-within keep-daily remap allow-older adopt source-conf target-conf all "
        "actions combined max-delete exit-code job report output verbose"
    ),
    options=(
        *options.REPLICATE,
        *options.LISTINGS,
        options.REPORT,
        options.MAX_DELETE,
        options.POSITIONS,
        options.EXIT_CODE,
        options.OF_JOB,
    ),
)
@source_and_target
def diff(
    exit_code: bool,
    with_positions: bool,
    actions: bool,
    every: bool,
    combined: bool,
    output: Any,
    **values: Any,
) -> int:
    """Show the plan of a sync, and change nothing."""
    from cpreplicate.operations.sync import diff as operation

    listing = _listing(actions, every, combined, output)
    start_narration(values)
    request = requested_sync(values)
    page_of = _page_of_plan(values["report_file"], request)
    with showing_refused_plan(output, listing, page_of):
        report = operation.diff(request, with_positions=with_positions)
    code = _shown_plan(report, output, listing, page_of)
    return 20 if exit_code and not report.plan.empty else code


def requested_sync(values: dict[str, Any]) -> SyncRequest:
    """Return the request of a command that plans a sync; `--job` has the job of a savepoint.

    Raises as `select`.
    """
    request, job = planned_sync(values), values["savepoint_job"]
    if job == "":
        raise click.UsageError("--job is empty: give the name or the id of the savepoint's job")
    if job is None:
        return request
    sides = request.sides
    return replace(
        request, savepoint_of=selected(request.target_root, job, sides.target, sides.source)
    )


def _listing(actions: bool, every: bool, combined: bool, output: Any) -> Listing:
    """Return what the options of `diff` ask for. Raises `click.UsageError` for several of them."""
    if actions + every + combined > 1:
        raise click.UsageError("--all, --actions and --combined are three listings: give one")
    if combined and output != "text":
        raise click.UsageError(f"--combined is text: it cannot be given with --output {output}")
    if combined:
        return "combined"
    return "all" if every else listing_of(actions)


@cli.command(
    short_help="Replicate a checkpoint.",
    examples=(
        "cpreplicate sync hdfs://dcA/flink/checkpoints/55d1... hdfs://dcB/flink/replicas",
        "cpreplicate sync --dry-run --source-conf /etc/hadoop/dcA SOURCE TARGET_ROOT",
        "cpreplicate sync hdfs://dcA/flink/savepoints/savepoint-55d1... hdfs://dcB/flink/replicas"
        " --job orders",
    ),
    exit_codes={**exit_codes.REPLICATE, **exit_codes.STOPPED},
    essentials=(
        "dry-run keep keep-within keep-daily remap allow-older adopt source-conf target-conf "
        "runner master bandwidth max-delete name job repair report output"
    ),
    options=(
        options.DRY_RUN,
        *options.REPLICATE,
        *options.CHANGE,
        *options.DELETES,
        *options.WRITING,
        *options.KAFKA_SOURCE,
        options.CHECK_CONTENT,
        options.REPAIR,
        service_options.JOB_NAME,
        options.OF_JOB,
        options.REPORT,
        options.METRICS_FILE,
    ),
)
@source_and_target
def sync(dry_run: bool, actions: bool, metrics_file: str | None, output: Any, **values: Any) -> int:
    """Replicate a checkpoint.

    Copy the files that the replica lacks, commit, then delete what only the old checkpoint needed.

    TARGET_ROOT is a directory that only cpreplicate writes, such as hdfs://dcB/flink/replicas. If
    Flink or another program keeps files in the directory of the replica, the command changes
    nothing and exits with 6.
    """
    from cpreplicate.operations.sync import diff as plans
    from cpreplicate.operations.sync import sync as operation
    from cpreplicate.protocol.lease import NoLeaseLeft

    if values["repair"]:
        _refuse_beside_repair()
    notify = start_narration(values)
    request = requested_sync(values)
    listing = listing_of(actions)
    page_of = _page_of_plan(values["report_file"], request)
    with showing_refused_plan(output, listing, page_of):
        if dry_run:
            return _shown_plan(plans.diff(request, notify), output, listing, page_of)
        with sync_metrics(metrics_file, request) as record, NoLeaseLeft():
            report = operation.sync(request, notify)
            record(report)
    code = show_change(report, output, listing, page_of(report))
    return LeaseHeld.exit_code if report.is_lease_lost else code


def _refuse_beside_repair() -> None:
    """Raise `click.UsageError` for options that have no effect on a checkpoint that is kept."""
    without_effect = (*options.KEEP, options.KEEP_LESS, options.ALLOW_OLDER, options.PATHS)
    given = [f"--{each.name}" for each in without_effect if is_on_command_line(each.field)]
    if given:
        raise click.UsageError(
            f"{', '.join(given)} cannot be given with --repair, which publishes and withdraws no"
            " checkpoint, and leaves the paths as they are spelled"
        )


def _page_of_plan(path: str | None, request: SyncRequest) -> Callable[[Report], WritePage | None]:
    """Return what makes the writer of the page of a plan."""

    def page_of(report: Report) -> WritePage | None:
        def overview() -> Overview:
            from cpreplicate.operations.inspect.overview import of_plan

            is_there = report.committed or report.plan.empty
            return of_plan(report.plan, is_there, request.sides, request.remaps)

        return page_writer(path, report, overview)

    return page_of


def _shown_plan(
    report: Report, output: Any, listing: Listing, page_of: Callable[[Report], WritePage | None]
) -> int:
    """Show a plan that is not carried out, then end as its sync would."""
    code = show_read(report, output, listing, page_of(report))
    if report.refusal is not None:
        raise report.refusal
    return code


@cli.command(
    short_help="Replicate each checkpoint as it completes.",
    examples=(
        "cpreplicate watch hdfs://dcA/flink/checkpoints/55d1... hdfs://dcB/flink/replicas",
        "cpreplicate watch --flink http://jobmanager:8081 --job-name orders hdfs://dcB/replicas",
        "cpreplicate watch --jobs-under hdfs://dcA/flink/checkpoints hdfs://dcB/flink/replicas",
    ),
    exit_codes={**exit_codes.REPLICATE, **exit_codes.STOPPED},
    essentials=(
        "keep keep-within keep-daily remap allow-older source-conf target-conf runner master "
        "max-delete interval name flink job-name all-jobs jobs-under metrics output"
    ),
    options=(
        *options.REPLICATE,
        *options.CHANGE,
        *options.DELETES,
        *options.WRITING,
        *options.KAFKA_SOURCE,
        options.INTERVAL,
        options.WAIT_FOR_SOURCE,
        service_options.JOB_NAME,
        *service_options.FOLLOW,
        *service_options.SERVICE,
    ),
)
@click.argument(
    "places",
    nargs=-1,
    required=True,
    metavar="[SOURCE] TARGET_ROOT",
    callback=location,
    shell_complete=files,
)
def watch(
    places: tuple[str, ...],
    interval: float,
    wait_for_source: bool,
    actions: bool,
    output: Any,
    **values: Any,
) -> None:
    """Replicate each checkpoint as it completes, until stopped.

    SOURCE is the directory of a job. If it has no completed checkpoint yet, the command waits.
    TARGET_ROOT is a directory that only cpreplicate writes, such as hdfs://dcB/flink/replicas.

    With --flink or --jobs-under instead of SOURCE, many jobs are followed, and none of their
    failures ends the command. One SOURCE ends it with 2 or 6, if the next checkpoint would be
    refused, too, and at the first try with 5 or 10, if SOURCE is no job or needs --remap.
    """
    from cpreplicate.operations.jobs.policy import OneJob

    follow = build(services.FollowOptions, values)
    follow.refuse_mistakes()
    notify = start_narration(values)
    request = planned_sync({**values, **_source_and_target(places, follow)})
    if follow.finds_jobs and values["name"] is not None:
        raise click.UsageError("--name is of one job: it needs a SOURCE")
    if not follow.finds_jobs and values["shard"] != WHOLE:
        raise click.UsageError("--shard divides many jobs: it needs --flink or --jobs-under")
    if not follow.finds_jobs and (values["processes"] or 1) > 1:
        raise click.UsageError("--processes shares many jobs: it needs --flink or --jobs-under")
    if not follow.finds_jobs and values["forget_ended"] is not None:
        raise click.UsageError("--forget-ended is of many jobs: it needs --flink or --jobs-under")
    _refuse_without_effect(follow)
    one = None if follow.finds_jobs else OneJob(request, wait_for_source, notify)
    if one is None:
        follow.refuse_no_jobs(request)
    showing_one = services.showing_one(output, listing_of(actions))
    discovery = one or follow.discovery(request, notify, values["shard"])
    services.run_service(
        discovery,
        values,
        request.execution,
        request.sides,
        interval,
        services.showing_jobs(output) if one is None else showing_one,
        follow.retire_after,
        coverage=discovery.coverage,
        one=one,
        lists_sources=not follow.asks_flink,
    )


def _refuse_without_effect(follow: services.FollowOptions) -> None:
    """Raise `click.UsageError` for options that have no effect on the jobs that are followed."""
    if follow.finds_jobs and is_on_command_line("wait_for_source"):
        raise click.UsageError("--wait-for-source is of one job: it needs a SOURCE")
    if follow.jobs_under is None and is_on_command_line("retire_after"):
        raise click.UsageError("--retire-after is of directories of jobs: it needs --jobs-under")


def _source_and_target(places: tuple[str, ...], follow: services.FollowOptions) -> dict[str, str]:
    """Return the arguments of `watch`, which has no SOURCE if it finds jobs by itself.

    The source is then the root of the jobs, or that of the target.
    """
    if len(places) != (1 if follow.finds_jobs else 2):
        expected = "TARGET_ROOT only" if follow.finds_jobs else "SOURCE and TARGET_ROOT"
        raise click.UsageError(f"expected {expected}, not {counted(len(places), 'place')}")
    if not follow.finds_jobs:
        return {"source": places[0], "target_root": places[1]}
    root = follow.jobs_under
    source = absolute(root) if root is not None else places[0]
    return {"source": source, "target_root": places[0]}


@cli.command(
    short_help="Check that a replica can be restored.",
    only_reads=True,
    examples=(
        "cpreplicate verify hdfs://dcB/flink/replicas/55d1...",
        "cpreplicate verify --content --runner spark hdfs://dcB/flink/replicas/55d1...",
    ),
    exit_codes={
        **exit_codes.READ,
        **exit_codes.RUNNER,
        4: "the replica cannot be restored",
        6: "promote would refuse the replica: a job writes into it, or it is not cpreplicate's",
        **exit_codes.STOPPED,
    },
    essentials=(
        "checkpoint all content sample record job runner master target-conf report"
        " metrics-file output"
    ),
    options=(
        options.VERIFIED,
        options.ALL,
        *options.CONTENT,
        options.RECORD,
        upkeep_options.SELECTED_JOB,
        *options.READING_RUNNER,
        *options.OF_REPLICA,
        options.REPORT,
        options.METRICS_FILE,
    ),
)
@click.argument("replica", callback=location, shell_complete=files)
def verify(
    replica: str,
    job: str | None,
    checkpoint: tuple[str, ...],
    every: bool,
    metrics_file: str | None,
    record: bool,
    output: Any,
    **values: Any,
) -> int:
    """Check that a replica can be restored.

    Every file of the checkpoint must exist with its length, inside the replica. And `promote` must
    not refuse the replica because of checkpoints of others in it.
    """
    from cpreplicate.operations.inspect import overview
    from cpreplicate.operations.verify import verify as operation

    notify = start_narration(values)
    sample = sample_of(values)
    side = target_side(values)
    if every and is_on_command_line("checkpoint"):
        raise click.UsageError("--checkpoint does not go with --all")
    replica = selected(replica, job, side)
    with verify_metrics(metrics_file, replica) as measure:
        names = operation.committed(replica, side) if every else (checkpoint or (None,))
        execution = execution_of(values)
        verifications = operation.verify_each(replica, names, sample, notify, side, execution)
        if record:  # the newest one, which is first with --all
            operation.record(verifications.checkpoints[0], sample, side, notify)
        # with --all, adopted checkpoints are no obstacle: `promote` takes the first
        asked = verifications.checkpoints[: 1 if every else None]
        refused = next((each.refused for each in asked if each.refused is not None), None)
        measure(verifications.restorable, refused)
    page = page_writer(
        values["report_file"], verifications, lambda: overview.of_replica(replica, side)
    )
    code = show_read(verifications, output, page=page)
    if not verifications.restorable:
        return _DAMAGED
    return code if refused is None else Refused.exit_code
