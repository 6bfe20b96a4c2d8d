"""The `inspect` command."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from cpreplicate.cli.commands.replication import cli
from cpreplicate.cli.options import options
from cpreplicate.cli.options.option import files, location
from cpreplicate.cli.running import exit_codes
from cpreplicate.cli.running.report_file import page_writer, refuse_unwritable
from cpreplicate.cli.running.requests import source_side, start_narration
from cpreplicate.cli.running.results import show_read

if TYPE_CHECKING:
    from cpreplicate.core.uri import Remap
    from cpreplicate.operations.inspect.references import References
    from cpreplicate.storage import Side


@cli.command(
    short_help="Show what a checkpoint holds.",
    only_reads=True,
    examples=(
        "cpreplicate inspect hdfs://dcA/flink/checkpoints/55d1.../chk-42",
        "cpreplicate inspect hdfs://dcA/flink/checkpoints/55d1.../chk-41"
        " hdfs://dcA/flink/checkpoints/55d1.../chk-42",
        "cpreplicate inspect --refs --to refs.parquet hdfs://dcA/flink/checkpoints/55d1.../chk-42",
    ),
    exit_codes=exit_codes.READ,
    essentials="refs to stat positions remap source-conf report output",
    options=(
        options.REFS,
        options.TO,
        options.STAT,
        options.POSITIONS,
        options.WITH_FILES,
        options.REMAP,
        *options.OF_SOURCE,
        *options.ACCESS,
        options.REPORT,
        *options.OUTPUT,
    ),
)
@click.argument("checkpoint", callback=location, shell_complete=files)
@click.argument("later", required=False, metavar="[LATER]", callback=location, shell_complete=files)
def inspect(
    checkpoint: str,
    later: str | None,
    refs: bool,
    to: str | None,
    with_stat: bool,
    with_positions: bool,
    with_files: bool,
    output: Any,
    **values: Any,
) -> int:
    """Show what a checkpoint holds: operators, subtasks, sizes, skew, files of other jobs.

    With LATER, a second checkpoint, show what changed from the first one to it: growth by operator,
    files added and removed, and about how much compactions wrote.
    """
    from cpreplicate.operations import inspect as operation
    from cpreplicate.operations.inspect.handle_columns import handle_columns

    start_narration(values)
    _refuse_together(
        {
            "--refs": refs,
            "--positions": with_positions,
            "--stat": with_stat,
            "--with-files": with_files,
            "LATER": later,
        }
    )
    if to is not None and not refs:
        raise click.UsageError("--to needs --refs")
    refuse_unwritable("--to", to)
    side, remaps = source_side(values), values["remaps"]
    if later is not None:
        if values["report_file"] is not None:
            raise click.UsageError("--report is of one checkpoint, and LATER is a second one")
        return show_read(operation.compare(checkpoint, later, side, remaps), output)
    if with_files:
        return _show_needed_files(checkpoint, side, remaps, values["report_file"], output)
    page, found = None, None
    if values["report_file"] is not None:
        found = handle_columns(checkpoint, side, remaps)
        checkpoint = found.inspection.checkpoint  # not one that completes meanwhile
        page = page_writer(values["report_file"], found)
    if refs:
        references = operation.references(checkpoint, side, remaps)
        return show_read(_written(references, to), output, page=page)
    if found is not None and not (with_positions or with_stat):
        return show_read(found.inspection, output, page=page)
    inspection = operation.inspect(checkpoint, side, remaps, with_positions, with_stat)
    return show_read(inspection, output, page=page)


def _show_needed_files(
    checkpoint: str, side: Side, remaps: Sequence[Remap], report: str | None, output: Any
) -> int:
    from cpreplicate.operations.kafka.part_files import needed_files

    if report is not None:
        raise click.UsageError("--report is of a checkpoint, and --with-files lists other files")
    return show_read(needed_files(checkpoint, side, remaps), output)


def _written(references: References, to: str | None) -> object:
    """Return state handles, or what was written if they are to be in a file."""
    if to is None:
        return references
    from cpreplicate.operations.inspect import export

    return export.write(references, to)


def _refuse_together(given: Mapping[str, object]) -> None:
    """Raise `click.UsageError` for arguments that exclude each other; only two go together."""
    names = [name for name, value in given.items() if value]
    if len(names) > 1 and names != ["--positions", "--stat"]:
        raise click.UsageError(f"{' and '.join(names)} cannot be given together")
