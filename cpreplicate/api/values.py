"""The values of options: what the command line would refuse raises `UsageError` here, too.

An amount is a number, or a text as the command line takes it: `"10 MiB"`, `"24h"`, `"5%"`.
"""

from __future__ import annotations

import math
import os
import reprlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from cpreplicate.core import amounts
from cpreplicate.core.plan import Cap
from cpreplicate.core.timetable import Timetable
from cpreplicate.errors import UsageError

Amount = float | str
T = TypeVar("T")


def wrong(name: str, value: object, expected: str) -> UsageError:
    """Return the error of an option whose value is wrong, or of a wrong type."""
    return UsageError(f"the option {name} of the API is {reprlib.repr(value)}: expected {expected}")


def of_type(name: str, value: object, kind: type[T], expected: str) -> T:
    """Return a value. Raises `UsageError` if it is of another type."""
    if not isinstance(value, kind):
        raise wrong(name, value, expected)
    return value


def text(name: str, value: object) -> str:
    """Return a text that is not empty."""
    if not of_type(name, value, str, "a text"):
        raise wrong(name, value, "a text that is not empty")
    return str(value)


def sequence(name: str, value: object, expected: str) -> tuple[Any, ...]:
    """Return what a list or another sequence holds. A text is none."""
    if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
        raise wrong(name, value, expected)
    return tuple(value)


def words(name: str, value: object) -> tuple[str, ...]:
    """Return the texts of a sequence."""
    return tuple(text(name, each) for each in sequence(name, value, "a sequence of texts"))


def flag(name: str, value: object) -> bool:
    """Return a value that is True or False."""
    return of_type(name, value, bool, "True or False")


def function(name: str, value: object) -> None:
    """Raise `UsageError` for a value that cannot be called."""
    if not callable(value):
        raise wrong(name, value, "a function")


def word(name: str, value: object, *words: str) -> str:
    """Return a value that is one of some words."""
    if not isinstance(value, str) or value not in words:
        raise wrong(name, value, f"one of {', '.join(words)}")
    return value


def whole(name: str, value: object) -> int:
    """Return a whole number."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise wrong(name, value, "a whole number")
    return value


def count(name: str, value: object, least: int = 1) -> int:
    """Return a whole number."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise wrong(name, value, f"a whole number, {least} or more")
    return value


def path(name: str, value: object) -> str:
    """Return a local path, or a URI, as a text."""
    if isinstance(value, (str, os.PathLike)):
        found = os.fspath(value)
        if isinstance(found, str) and found.strip():
            return found
    raise wrong(name, value, "a text that is not empty, or a pathlib.Path")


def texts(name: str, value: object) -> dict[str, str]:
    """Return a mapping of texts. What is wrong in it is not shown: it may be a secret."""
    is_right = isinstance(value, Mapping) and all(
        isinstance(each, str) for pair in value.items() for each in pair
    )
    if not isinstance(value, Mapping) or not is_right:
        raise UsageError(f"the option {name} of the API: expected a mapping of texts to texts")
    return dict(value)


def seconds(name: str, value: object) -> float:
    """Return the seconds of a time: a number, or a text such as `24h`."""
    if isinstance(value, str):
        return _parsed(name, value, amounts.seconds)
    return _number(name, value, 0.0, math.inf, "seconds, or a time such as '24h'")


def size(name: str, value: object) -> int:
    """Return the bytes of a size: a whole number, or a text such as `10 MiB`."""
    if isinstance(value, str):
        return _parsed(name, value, amounts.size)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise wrong(name, value, "bytes, 1 or more, or a size such as '10 MiB'")
    return value


def byte_rate(name: str, value: object) -> Timetable | float:
    """Return the bytes a second: a number, or a text such as `500MB/s`, or a timetable."""
    if isinstance(value, str):
        return _parsed(name, value, amounts.byte_rate).timetable
    return _number(name, value, 1.0, math.inf, "1 byte a second or more, or a text: '500MB/s'")


def call_rate(name: str, value: object) -> float:
    """Return a number of operations a second."""
    number = _number(name, value, 0.001, math.inf, "0.001 operations a second or more")
    try:
        return amounts.call_rate(number)
    except UsageError as error:
        raise _of_option(name, error) from None


def share(name: str, value: object) -> float:
    """Return a share from 0 to 1: a number, or a text such as `5%`."""
    if isinstance(value, str):
        return _parsed(name, value, amounts.share)
    expected = "a share from 0 to 1, or a text such as '5%'"
    if (found := _number(name, value, 0.0, math.inf, expected)) > 1:
        raise wrong(name, value, expected)
    return found


def cap(name: str, value: object) -> Cap:
    """Return a limit on deletes: a number of files, or a text such as `20%`."""
    if isinstance(value, str) and value.endswith("%"):
        return Cap(_parsed(name, value, amounts.share), is_share=True)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise wrong(name, value, "a number of files, or a share such as '20%'")
    return Cap(value)


def instant(name: str, value: object) -> float:
    """Return the seconds since the epoch: a number, a `datetime` with its zone, or ISO 8601."""
    if isinstance(value, str):
        return _parsed(name, value, amounts.instant)
    expected = "a datetime with a zone, a text in ISO 8601, or seconds since the epoch"
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise wrong(name, value, expected)
        return value.timestamp()
    return _number(name, value, 0.0, math.inf, expected)


def optional(parse: Callable[[str, Any], T], name: str, value: object) -> T | None:
    """Return what a value means, and None for None."""
    return None if value is None else parse(name, value)


def absolute(name: str, value: object) -> str:
    """Return a local path as an absolute one."""
    return str(Path(path(name, value)).absolute())


def _number(name: str, value: object, least: float, limit: float, expected: str) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        with suppress(OverflowError):  # of a whole number of hundreds of digits
            if least <= float(value) < limit:  # no comparison with NaN holds
                return float(value)
    raise wrong(name, value, expected)


def _parsed(name: str, text: str, parse: Callable[[str], T]) -> T:
    try:
        return parse(text)
    except UsageError as error:
        raise _of_option(name, error) from None


def _of_option(name: str, error: UsageError) -> UsageError:
    return UsageError(f"the option {name} of the API is {error}")
