"""Rates of earlier runs on this host, by their two sites and their runner.

The medians of the last few runs count, so that one bad night does not decide. A site is recorded
by its scheme and host or nameservice only: a URI may contain the name of a user.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from cpreplicate.core import uri
from cpreplicate.core.cost_model import Rates
from cpreplicate.runners import cache

KEPT = 7  # samples of a rate; the oldest ones are dropped
PAIRS = 100  # of sites; the one that was used longest ago is dropped
_KINDS = 8  # of runners for a pair
_FILE = "rates.json"
_VERSION = 1
_NAMES = frozenset(Rates._fields) - {"wait"}


class Recorded(NamedTuple):
    """What is recorded: a number of runs, and the samples of each rate, the last one newest."""

    runs: int = 0
    samples: Mapping[str, tuple[float, ...]] = {}


def recorded(source: str, target: str, kind: str) -> Recorded:
    """Return what runs of a kind of runner showed between the filesystems of two URIs."""
    return _parsed(_kinds(_pairs().get(_pair(source, target))).get(kind))


def record(source: str, target: str, kind: str, samples: Iterable[tuple[str, float]]) -> None:
    """Add what a run showed. Do nothing if the cache cannot be written."""
    pairs, pair = _pairs(), _pair(source, target)
    kinds = _kinds(pairs.pop(pair, None))
    before = _parsed(kinds.pop(kind, None))
    merged = {name: list(values) for name, values in before.samples.items()}
    for name, value in samples:
        merged[name] = [*merged.get(name, []), float(f"{value:.4g}")][-KEPT:]
    kinds[kind] = {"runs": before.runs + 1, "samples": merged}
    pairs[pair] = dict(list(kinds.items())[-_KINDS:])
    cache.write(_FILE, {"version": _VERSION, "pairs": dict(list(pairs.items())[-PAIRS:])})


def _pairs() -> dict[str, Any]:
    """Return what is recorded of each pair; nothing if another version wrote the file."""
    content = cache.read(_FILE)
    pairs = content.get("pairs")
    return pairs if content.get("version") == _VERSION and isinstance(pairs, dict) else {}


def _kinds(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _parsed(value: object) -> Recorded:
    """Return what a record contains, without what is damaged."""
    if not isinstance(value, dict) or not isinstance(value.get("samples"), dict):
        return Recorded()
    samples = {
        name: kept
        for name, values in value["samples"].items()
        if name in _NAMES and isinstance(values, list) and (kept := _numbers(name, values))
    }
    runs = value.get("runs")
    return Recorded(runs if isinstance(runs, int) and runs > 0 else 1, samples)


def _numbers(name: str, values: Iterable[object]) -> tuple[float, ...]:
    numbers = [float(value) for value in values if isinstance(value, float)]
    finite = (number for number in numbers if math.isfinite(number))
    return tuple(number for number in finite if number > 0 or (number == 0 and "fixed" in name))


def _pair(source: str, target: str) -> str:
    return f"{_site(source)} {_site(target)}"


def _site(location: str) -> str:
    scheme, separator, authority = uri.filesystem(location).partition("://")
    return f"{scheme}{separator}{authority.rpartition('@')[2]}"
