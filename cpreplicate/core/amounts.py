"""Amounts as a person writes them: sizes, times, rates, shares, and instants.

The command line and the Python API take the same texts. A rate may be a timetable, as rclone has
it. Each amount has bounds: with those of a size, its number of bytes fits into 64 bits, and nothing
is divided by zero. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime, timezone
from typing import NamedTuple

from cpreplicate.core.timetable import DAY, Change, Timetable, constant, daily
from cpreplicate.errors import UsageError

_UNITS = {
    "": 1,
    "k": 10**3,
    "m": 10**6,
    "g": 10**9,
    "t": 10**12,
    "ki": 2**10,
    "mi": 2**20,
    "gi": 2**30,
    "ti": 2**40,
}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]i?)?(b)?(?:/s)?", re.IGNORECASE)
_LARGEST = 2**63 - 1  # bytes
_MOST = 2**31 - 1  # of anything that is counted: Java has no more
_TIME = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)?")
_SECONDS = {"ms": 0.001, None: 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_LONGEST = 100 * 365 * 86400  # seconds: more than any wait of the system takes
_SLOWEST, _FASTEST = 0.001, 1e9  # operations a second
OFF = "off"  # no limit, and no server
_INSTANT = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d{3}(\d{3})?)?)?(Z|[+-]\d\d:\d\d)?")
_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_ENTRY = re.compile(rf"(?:({'|'.join(_DAYS)})-)?([01]?\d|2[0-3]):([0-5]\d),(\S+)", re.IGNORECASE)
_EXPECTED = (
    "expected a rate such as 500MB/s, at least 1B/s, or a timetable such as '08:00,100MB/s"
    " 20:00,off'"
)


def size(text: str) -> int:
    """Return the bytes of a size such as `500MB`, `64Mi` or `500MB/s`, at least one.

    Raises `UsageError`.
    """
    match = _SIZE.fullmatch(text.strip())
    found = float(match[1]) * _UNITS[(match[2] or "").lower()] if match is not None else 0.0
    if not 1 <= found <= _LARGEST:
        raise UsageError(f"{text}: expected a size such as 500MB or 128MiB, from 1B to 9000000TB")
    return int(found)


def seconds(text: str) -> float:
    """Return the seconds of a time such as `90`, `90s`, `5m`. Raises `UsageError`."""
    match = _TIME.fullmatch(text.strip())
    found = float(match[1]) * _SECONDS[match[2]] if match is not None else -1.0
    if not 0 <= found <= _LONGEST:
        raise UsageError(f"{text}: expected a time such as 30s or 5m, of at most 36500d")
    return found


def share(text: str) -> float:
    """Return the fraction that `5%` or `0.05` stands for. Raises `UsageError`."""
    try:
        fraction = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        fraction = 0.0
    if not 0 < fraction <= 1:
        raise UsageError(f"{text}: expected a share such as 5%")
    return fraction


def instant(text: str) -> float:
    """Return the seconds since the epoch of a time in ISO 8601, in UTC unless a zone is given.

    Raises `UsageError`.
    """
    try:
        if not _INSTANT.fullmatch(text.strip()):
            raise ValueError(text)
        time = datetime.fromisoformat(text.strip().replace("Z", "+00:00"))  # 3.10 reads no `Z`
    except ValueError:
        raise UsageError(
            f"{text}: expected a time in ISO 8601 such as 2026-11-24T03:00Z or '2026-11-24 03:00',"
            " which is in UTC unless a zone is given"
        ) from None
    return (time if time.tzinfo else time.replace(tzinfo=timezone.utc)).timestamp()


def call_rate(number: float) -> float:
    """Return a number of operations a second. Raises `UsageError`."""
    if not _SLOWEST <= number <= _FASTEST:  # which no comparison with NaN is
        raise UsageError(
            f"{number:g}: expected a number of operations a second, from {_SLOWEST:g} to"
            f" {_FASTEST:g}"
        )
    return number


def count(number: int) -> int:
    """Return a number of things. Raises `UsageError`."""
    if number > _MOST:
        raise UsageError(f"expected a whole number of at most {_MOST}")
    return number


class ByteRate(NamedTuple):
    """What `--bandwidth` was given. `lacks_unit`: a number of it stands without one."""

    timetable: Timetable
    lacks_unit: bool = False


def byte_rate(text: str) -> ByteRate:
    """Return the timetable of a rate, or of `[DAY-]HH:MM,RATE …` by the local time.

    `off` is no limit. Raises `UsageError`.
    """
    words = text.split()
    if not any("," in word for word in words):
        return ByteRate(constant(_rate(text.strip(), text)), _lacks_unit([text.strip()]))
    matches = [_ENTRY.fullmatch(word) for word in words]
    entries = [match for match in matches if match is not None]
    if len(entries) < len(words):
        raise UsageError(f"{text}: {_EXPECTED}")
    changes = _in_order(change for entry in entries for change in _changes(entry, text))
    return ByteRate(Timetable(changes), _lacks_unit([entry[4] for entry in entries]))


def _changes(entry: re.Match[str], text: str) -> Iterable[Change]:
    day, hour, minute, rate = entry.groups()
    second = int(hour) * 3600 + int(minute) * 60
    if day is None:
        return daily(second, _rate(rate, text))
    return [Change(_DAYS.index(day.lower()) * DAY + second, _rate(rate, text))]


def _in_order(changes: Iterable[Change]) -> tuple[Change, ...]:
    """Return the changes of a week. Of two at the same time, the one that was given last holds."""
    last = {change.second: change for change in changes}
    return tuple(last[second] for second in sorted(last))


def _rate(word: str, text: str) -> float | None:
    if word.lower() == OFF:
        return None
    try:
        return float(size(word))
    except UsageError:
        raise UsageError(f"{text}: {_EXPECTED}") from None


def _lacks_unit(words: Iterable[str]) -> bool:
    matches = filter(None, map(_SIZE.fullmatch, words))
    return any(match[2] is None and match[3] is None for match in matches)
