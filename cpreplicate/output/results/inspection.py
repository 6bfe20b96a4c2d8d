"""The result of `inspect`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from itertools import compress
from typing import Any

from cpreplicate.core.sizes import counted, size
from cpreplicate.operations.inspect.dating import Dating
from cpreplicate.operations.inspect.depending import Dependency
from cpreplicate.operations.inspect.earlier import Increment
from cpreplicate.operations.inspect.summary import Inspection, OperatorSummary, PackSummary, Skew
from cpreplicate.output import positions
from cpreplicate.output.json import document, timestamp
from cpreplicate.output.log import is_verbose
from cpreplicate.output.results import Forms
from cpreplicate.output.text import columns, duration, lines, table

_HEAD = ("operator id", "name", "uid", "parallelism", "max", "files", "bytes")
_SKEW = ("largest subtask", "median", "ratio")
_NO_SKEW = ("", "", "")
_MARK = " !"


def _text(result: Inspection) -> str:
    """Return what a checkpoint holds: totals, a row for each operator, and bytes by kind."""
    parts = [
        columns(_facts(result)),
        _operators(result.operators),
        _kinds(result),
        lines(_skewed(result.operators)),
        *positions.parts_of(result.positions),
    ]
    return "\n\n".join(filter(None, parts))


def _facts(result: Inspection) -> Iterator[tuple[str, str]]:
    yield "checkpoint", result.checkpoint
    version = f", metadata v{result.version}" if is_verbose() else ""
    yield "id", f"{result.checkpoint_id}{version}"
    yield (
        "state",
        (
            f"{counted(result.files, 'file')}, {size(result.bytes)}; {size(result.inline_bytes)}"
            f" inline; {counted(result.handles, 'handle')}"
        ),
    )
    if result.increment is not None:
        yield "increment", _increment(result.increment)
    if result.packed is not None:
        yield "packed", _packed(result.packed)
    for each in result.depends_on:
        yield "changelog" if each.is_own else "depends on", _dependency(each)
    if result.dating is not None:
        yield "oldest file", _oldest(result.dating)


def _increment(increment: Increment) -> str:
    return (
        f"{counted(increment.files, 'file')}, {size(increment.bytes)} that {increment.since} has"
        " not"
    )


def _packed(packed: PackSummary) -> str:
    live, dead = size(packed.live_bytes), size(packed.dead_bytes)
    return (
        f"{counted(packed.files, 'file')} in {counted(packed.packs, 'pack')}; {live} live, {dead}"
        " dead"
    )


def _dependency(of: Dependency) -> str:
    amount = f"{counted(of.files, 'file')}, {size(of.bytes)}"
    if of.is_in_replica:
        jobs = f" of {', '.join(of.jobs)}" if of.jobs else " of other jobs"
        return f"{amount}{jobs}, which are here in {of.directory}"
    return f"{amount} of {of.directory}"


def _oldest(dating: Dating) -> str:
    missing = (
        f"; {counted(dating.missing, 'file is', 'files are')} missing" if dating.missing else ""
    )
    if dating.age is None:
        return f"not known: no file is dated{missing}"
    return f"{_age(dating.age)} old, {dating.oldest}{missing}"


def _age(seconds: float) -> str:
    days, rest = divmod(seconds, 86_400)
    return f"{int(days)} d {int(rest // 3600):02} h" if days else duration(seconds)


def _operators(operators: tuple[OperatorSummary, ...]) -> str:
    """Return a table of the operators, without a column of names or uids that nobody has."""
    rows = [_row(each) for each in operators]
    head = (*_HEAD, *_SKEW)
    is_shown = [
        title not in ("name", "uid") or any(row[column] for row in rows)
        for column, title in enumerate(head)
    ]
    return table(tuple(compress(head, is_shown)), [tuple(compress(row, is_shown)) for row in rows])


def _row(of: OperatorSummary) -> tuple[str, ...]:
    return (
        of.id,
        of.name or "",
        of.uid or "",
        str(of.parallelism),
        str(of.max_parallelism),
        str(of.files),
        size(of.bytes),
        *(_NO_SKEW if of.skew is None else _skew(of.skew)),
    )


def _skew(skew: Skew) -> tuple[str, str, str]:
    ratio = "" if skew.ratio is None else f"{skew.ratio:.1f}"
    mark = _MARK if skew.is_skewed else ""
    return f"{size(skew.largest_bytes)} (#{skew.largest})", size(skew.median_bytes), ratio + mark


def _skewed(operators: tuple[OperatorSummary, ...]) -> Iterator[str]:
    """Yield a line for each operator whose largest subtask is much larger than the median."""
    for each in operators:
        if each.skew is not None and each.skew.is_skewed:
            name = each.name or each.uid or each.id
            yield f"! {name}: subtask {each.skew.largest} has {_share(each.skew)}"


def _share(skew: Skew) -> str:
    """Return how much the largest subtask has; no ratio to a median of 0 says that."""
    if skew.ratio is None:
        return f"{size(skew.largest_bytes)}, and most subtasks have none"
    return f"{skew.ratio:.1f} times the median"


def _kinds(result: Inspection) -> str:
    """Return a table of bytes by kind of state and by place; what nobody has is left out."""
    kinds = [name for name, count in result.kinds.items() if count]
    places = [name for name, count in result.places.items() if count]
    head = ("bytes of", *kinds, *places)
    rows = [
        (each.name or each.uid or each.id, *_sizes(each.kinds, kinds), *_sizes(each.places, places))
        for each in result.operators
        if each.bytes
    ]
    whole = ("all", *_sizes(result.kinds, kinds), *_sizes(result.places, places))
    return table(head, [*rows, whole]) if rows else ""


def _sizes(by_name: Mapping[str, int], names: list[str]) -> list[str]:
    return [size(by_name[name]) if by_name[name] else "" for name in names]


def _json(inspection: Inspection) -> str:
    """Return the result of `inspect --output json`."""
    result = asdict(inspection)
    completed = timestamp(result.pop("completed"))
    result["operators"] = [_of_operator(each) for each in inspection.operators]
    result["depends_on"] = [
        {**each._asdict(), "jobs": list(each.jobs)} for each in inspection.depends_on
    ]
    increment = inspection.increment
    result["increment"] = None if increment is None else increment._asdict()
    del result["dating"]
    result["stat"] = None if inspection.dating is None else _of_dating(inspection.dating)
    result.update(positions.fields(inspection.positions))
    return document({**result, "checkpoint_completed": completed})


def _of_operator(operator: OperatorSummary) -> dict[str, Any]:
    result = asdict(operator)
    del result["skew"]
    skew = operator.skew
    return {
        **result,
        "largest_subtask": None if skew is None else skew.largest,
        "largest_subtask_bytes": 0 if skew is None else skew.largest_bytes,
        "median_subtask_bytes": 0 if skew is None else skew.median_bytes,
        "subtask_ratio": None if skew is None or skew.ratio is None else round(skew.ratio, 3),
        "is_skewed": skew is not None and skew.is_skewed,
    }


def _of_dating(dating: Dating) -> dict[str, Any]:
    return {
        "oldest": dating.oldest,
        "modified": timestamp(dating.modified),
        "age_seconds": None if dating.age is None else round(dating.age, 3),
        "missing": dating.missing,
    }


FORMS = Forms(_text, _json, ndjson=_json)
