"""What is in the way of a start at another Kafka: a refusal of its own, and a part of a promotion.

Problems of the same kind are one row, which names the first partitions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from cpreplicate.core.positions.fingerprints import NO_FINGERPRINT, Verdict
from cpreplicate.core.positions.model import Position
from cpreplicate.core.positions.ranges import Problem, Trouble, checkable
from cpreplicate.core.sizes import counted
from cpreplicate.operations.kafka.check import Checked, KafkaCheck
from cpreplicate.output.json import document, timestamp
from cpreplicate.output.parts import warning_lines
from cpreplicate.output.results import Forms
from cpreplicate.output.text import columns, lines, table

_HEAD = ("checkpoint", "in the way", "of", "topic", "where")
_OF_RECORDS = ("topic", "partitions", "last record read, oldest", "newest")
_OF_PROOFS = ("checkpoint", "topic", "positions", "proven", "translated", "not proven")
_WORDS: Mapping[Trouble, str] = {
    "no-topic": "topic missing",
    "no-rights": "no right to describe",
    "no-partition": "partition missing",
    "beyond-end": "position beyond the end",
    "deleted": "position deleted",
    "skipped": "younger records skipped",
    "other-record": "another record",
    "pending": "transaction pending",
    "other-servers": "other servers",
    "unread": "state not read",
}
_SHOWN = 3  # partitions or transactions of a row


def _text(check: KafkaCheck) -> str:
    """Return what is in the way of each checkpoint, and the commands that solve it."""
    facts = columns([("replica", check.replica), ("kafka", _servers(check))])
    remedies = filter(None, map(_remedy, check.checked))
    shown = [facts, _table(check.checked), *_proof_parts(check.checked, check), *remedies]
    return "\n\n".join([*shown, *warning_lines(check.warnings)])


def parts_of(check: KafkaCheck | None) -> list[str]:
    """Return the parts of a text that show why a checkpoint was chosen: none without a check."""
    if check is None or check.chosen is None:
        return []
    chosen, newer = check.chosen.checkpoint, [each for each in check.checked if each.problems]
    reason = f"{chosen} was chosen: a job can go on from it at {_servers(check)}"
    records = [table(_OF_RECORDS, rows)] if (rows := list(_records(check.chosen))) else []
    records += _proof_parts(check.checked, check)
    if not newer:
        return [lines([reason]), *records]
    names = ", ".join(each.checkpoint for each in newer)
    return [
        lines([f"{reason}. From {names}, which are newer, it cannot:"]),
        _table(newer),
        *records,
    ]


def _proof_parts(every: Iterable[Checked], check: KafkaCheck) -> list[str]:
    """Return the table of what fingerprints show: none without fingerprints."""
    rows = [row for each in every if each.proofs for row in _proof_rows(each, check)]
    return [table(_OF_PROOFS, rows)] if rows else []


def _proof_rows(checked: Checked, check: KafkaCheck) -> Iterator[tuple[str, ...]]:
    """Yield of each topic how many positions are proven, and why the others are not."""
    topics: dict[str, list[Verdict | None]] = {}
    for position in checkable(checked.of.found, check.servers):
        if position.offset is not None:
            topics.setdefault(position.topic, []).append(checked.proofs.get(position))
    for topic, every in sorted(topics.items()):
        found = [each for each in every if each is not None]
        counts = [sum(each.kind == kind for each in found) for kind in ("proven", "translated")]
        left = [each for each in every if each is None or each.position is None]
        yield checked.checkpoint, topic, str(len(every)), *map(str, counts), _reasons(left)


def _reasons(left: Sequence[Verdict | None]) -> str:
    """Return how many positions are not proven, and why, the most frequent reason first."""
    reasons = Counter(NO_FINGERPRINT if each is None else each.reason for each in left)
    texts = [f"{count}: {reason}" for reason, count in reasons.most_common(_SHOWN)]
    more = len(reasons) - len(texts)
    return "; ".join(texts) + (f"; and {counted(more, 'other reason')}" if more > 0 else "")


def _records(checked: Checked) -> Iterator[tuple[str, ...]]:
    """Yield of which time the records before the positions are, by topic."""
    times: dict[str, list[float]] = {}
    for (topic, _), stamp in sorted(checked.stamps.items()):
        times.setdefault(topic, []).append(stamp.time)
    for topic, every in times.items():
        ages = tuple(_age(each, checked) for each in (min(every), max(every)))
        yield topic, str(len(every)), *ages


def _age(time: float, checked: Checked) -> str:
    """Return the time of a record, and how far from the checkpoint it is."""
    if checked.completed is None:
        return timestamp(time) or ""
    seconds = checked.completed - time
    side = "before" if seconds >= 0 else "after"
    return f"{timestamp(time)}, {abs(seconds) / 60:.1f} min {side} the checkpoint"


def lines_of(check: KafkaCheck) -> Iterator[str]:
    """Yield a line for each checkpoint: what is in the way, and the command that solves it."""
    for each in check.checked:
        kinds = ", ".join(dict.fromkeys(_WORDS[problem.trouble] for problem in each.problems))
        yield f"{each.checkpoint}: {kinds}: {each.command or 'no rebase solves this'}"


def _servers(check: KafkaCheck) -> str:
    return f"{check.servers}, the former Kafka" if check.is_same else check.servers


def _table(checked: Iterable[Checked]) -> str:
    return table(_HEAD, [row for each in checked for row in _rows(each)])


def _rows(checked: Checked) -> Iterator[tuple[str, ...]]:
    groups: dict[tuple[str, str, str], list[Problem]] = {}
    for each in checked.problems:
        topic = each.position.topic if each.position is not None else ""
        groups.setdefault((each.trouble, each.operator, topic), []).append(each)
    for (_, operator, topic), group in groups.items():
        name = checked.of.names.get(operator, operator)
        words = _WORDS[group[0].trouble]
        yield checked.checkpoint, words, name, topic, _where(group, checked)


def _where(group: Sequence[Problem], checked: Checked) -> str:
    """Return the first partitions or transactions of a row, and how many more there are."""
    first = group[0]
    if first.reason is not None:
        return first.reason
    if first.trouble == "other-servers" and first.position is not None:
        return f"{first.position.cluster}: {first.position.servers or 'servers not known'}"
    if first.trouble == "no-rights":
        return "the topic is there, but the user may not describe it: grant the right"
    if first.trouble == "no-topic" and first.position is not None:
        new = checked.remedy.topics.get(first.position.topic)
        return f"{new} is there" if new is not None else "no topic there has such a name"
    more = f" and {len(group) - _SHOWN} more" if len(group) > _SHOWN else ""
    return ", ".join(map(_place, group[:_SHOWN])) + more + _nearest(group, checked)


def _nearest(group: Sequence[Problem], checked: Checked) -> str:
    """Return of which time the records are at which a group of positions would be clamped."""
    times = [
        stamp.time
        for each in group
        if each.position is not None and each.trouble in ("beyond-end", "deleted")
        if (stamp := checked.stamps.get((each.position.topic, each.position.partition))) is not None
    ]
    return f"; the nearest record is of {_age(min(times), checked)}" if times else ""


def _place(problem: Problem) -> str:
    if problem.transaction is not None:
        return problem.transaction.transactional_id
    position, found = problem.position, problem.range
    assert position is not None
    if found is None:
        return f"partition {position.partition}"
    if problem.skipped is not None:
        return (
            f"partition {position.partition} ({position.offset}, {problem.skipped} from"
            f" {problem.later} on are younger than the checkpoint)"
        )
    if problem.trouble == "other-record":
        return f"partition {position.partition} ({position.offset}, {_elsewhere(problem.verdict)})"
    bound = (
        f"ends at {found.end}" if problem.trouble == "beyond-end" else f"begins at {found.begin}"
    )
    return f"partition {position.partition} ({position.offset}, {bound})"


def _elsewhere(verdict: Verdict | None) -> str:
    """Return where the record before a position is."""
    if verdict is None or verdict.position is None:
        return (verdict and verdict.reason) or "its record is not known"
    return f"the same record is before {verdict.position}"


def _remedy(checked: Checked) -> str | None:
    """Return the command that solves what is in the way of a checkpoint, and what it leaves."""
    unsolved = checked.remedy.unsolved
    kinds = ", ".join(dict.fromkeys(_WORDS[each.trouble] for each in unsolved))
    if checked.command is None:
        return lines([f"{checked.checkpoint}: no rebase solves this: {kinds}"]) if kinds else None
    which = f"solves this in part, but not: {kinds}" if kinds else "solves this"
    return lines([f"{checked.checkpoint}: a rebase {which}", f"    {checked.command}"])


def _json(check: KafkaCheck) -> str:
    """Return the refusal of `promote --kafka --output json`."""
    return document(
        {
            "replica": check.replica,
            "checkpoint": None,
            "promoted": False,
            "kafka": fields(check),
            "warnings": list(check.warnings),
        }
    )


def fields(check: KafkaCheck | None) -> dict[str, Any] | None:
    """Return the JSON object of a check."""
    if check is None:
        return None
    return {
        "servers": check.servers,
        "same_kafka": check.is_same,
        "chosen": check.chosen.checkpoint if check.chosen is not None else None,
        "checked": [_checked(each) for each in check.checked],
    }


def _checked(checked: Checked) -> dict[str, Any]:
    return {
        "checkpoint": checked.checkpoint,
        "checkpoint_completed": timestamp(checked.completed),
        "problems": [_problem(each, checked) for each in checked.problems],
        "rebase": checked.command,
        "rebase_suffices": checked.command is not None and not checked.remedy.unsolved,
        "fingerprints": [_proof(*each) for each in checked.proofs.items()],
    }


def _proof(position: Position, verdict: Verdict) -> dict[str, Any]:
    return {
        "operator": position.operator,
        "topic": position.topic,
        "partition": position.partition,
        "offset": position.offset,
        "verdict": verdict.kind,
        "offset_there": verdict.position,
        "other_record": verdict.is_other,
        "reason": verdict.reason,
        "seconds_behind": verdict.late,
    }


def _problem(problem: Problem, checked: Checked) -> dict[str, Any]:
    position, transaction, found = problem.position, problem.transaction, problem.range
    return {
        "problem": problem.trouble,
        "operator": problem.operator,
        "topic": position and position.topic,
        "partition": position and position.partition,
        "offset": position and position.offset,
        "begin": found and found.begin,
        "end": found and found.end,
        "later": problem.later,
        "skipped": problem.skipped,
        "record_time": _time_of(position, checked),
        "renamed": checked.remedy.topics.get(position.topic) if position is not None else None,
        "cluster": position and position.cluster,
        "servers": position and position.servers,
        "transactional_id": transaction and transaction.transactional_id,
        "reason": problem.verdict.reason if problem.verdict is not None else problem.reason,
    }


def _time_of(position: Position | None, checked: Checked) -> str | None:
    """Return the time of the last record before a position, or of the nearest that exists."""
    if position is None:
        return None
    stamp = checked.stamps.get((position.topic, position.partition))
    return None if stamp is None else timestamp(stamp.time)


FORMS = Forms(_text, _json, ndjson=_json)
