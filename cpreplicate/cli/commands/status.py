"""The `status` command."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cpreplicate.cli.commands.fleet import jobs_of
from cpreplicate.cli.commands.rebase import asked_kafka
from cpreplicate.cli.commands.replication import cli
from cpreplicate.cli.files.config import add_storages
from cpreplicate.cli.files.toml_file import TomlFile
from cpreplicate.cli.options import options, upkeep_options
from cpreplicate.cli.options.kinds import absolute
from cpreplicate.cli.options.option import files, given
from cpreplicate.cli.running.report_file import page_writer
from cpreplicate.cli.running.requests import sides_of, start_narration
from cpreplicate.cli.running.results import show_read
from cpreplicate.errors import NotThere

if TYPE_CHECKING:
    from cpreplicate.core.shard import Shard
    from cpreplicate.operations.replicas.replicas import MissingSources, ReplicaRef
    from cpreplicate.storage import Sides

_LAGGING = 21


@cli.command(
    short_help="Show every replica: newest checkpoint, age, lag, seal.",
    only_reads=True,
    examples=(
        "cpreplicate status hdfs://dcB/flink/replicas",
        "cpreplicate status --max-lag 15m --output json jobs.toml",
    ),
    exit_codes={
        0: "done",
        2: "usage",
        6: "--kafka refuses the connection; what is there is shown",
        7: "TARGET could not be reached within --retry-for; a source that cannot is in its row; or"
        " --kafka could not, and the rest is shown",
        10: "no replica below TARGET, or a --source is not there; what is there is shown",
        21: "--max-lag: a replica lags more, or its lag is not known and its checkpoint is older",
    },
    essentials=(
        "source max-lag shard orphans positions kafka kafka-conf source-conf target-conf "
        "report output"
    ),
    options=(
        *upkeep_options.STATUS,
        options.POSITIONS,
        *options.CONF,
        *upkeep_options.TRAILING_KAFKA,
        *options.ACCESS,
        options.REPORT,
        *options.OUTPUT,
    ),
)
@click.argument("target", callback=given, shell_complete=files)
def status(
    target: str,
    source: tuple[str, ...],
    max_lag: float | None,
    shard: Shard,
    orphans: bool,
    with_positions: bool,
    output: Any,
    **values: Any,
) -> int:
    """Show every replica: its newest checkpoint, age and lag, size, seal, lease. Change nothing.

    TARGET is the TARGET_ROOT of `sync`, a REPLICA in it, or the TOML file of `fleet`.
    """
    from cpreplicate.operations.replicas import status as operation
    from cpreplicate.output.log import write_warning

    start_narration(values)
    kafka = asked_kafka(values)
    file = TomlFile(target) if target.endswith(".toml") and Path(target).is_file() else None
    if file is not None and source:
        raise click.UsageError("--source cannot be given with a TOML file, which names the sources")
    if file is not None:
        add_storages(file)
    sides = sides_of(values)
    replicas, missing = _replicas(target, file, source, sides)
    reading = operation.read_status(
        replicas,
        sides,
        orphans,
        max_lag,
        with_positions=with_positions,
        kafka=None if kafka is None else kafka.cluster,
        notify=write_warning,
        shard=shard,
    )
    page = page_writer(values["report_file"], lambda: reading.complete)
    is_shown = any(reading) or reading.complete.elsewhere or file is not None
    code = show_read(reading, output, page=page) if is_shown else 0
    report = reading.complete
    for source_root in missing.unmounted:
        write_warning(_unmounted(source_root))
    _refuse_missing(missing.misnamed)
    if report.kafka_error is not None:
        raise report.kafka_error
    if report.lagging:
        return _LAGGING
    if file is None and not report.elsewhere and not any(row.is_there for row in report.replicas):
        raise NotThere(
            f"{absolute(target)} holds no replica. TARGET is the TARGET_ROOT of `sync`, a"
            " REPLICA in it, or the TOML file of `fleet`"
        )
    return code


def _replicas(
    target: str, file: TomlFile | None, source: tuple[str, ...], sides: Sides
) -> tuple[list[ReplicaRef], MissingSources]:
    """Return the replicas of a file, else those below a target, and which --source is missing."""
    from cpreplicate.operations.replicas import replicas
    from cpreplicate.output.log import write_warning

    if file is not None:
        found = [
            replicas.replica_of(job.request, job.name, job.priority, job.is_discovered)
            for job in jobs_of(file, sides)
        ]
        return found, replicas.MissingSources()
    sources = [absolute(one) for one in source]
    missing = replicas.missing_sources(sources, sides.source)
    return replicas.replicas_below(absolute(target), sources, sides, write_warning), missing


def _unmounted(source: str) -> str:
    """Return the warning for a --source that may be misspelled, or on a filesystem that is lost."""
    return (
        f"--source {source} is not there, and neither is the directory above it: it may not be"
        " mounted. The jobs below it were not looked for"
    )


def _refuse_missing(sources: Sequence[str]) -> None:
    """Raise `NotThere` if a --source is not there. Its jobs are not in the table."""
    if sources:
        raise NotThere(
            f"--source {', '.join(sources)} is not there, so the jobs below it were not looked for."
            " Give the directory of a job, or a root of such"
        )
