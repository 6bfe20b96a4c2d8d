"""Which job of a service is tried next, and when: priorities, backoff, and fairness to others."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from heapq import heapify, heappop
from typing import Generic, Literal, NamedTuple, TypeVar

Ending = Literal["done", "again", "first", "failed", "unreachable"]
"""How a try ended. `again`: a newer checkpoint is there already. `first`: nothing was copied, since
it would be the first copy."""

K = TypeVar("K", bound=Hashable)

_SHARE_OF_SUSPECTS = 4  # at most one slot of so many works on jobs that are expected to fail
_SHARE_OF_FOLLOWED = 4  # one slot of so many, and at least one, is not for first copies
_SOON = 0.1  # of an interval: when a job is tried whose checkpoint was subsumed meanwhile
_MOST_DOUBLINGS = 30


class Wanted(NamedTuple):
    """What the schedule must know of a job: its priority, and the sites that it needs.

    `is_first`: it was not replicated before, and its first copy may take hours.
    """

    priority: int = 0
    sites: str = ""
    is_first: bool = False


class Load(NamedTuple):
    """How busy a service is.

    `busy` jobs are tried now, and `waiting` ones are due and have no slot. Of a priority, at most
    `slots` are tried at the same time.
    """

    busy: int
    waiting: int
    slots: int


class _Kind(NamedTuple):
    """What decides about a slot: a job's priority, and whether it may hold up others.

    `is_suspect`: it is expected to fail. `is_first`: it may take hours.
    """

    priority: int
    is_suspect: bool
    is_first: bool


@dataclass
class _Entry:
    wanted: Wanted
    due: float
    text: str  # decides between what is due at the same instant
    failures: int = 0
    started: float | None = None


class Schedule(Generic[K]):
    """The jobs of a service, by key, and the instants at which they are due.

    A job waits for jobs of its own or a higher priority only: of these, at most `slots` run at the
    same time. One job of each priority may always run, so that no job waits for ever.

    A job that failed is tried again after `interval` seconds, then after twice as long, and so on
    up to `max_backoff`, each time up to a half less, at random: jobs that failed together do not
    come back together. Jobs that failed, and jobs that need the same sites as one that could not
    reach them, have a quarter of the slots. So waiting for a dead cluster holds up nothing else. A
    quarter of the slots is not for first copies: these hold up no job that is in step.
    """

    def __init__(
        self,
        slots: int,
        interval: float,
        max_backoff: float,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._slots, self._interval, self._max_backoff = slots, interval, max_backoff
        self._chance = chance
        self._entries: dict[K, _Entry] = {}
        self._unreachable: set[str] = set()

    def update(self, jobs: Mapping[K, Wanted], now: float) -> None:
        """Set the jobs. New ones are due at once; those that are gone are not tried again."""
        for key in self._entries.keys() - jobs.keys():
            if self._entries[key].started is None:
                del self._entries[key]
        for key, wanted in jobs.items():
            entry = self._entries.get(key)
            if entry is None:
                self._entries[key] = _Entry(wanted, now, str(key))
            else:
                entry.wanted = wanted

    def hurry(self, key: K, now: float) -> None:
        """Let a job be due now, unless it failed: its source has a newer checkpoint."""
        entry = self._entries.get(key)
        if entry is not None and not entry.failures:
            entry.due = min(entry.due, now)

    def take(self, now: float) -> list[K]:
        """Return the jobs to be begun now, the most important first; they count as running."""
        entries = self._entries.values()
        running = Counter(self._kind(entry) for entry in entries if entry.started is not None)
        due = self._due(now)
        taken = []
        while due:
            kind = min(due, key=lambda each: due[each][0])
            if not self._has_slot(kind, running):  # none until what runs ends
                del due[kind]
                continue
            *_, key = heappop(due[kind])
            if not due[kind]:
                del due[kind]
            self._entries[key].started = now
            running[kind] += 1
            taken.append(key)
        return taken

    def _due(self, now: float) -> dict[_Kind, list[tuple[int, float, str, int, K]]]:
        """Return the jobs that are due, a heap for each kind: the next one is its first.

        There may be thousands, and a slot for one of them.
        """
        due = defaultdict(list)
        for number, (key, entry) in enumerate(self._entries.items()):
            if entry.started is None and entry.due <= now:
                row = (-entry.wanted.priority, entry.due, entry.text, number, key)
                due[self._kind(entry)].append(row)
        for rows in due.values():
            heapify(rows)
        return dict(due)

    def ended(self, key: K, ending: Ending, now: float) -> float:
        """Record how the try of a job ended. Return the seconds until the next one."""
        entry = self._entries[key]
        started, entry.started = entry.started, None
        if ending == "unreachable":
            self._unreachable.add(entry.wanted.sites)
        elif ending == "done":
            self._unreachable.discard(entry.wanted.sites)
        if ending == "first":
            entry.wanted = entry.wanted._replace(is_first=True)
            entry.due = now
        elif ending in ("done", "again"):
            entry.failures = 0
            pause = self._interval * (_SOON if ending == "again" else 1.0)
            entry.due = max(now, (now if started is None else started) + pause)
        else:
            entry.failures += 1
            entry.due = now + self._backoff(entry.failures)
        return entry.due - now

    def next_due(self) -> float | None:
        """Return the instant at which the next job is due, None if all run or there are none."""
        due = [entry.due for entry in self._entries.values() if entry.started is None]
        return min(due, default=None)

    def load(self, now: float) -> Load:
        """Return how many jobs run, and how many wait for a slot."""
        entries = self._entries.values()
        busy = sum(entry.started is not None for entry in entries)
        waiting = sum(entry.started is None and entry.due <= now for entry in entries)
        return Load(busy, waiting, self._slots)

    def _has_slot(self, kind: _Kind, running: Counter[_Kind]) -> bool:
        rivals = {other: n for other, n in running.items() if other.priority >= kind.priority}
        has_equals = any(other.priority == kind.priority for other in rivals)
        if sum(rivals.values()) >= self._slots and has_equals:
            return False
        suspects = sum(count for other, count in rivals.items() if other.is_suspect)
        most = max(1, self._slots // _SHARE_OF_SUSPECTS)
        if kind.is_suspect and suspects >= most:
            return False
        firsts = sum(count for other, count in rivals.items() if other.is_first)
        kept = max(1, self._slots // _SHARE_OF_FOLLOWED)
        return not kind.is_first or firsts < max(1, self._slots - kept)

    def _kind(self, entry: _Entry) -> _Kind:
        is_suspect = entry.failures > 0 or entry.wanted.sites in self._unreachable
        return _Kind(entry.wanted.priority, is_suspect, entry.wanted.is_first)

    def _backoff(self, failures: int) -> float:
        doubled = self._interval * 2.0 ** min(failures - 1, _MOST_DOUBLINGS)
        return min(self._max_backoff, doubled) * (1 - self._chance() / 2)
