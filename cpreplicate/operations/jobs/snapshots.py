"""Keeps a `FlinkStateSnapshot` of each job current, for what starts jobs on Kubernetes."""

from __future__ import annotations

import hashlib
import math
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from cpreplicate.core import uri
from cpreplicate.core.clock import MACHINE, Clock
from cpreplicate.core.notify import Notify
from cpreplicate.errors import CpreplicateError, Refused, Unanswered, described
from cpreplicate.operations.jobs.restore_point import RestorePoint
from cpreplicate.storage.waiting.side_call import in_thread

PREFIX = "cpreplicate"
_OURS = {"app.kubernetes.io/managed-by": PREFIX}
_REPLICA, _JOB = f"{PREFIX}/replica", f"{PREFIX}/job-id"
_NAME, _PLACE, _OBSERVED = (f"{PREFIX}/{key}" for key in ("job-name", "replica-uri", "observed"))
_LONGEST_LABEL = 63
_NO_LABEL = re.compile("[^A-Za-z0-9_.-]")
_PAUSE = 1.0  # seconds between two looks at what the service observed
_LIST_AGAIN = 600.0  # seconds: others may have deleted or created objects meanwhile
_LIST_BEFORE_A_CHANGE = 10.0  # seconds: another service may have changed objects meanwhile
_RETRY = 10.0  # seconds after a failure
_CLOCKS_APART = 30.0  # seconds by which the clocks of two services may differ
_MOST_UNANSWERED = 3  # calls in a row: the next ones would not be answered either
_MOST_LINES = 20


class Objects(Protocol):
    """The objects of a namespace; see `cpreplicate.kubernetes.Namespace`."""

    def listed(self, selector: str) -> list[dict[str, Any]]: ...

    def create(self, manifest: Mapping[str, Any]) -> dict[str, Any]: ...

    def delete(self, name: str, uid: str) -> None: ...


class Kept(NamedTuple):
    """An object of ours as it is in the namespace.

    `observed` is when its writer had looked at the replica, in seconds since the epoch.
    """

    name: str
    uid: str
    path: str
    observed: float


class SnapshotCounts(NamedTuple):
    """How many jobs have no current object, and how many calls have failed."""

    behind: int = 0
    failures: int = 0


@dataclass(frozen=True)
class Change:
    """What makes the object of a replica current: one is created, then others are deleted."""

    replica: str
    create: Mapping[str, Any] | None
    delete: tuple[Kept, ...]


def label_of(replica: str) -> str:
    """Return the value of the label that marks the objects of a replica."""
    return hashlib.sha256(replica.encode(errors="surrogatepass")).hexdigest()[:16]


def manifest_of(point: RestorePoint) -> dict[str, Any] | None:
    """Return the object of a job, None if its replica holds no checkpoint."""
    if point.starting is None or point.observed is None:
        return None
    snapshot = dict(point.starting.snapshot)
    savepoint = snapshot["spec"]["savepoint"]
    path = uri.without_password(savepoint["path"])
    labels = {
        **_OURS,
        _REPLICA: label_of(point.replica),
        _JOB: _label(point.job),
        _NAME: _label(point.name),
    }
    annotations = {
        _NAME: _writable(point.name),
        _PLACE: _writable(point.replica),
        _OBSERVED: _written(point.observed),
    }
    snapshot["metadata"] = {**snapshot["metadata"], "labels": labels, "annotations": annotations}
    return {**snapshot, "spec": {"savepoint": {**savepoint, "path": path}}}


def change_of(point: RestorePoint, kept: Sequence[Kept], now: float) -> Change | None:
    """Return what is to be changed for a job, None if its object is current.

    An object whose writer has looked at the replica later stays: it is of another service, or this
    one was started again. One that is dated in the future `is_ahead`, and does not count. What a
    job is started from is never deleted before its successor is there.
    """
    manifest = manifest_of(point)
    looked = float(_written(point.observed or 0.0))  # as it is read from an object
    if manifest is None or any(each.observed > looked and not is_ahead(each, now) for each in kept):
        return None
    path = manifest["spec"]["savepoint"]["path"]
    others = tuple(each for each in kept if each.path != path)
    is_there = len(others) < len(kept)
    if is_there and not others:
        return None
    return Change(point.replica, None if is_there else manifest, others)


