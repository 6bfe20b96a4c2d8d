"""The page of `verify`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cpreplicate.core.sizes import size
from cpreplicate.operations.inspect.overview import Overview
from cpreplicate.operations.verify.verify import Verification, Verifications
from cpreplicate.output.json import timestamp
from cpreplicate.output.report.model import Chart, Column, DataTable, Page, Series, Tone
from cpreplicate.output.report.pages import history
from cpreplicate.output.report.pages.words import counted, joined, label
from cpreplicate.output.results.verification import title_of

_HUES = {  # 3, green, is of what is as expected
    "missing": 2,
    "too short": 4,
    "corrupt": 6,
    "outside the replica": 1,
    "without a recorded CRC32C": 5,
}


def page(verifications: Verifications, overview: Overview) -> Page:
    """Return the page of a verification, the damaged checkpoints first."""
    found = sorted(verifications.checkpoints, key=lambda each: each.restorable)
    notes = tuple(_notes(found))
    names = joined([each.checkpoint for each in found]) if len(found) < 4 else f"{len(found)}"
    is_whole = all(not any(paths for _, paths in _faults(each)) for each in found)
    charts = [] if is_whole and len(found) == 1 else [_chart(found)]
    tables = [_checkpoints(found)]
    if not is_whole:
        tables.insert(0, _fault_table(found))
    if overview.history is not None:
        charts += history.charts(overview.history)
        tables.append(history.table(overview.history.replicas))
    return Page(
        title=f"verify: {names if len(found) < 4 else f'{names} checkpoints'}",
        answer=_answer(found),
        tone=_tone(verifications),
        facts=tuple(_facts(found)),
        notes=(*notes, *overview.problems),
        charts=tuple(charts),
        tables=tuple(tables),
    )


def _tone(verifications: Verifications) -> Tone:
    if not verifications.restorable:
        return "bad"
    refused = any(each.refused is not None for each in verifications.checkpoints)
    return "notice" if refused else "good"


def _answer(found: Sequence[Verification]) -> str:
    damaged = [each for each in found if not each.restorable]
    if damaged:
        return _damage(damaged[0], len(damaged), len(found))
    compared = sum(each.compared for each in found)
    content = (
        f"the content of {counted(compared, 'file')} equals what was copied"
        if found[0].content
        else "their content was not compared (--content)"
    )
    if len(found) == 1:
        one = found[0]
        return (
            f"{one.checkpoint} can be restored: all of {counted(one.files, 'file')},"
            f" {size(one.bytes)}, are there and long enough; {content}."
        )
    return (
        f"All {len(found)} checkpoints can be restored: their files are there and long enough;"
        f" {content}."
    )


def _damage(one: Verification, damaged: int, count: int) -> str:
    faults = [f"{len(paths):,} {name}" for name, paths in _faults(one) if paths]
    files = f"{joined(faults)} of {counted(one.files, 'file')}"
    if count == 1:
        return f"{one.checkpoint} cannot be restored: {files}."
    return (
        f"{damaged} of {counted(count, 'checkpoint')} cannot be restored; {one.checkpoint}:"
        f" {files}."
    )


def _facts(found: Sequence[Verification]) -> list[tuple[str, str]]:
    one = found[0]
    checked = "presence, length and place of each file"
    if one.content:
        checked += f"; content of {counted(sum(each.compared for each in found), 'file')}"
    return [("replica", one.replica), ("checked", checked)]


def _notes(found: Sequence[Verification]) -> Iterator[str]:
    for each in found:
        if each.outside:
            yield (
                f"{each.checkpoint} references files outside the replica. If it was moved by other"
                " means than cpreplicate, repair its paths with `cpreplicate relocate`"
            )
        if each.repair is not None:
            yield f"Repair the replica with the options of its syncs: {each.repair}"
        if each.refused is not None:
            yield f"promote would refuse the replica: {each.refused}"


def _faults(each: Verification) -> list[tuple[str, tuple[str, ...]]]:
    return [
        ("missing", each.missing),
        ("too short", each.short),
        ("corrupt", each.corrupt),
        ("outside the replica", each.outside),
        ("without a recorded CRC32C", each.uncompared),
    ]


def _chart(found: Sequence[Verification]) -> Chart:
    counts = [{name: len(paths) for name, paths in _faults(each)} for each in found]
    whole = [
        max(0, each.files - sum(of_each.values()))
        for each, of_each in zip(found, counts, strict=True)
    ]
    names = [name for name, _ in _faults(found[0])]
    series = [Series(name, [of_each[name] for of_each in counts], _HUES[name]) for name in names]
    return Chart(
        "Files by result",
        f"{sum(whole):,} of {counted(sum(each.files for each in found), 'file')} are as expected.",
        [label(each.checkpoint) for each in found],
        (Series("as expected", whole, 3), *(each for each in series if any(each.values))),
        unit="count",
    )


def _checkpoints(found: Sequence[Verification]) -> DataTable:
    faults = {
        name: [len(dict(_faults(each))[name]) for each in found] for name, _ in _faults(found[0])
    }
    return DataTable(
        "Checkpoints",
        Column("checkpoint", [title_of(each) for each in found]),
        Column("restorable", ["yes" if each.restorable else "no" for each in found]),
        Column("completed", [timestamp(each.completed) for each in found], "time"),
        Column("files", [each.files for each in found], "count"),
        Column("bytes", [each.bytes for each in found], "bytes"),
        Column("compared", [each.compared for each in found], "count"),
        *(Column(name, counts, "count") for name, counts in faults.items()),
    )


def _fault_table(found: Sequence[Verification]) -> DataTable:
    rows = [
        (each.checkpoint, name, path)
        for each in found
        for name, paths in _faults(each)
        for path in paths
    ]
    return DataTable(
        "Faults",
        Column("checkpoint", [checkpoint for checkpoint, _, _ in rows]),
        Column("fault", [fault for _, fault, _ in rows]),
        Column("file", [path for _, _, path in rows]),
    )
