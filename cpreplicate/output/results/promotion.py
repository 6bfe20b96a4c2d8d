"""The result of `promote`."""

from __future__ import annotations

import json
from typing import Any

from cpreplicate.core.start import yaml
from cpreplicate.operations.upkeep.promote import Promotion
from cpreplicate.output import positions
from cpreplicate.output.json import document, timestamp
from cpreplicate.output.parts import starting_fields, warning_lines
from cpreplicate.output.results import Forms, kafka_check, verification
from cpreplicate.output.text import lines


def _text(promotion: Promotion) -> str:
    """Return how to start the job, or what is wrong with the replica."""
    verified = verification.text_of(promotion.verification)
    warnings, start = warning_lines(promotion.warnings), promotion.starting
    found, checked = promotion.positions, promotion.kafka
    warnings = [*positions.parts_of(found), *kafka_check.parts_of(checked), *warnings]
    if start is None:
        is_restorable = promotion.verification.restorable
        reason = "it can be promoted" if is_restorable else "not promoted"
        unchanged = f"{reason}: the replica was left unchanged"
        return "\n\n".join([verified, *warnings, unchanged])
    how = lines(
        [
            f"sealed {promotion.sealed}; start the job from it in one of these ways",
            f"({start.restore.reason}):",
            f"    {start.restore.command}",
            f"    POST /jars/<jar>/run {json.dumps(start.rest)}",
            "    FlinkDeployment (Kubernetes operator):",
            *(f"        {line}" for line in yaml(start.deployment).splitlines()),
        ]
    )
    return "\n\n".join([verified, *warnings, how])


def _json(promotion: Promotion) -> str:
    """Return the result of `promote --output json`."""
    return document(fields(promotion))


def fields(promotion: Promotion) -> dict[str, Any]:
    """Return the fields of a promotion in JSON."""
    start = promotion.starting
    return {
        "replica": promotion.verification.replica,
        "checkpoint": promotion.checkpoint,
        "checkpoint_completed": timestamp(promotion.verification.completed),
        "promoted": start is not None,
        "sealed": promotion.sealed,
        "restore": None if start is None else starting_fields(start),
        "warnings": list(promotion.warnings),
        "verification": verification.fields(promotion.verification),
        **positions.fields(promotion.positions),
        "kafka": kafka_check.fields(promotion.kafka),
    }


FORMS = Forms(_text, _json, ndjson=_json)