def is_ahead(kept: Kept, now: float) -> bool:
    """Return whether an object is dated in the future, because a clock is wrong."""
    return kept.observed > now + _CLOCKS_APART


class SnapshotKeeper:
    """Keeps the objects of all jobs of a service current, in a thread of its own.

    The objects of jobs that the service no longer knows stay: once a data centre is lost, nobody
    finds its jobs any more, and then they are needed. A failure is reported with `warn`, and tried
    again; it holds up no replication.
    """

    def __init__(
        self,
        objects: Objects,
        points: Callable[[], Sequence[RestorePoint]],
        warn: Notify,
        clock: Clock = MACHINE,
    ) -> None:
        self._objects, self._points, self._warn, self._clock = objects, points, warn, clock
        self._kept: dict[str, list[Kept]] = {}
        self._listed_at = -math.inf
        self._warn_at = 0.0
        self._unreadable: list[str] = []  # what is wrong with single objects of the list
        self._behind = self._failures = 0
        self._refused: set[str] = set()  # replicas
        self._stopping = threading.Event()

    def __enter__(self) -> SnapshotKeeper:
        in_thread(self._run, "snapshots")
        return self

    def __exit__(self, *_: object) -> None:
        """Stop. A call that is under way is left behind: it holds up no end."""
        self._stopping.set()

    def counts(self) -> SnapshotCounts:
        """Return how many jobs are behind, and how many calls have failed."""
        return SnapshotCounts(self._behind, self._failures)

    def update(self) -> bool:
        """Make the objects of all jobs current, each by itself. Return whether that succeeded.

        Raises nothing: what Kubernetes answers may be odd.
        """
        problems: dict[str, str] = {}  # by replica
        self._unreadable = []
        try:
            points = self._points()
            self._count_behind(points)
            self._list(_LIST_AGAIN)
            self._count_behind(points)
            refused = self._apply_all(points, problems)
            self._settle(refused, problems)
        except Exception as error:  # noqa: BLE001  # the thread goes on; it concerns each object
            problems[""] = f"FlinkStateSnapshots are not current: {described(error)}"
        lines = [*self._unreadable, *problems.values()]
        self._failed(lines)
        return not lines

    def _count_behind(self, points: Sequence[RestorePoint]) -> None:
        self._behind = sum(
            each.starting is None or self._change(each) is not None for each in points
        )

    def _apply_all(
        self, points: Sequence[RestorePoint], problems: dict[str, str]
    ) -> list[RestorePoint]:
        """Apply what is due, what failed last time at last; add what is in the way.

        Returns the jobs whose object was refused. Raises `CpreplicateError` for what would be in
        the way of each further call.
        """
        unanswered, refused = 0, list[RestorePoint]()
        for point in sorted(points, key=lambda each: each.replica in self._refused):
            if self._change(point) is None:
                continue
            self._list(_LIST_BEFORE_A_CHANGE)
            try:
                self._make_current(point)
            except Exception as error:  # it concerns this job only
                self._refused.add(point.replica)
                if _is_of_all(error):
                    raise
                unanswered = unanswered + 1 if isinstance(error, Unanswered) else 0
                reason = described(error)
                problems[point.replica] = (
                    f"{point.name}: its FlinkStateSnapshot is not current: {reason}"
                )
                refused += [point] if isinstance(error, Refused) else []
                if unanswered >= _MOST_UNANSWERED:
                    break
            else:
                unanswered = 0
        return refused

    def _settle(self, refused: Sequence[RestorePoint], problems: dict[str, str]) -> None:
        """Leave out problems with objects that are there: another service has created them."""
        if not refused:
            return
        self._list(0.0)
        for point in refused:
            change = self._change(point)
            if change is None or change.create is None:
                with suppress(Refused):  # it is the deletion that is refused
                    self._make_current(point)
                    del problems[point.replica]

    def _make_current(self, point: RestorePoint) -> None:
        """Apply what is due for a job whose object was not current."""
        if (change := self._change(point)) is not None:  # else another service has done it
            self._apply(change)
        self._refused.discard(point.replica)
        self._behind -= 1

    def _run(self) -> None:
        while not self._stopping.is_set():
            pause = _PAUSE if self.update() else _RETRY
            self._stopping.wait(pause)

    def _list(self, within: float) -> None:
        """List the objects of cpreplicate, unless that was done within some seconds.

        Notes what is wrong with single ones.
        """
        now, problems = self._clock.monotonic(), list[str]()
        if now < self._listed_at + within:
            return
        kept: dict[str, list[Kept]] = {}
        selector = ",".join(f"{key}={value}" for key, value in _OURS.items())
        for found in self._objects.listed(selector):
            try:
                replica = (found["metadata"].get("labels") or {}).get(_REPLICA)
                if replica is not None:
                    kept.setdefault(str(replica), []).append(_kept(found))
            except (TypeError, KeyError, AttributeError) as error:
                problems.append(f"a FlinkStateSnapshot cannot be read: {type(error).__name__}")
        self._kept, self._listed_at, self._unreadable = kept, now, problems

    def _change(self, point: RestorePoint) -> Change | None:
        return change_of(point, self._kept.get(label_of(point.replica), ()), self._clock.now())

    def _apply(self, change: Change) -> None:
        """Create, then delete, and note what is there then."""
        kept = self._kept.setdefault(label_of(change.replica), [])
        if change.create is not None:
            kept.append(_kept(self._objects.create(change.create)))
            self._warn_of_clocks(change)
        for each in change.delete:
            self._objects.delete(each.name, each.uid)
            kept.remove(each)

    def _warn_of_clocks(self, change: Change) -> None:
        """Warn once in a while that another service's clock is ahead: both replace each other."""
        now = self._clock.now()
        ahead = [each for each in change.delete if is_ahead(each, now)]
        if ahead and self._clock.monotonic() >= self._warn_at:
            self._warn_at = self._clock.monotonic() + _LIST_AGAIN
            self._warn(
                f"the FlinkStateSnapshot {ahead[0].name} was dated {ahead[0].observed - now:.0f} s"
                " in the future, and was replaced. Synchronise the clocks of the hosts of services"
                " with NTP"
            )

    def _failed(self, problems: Sequence[str]) -> None:
        if problems:
            self._failures += len(problems)
            self._listed_at = -math.inf  # what is there now is listed before it is trusted
        for line in problems[:_MOST_LINES]:
            self._warn(line)
        if len(problems) > _MOST_LINES:
            self._warn(f"{len(problems)} FlinkStateSnapshots are not current")


