"""Fields of JSON that is not trusted: each is checked, and what is wrong raises `ValueError`."""

from __future__ import annotations

import json
import re
from typing import Any

JOB_ID = re.compile("[0-9a-f]{32}")
MOST = (1 << 63) - 1
_LAST_TIME = 253_402_300_800_000  # milliseconds: the end of the year 9999


def parsed(body: bytes) -> Any:
    """Return what JSON means. Raises `ValueError`."""
    try:
        return json.loads(body)
    except RecursionError as error:
        raise ValueError("its JSON is nested too deeply") from error
    except ValueError as error:
        raise ValueError(f"it is no JSON ({type(error).__name__})") from error


def of(value: Any, name: str) -> Any:
    """Return a field of an object."""
    if not isinstance(value, dict) or name not in value:
        raise ValueError(f"there is no {name!r}")
    return value[name]


def items(value: Any) -> list[Any]:
    """Return a list."""
    if not isinstance(value, list):
        raise ValueError("what should be a list is none")  # as the others
    return value


def text(value: Any, name: str) -> str:
    """Return a text without halves of surrogate pairs, which could not be written anywhere."""
    found = of(value, name)
    if not isinstance(found, str):
        raise ValueError(f"{name!r} is no text")  # as the others
    return found.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def whole(value: Any, name: str, most: int = MOST) -> int:
    """Return a whole number from 0 to `most`."""
    number = of(value, name)
    if type(number) is not int or not 0 <= number <= most:
        raise ValueError(f"{name!r} is no whole number of a possible size")
    return number


def seconds(value: Any, name: str) -> float:
    """Return the seconds of a time in milliseconds."""
    number = of(value, name)
    # the comparison also refuses `1e999` and `NaN`, which Python reads
    if type(number) not in (int, float) or not 0 <= number < _LAST_TIME:
        raise ValueError(f"{name!r} is no time")
    return float(number) / 1000
