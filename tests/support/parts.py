"""Which tests `make test` runs, and which it leaves to `make test-rest`.

`make test` keeps each promise once. The matrix of versions and the full numbers of seeds, kills and
points are the rest: each case of it has the mark `rest`. `conftest.py` selects by `--part`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, Literal, TypeAlias

import pytest

Part: TypeAlias = Literal["main", "rest", "all"]
PARTS: tuple[Part, ...] = ("main", "rest", "all")


def seeds(main: int, full: int, portion: int) -> list[Any]:
    """Return the seeds `0 … full - 1` as parameters: ranges of at most `portion` seeds.

    The first `main` seeds belong to `make test`. No seed is in two ranges.
    """
    first = [range(start, min(start + portion, main)) for start in range(0, main, portion)]
    others = [range(start, min(start + portion, full)) for start in range(main, full, portion)]
    return [
        *[pytest.param(each, id=_id_of(each)) for each in first],
        *[pytest.param(each, id=_id_of(each), marks=pytest.mark.rest) for each in others],
    ]


def _id_of(numbers: range) -> str:
    return f"{numbers.start}-{numbers.stop - 1}"


def cases(values: Iterable[Any], main: Collection[Any]) -> list[Any]:
    """Return the values as parameters, of which only those in `main` belong to `make test`."""
    return [value if value in main else rest(value) for value in values]


def rest(*values: Any, id: str | None = None) -> Any:  # noqa: A002  # as in pytest.param
    """Return a case that `make test` leaves out."""
    return pytest.param(*values, id=id, marks=pytest.mark.rest)


def nightly(*values: Any) -> Any:
    """Return a case that only `make nightly` runs."""
    return pytest.param(*values, marks=pytest.mark.nightly)


def belongs(item: pytest.Item, part: Part) -> bool:
    """Return whether a test belongs to a part."""
    is_rest = item.get_closest_marker("rest") is not None
    return part == "all" or is_rest == (part == "rest")
