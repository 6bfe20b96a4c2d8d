"""Findings of `doctor`, and how checks that depend on each other are run."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, NamedTuple, TypeVar

from cpreplicate import errors
from cpreplicate.errors import exit_code_of

FindingStatus = Literal["ok", "warning", "failed", "skipped"]
_NO_NEWS = re.compile(r"Nothing was [a-z, ]+(?:\.|$)")  # of a check it is certain
_RIGHTS = "Grant the user of this run the right to do this, or run with other credentials"
_UNSAID = "See docs/doctor.md"

_BLOCKING = ("failed", "skipped")

T = TypeVar("T")


@dataclass(frozen=True)
class Finding:
    """The result of one check.

    `remedy` is what the operator can do, set where the status is `failed` or `warning`. `exit_code`
    is that with which a sync would end because of this, 0 unless `failed`.
    """

    check: str
    status: FindingStatus
    message: str
    remedy: str | None = None
    exit_code: int = 0


@dataclass(frozen=True)
class Diagnosis:
    """The findings about a source and a target root, in the order in which a sync meets them."""

    source: str
    target_root: str
    findings: tuple[Finding, ...]

    @property
    def exit_code(self) -> int:
        """The code with which a sync would end: of the first failed check, 0 if none failed."""
        return next((each.exit_code for each in self.findings if each.status == "failed"), 0)


class Result(NamedTuple):
    """What a check found: `ok`, unless it is a `warning`, is `skipped`, or an exit code is set."""

    message: str
    remedy: str | None = None
    exit_code: int = 0
    status: FindingStatus = "ok"


def warning(message: str, remedy: str) -> Result:
    """Return the result of a check that found what need not stop a sync."""
    return Result(message, remedy, status="warning")


def failure(message: str, remedy: str, exit_code: int) -> Result:
    """Return the result of a check that found why a sync would end with this code."""
    return Result(message, remedy, exit_code, "failed")


def skipped(message: str) -> Result:
    """Return the result of a check that was not needed or not possible."""
    return Result(message, status="skipped")


@dataclass(frozen=True)  # Python 3.10 has no generic NamedTuple
class Check(Generic[T]):
    """A check by its name; it is skipped if an earlier one that it `needs` failed or was skipped.

    `remedy` is what to do about an error that does not name a remedy itself.
    """

    name: str
    run: Callable[[T], Result]
    needs: tuple[str, ...] = ()
    remedy: str = _UNSAID


def run_checks(checks: Sequence[Check[T]], subject: T) -> tuple[Finding, ...]:
    """Run all checks on a subject and return their findings, whatever any of them raises."""
    findings: dict[str, Finding] = {}
    for check in checks:
        needed = [findings[name] for name in check.needs]
        blocking = next((finding for finding in needed if finding.status in _BLOCKING), None)
        result = _blocked(blocking) if blocking is not None else _result(check, subject)
        findings[check.name] = Finding(
            check.name, result.status, result.message, result.remedy, result.exit_code
        )
    return tuple(findings.values())


def _blocked(by: Finding) -> Result:
    outcome = "failed" if by.status == "failed" else "was skipped"
    return skipped(f"needs the check '{by.check}', which {outcome}")


def _result(check: Check[T], subject: T) -> Result:
    try:
        return check.run(subject)
    except Exception as error:  # noqa: BLE001  # the other checks go on
        message, remedy = in_two(errors.described(error))
        general = _RIGHTS if isinstance(error, PermissionError) else check.remedy
        return failure(message, remedy or general, exit_code_of(error))


def in_two(text: str) -> tuple[str, str | None]:
    """Return what happened and what to do about it, from the message of an error.

    Its first sentence says the one, the others the other.
    """
    text = _NO_NEWS.sub("", text).replace("  ", " ").strip()
    message, _, remedy = text.partition(". ")
    return message.rstrip("."), remedy.rstrip(".") or None