def _is_of_all(error: Exception) -> bool:
    """Return whether a failure would be that of each further call, such as a missing CRD."""
    is_of_one = isinstance(error, (Refused, Unanswered))
    return isinstance(error, CpreplicateError) and not is_of_one


def _kept(found: Mapping[str, Any]) -> Kept:
    """Return an object that was listed; what others wrote into it is not trusted to be there."""
    metadata = found["metadata"]
    savepoint = (found.get("spec") or {}).get("savepoint") or {}
    observed = (metadata.get("annotations") or {}).get(_OBSERVED, "")
    try:
        seconds = float(observed)
    except ValueError:
        seconds = 0.0
    return Kept(metadata["name"], metadata["uid"], str(savepoint.get("path", "")), seconds)


def _written(observed: float) -> str:
    """Return a time as an object has it."""
    return f"{observed:.3f}"


def _label(text: str) -> str:
    """Return a text as a label may hold it, with a digest of what it cannot hold.

    https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/
    """
    short = _NO_LABEL.sub("-", text)[:_LONGEST_LABEL].strip("-_.")
    if short == text:
        return short
    return f"{short[: _LONGEST_LABEL - 9]}-{label_of(text)[:8]}".lstrip("-")


def _writable(text: str) -> str:
    """Return a text that JSON carries: names come from outside."""
    return text.encode(errors="replace").decode()
