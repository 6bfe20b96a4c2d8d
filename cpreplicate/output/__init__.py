"""Every word that a person or a script reads. stdout carries the result, stderr the narration.

Each `show_…` returns the error if stdout cannot take the result, so that its command can choose the
exit code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal

from cpreplicate.operations.inspect import Inspection, ReferenceRow
from cpreplicate.operations.sync import Report
from cpreplicate.operations.verify import Verification
from cpreplicate.output import json as json_output
from cpreplicate.output import text
from cpreplicate.output.streams import write_message, write_messages, write_result
from cpreplicate.runners import ShowProgress

if TYPE_CHECKING:
    from cpreplicate.operations.fleet import FleetReport
    from cpreplicate.operations.promote import Promotion
    from cpreplicate.operations.relocate import Relocation
    from cpreplicate.operations.sweep import Sweep
    from cpreplicate.output import progress

Form = Literal["text", "json", "ndjson"]

__all__ = [
    "Form",
    "complain",
    "narrate",
    "narrator",
    "show_fleet",
    "show_inspection",
    "show_progress",
    "show_promotion",
    "show_references",
    "show_relocation",
    "show_report",
    "show_sweep",
    "show_verifications",
    "warn",
    "write_messages",
]


def narrate(line: str) -> None:
    """Print what happens meanwhile to stderr."""
    write_message(line)


def show_fleet(done: FleetReport, form: Form) -> OSError | None:
    """The result of `fleet`."""
    from cpreplicate.output import fleet

    return _print(
        {"text": fleet.fleet_text, "json": fleet.fleet_json, "ndjson": fleet.fleet_ndjson}[form](
            done
        )
    )


def narrator(progress: str) -> Callable[[str], None]:
    """How to narrate beside progress of a form: beside events as events."""
    return _narrate_as_event if progress == "ndjson" else narrate


def show_progress(form: progress.Form) -> ShowProgress | None:
    """What shows how far a run is, in a form."""
    from cpreplicate.output import progress

    return progress.progress(form)


def _narrate_as_event(line: str) -> None:
    from cpreplicate.output import progress

    narrate(progress.narration(line))


def complain(line: str) -> None:
    """Print why the run ended, as one line: `cpreplicate: error: …`."""
    write_message(f"cpreplicate: error: {line}")


def warn(line: str) -> None:
    """Print what went wrong without ending the run, as one line: `cpreplicate: warning: …`."""
    write_message(f"cpreplicate: warning: {line}")


def show_inspection(inspection: Inspection, form: Form) -> OSError | None:
    """The result of `inspect`."""
    return _print(
        text.inspection(inspection) if form == "text" else json_output.inspection(inspection)
    )


def show_references(rows: list[ReferenceRow], form: Form) -> OSError | None:
    """The result of `inspect --refs`."""
    return _print(text.references(rows) if form == "text" else json_output.rows(rows, form))


def show_report(report: Report, form: Form, actions: bool) -> OSError | None:
    """The result of `diff` and `sync`; with `actions`, every file."""
    if form == "ndjson":
        return _print(json_output.rows(report.plan.actions, form))
    return _print(
        text.report(report, actions) if form == "text" else json_output.report(report, actions)
    )


def show_verifications(found: Sequence[Verification], form: Form) -> OSError | None:
    """The result of `verify`: of one checkpoint an object.

    Of several an array, or an object a line.
    """
    if form == "text":
        return _print("\n\n".join(map(text.verification, found)))
    objects = [json_output.verification(each) for each in found]
    return _print(
        f"[{', '.join(objects)}]" if form == "json" and len(objects) > 1 else "\n".join(objects)
    )


def show_sweep(found: Sweep, form: Form, actions: bool) -> OSError | None:
    """The result of `sweep`; with `actions`, every file."""
    # it and what it tells of take time that a sync with nothing to do has not
    from cpreplicate.output import (
        maintenance,
    )

    if form == "ndjson":
        return _print(json_output.rows(found.deletes, form))
    return _print(
        maintenance.sweep_text(found, actions)
        if form == "text"
        else maintenance.sweep_json(found, actions)
    )


def show_relocation(done: Relocation, form: Form) -> OSError | None:
    """The result of `relocate`."""
    from cpreplicate.output import maintenance

    return _print(
        maintenance.relocation_text(done) if form == "text" else maintenance.relocation_json(done)
    )


def show_promotion(done: Promotion, form: Form) -> OSError | None:
    """The result of `promote`."""
    from cpreplicate.output import maintenance

    return _print(
        maintenance.promotion_text(done) if form == "text" else maintenance.promotion_json(done)
    )


def _print(result: str) -> OSError | None:
    return write_result(result) if result else None
