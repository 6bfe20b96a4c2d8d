"""A `repr` that fits on a line, for results that hold thousands of rows. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from operator import attrgetter
from typing import TypeVar

Result = TypeVar("Result", bound=type)


def short_repr(*paths: str) -> Callable[[Result], Result]:
    """Return a decorator of a class, whose `repr` has these attributes, such as `plan.replica`.

    Of a collection it has the number, unless it is empty. None is left out.
    """

    def shown(self: object) -> Iterator[str]:
        yield type(self).__name__
        for path in paths:
            value = attrgetter(path)(self)
            if isinstance(value, Collection) and not isinstance(value, str):
                value = len(value) or None
            if value is not None:
                yield f"{path.rpartition('.')[2]}={value!r}"

    def represent(self: object) -> str:
        return f"<{' '.join(shown(self))}>"

    def decorate(kind: Result) -> Result:
        setattr(kind, "__repr__", represent)  # noqa: B010  # a class of any kind has one
        return kind

    return decorate
