"""The `list` command."""

from __future__ import annotations

from typing import Any

import click

from cpreplicate.cli.commands.replication import cli
from cpreplicate.cli.options import options, upkeep_options
from cpreplicate.cli.options.option import files, location
from cpreplicate.cli.running import exit_codes
from cpreplicate.cli.running.report_file import page_writer
from cpreplicate.cli.running.requests import sides_of, start_narration
from cpreplicate.cli.running.results import show_read
from cpreplicate.cli.running.selection import select_replica
from cpreplicate.errors import NotThere


@cli.command(
    "list",
    short_help="Show the checkpoints of replicas as points in time.",
    only_reads=True,
    examples=(
        "cpreplicate list hdfs://dcB/flink/replicas",
        "cpreplicate list hdfs://dcB/flink/replicas --job orders",
    ),
    exit_codes={
        **exit_codes.READ,
        1: "none of the replicas can be read",
        6: "--job is the name of several jobs",
    },
    essentials="job positions source-conf target-conf report output",
    options=(
        upkeep_options.LISTED_JOB,
        options.POSITIONS,
        *options.CONF,
        *options.ACCESS,
        options.REPORT,
        *options.OUTPUT,
    ),
)
@click.argument("target_root", callback=location, shell_complete=files)
def list_(
    target_root: str, job: str | None, with_positions: bool, output: Any, **values: Any
) -> int:
    """Show the checkpoints of replicas: when each was completed, its size, and what it adds.

    TARGET_ROOT is that of `sync`, or a REPLICA in it. A checkpoint adds the bytes that no other one
    of its replica references. Change nothing.
    """
    from cpreplicate.operations.replicas import points as operation
    from cpreplicate.output.log import write_warning

    start_narration(values)
    sides = sides_of(values)
    if job is None:
        reading = operation.read_points_below(target_root, sides, with_positions, write_warning)
    else:
        chosen = select_replica(target_root, job, sides.target)
        reading = operation.read_points([chosen.replica, *chosen.others], sides, with_positions)
    if next(iter(reading), None) is None:
        raise NotThere(
            f"{target_root} holds no replica. TARGET_ROOT is the directory that `sync` was given"
        )
    page = page_writer(values["report_file"], lambda: reading.complete)
    code = show_read(reading, output, page=page)
    return code if any(replica.error is None for replica in reading) else 1
