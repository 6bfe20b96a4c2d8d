"""Every word that a person or a script reads. stdout carries the result, stderr the narration."""

from __future__ import annotations

import sys
from typing import Literal

from cpreplicate.inspect import Inspection, ReferenceRow
from cpreplicate.output import machine, text
from cpreplicate.replicate import Report
from cpreplicate.verify import Verification

Form = Literal["text", "json", "ndjson"]

__all__ = ["Form", "complain", "narrate", "show_inspection", "show_references", "show_report", "show_verification"]


def narrate(line: str) -> None:
    """What happens meanwhile."""
    print(line, file=sys.stderr, flush=True)


def complain(line: str) -> None:
    """Why it ended: one line, `cpreplicate: error: …`."""
    print(f"cpreplicate: error: {line}", file=sys.stderr, flush=True)


def show_inspection(inspection: Inspection, form: Form) -> None:
    """The result of `inspect`."""
    _print(text.inspection(inspection) if form == "text" else machine.inspection(inspection))


def show_references(rows: list[ReferenceRow], form: Form) -> None:
    """The result of `inspect --refs`."""
    _print(text.references(rows) if form == "text" else machine.rows(rows, form))


def show_report(report: Report, form: Form, actions: bool) -> None:
    """The result of `diff` and `sync`; with `actions`, every file."""
    if form == "ndjson":
        _print(machine.rows(report.plan.actions, form))
    else:
        _print(text.report(report, actions) if form == "text" else machine.report(report, actions))


def show_verification(verification: Verification, form: Form) -> None:
    """The result of `verify`."""
    _print(text.verification(verification) if form == "text" else machine.verification(verification))


def _print(result: str) -> None:
    if result:
        print(result, flush=True)
