"""The commands and their options.

The verbs are imported when one runs, so that `--help` stays quick.
"""

from __future__ import annotations

from typing import Any

import click

from cpreplicate import __version__
from cpreplicate.cli import options as common_options
from cpreplicate.cli import storage_options
from cpreplicate.cli.results import change_code, read_code
from cpreplicate.core import uri


@click.group(
    context_settings={"auto_envvar_prefix": "CPREPLICATE", "help_option_names": ["-h", "--help"]}
)
@click.version_option(__version__)
@click.option("--config", metavar="FILE", is_eager=True, expose_value=False, callback=common_options.config,
              help="A TOML file with a table of options for each command.")  # fmt: skip
@click.option("--debug", is_flag=True, expose_value=False, help="Show the traceback of an error.")
def cli() -> None:
    """Replicate Apache Flink checkpoints between data centres.

    SOURCE is a checkpoint (.../chk-42), a job's directory (its newest completed checkpoint) or a
    savepoint. TARGET_ROOT is a directory that only cpreplicate writes, such as .../flink/replicas
    beside Flink's own .../flink/checkpoints. The job's directory is created inside it: the REPLICA.
    """


@cli.command(epilog=common_options.READ_CODES)
@click.argument("checkpoint", callback=common_options.place)
@click.option("--refs", is_flag=True, help="Tell every state handle instead of the summary.")
@common_options.remap_option
@storage_options.source_conf
@storage_options.access
@common_options.output_option
def inspect(
    checkpoint: str, refs: bool, remap: tuple[uri.Remap, ...], output: Any, **options: Any
) -> int:
    """What a checkpoint holds: operators, subtasks, sizes, skew, files of other jobs."""
    from cpreplicate.operations import inspect as verb
    from cpreplicate.output import show_inspection, show_references

    side = common_options.side_of(options.pop("source_conf"), options)
    if refs:
        return read_code(show_references(list(verb.references(checkpoint, side, remap)), output))
    return read_code(show_inspection(verb.inspect(checkpoint, side, remap), output))


@cli.command(epilog=common_options.REPLICATE_CODES + "\n  20  --exit-code: there are differences")
@common_options.replicate_options
@common_options.max_delete
@click.option("--exit-code", is_flag=True, help="Exit with 20 if there is anything to do.")
def diff(exit_code: bool, actions: bool, output: Any, **options: Any) -> int:
    """The plan of a sync, nothing done."""
    from cpreplicate.operations.sync import diff as verb
    from cpreplicate.output import show_report

    with common_options.showing_what_was_refused(
        lambda report: show_report(report, output, actions)
    ):
        report = verb(common_options.request_of(options))
    code = read_code(show_report(report, output, actions))
    return 20 if exit_code and not report.plan.empty else code


@cli.command(epilog=common_options.REPLICATE_CODES + common_options.STOPPED_CODES)
@common_options.replicate_options
@common_options.runner_options
@common_options.deletes_options
@storage_options.writing
@click.option("--check-content", is_flag=True, help="Read the files that are kept, and copy those whose content is not the"
              " recorded one.")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Show the plan, as diff does, and do nothing.")  # fmt: skip
def sync(dry_run: bool, actions: bool, output: Any, **options: Any) -> int:
    """Replicate: copy what is new, commit, delete what only the old checkpoint needed.

    TARGET_ROOT is a directory of cpreplicate's own, such as hdfs://dcB/flink/replicas. Refused
    (exit 6), with nothing changed, where Flink or another program keeps files in the replica's
    directory.
    """
    from cpreplicate.operations.sync import diff, sync
    from cpreplicate.output import narrator, show_report

    notify = narrator(options["progress"])
    request = common_options.request_of(options)
    with common_options.showing_what_was_refused(
        lambda report: show_report(report, output, actions)
    ):
        report = diff(request, notify) if dry_run else sync(request, notify)
    unwritten = show_report(report, output, actions)
    return read_code(unwritten) if dry_run else change_code(unwritten)


@cli.command(epilog=common_options.REPLICATE_CODES + common_options.STOPPED_CODES)
@common_options.replicate_options
@common_options.runner_options
@common_options.deletes_options
@storage_options.writing
@click.option("--interval", metavar="TIME", default="10s", show_default=True,
              callback=storage_options.parsed(storage_options.seconds),
              help="How often a new checkpoint is looked for.")  # fmt: skip
@click.option("--wait-for-source", is_flag=True, help="Wait for the job's directory if it is not there yet, instead of"
              " ending with 10.")  # fmt: skip
def watch(
    interval: float, wait_for_source: bool, actions: bool, output: Any, **options: Any
) -> None:
    """Keep replicating as checkpoints complete, until stopped. SOURCE is the job's directory.

    TARGET_ROOT is a directory of cpreplicate's own, such as hdfs://dcB/flink/replicas. A job that
    has no completed checkpoint yet is waited for.
    """
    from cpreplicate.operations.watch import watch as verb
    from cpreplicate.output import narrator, show_report

    notify = narrator(options["progress"])
    verb(
        common_options.request_of(options),
        interval,
        notify,
        lambda report: change_code(show_report(report, output, actions)),
        wait_for_source,
    )


@cli.command(epilog=common_options.READ_CODES + "\n   4  the replica cannot be restored")
@click.argument("replica", callback=common_options.place)
@click.option(
    "--checkpoint",
    multiple=True,
    metavar="chk-N",
    help="Default: the newest committed one. Repeatable.",
)
@click.option(
    "--all",
    "every",
    is_flag=True,
    envvar="CPREPLICATE_VERIFY_ALL",
    help="Verify every committed checkpoint.",
)
@common_options.content_options
@storage_options.target_conf
@storage_options.access
@common_options.output_option
def verify(
    replica: str, checkpoint: tuple[str, ...], every: bool, output: Any, **options: Any
) -> int:
    """Prove that a replica can be restored: presence and extent of every file, nothing outside it."""
    from cpreplicate.operations.verify import committed
    from cpreplicate.operations.verify import verify as verb
    from cpreplicate.output import narrate, show_verifications

    part, side = (
        common_options.sample_of(options),
        common_options.side_of(options.pop("target_conf"), options),
    )
    names = committed(replica, side) if every else (checkpoint or (None,))
    found = [verb(replica, name, part, narrate, side) for name in names]
    code = read_code(show_verifications(found, output))
    return code if all(each.restorable for each in found) else 4
