"""Everything that a person or a script reads: results on stdout, messages on stderr.

Each `show_…` returns the error if the result cannot be written to stdout, so that its command can
choose the exit code.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from cpreplicate.operations.inspect import Inspection, ReferenceRow
from cpreplicate.operations.sync.report import Report
from cpreplicate.operations.verify import Verification
from cpreplicate.output import json, text
from cpreplicate.output.log import (
    narrate,
    narrate_failure,
    narrate_in_file,
    write_error,
    write_lines,
    write_warning,
)
from cpreplicate.output.streams import write_messages, write_result
from cpreplicate.runners import ShowProgress

# Other modules of this package are imported when they are needed: a sync with nothing to do is
# quick without them.
if TYPE_CHECKING:
    from cpreplicate.operations.doctor import Diagnosis
    from cpreplicate.operations.jobs.fleet import FleetReport
    from cpreplicate.operations.points import ReplicaPoints
    from cpreplicate.operations.replica_status import FleetStatus
    from cpreplicate.operations.upkeep.promote import Promotion
    from cpreplicate.operations.upkeep.relocate import Relocation
    from cpreplicate.operations.upkeep.sweep import Sweep
    from cpreplicate.output import progress

Form = Literal["text", "json", "ndjson"]

__all__ = [
    "Form",
    "narrate",
    "narrate_failure",
    "narrate_in_file",
    "show_diagnosis",
    "show_fleet",
    "show_inspection",
    "show_points",
    "show_progress",
    "show_promotion",
    "show_references",
    "show_relocation",
    "show_replicated",
    "show_report",
    "show_status",
    "show_sweep",
    "show_verifications",
    "write_error",
    "write_lines",
    "write_messages",
    "write_warning",
]


def show_progress(form: progress.Form, in_file: bool) -> ShowProgress | None:
    """Return the function that shows progress in a form, and in the log file.

    Returns None if it is to be shown nowhere.
    """
    from cpreplicate.output import progress

    return progress.progress(form, in_file)


def show_inspection(inspection: Inspection, form: Form) -> OSError | None:
    """Print the result of `inspect`."""
    if form == "text":
        return _print(text.inspection(inspection))
    return _print(json.inspection_json(inspection))


def show_references(rows: list[ReferenceRow], form: Form) -> OSError | None:
    """Print the result of `inspect --refs`."""
    return _print(text.references(rows) if form == "text" else json.rows_json(rows, form))


def show_report(report: Report, form: Form, actions: bool) -> OSError | None:
    """Print the result of `diff` or `sync`; with `actions`, every file."""
    if form == "text":
        return _print(text.report(report, actions))
    if form == "ndjson":
        return _print(json.rows_json(report.plan.actions, form))
    return _print(json.report_json(report, actions))


def show_replicated(job: str, label: str, report: Report, form: Form) -> OSError | None:
    """Print that a service replicated a checkpoint: a line of narration, or a JSON object.

    `label` is the name of the job as the lines of the log show it.
    """
    if form == "text":
        narrate(f"{label}: {text.replicated(report)}")
        return None
    return _print(json.replicated_json(job, report))


def show_verifications(verifications: Sequence[Verification], form: Form) -> OSError | None:
    """Print the result of `verify`: an object for one checkpoint, an array for several.

    As ndjson, an object per line.
    """
    if form == "text":
        return _print("\n\n".join(map(text.verification, verifications)))
    objects = list(map(json.verification_json, verifications))
    if form == "json" and len(objects) > 1:
        return _print(f"[{', '.join(objects)}]")
    return _print("\n".join(objects))


def show_sweep(sweep: Sweep, form: Form, actions: bool) -> OSError | None:
    """Print the result of `sweep`; with `actions`, every file."""
    from cpreplicate.output import maintenance

    if form == "text":
        return _print(maintenance.sweep_text(sweep, actions))
    if form == "ndjson":
        return _print(json.rows_json(sweep.deletes, form))
    return _print(maintenance.sweep_json(sweep, actions))


def show_relocation(relocation: Relocation, form: Form) -> OSError | None:
    """Print the result of `relocate`."""
    from cpreplicate.output import maintenance

    if form == "text":
        return _print(maintenance.relocation_text(relocation))
    return _print(maintenance.relocation_json(relocation))


def show_promotion(promotion: Promotion, form: Form) -> OSError | None:
    """Print the result of `promote`."""
    from cpreplicate.output import maintenance

    if form == "text":
        return _print(maintenance.promotion_text(promotion))
    return _print(maintenance.promotion_json(promotion))


def show_fleet(report: FleetReport, form: Form) -> OSError | None:
    """Print the result of `fleet`."""
    from cpreplicate.output import fleet

    if form == "text":
        return _print(fleet.fleet_text(report))
    if form == "ndjson":
        return _print(fleet.fleet_ndjson(report))
    return _print(fleet.fleet_json(report))


def show_points(replicas: Sequence[ReplicaPoints], form: Form) -> OSError | None:
    """Print the result of `list`; as ndjson, an object per replica."""
    from cpreplicate.output import points

    if form == "text":
        return _print(points.points_text(replicas))
    if form == "ndjson":
        return _print(points.points_ndjson(replicas))
    return _print(points.points_json(replicas))


def show_status(status: FleetStatus, form: Form) -> OSError | None:
    """Print the result of `status`."""
    from cpreplicate.output import status as form_of

    if form == "text":
        return _print(form_of.status_text(status))
    if form == "ndjson":
        return _print(form_of.status_ndjson(status))
    return _print(form_of.status_json(status))


def show_diagnosis(diagnosis: Diagnosis, form: Form) -> OSError | None:
    """Print the result of `doctor`; as ndjson, an object per check."""
    from cpreplicate.output import doctor

    if form == "text":
        return _print(doctor.diagnosis_text(diagnosis))
    if form == "ndjson":
        return _print(doctor.diagnosis_ndjson(diagnosis))
    return _print(doctor.diagnosis_json(diagnosis))


def _print(result: str) -> OSError | None:
    return write_result(result) if result else None
