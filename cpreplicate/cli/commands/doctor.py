"""The command that finds out whether a sync could run."""

from __future__ import annotations

from typing import Any

from cpreplicate.cli.commands.rebase import asked_kafka
from cpreplicate.cli.commands.replication import cli, requested_sync, source_and_target
from cpreplicate.cli.options import options, upkeep_options
from cpreplicate.cli.running import exit_codes
from cpreplicate.cli.running.requests import configured_directories, start_narration
from cpreplicate.cli.running.results import show_read

_CODES = {
    **exit_codes.REPLICATE,
    0: "a sync could run",
    1: "a check failed: no permission, no Java",
}


@cli.command(
    short_help="Check whether a sync could run, and what to change if not.",
    only_reads=True,
    examples=(
        "cpreplicate doctor hdfs://dcA/flink/checkpoints/55d1... hdfs://dcB/flink/replicas",
        "cpreplicate doctor --runner spark --master yarn SOURCE TARGET_ROOT",
    ),
    exit_codes=_CODES,
    shows="sync",
    essentials=(
        "remap adopt source-conf target-conf source-keytab target-keytab runner master conf "
        "max-delete job kafka kafka-conf retry-for output verbose"
    ),
    options=(
        *options.PLAN,
        *options.CONF,
        *upkeep_options.DIAGNOSED_KAFKA,
        options.MAX_DELETE,
        options.OF_JOB,
        *options.CHANGE,
        *options.WRITING,
        *options.ACCESS_OF_DOCTOR,
        *options.OUTPUT,
    ),
)
@source_and_target
def doctor(output: Any, **values: Any) -> int:
    """Check whether a sync with these options could run, and print what to change if not.

    Prints a line for each check: ok, warning, failed or skipped. The exit code is that with which
    the sync would end. The source is only read. At the target, one directory is created and removed
    again.
    """
    from cpreplicate.operations import doctor as operation

    start_narration(values)
    configured = operation.Configured(
        configured_directories(values["source_conf"]), configured_directories(values["target_conf"])
    )
    diagnosis = operation.diagnose(requested_sync(values), configured, asked_kafka(values))
    code = show_read(diagnosis, output)
    return diagnosis.exit_code or code
