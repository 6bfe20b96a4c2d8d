"""The results of `rebase`."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

from cpreplicate.core import uri
from cpreplicate.core.positions.offsets import Move
from cpreplicate.core.sizes import counted
from cpreplicate.operations.kafka.part_files import place_of
from cpreplicate.operations.kafka.rebase import Rebase
from cpreplicate.output.json import document
from cpreplicate.output.parts import restore_text, starting_fields, warning_lines
from cpreplicate.output.results import Forms
from cpreplicate.output.text import columns, lines, table

_HEAD = ("source", "topic", "partition", "from", "to", "lost", "doubled")


def _text(result: Rebase) -> str:
    """Return what was changed, and how a job is started from the derived checkpoint."""
    moves = [move for move in result.moves if _is_changed(move)]
    start = result.starting
    facts = [
        ("replica", result.replica),
        ("checkpoint", result.checkpoint),
        ("derived", result.name if start is not None else f"{result.name}; nothing was written"),
        ("positions", _positions(result, len(moves))),
    ]
    parts = [columns(facts)]
    if moves:
        parts.append(table(_HEAD, [_row(move, result) for move in moves]))
    if result.dropped:
        parts.append(lines(_of_dropped(result)))
    parts += [lines(each) for each in _of_files(result)]
    parts += warning_lines(result.warnings)
    if start is not None and result.is_sealed:
        parts.append(restore_text(start.restore, "start the job from it with"))
    elif start is not None:
        parts.append(lines(_next_steps(result)))
    return "\n\n".join(parts)


def _next_steps(result: Rebase) -> list[str]:
    replica, name = shlex.quote(result.replica), uri.name(result.name)
    return [
        "hand it over to a job, or remove it, with",
        f"    cpreplicate promote {replica} --checkpoint {result.name}",
        f"    cpreplicate rebase {replica} --forget {name}",
    ]


def _positions(result: Rebase, changed: int) -> str:
    lost, doubled = _sum(result, "lost"), _sum(result, "doubled")
    counts = (
        ""
        if lost is None
        else f"; {counted(lost, 'record is', 'records are')} lost, {doubled} doubled"
    )
    return f"{changed} of {len(result.moves)} change{counts}"


def _sum(result: Rebase, name: str) -> int | None:
    """Return the sum of a count over all positions, None if it is not known of any."""
    known = [count for move in result.moves if (count := getattr(move, name)) is not None]
    return sum(known) if known else None


def _is_changed(move: Move) -> bool:
    return move.offset is not None or move.topic != move.position.topic


def _row(move: Move, result: Rebase) -> tuple[str, ...]:
    position = move.position
    before = position.marker if position.offset is None else str(position.offset)
    renamed = "" if move.topic == position.topic else f" (was {position.topic})"
    return (
        result.names.get(position.operator, position.operator),
        f"{move.topic}{renamed}",
        str(position.partition),
        before or "",
        "as before" if move.offset is None else str(move.offset),
        "" if move.lost is None else str(move.lost),
        "" if move.doubled is None else str(move.doubled),
    )


def _of_dropped(result: Rebase) -> list[str]:
    are = ("pending transaction is", "pending transactions are")
    return [
        f"{counted(len(result.dropped), *are)} left out. If it was not committed at the former"
        " Kafka, its output is missing:",
        *(
            f"    {each.transactional_id} (producer {each.producer_id}, epoch {each.epoch}) of"
            f" {result.names.get(each.operator, each.operator)}"
            for each in result.dropped
        ),
    ]


def _of_files(result: Rebase) -> Iterator[list[str]]:
    """Yield which part files are not resumed or committed any more, and what that means."""
    for kind, meaning in _MEANINGS.items():
        files = [each for each in result.dropped_files if each.kind == kind]
        if files:
            size, is_one = sum(each.length for each in files), len(files) == 1
            noun, verb = ("file", "is") if is_one else ("files", "are")
            yield [
                f"{len(files)} part {noun} {_STATES[kind]} {verb} left out,"
                f" {counted(size, 'byte')}: {meaning}",
                *(f"    {place_of(each)} ({counted(each.length, 'byte')})" for each in files),
            ]


_STATES = {"in-progress": "in progress", "pending": "pending"}
_MEANINGS = {
    "in-progress": "the records in them are missing, unless they are added by hand:",
    "pending": "where they were not committed since then, the records in them are missing:",
}


def _json(result: Rebase) -> str:
    """Return the result of `rebase --output json`."""
    return document(
        {
            "replica": result.replica,
            "checkpoint": result.checkpoint,
            "derived": result.name,
            "written": result.starting is not None,
            "positions": [_position(move) for move in result.moves],
            "lost": _sum(result, "lost"),
            "doubled": _sum(result, "doubled"),
            "dropped": [each._asdict() for each in result.dropped],
            "dropped_files": [each._asdict() for each in result.dropped_files],
            "restore": None if result.starting is None else starting_fields(result.starting),
            "warnings": list(result.warnings),
        }
    )


def _position(move: Move) -> dict[str, Any]:
    return {
        **move.position._asdict(),
        "new_topic": move.topic,
        "new_offset": move.offset,
        "lost": move.lost,
        "doubled": move.doubled,
    }


FORMS = Forms(_text, _json, ndjson=_json)
