"""The result of `promote`."""

from __future__ import annotations

from typing import Any

from cpreplicate.core.start import Starting
from cpreplicate.operations.handover.promote import Promotion
from cpreplicate.operations.replicas.source_look import Behind
from cpreplicate.output import positions
from cpreplicate.output.json import document, timestamp
from cpreplicate.output.parts import start_lines, starting_fields, warning_lines
from cpreplicate.output.results import Forms, kafka_check, verification
from cpreplicate.output.text import duration, lines

UNKNOWN = "?"


def _text(promotion: Promotion) -> str:
    """Return how to start the job, or what is wrong with the replica."""
    verified = verification.text_of(promotion.verification)
    warnings, start = warning_lines(promotion.warnings), promotion.starting
    found, checked = promotion.positions, promotion.kafka
    is_warned = start is not None
    held = positions.parts_of(found, warns=not is_warned)
    warnings = [*held, *kafka_check.parts_of(checked), *warnings]
    lag = _lag_lines(promotion.behind, promotion.sealed is not None)
    parts = [verified, *lag, *warnings]
    if start is None:
        return "\n\n".join([*parts, "not promoted: the replica was left unchanged"])
    if not promotion.is_promoted and promotion.sealed is None:
        return "\n\n".join([*parts, _planned(start)])
    how = lines(
        [
            f"sealed {promotion.sealed}; start the job from it in one of these ways",
            f"({start.restore.reason}):",
            *start_lines(start),
        ]
    )
    return "\n\n".join([*parts, how])


def _planned(start: Starting) -> str:
    """Return how the job would be started from a replica that is not sealed yet."""
    return lines(
        [
            "it can be promoted: the replica was left unchanged. Once it is promoted, the job is",
            f"started so ({start.restore.reason}):",
            f"    {start.restore.command}",
        ]
    )


def _lag_lines(behind: Behind | None, is_sealed: bool) -> list[str]:
    """Return a line with how far the source is ahead of a checkpoint."""
    if behind is None:
        return []
    newest, count = behind.look.newest, behind.checkpoints
    if behind.is_ended:
        return [lines([f"lag: ?: {behind.source} holds no checkpoint any more"])]
    if count is None:
        place = "" if behind.source is None else f" {behind.source}"
        return [lines([f"lag: ?: the source{place} was not seen: {behind.look.error}"])]
    if not count or newest is None:
        return [lines([f"lag: 0 s: {behind.source} holds nothing newer"])]
    seconds = UNKNOWN if behind.seconds is None else duration(behind.seconds)
    advice = "" if is_sealed else ": to take it along, sync first"
    return [
        lines(
            [
                f"lag: {seconds} ({count}): the newest of {behind.source} is"
                f" chk-{newest.checkpoint_id}. What the job did since then is done again{advice}"
            ]
        )
    ]


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
        "dry_run": promotion.is_dry_run,
        "promoted": promotion.is_promoted,
        "sealed": promotion.sealed,
        "restore": None if start is None else _restore(start, promotion.sealed is not None),
        **_lag_fields(promotion.behind),
        "warnings": list(promotion.warnings),
        "verification": verification.fields(promotion.verification),
        **positions.fields(promotion.positions),
        "kafka": kafka_check.fields(promotion.kafka),
    }


def _restore(start: Starting, is_sealed: bool) -> dict[str, Any]:
    """Return how to start the job; what an operator of Kubernetes applies only of a sealed one."""
    found = starting_fields(start)
    return found if is_sealed else {**found, "deployment": None, "snapshot": None}


def _lag_fields(behind: Behind | None) -> dict[str, Any]:
    """Return how far a source is ahead, with nulls for what is not known, never 0."""
    newest = None if behind is None else behind.look.newest
    seconds = None if behind is None else behind.seconds
    return {
        "lag_seconds": None if seconds is None else round(seconds, 3),
        "checkpoints_behind": None if behind is None else behind.checkpoints,
        "source": None if behind is None else behind.source,
        "source_checkpoint_id": None if newest is None else newest.checkpoint_id,
        "source_error": None if behind is None else behind.look.error,
    }


FORMS = Forms(_text, _json, ndjson=_json)
