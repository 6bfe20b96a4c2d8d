"""Which tests `make test` runs, and which it leaves to `make test-rest`.

`make test` keeps each promise once. The matrix of versions and the full numbers of seeds, kills and
points are the rest: each case of it has the mark `rest`. `conftest.py` selects by `--part`. Of the
rest, what takes hours has the mark `nightly`, too, for `make nightly`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, Literal, TypeAlias, TypeVar

import pytest

_Tests = TypeVar("_Tests", bound=type)
Part: TypeAlias = Literal["main", "rest", "all"]
PARTS: tuple[Part, ...] = ("main", "rest", "all")


NIGHTLY = (pytest.mark.rest, pytest.mark.nightly)
"""The marks of what only `make nightly` runs."""


def seeds(main: int, full: int, portion: int, portions: int | None = None) -> list[Any]:
    """Return the seeds `0 … full - 1` as parameters: ranges of at most `portion` seeds.

    The first `main` seeds belong to `make test`, the next `portions` ranges, or all, to `make
    test-rest`, the others to `make nightly`. No seed is in two ranges.
    """
    first = [range(start, min(start + portion, main)) for start in range(0, main, portion)]
    others = [range(start, min(start + portion, full)) for start in range(main, full, portion)]
    in_rest = others if portions is None else others[:portions]
    return [
        *[pytest.param(each, id=_id_of(each)) for each in first],
        *[pytest.param(each, id=_id_of(each), marks=pytest.mark.rest) for each in in_rest],
        *[pytest.param(each, id=_id_of(each), marks=NIGHTLY) for each in others[len(in_rest) :]],
    ]


def _id_of(numbers: range) -> str:
    return f"{numbers.start}-{numbers.stop - 1}"


def cases(values: Iterable[Any], main: Collection[Any]) -> list[Any]:
    """Return the values as parameters, of which only those in `main` belong to `make test`."""
    return [value if value in main else rest(value) for value in values]


def rest(*values: Any, id: str | None = None) -> Any:  # noqa: A002  # as in pytest.param
    """Return a case that `make test` leaves out."""
    return pytest.param(*values, id=id, marks=pytest.mark.rest)


def nightly(*values: Any, id: str | None = None) -> Any:  # noqa: A002  # as in pytest.param
    """Return a case that only `make nightly` runs."""
    return pytest.param(*values, id=id, marks=NIGHTLY)


def nightly_class(tests: _Tests) -> _Tests:
    """Mark a class of tests as one that only `make nightly` runs."""
    for mark in NIGHTLY:
        tests = mark(tests)
    return tests


def is_rest_twice(item: pytest.Item) -> bool:
    """Return whether a test is of the rest for two reasons, such as its Flink and its case.

    `make test` has the crossing of the others, and `make test-rest` each of them alone.
    """
    return len(list(item.iter_markers("rest"))) > 1


def belongs(item: pytest.Item, part: Part) -> bool:
    """Return whether a test belongs to a part."""
    is_rest = any(item.get_closest_marker(name) is not None for name in ("rest", "nightly"))
    return part == "all" or is_rest == (part == "rest")
