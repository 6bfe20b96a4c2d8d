"""The commands that keep a replica healthy, and hand it over to a job."""

from __future__ import annotations

from typing import Any

import click

from cpreplicate.cli import options as common_options
from cpreplicate.cli import storage_options
from cpreplicate.cli.commands import cli
from cpreplicate.cli.results import change_code, read_code

_UPKEEP_CODES = """\b
EXIT STATUS
   0  done, or nothing to do
   6  refused for safety
   7  a storage could not be reached within --retry-for
  10  no replica there
  11  lease held by another run"""


@cli.command(
    epilog=_UPKEEP_CODES.replace("\n  11  lease held by another run", "")
    + common_options.STOPPED_CODES
)
@click.argument("replica", callback=common_options.place)
@click.option("--min-age", metavar="TIME", default="24h", show_default=True,
              callback=storage_options.parsed(storage_options.seconds),
              help="Leave what was modified since: another run may have made it.")  # fmt: skip
@click.option("--max-delete", metavar="N|P%", default="50%", show_default=True, callback=common_options.cap,
              help="Do nothing, and exit with 6, if more are orphans, or a larger share of the files.")  # fmt: skip
@click.option("--trash", is_flag=True, help="Move orphans to .cpreplicate/trash/ instead.")
@click.option(
    "--empty-trash",
    is_flag=True,
    help="Delete what has been in the trash for longer than --min-age.",
)
@common_options.runner_options
@storage_options.target_conf
@storage_options.access
@click.option("--actions", is_flag=True, help="Tell every file, not only sums.")
@click.option("--dry-run", is_flag=True, help="Show what would be removed, and do nothing.")
@common_options.output_option
def sweep(dry_run: bool, actions: bool, output: Any, **options: Any) -> int:
    """Remove orphans: files under a replica that no committed checkpoint there references."""
    from cpreplicate.operations.sweep import SweepRequest, check
    from cpreplicate.operations.sweep import sweep as verb
    from cpreplicate.output import narrator, show_sweep
    from cpreplicate.storage import Sides

    side = common_options.side_of(options.pop("target_conf"), options)
    notify = narrator(options["progress"])
    request = SweepRequest(
        sides=Sides(side, side),
        execution=common_options.execution_of(options),
        **common_options.without_access(options),
    )
    with common_options.showing_what_was_refused(
        lambda report: show_sweep(report, output, actions)
    ):
        report = check(request) if dry_run else verb(request, notify)
    unwritten = show_sweep(report, output, actions)
    return read_code(unwritten) if dry_run else change_code(unwritten)


@cli.command(epilog=_UPKEEP_CODES + common_options.STOPPED_CODES)
@click.argument("replica", callback=common_options.place)
@common_options.paths_option
@click.option("--root", metavar="URI", callback=common_options.place_if_any,
              help="Where Flink will find the replica. Default: where it lies.")  # fmt: skip
@click.option("--moved-from", metavar="URI", callback=common_options.place_if_any,
              help="Where the replica lay before. Default: told from its paths.")  # fmt: skip
@common_options.lock_wait
@storage_options.target_conf
@storage_options.access
@common_options.output_option
def relocate(output: Any, **options: Any) -> int:
    """Rewrite the _metadata of a replica where it lies, or after it was moved by other means.

    No source is needed.
    """
    from cpreplicate.operations.relocate import RelocateRequest
    from cpreplicate.operations.relocate import relocate as verb
    from cpreplicate.output import narrate, show_relocation

    side = common_options.side_of(options.pop("target_conf"), options)
    done = verb(RelocateRequest(side=side, **common_options.without_access(options)), narrate)
    return change_code(show_relocation(done, output))


@cli.command(
    epilog=_UPKEEP_CODES
    + "\n   4  the replica cannot be restored; it was left as it was"
    + common_options.STOPPED_CODES
)
@click.argument("replica", callback=common_options.place)
@click.option("--checkpoint", metavar="chk-N", help="Default: the newest committed one.")
@common_options.content_options
@common_options.lock_wait
@storage_options.target_conf
@storage_options.access
@common_options.output_option
def promote(output: Any, **options: Any) -> int:
    """Make a replica the one that the job runs from: verify it, make its paths absolute, seal it,
    tell how to start.
    """
    from cpreplicate.operations.promote import PromoteRequest
    from cpreplicate.operations.promote import promote as verb
    from cpreplicate.output import narrate, show_promotion

    content, side = (
        common_options.sample_of(options),
        common_options.side_of(options.pop("target_conf"), options),
    )
    done = verb(
        PromoteRequest(content=content, side=side, **common_options.without_access(options)),
        narrate,
    )
    code = change_code(show_promotion(done, output))
    return code if done.verification.restorable else 4


@cli.command(epilog=_UPKEEP_CODES)
@click.argument("replica", callback=common_options.place)
@click.option("--job", metavar="DIR", callback=common_options.place_if_any,
              help="The checkpoint directory of the job that was started from the replica. Refused (exit 6) while a"
              " checkpoint there references the replica, or none has completed.")  # fmt: skip
@click.option(
    "--no-job-uses-it",
    is_flag=True,
    help="Instead of --job: you know that no job needs the replica's files.",
)
@storage_options.target_conf
@storage_options.access
def unseal(replica: str, job: str | None, no_job_uses_it: bool, **options: Any) -> None:
    """Remove the seal of a promoted replica, so that sync, watch and sweep may change it again.

    Name the job that was started from the replica with --job, or state with --no-job-uses-it that
    there is none.
    """
    from cpreplicate.operations.unseal import UnsealRequest
    from cpreplicate.operations.unseal import unseal as verb
    from cpreplicate.output import narrate

    if (job is None) != no_job_uses_it:
        raise click.UsageError(
            "give either --job DIR, the checkpoint directory of the job that was started from the"
            " replica, or --no-job-uses-it"
        )
    sealed = verb(
        UnsealRequest(replica, job, common_options.side_of(options.pop("target_conf"), options))
    )
    narrate(f"unsealed {replica}, which was sealed {sealed}")
