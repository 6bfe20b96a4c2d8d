"""The result of `doctor`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict

from cpreplicate.operations.doctor import Diagnosis, Finding
from cpreplicate.output.json import document
from cpreplicate.output.results import Forms
from cpreplicate.output.text import lines

_STATUS_WIDTH = len("warning")
_CHECK_WIDTH = len("source checkpoint")


def _text(diagnosis: Diagnosis) -> str:
    """Return a line for each check, with the remedy, and what they mean for a sync."""
    return lines([*map(_line, diagnosis.findings), "", *_summary(diagnosis)])


def _line(finding: Finding) -> str:
    named = f"{finding.status:<{_STATUS_WIDTH}}  {finding.check:<{_CHECK_WIDTH}}  {finding.message}"
    return f"{named}. {finding.remedy}" if finding.remedy else named


def _summary(diagnosis: Diagnosis) -> Iterator[str]:
    counts = Counter(finding.status for finding in diagnosis.findings)
    counted = ", ".join(f"{count} {status}" for status, count in counts.items())
    if diagnosis.exit_code:
        yield f"a sync would end with exit code {diagnosis.exit_code} ({counted})"
    else:
        yield f"a sync could run ({counted})"


def _json(diagnosis: Diagnosis) -> str:
    """Return the result of `doctor --output json`."""
    return document(
        {
            "source": diagnosis.source,
            "target_root": diagnosis.target_root,
            "exit_code": diagnosis.exit_code,
            "checks": list(map(asdict, diagnosis.findings)),
        }
    )


def _ndjson(diagnosis: Diagnosis) -> str:
    """Return the result of `doctor --output ndjson`: an object per check."""
    return "\n".join(json.dumps(asdict(finding)) for finding in diagnosis.findings)


FORMS = Forms(_text, _json, _ndjson)
