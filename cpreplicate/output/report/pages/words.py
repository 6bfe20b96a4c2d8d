"""Words and numbers in the sentences of pages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from cpreplicate.core.sizes import plural, size
from cpreplicate.operations.change.job_result import JobResults
from cpreplicate.output.text import duration

_SHORT = 5.0  # seconds
_LONGEST_LABEL = 48  # characters of a label of a chart; its table has the whole text


def counted(count: int, one: str, many: str = "") -> str:
    """Return a count with what it counts, as `core.sizes` does, in groups of three digits."""
    return f"{count:,} {plural(count, one, many)}"


def failure_notes(results: JobResults[Any]) -> Iterator[str]:
    """Yield what failed: what has one cause stands once, with the name of one of its jobs."""
    for jobs in results.causes:
        first = jobs[0]
        several = f"{counted(len(jobs), 'job')}, such as " if len(jobs) > 1 else ""
        yield f"{several}{first.name}: exit {first.exit_code}: {first.error}"


def of_bytes(part: int, whole: int) -> str:
    """Return a part of a number of bytes, such as `1.2 of 40.0 GiB`: the unit stands once if it is
    the same.
    """
    few, many = size(part), size(whole)
    same = few.partition(" ")[2] == many.partition(" ")[2]
    return f"{few.partition(' ')[0] if same else few} of {many}"


def took(seconds: float) -> str:
    """Return how long something took: a short time in tenths of a second."""
    return f"{seconds:.1f} s" if seconds < _SHORT else duration(seconds)


def share(part: float, whole: float) -> str:
    """Return a part as a percentage of the whole: 100 only if it is all of it."""
    percentage = f"{100 * part / whole:.0f}" if whole else "0"
    return "over 99 %" if percentage == "100" and part < whole else f"{percentage} %"


def label(text: str) -> str:
    """Return the label of a chart: a long text without its middle."""
    if len(text) <= _LONGEST_LABEL:
        return text
    half = (_LONGEST_LABEL - 1) // 2
    return f"{text[:half]}…{text[-half:]}"


def sentence(text: str) -> str:
    """Return a text as a sentence: with a capital letter and a full stop."""
    text = text[:1].upper() + text[1:]
    return text if text.endswith((".", "!", "?")) else f"{text}."


def joined(parts: Sequence[str]) -> str:
    """Return parts in one list, such as `a, b and c`."""
    return " and ".join(filter(None, [", ".join(parts[:-1]), *parts[-1:]]))
