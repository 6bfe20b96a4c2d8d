"""The command that finds out whether a sync could run."""

from __future__ import annotations

from typing import Any

from cpreplicate.cli import options, storage_options
from cpreplicate.cli.commands import cli
from cpreplicate.cli.requests import start_narration, storage_of, sync_request
from cpreplicate.cli.results import read_code

_CODES = {
    **options.REPLICATE_CODES,
    0: "a sync could run",
    1: "a check failed: no permission, no Java",
}


@cli.command(
    short_help="Check whether a sync could run, and what to change if not.",
    examples=(
        "cpreplicate doctor hdfs://dcA/flink/checkpoints/55d1... hdfs://dcB/flink/replicas",
        "cpreplicate doctor --runner spark --master yarn SOURCE TARGET_ROOT",
    ),
    exit_codes=_CODES,
)
@options.what_to_plan
@options.max_delete
@options.runner_options
@storage_options.writing
@storage_options.client_and_limits
@storage_options.retry_for("5s")
@options.output_options
def doctor(output: Any, **values: Any) -> int:
    """Check whether a sync with these options could run, and print what to change if not.

    Prints a line for each check: ok, warning, failed or skipped. The exit code is that with which
    the sync would end. The source is only read. At the target, one directory is created and removed
    again.
    """
    from cpreplicate.operations import doctor as operation
    from cpreplicate.output import show_diagnosis

    start_narration(values)
    storage = storage_of(values)
    configured = operation.Configured(
        storage.directories(values["source_conf"]), storage.directories(values["target_conf"])
    )
    diagnosis = operation.diagnose(sync_request(values), configured)
    code = read_code(show_diagnosis(diagnosis, output))
    return diagnosis.exit_code or code
