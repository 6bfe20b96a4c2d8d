"""What discovery can see: the places where it looks for jobs, and the jobs that were asked for."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from cpreplicate.core.clock import MACHINE, Clock
from cpreplicate.core.lag import is_unseen


@dataclass(frozen=True)
class Place:
    """A JobManager, or a root of jobs, named as it may be shown: without a password.

    `seen` is when it answered last, in seconds since the epoch; before the first time, since when
    it is known. `problem` is why the last look failed, "" if it did not. `was_asked` is whether a
    first look ended, either way.
    """

    name: str
    seen: float
    was_asked: bool = False
    problem: str = ""


class Discovered(NamedTuple):
    """Which places nobody could look at in time, and which chosen names no followed job has."""

    unseen: Mapping[str, bool] = {}
    unmatched: Mapping[str, bool] = {}


class Coverage:
    """Records what discovery could see. Several threads may use it."""

    def __init__(self, names: Iterable[str] = (), clock: Clock = MACHINE) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._places: dict[str, Place] = {}
        self._names = dict.fromkeys(names, True)

    def expect(self, names: Iterable[str]) -> None:
        """Take over which places there are: those that are new were not asked yet."""
        now = self._clock.now()
        with self._lock:
            self._places = {name: self._places.get(name) or Place(name, now) for name in names}

    def expect_also(self, names: Iterable[str]) -> None:
        """Take over further places, until the next `expect`."""
        now = self._clock.now()
        with self._lock:
            for name in names:
                self._places.setdefault(name, Place(name, now))

    def answered(self, name: str, is_all: bool = True) -> None:
        """Record that somebody could look at a place, or at a part of it."""
        with self._lock:
            if (place := self._places.get(name)) is not None:  # else it was left meanwhile
                was_asked = is_all or place.was_asked
                self._places[name] = Place(name, self._clock.now(), was_asked)

    def failed(self, name: str, problem: str) -> None:
        """Record why nobody could look at a place."""
        with self._lock:
            if (place := self._places.get(name)) is not None:
                self._places[name] = replace(place, was_asked=True, problem=problem)

    def matched(self, names: Iterable[str]) -> None:
        """Record which of the chosen names a followed job has."""
        with self._lock:
            found = set(names)
            self._names = {name: name not in found for name in self._names}

    def places(self) -> list[Place]:
        """Return the places, by name."""
        with self._lock:
            return sorted(self._places.values(), key=lambda place: place.name)

    def discovered(self, within: float) -> Discovered:
        """Return what is missing; a place is unseen that did not answer within so many seconds."""
        now = self._clock.now()
        unseen = {place.name: is_unseen(place.seen, within, now) for place in self.places()}
        with self._lock:
            return Discovered(unseen, dict(self._names))

    def was_asked(self, within: float) -> bool:
        """Return whether each place answered or failed once, or is known for so many seconds."""
        now = self._clock.now()
        return all(place.was_asked or is_unseen(place.seen, within, now) for place in self.places())
