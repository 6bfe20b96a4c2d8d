"""The command that moves running jobs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cpreplicate.cli.commands.rebase import asked_kafka
from cpreplicate.cli.commands.replication import cli
from cpreplicate.cli.files import switch_file
from cpreplicate.cli.options import switch_options
from cpreplicate.cli.options.option import files, location
from cpreplicate.cli.running import exit_codes
from cpreplicate.cli.running.report_file import page_writer
from cpreplicate.cli.running.requests import planned_sync, sample_of, start_narration
from cpreplicate.cli.running.results import show_change, showing_refused_plan
from cpreplicate.cli.running.selection import confirm
from cpreplicate.cli.running.services import http_headers
from cpreplicate.core.sizes import plural
from cpreplicate.errors import NotThere, Refused, described

if TYPE_CHECKING:
    from cpreplicate.operations.handover.switch.request import Clusters, Programs, SwitchRequest


@cli.command(
    short_help="Move running jobs to another cluster.",
    examples=(
        "cpreplicate switch --flink http://jm-a:8081 --job orders --start-at http://jm-b:8081"
        " --jar ./orders.jar --arguments orders.txt --dry-run hdfs://dcB/flink/replicas",
        "cpreplicate switch --flink http://jm-a:8081 --job orders --start-at http://jm-b:8081"
        " --jar ./orders.jar --arguments orders.txt hdfs://dcB/flink/replicas",
        "cpreplicate switch --flink http://jm-a:8081 --job orders --start-at http://jm-b:8081"
        " --jar ./orders.jar --arguments orders.txt --take-back hdfs://dcB/flink/replicas",
    ),
    exit_codes={
        **exit_codes.REPLICATE,
        3: "some copies failed, and the job was not stopped; or, of several jobs, not every one was"
        " switched",
        6: "refused for safety before the job was stopped",
        7: "a storage, or a JobManager, could not be reached",
        10: "no such job runs, or a jar or a file is not there",
        11: "another run switches the job, or holds the lease of its replica",
        22: "the job was not switched; it runs where it ran",
        23: "the job does not run, or it is not known where: the message states what to do",
        **exit_codes.STOPPED,
    },
    essentials=(
        "dry-run flink job job-file all yes start-at jar entry-class arguments stop savepoints"
        " take-back kafka source-conf target-conf report output"
    ),
    options=switch_options.SWITCH,
)
@click.argument("target_root", callback=location, shell_complete=files)
def switch(target_root: str, job: tuple[str, ...], every: bool, output: Any, **values: Any) -> int:
    """Move running jobs to another cluster, with a short standstill.

    Copy the newest checkpoint of each job into its replica below TARGET_ROOT while it runs, until
    little is left. Then take a last checkpoint, cancel the job, wait until its end is seen, copy
    the rest, promote the replica, and start the job from it. If anything fails before the start,
    the job is started again where it ran. A switch that was killed is continued by the same
    command, or taken back with --take-back.
    """
    from cpreplicate.operations.handover.switch.switch_all import switch_all

    if len(values["flink"]) != 1 or [bool(job), bool(values["job_file"]), every].count(True) != 1:
        raise click.UsageError(
            "give one --flink URL, and --job NAME, --job-file FILE or --all: where the jobs run,"
            " and which"
        )
    _refuse_without_effect({**values, "all": every})
    notify = start_narration(values)
    request = _request({**values, "source": target_root, "target_root": target_root})
    stops_on_error = values["on_error"] == "stop"
    own = _jobs_of(values["job_file"])
    programs = {name: _programs({**values, **table}) for name, table in own.items()}
    jobs = _every_job(request, values) if every else tuple(dict.fromkeys((*job, *own)))
    with showing_refused_plan(output):
        report = switch_all(
            jobs,
            request,
            lambda: _clusters(values),
            notify,
            stops_on_error,
            values["at_once"],
            programs,
        )
    page = page_writer(values["report_file"], report)
    code = show_change(report, output, page=page, is_dry_run=request.dry_run)
    if request.dry_run and len(jobs) == 1 and report.jobs[0].error is not None:
        raise Refused(report.jobs[0].error)
    return code or report.exit_code


def _refuse_without_effect(values: dict[str, Any]) -> None:
    """Raise `click.UsageError` for an option that would do nothing."""
    if values["stop"] != "savepoint" and (values["savepoints"] or values["savepoint_format"]):
        raise click.UsageError("--savepoints and --savepoint-format are of --stop savepoint")
    if values["start_header"] and values["start_at"] is None:
        raise click.UsageError("--start-header is of --start-at URL, which is not given")
    if values["yes"] and not values["all"]:
        raise click.UsageError("--yes is of --all, which is not given")


def _every_job(request: SwitchRequest, values: dict[str, Any]) -> tuple[str, ...]:
    """Return all jobs, as they are to be given; ask before they are stopped."""
    from cpreplicate.operations.handover.switch.switch_all import connected, every_job

    with connected(lambda: _clusters(values)) as clusters:
        jobs = every_job(request, clusters)
    if not request.dry_run:
        which, them = plural(len(jobs), "job", f"{len(jobs)} jobs"), plural(len(jobs), "it", "them")
        confirm(f"Stop the {which} at {values['flink'][0]}, and move {them}?", values)
    return jobs


def _jobs_of(path: str | None) -> dict[str, dict[str, Any]]:
    """Return the jobs of a file, with the parameters that each has of its own.

    They are in the order of the file: a TOML file, or one with a job in each line, where a line
    that begins with # is a comment.
    """
    if path is None:
        return {}
    if path.endswith(switch_file.ENDING):
        jobs = switch_file.jobs_of(path, click.get_current_context().command)
    else:
        lines = (line.strip() for line in _lines(path))
        jobs = {line: {} for line in lines if line and not line.startswith("#")}
    if not jobs:
        raise NotThere(
            f"{path} names no job. Nothing was done. Write the name of one in each line, or in"
            " FILE.toml a table [[job]] for each"
        )
    return jobs


def _programs(values: dict[str, Any]) -> Programs:
    from cpreplicate.operations.handover.switch.request import Program, Programs

    arguments = _arguments(values["arguments"])
    origin_arguments = values["origin_arguments"]
    of_origin = arguments if origin_arguments is None else _arguments(origin_arguments)
    entry_class, parallelism = values["entry_class"], values["job_parallelism"]
    return Programs(
        Program(values["jar"], entry_class, arguments, parallelism),
        Program(values["origin_jar"], entry_class, of_origin, parallelism),
    )


def _request(values: dict[str, Any]) -> SwitchRequest:
    from cpreplicate.operations.handover.switch.request import SwitchRequest

    savepoint_format: Any = values["savepoint_format"] or "native"
    program, of_origin = _programs(values)
    return SwitchRequest(
        "",
        planned_sync(values),
        stop=values["stop"],
        savepoints=values["savepoints"],
        savepoint_format=savepoint_format.upper(),
        program=program,
        origin_program=of_origin,
        small=values["small"],
        most_rounds=values["most_rounds"],
        patience=values["patience"],
        dry_run=values["dry_run"],
        take_back=values["take_back"],
        content=sample_of(values),
        kafka=asked_kafka(values),
    )


def _arguments(given: str | list[str] | None) -> tuple[str, ...]:
    """Return the arguments of a program: the lines of a file, or as they are, none without any."""
    if given is None:
        return ()
    return tuple(given) if isinstance(given, list) else _lines(given)


def _lines(path: str) -> tuple[str, ...]:
    """Return the lines of a file. Raises `NotThere` if it cannot be read."""
    try:
        return tuple(Path(path).read_text(encoding="utf-8").splitlines())
    except (OSError, UnicodeDecodeError) as error:
        raise NotThere(f"the lines in {path} cannot be read: {described(error)}") from error


def _clusters(values: dict[str, Any]) -> Clusters:
    from cpreplicate.flink.control import FlinkControl
    from cpreplicate.operations.handover.switch.request import Clusters

    def connect(url: str, headers: tuple[str, ...]) -> FlinkControl:
        certificates = (values["client_certificate"], values["certificate_authority"])
        return FlinkControl(url, http_headers(headers), *certificates)

    target = values["start_at"]
    return Clusters(
        connect(values["flink"][0], values["header"]),
        None if target is None else connect(target, values["start_header"]),
    )
