"""Histories of two data centres on one simulated disk: Flink and cpreplicate beside each other,
drawn from a seed.

What an operation did is judged by the bytes on the disk and by what the model of Flink remembers,
not by what it reports.
"""

from __future__ import annotations

import json
import re
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Any, BinaryIO

import google_crc32c
import pytest

from cpreplicate.core import plan, uri
from cpreplicate.core.ledger import Member, MemberTable
from cpreplicate.core.packs import PackOptions
from cpreplicate.core.retention import Retention
from cpreplicate.errors import CpreplicateError, NotThere, Refused, SourceBroken, UsageError
from cpreplicate.operations.handover import promote, unseal
from cpreplicate.operations.jobs import fleet
from cpreplicate.operations.jobs.job import Job as ReplicatedJob
from cpreplicate.operations.jobs.job import jobs_under
from cpreplicate.operations.sync import sync as sync_operation
from cpreplicate.operations.sync.place import known_root
from cpreplicate.operations.sync.put_off import Backlog
from cpreplicate.operations.sync.report import Report
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.operations.upkeep import relocate, sweep
from cpreplicate.operations.verify import verify
from cpreplicate.protocol import journal, manifest
from cpreplicate.protocol.source import find
from cpreplicate.runners import ExecutionOptions, inline
from cpreplicate.storage import Side, Sides
from cpreplicate.storage.base import Content, Storage
from cpreplicate.storage.statuses import Attributes, FileStatus
from tests.support import checker
from tests.support.cotenant import (
    FIXED,
    METADATA,
    SIDES,
    TAG,
    Checkpoint,
    Flink,
    Job,
    files_of,
    quiet,
)
from tests.support.points import DAY, HOUR, of_restic
from tests.support.registry import serving
from tests.support.simulated import READS, Moment, SimulatedDisk, files
from tests.support.staging import LATER, UNFINISHED, running_on, silent
from tests.support.waiting import PATIENCE

HERE, ALIAS = "file:", "viewfs:"  # two names of the same disk
ARCHIVE = "file:/archive"
ELSEWHERE = "file:/another/disk"
COPIES = "file:/copies"
OWN = ".cpreplicate"
LEASE = f"/{OWN}/lease"
PACKS = "/packed/"
NUMBERED = re.compile(r"chk-(\d+)/_metadata")
COMMITTED = re.compile(r"(.*)/chk-(\d+)/_metadata")
REPLICA_PATH = re.compile(r"(shared|taskowned|foreign|packed|chk-\d+)/(?!(.*/)?_metadata$).+")
PASSING = re.compile(r"(.*/)?\.cpreplicate-tmp-[^/]*|(.*/)?\.cpreplicate/lease[^/]*")
DAYS = 3 * 24 * 3600.0
EVERYTHING = plan.Cap(1, is_share=True)
LINKS = 0.1  # of the things that happen, those that are followed by a link
PLANNED = 0.5  # of the things that happen, those after which another program may write
IN_VAIN = 0.1  # of the things that happen, those that are followed by what must be refused
REPLACED = 0.5  # of what must be refused where a replica is behind, what a job does to a sync
DELAYED = 0.4  # of the steps of a watch, those that leave deletes to the next one
FENCE = re.compile(r".*/\.cpreplicate/\.cpreplicate-tmp-withdrawn-[^/]*(/\.cpreplicate-tmp-[^/]*)?")
PASSING_TIMES = (0.0, 0.0, HOUR / 4, HOUR / 2, HOUR, DAY)  # seconds between what happens
SERIES = 0.1  # of the things that happen, those before which points are kept for hours
ROUNDS = 5  # of syncs, by when a replica has caught up once nothing goes wrong any more


class Crash(BaseException):
    """The process is killed: no step that follows takes effect."""


class Alias(Storage):
    """The same disk under another scheme."""

    def __init__(self, disk: SimulatedDisk) -> None:
        self._disk = disk

    def open(self, uri: str) -> BinaryIO:
        return self._disk.open(here(uri))

    def stat(self, uri: str) -> FileStatus | None:
        found = self._disk.stat(here(uri))
        return found and _there(found)

    def list(self, uri: str) -> list[FileStatus]:
        return [_there(each) for each in self._disk.list(here(uri))]

    def put(
        self,
        uri: str,
        content: Content,
        expect: Callable[[int], None] | None = None,
        attributes: Attributes | None = None,
        replace: bool = True,
    ) -> int:
        return self._disk.put(here(uri), content, expect, attributes, replace)

    def create_exclusive(self, uri: str, data: bytes) -> bool:
        return self._disk.create_exclusive(here(uri), data)

    def take_over(self, uri: str, seen: bytes, data: bytes) -> bool:
        return self._disk.take_over(here(uri), seen, data)

    def move(self, uri: str, new_uri: str) -> bool:
        return self._disk.move(here(uri), here(new_uri))

    def delete(self, uri: str, durable: bool = False) -> bool:
        return self._disk.delete(here(uri), durable)

    def rmdir(self, uri: str) -> bool:
        return self._disk.rmdir(here(uri))


def here(place: str) -> str:
    """The place under the name that the disk has for it."""
    return HERE + place.removeprefix(ALIAS) if place.startswith(ALIAS) else place


def _there(status: FileStatus) -> FileStatus:
    return status._replace(uri=ALIAS + status.uri.removeprefix(HERE))


def _is_of(damage: bytes, copy: checker.Need, found: bytes | None) -> bool:
    """Whether a file that was damaged at the source was copied as it is, or into a pack."""
    if found is None or found == damage:
        return found is not None
    return copy.is_packed and damage.startswith(found[copy.position : copy.extent])


@dataclass(frozen=True)
class Operation:
    """A run of cpreplicate. `replica` is the directory that it works on, `source` the one below
    which it changes nothing.

    `because` is why it must not succeed, `must_succeed` that nothing stands in its way.
    """

    kind: str
    text: str
    run: Callable[[], object]
    replica: str = ""
    source: str = ""
    request: SyncRequest | None = None
    because: str = ""
    must_succeed: bool = False


class Watcher:
    """Watches each step of an operation, has Flink go on in its midst, and kills it at a step."""

    def __init__(self, world: World, operation: Operation, crash_at: int, churn: float) -> None:
        self.wrong: list[str] = []
        self.meddled = self.crashed = 0
        self._world, self._operation = world, operation
        self._crash_at, self._churn = crash_at, churn
        self._steps = 0

    def __call__(self, moment: Moment, verb: str, place: str) -> None:
        self._steps += 1
        if self.crashed or self._steps == self._crash_at:
            self.crashed = 1
            raise Crash
        if moment != "before":
            self._look(verb, place)
        elif verb not in READS:
            self._look_at_source(verb, place)
        if (
            moment == "before"
            and self._churn
            and self.meddled < 2
            and self._world.draw.random() < self._churn
        ):
            self.meddled += 1
            self._world.model_step("    in the midst: ")

    def _look(self, verb: str, place: str) -> None:
        owned = self._world.flink.owned
        if place in owned and self._world.disk.data(place) != owned[place]:
            self.wrong.append(f"{verb} changed Flink's {place}")

    def _look_at_source(self, verb: str, place: str) -> None:
        root = self._operation.source
        path = uri.below(place, root) if root else None
        if path is None and place != root:
            return
        is_of_lease = path is not None and PASSING.fullmatch(path) is not None
        if not is_of_lease and verb not in ("mkdir", "rmdir"):
            self.wrong.append(f"the source was written to: {verb} {place}")


class World:
    """Two data centres, the layout of their directories, and all that happens to them."""

    def __init__(self, seed: object, is_adopting: bool = False, is_sharing: bool = False) -> None:
        """With `is_adopting` both sides replicate into Flink's own directories, under one id,
        mostly with --adopt. With `is_sharing` they do so under one id or many, jobs start from
        replicas that nobody promoted, and manifests are forged.
        """
        self.draw = draw = Random(f"cotenant {seed}")
        # draws of their own, else all histories change
        self.packing, self.linking = Random(f"packing {seed}"), Random(f"linking {seed}")
        self.trying, self.delaying = Random(f"trying {seed}"), Random(f"delaying {seed}")
        self.planning = Random(f"planning {seed}")
        self.following, self.keeping = Random(f"following {seed}"), Random(f"keeping {seed}")
        self.has_points = self.keeping.random() < 0.5  # syncs keep some by their time
        self.packs = self.keeping.choice([0.25, 0.9]) if self.has_points else 0.25
        self.disk = SimulatedDisk(links=draw.random() < 0.3)
        self.disk.pieces = 1
        self.flink = Flink(self.disk, draw, draw.choice([1, 1, 2]), draw.random() < 0.25)
        self.layout = draw.choice(["own", "own", "flink", "flink", "archive"])
        self.is_fixed = draw.random() < 0.5
        self.adopting = 0.4 if self.layout == "flink" else 0.05
        self.operations: Mapping[Callable[..., object], float] = OPERATIONS
        if is_adopting:
            self.layout, self.is_fixed, self.adopting, self.operations = (
                "flink",
                True,
                0.8,
                ADOPTING,
            )
        if is_sharing:
            self.layout, self.adopting, self.operations = "flink", 0.8, SHARING
        ids = "fixed ids" if self.is_fixed else "new ids"
        kind = f"is_adopting={is_adopting}, is_sharing={is_sharing}"
        self.history = [f"World({seed!r}, {kind}): layout {self.layout}, {ids}"]
        self.crashes, self.churns = draw.choice([0.0, 0.15, 0.3]), draw.choice([0.0, 0.2, 0.5])
        self.oddity = draw.choice([0.05, 0.2, 0.5])
        self.wrong: list[str] = []
        self.counts: Counter[str] = Counter()
        self.damaged: dict[str, bytes] = {}
        self.damages: set[bytes] = (
            set()
        )  # also of files that were repaired, or damaged again, since
        self.hidden: set[str] = set()  # damage of equal length to a recorded file
        self.broken: set[str] = set()  # replicas of which a record was damaged
        # replicas that were synced under another name, of themselves or of the source
        self.renamed: set[str] = set()
        self.secondhand: set[str] = set()  # replicas of replicas: damage comes with what is copied
        self.adopted: dict[
            str, set[str]
        ] = {}  # replica to Flink's checkpoints that were there when it was adopted
        self.sources: dict[str, set[str]] = {}  # replica to the roots that were replicated there
        self.starts: dict[str, Job] = {}  # sealed replica to the job that was started from it
        # of these, a run of that id completed a checkpoint after the seal and before the start
        self.unclear: set[str] = set()
        self.backlogs: dict[str, Backlog] = {}
        self.delayed = DELAYED
        self.strangers: set[str] = set()  # files that another tool put where a sync will copy
        self.unproven: set[str] = set()  # those where a run that died planned to write
        self._judged: dict[str, object] = {}

    # What happens

    def play(self, steps: int) -> list[str]:
        """Let so many things happen.

        Returns what was wrong, at the first moment that anything was.
        """
        ids = Random(self.draw.random())
        with (
            running_on(self.disk),
            serving("viewfs", Alias(self.disk)),
            pytest.MonkeyPatch.context() as patch,
        ):
            patch.setattr(uuid, "uuid4", lambda: uuid.UUID(int=ids.getrandbits(128), version=4))
            patch.setattr(inline, "PAUSE", 0.0)
            self.model_step("")
            for _ in range(steps):
                self.model_steps()
                if self.has_points:
                    self.let_time_pass()
                self.draw.choices(*zip(*self.operations.items(), strict=True))[0](self)
                if self.planning.random() < PLANNED and not self.wrong:
                    self.write_where_a_run_planned()
                if self.linking.random() < LINKS and not self.wrong:
                    self.link()
                if self.trying.random() < IN_VAIN and not self.wrong:
                    self.try_in_vain()
                if self.wrong:
                    break
            if not self.wrong:
                self.settle()
        return self.wrong

    def let_time_pass(self) -> None:
        """Some time passes, sometimes hours in which a job's points are kept."""
        self.disk.clock.pass_(self.keeping.choice(PASSING_TIMES))
        if self.keeping.random() < SERIES:
            self.keep_points()

    def settle(self) -> None:
        """Nothing crashes or meddles any more: each job that nothing keeps from it is replicated
        within some rounds.
        """
        self.crashes = self.churns = 0.0
        for root, side in {job.root: job.side for job in self.flink.jobs}.items():
            request = SyncRequest(
                root,
                self._target(_other(side)),
                execution=ExecutionOptions(runner="inline", parallelism=1),
                subsumption_wait=0.0,
            )
            operation = self._sync_operation(request, is_odd=False)
            if operation.must_succeed and not self._catches_up(operation):
                self.wrong.append(f"{root} is not replicated after {ROUNDS} rounds")

    def _catches_up(self, operation: Operation) -> bool:
        for _ in range(ROUNDS):
            outcome = self._perform(operation)
            if self.wrong or (isinstance(outcome, Report) and outcome.plan.empty):
                return True
        return False

    def model_steps(self) -> None:
        for _ in range(self.draw.choice([0, 1, 1, 2, 3])):
            self.model_step("")

    def model_step(self, prefix: str) -> None:
        """Flink goes on: somewhere a job starts, ends, uploads, or completes a checkpoint."""
        self.disk.clock.pass_(self.draw.choice([1.0, 1.0, 5.0]))
        with quiet(self.disk):
            self.history.append(prefix + self._model_step())
        self.disk.clock.pass_(1.0)

    def _model_step(self) -> str:
        running = self.flink.running()
        may_start = not all(map(self._is_taken, SIDES)) and len(self.flink.jobs) < 6
        if not running or (may_start and self.draw.random() < 0.15):
            return self._start()
        job = self.draw.choice(running)
        what = self.draw.choices(
            [self.flink.complete, self.flink.upload, self.flink.abandon, self._end], [12, 3, 0.7, 1]
        )[0]
        found = what(job)
        return (
            f"{job} {what.__name__} {found or ''}"
            if not isinstance(found, Checkpoint)
            else f"{job} completes {found.place}"
        )

    def _end(self, job: Job) -> str:
        how = self.draw.choice([self.flink.cancel, self.flink.fail])
        how(job)
        return how.__name__

    def _start(self) -> str:
        side = self.draw.choice([side for side in SIDES if not self._is_taken(side)])
        root = self._flink(side, FIXED if self.is_fixed else f"{len(self.flink.jobs) + 1:032x}")
        starts = [
            each
            for each in self.flink.complete_on_disk()
            if uri.within(each.place, f"file:/dc{side}") and self._is_whole(each)
        ]
        if not starts or self.draw.random() < 0.4:
            return f"{self.flink.start(side, root)} starts from scratch"
        return self._restore(side, root, self.draw.choice(starts))

    def _restore(self, side: str, root: str, start: Checkpoint) -> str:
        may_claim = not any(start in job.store for job in self.flink.running())
        mode = self.draw.choice(
            ["NO_CLAIM", "CLAIM", "LEGACY"] if may_claim else ["NO_CLAIM", "LEGACY"]
        )
        job = self.flink.restore(side, root, start, mode)  # type: ignore[arg-type]
        return f"{job} starts from {start.place} with {mode}"

    def _is_taken(self, side: str) -> bool:
        return self.is_fixed and any(job.side == side for job in self.flink.running())

    @staticmethod
    def _flink(side: str, job: str = "") -> str:
        return f"file:/dc{side}/flink" + (f"/{job}" if job else "")

    def _target(self, side: str) -> str:
        """TARGET_ROOT of replications to this side."""
        return {"own": f"file:/dc{side}/replicas", "flink": self._flink(side), "archive": ARCHIVE}[
            self.layout
        ]

    # Operations

    def sync(
        self,
        *,
        job: Job | None = None,
        follow: bool = False,
        keep: Retention | int | None = None,
    ) -> None:
        job = job or self._any_job()
        source, target = job.root, self._target(_other(job.side))
        remaps: tuple[uri.Remap, ...] = ()
        is_odd = self.draw.random() < self.oddity
        if is_odd:
            source, target, remaps = self._odd(job)
        elif self.draw.random() < 0.1 and (
            numbers := [
                each for each in self.flink.complete_on_disk() if each.place.startswith(source)
            ]
        ):
            source = self.draw.choice(numbers).place
        request = SyncRequest(
            source,
            target,
            paths=self.draw.choice(["auto", "auto", "relative", "absolute"]),
            keep=self._stated(self.draw.choice([1, 1, 2, 3])) if keep is None else keep,
            keep_less=True,  # tests/histories/test_retention.py has those that are refused
            remaps=remaps,
            adopt=self.draw.random() < self.adopting,
            same_source=self.draw.random() < (0.4 if is_odd else 0.05),
            allow_older=self.draw.random() < 0.4,
            check_content=self.draw.random() < 0.15,
            async_deletes=self.draw.random() < 0.2 or follow,
            packing=PackOptions("on" if self.packing.random() < self.packs else "off", 1 << 20),
            execution=ExecutionOptions(runner="inline", parallelism=1),
            subsumption_wait=0.0,
            name=self.name_of(job),
        )
        self._perform(self._sync_operation(request, is_odd, follow))

    def name_of(self, job: Job) -> str | None:  # noqa: ARG002  # here none has one
        """Return the name of a job that a sync records."""
        return None

    def _stated(self, last: int) -> Retention | int | None:
        """Return a retention, or sometimes that none is stated."""
        stated = self._retention(last)
        return None if self.keeping.random() < 0.3 else stated

    def _retention(self, last: int) -> Retention | int:
        """Return so many points, and mostly, where points are kept by their time, more of them."""
        if not self.has_points or self.keeping.random() < 0.2:
            return last
        choose = self.keeping.choice
        within = choose([0.0, 60.0, HOUR, DAY])
        return Retention(last, within, choose([0, 0, 2, 5]), choose([0, 0, 2]))

    def keep_points(self) -> None:
        """A job goes on for hours, and each of its checkpoints is synced with the same words."""
        running = self.flink.running()
        if not running:
            return
        job, keep = self.keeping.choice(running), self._retention(1)
        for _ in range(self.keeping.randint(2, 6)):
            self.disk.clock.pass_(self.keeping.choice(PASSING_TIMES))
            with quiet(self.disk):
                self.flink.complete(job)
            self.sync(job=job, keep=keep)
            if self.wrong or job not in self.flink.running():
                return

    def _odd(self, job: Job) -> tuple[str, str, tuple[uri.Remap, ...]]:
        """A sync as nobody should make it: other names, swapped, into itself, another source."""
        name = uri.name(job.root)
        by_name = (uri.Remap(HERE, ALIAS),) if self.draw.random() < 0.8 else ()
        roots = [
            self._flink("A"),
            self._flink("B"),
            "file:/dcA/replicas",
            "file:/dcB/replicas",
            ARCHIVE,
        ]
        odd = self.draw.randrange(6)
        if odd == 0:
            return ALIAS + job.root.removeprefix(HERE), self._target(_other(job.side)), by_name
        if odd == 1:
            return (
                ALIAS + job.root.removeprefix(HERE),
                self.draw.choice([self._flink(job.side), f"{job.root}/inner"]),
                by_name,
            )
        if odd == 2:
            return f"{self._target(_other(job.side))}/{name}", self.draw.choice(roots), ()
        if odd == 3:
            replica = f"{self._target(_other(job.side))}/{name}"
            return ALIAS + replica.removeprefix(HERE), uri.parent(replica), by_name
        if odd == 4:
            return job.root, ALIAS + self._target(_other(job.side)).removeprefix(HERE), ()
        return job.root, self.draw.choice([*roots, job.root, f"{job.root}/inner"]), ()

    def _sync_operation(
        self, request: SyncRequest, is_odd: bool, follow: bool = False
    ) -> Operation:
        root = request.source.rpartition("/chk-")[0] or request.source
        with quiet(self.disk):
            replica = here(known_root(request))
        options = [
            name
            for name in ("adopt", "same_source", "allow_older", "check_content", "async_deletes")
            if getattr(request, name)
        ]
        text = (
            f"{request.source} -> {request.target_root} keep={request.keep} paths={request.paths}"
            f" {' '.join(options)}"
        )
        text += f" pack={request.packing.mode}"
        text += f" remap={request.remaps[0]}" if request.remaps else ""
        because = self._why_no_sync(request, here(root), replica)
        run = (
            (lambda: self._watch_step(request, replica))
            if follow
            else (lambda: sync_operation.sync(request, silent))
        )
        must = (
            not is_odd
            and request.source == root
            and self._must_succeed(request, root, replica)
            and not because
        )
        return Operation(
            "watch" if follow else "sync", text, run, replica, here(root), request, because, must
        )

    def _why_no_sync(self, request: SyncRequest, root: str, replica: str) -> str:
        there = self._below(replica)
        tenants = self._tenants(replica) - self.adopted.get(replica, set())
        if f"{OWN}/sealed" in there:
            return "the replica is sealed"
        if replica == root or uri.below(replica, root) or uri.below(root, replica):
            return "source and target are one directory, or nested"
        if f"{OWN}/replica.json" not in there:
            is_foreign = any(not PASSING.fullmatch(path) for path in there)
            return "the directory is not a replica" if is_foreign and not request.adopt else ""
        if tenants and not (request.adopt and replica in self.adopted):
            return f"a job keeps {min(tenants)}"
        known = self.sources.get(replica, {root})
        return "" if root in known or request.same_source else f"the replica is of {known}"

    def _must_succeed(self, request: SyncRequest, root: str, replica: str) -> bool:
        if (
            self.layout == "flink"
            or request.target_root not in (self._target("A"), self._target("B"))
            or replica in self.broken | self.renamed
            or any(place.startswith(f"{replica}/packed/") for place in self.hidden)
        ):
            return False  # the last: a damaged member cannot move to another pack
        newest = self._newest(root)
        if newest is None or not self._is_whole(newest) or replica in self.adopted:
            return False
        known = self.sources.get(replica, {root})
        numbers = [
            each.number for each in self.flink.complete_on_disk() if uri.parent(each.place) == root
        ]
        # a job that claimed this one's checkpoint may have deleted it, and the replica has it still
        committed = map(NUMBERED.fullmatch, self._below(replica))
        numbers += [int(match[1]) for match in committed if match is not None]
        is_highest = not self.is_fixed and newest.number == max(numbers)
        is_clear = is_highest or (request.allow_older and self._is_last(newest, replica))
        return (
            is_clear
            and known == {root}
            and not any(uri.below(each, replica) for each in self.flink.owned)
        )

    def _is_last(self, newest: Checkpoint, replica: str) -> bool:
        """Whether no checkpoint that was published last was completed later than this one."""
        held = newest_recorded(self.disk, replica)
        if held is None:
            return True
        record = self.disk.data(f"{replica}/{OWN}/{held}.json")
        completed = json.loads(record or b"{}").get("completed") or 0.0
        return bool(completed <= self.disk.modified(newest.metadata))

    def _watch_step(self, request: SyncRequest, replica: str) -> object:
        newest = find(request.source, Side(), request.allow_older).checkpoint
        backlog = self.backlogs.setdefault(replica, Backlog(request))
        backlog.request, was_delayed = request, bool(backlog.targets)
        report = sync_operation.sync(replace(request, source=newest), silent)
        backlog.add(report)
        if not was_delayed and self.delaying.random() < self.delayed and backlog.targets:
            self.counts["deletes were delayed"] += 1
            return report
        backlog.work_off(time.monotonic() + PATIENCE, silent)
        return report

    def watch(self) -> None:
        self.sync(follow=True)

    def fleet(self) -> None:
        """Both directions, one after the other."""
        for side in SIDES:
            if self.wrong or not self.disk.snapshot().get(self._flink(side)):
                continue
            text = f"{self._flink(side)} -> {self._target(_other(side))}"
            self._perform(Operation("fleet", text, lambda side=side: self._fleet(side), source=""))  # type: ignore[misc]

    def _fleet(self, side: str) -> object:
        names = jobs_under(self._flink(side), Side())
        standbys = {*self._replicas()} - {*self._sealed(), *self.broken}
        target = self._target(_other(side))
        jobs = [
            ReplicatedJob(
                each,
                SyncRequest(
                    each,
                    target,
                    keep=self._retention(1),
                    keep_less=True,
                    execution=ExecutionOptions(runner="inline", parallelism=1),
                    subsumption_wait=0.0,
                ),
                is_discovered=True,
            )
            for each in names
        ]
        report = fleet.replicate_fleet(
            jobs,
            ExecutionOptions(runner="inline", parallelism=1),
            Sides(),
            silent,
            settings=fleet.FleetSettings(at_once=1),
        )
        unexpected = [each.error for each in report.jobs if each.exit_code == 1]
        assert not unexpected, unexpected
        met = [each for each in report.jobs if each.source in standbys]
        self.counts["a fleet met a replica"] += bool(met)
        self.wrong += [
            f"a fleet did not skip the replica {each.source}: {each.outcome}"
            for each in met
            if each.outcome != "skipped"
        ]
        return report

    def sweep(self, replica: str = "") -> None:
        replica = replica or self._any_replica()
        self.disk.clock.pass_(self.draw.choice([0.0, DAYS]))
        trash, empty_trash = self.draw.random() < 0.3, self.draw.random() < 0.3
        age = self.draw.choice([0.0, 10.0, 3600.0])
        request = sweep.SweepRequest(
            replica,
            age,
            EVERYTHING,
            execution=ExecutionOptions(runner="inline", parallelism=1),
            trash=trash,
            empty_trash=empty_trash,
        )
        self._perform(
            self._upkeep(
                "sweep",
                f"{replica} min_age={age} trash={trash} empty_trash={empty_trash}",
                lambda: sweep.sweep(request, silent),
                replica,
            )
        )

    def relocate(self) -> None:
        replica, paths = self._any_replica(), self.draw.choice(["relative", "absolute"])
        request = relocate.RelocateRequest(replica, paths)  # type: ignore[arg-type]
        self._perform(
            self._upkeep(
                "relocate",
                f"{replica} {paths}",
                lambda: relocate.relocate(request, silent),
                replica,
            )
        )

    def promote(self, replica: str = "") -> bool:
        replica = replica or self._any_replica()
        request = promote.PromoteRequest(replica)
        outcome = self._perform(
            self._upkeep("promote", replica, lambda: promote.promote(request, silent), replica)
        )
        return isinstance(outcome, promote.Promotion) and outcome.sealed is not None

    def unseal(self) -> None:
        sealed = self._sealed()
        if not sealed:
            return
        replica = self.draw.choice(sealed)
        job = self.starts.get(replica)
        needs = (
            job is not None
            and job.is_running
            and any(uri.below(each, replica) for each in job.needed)
        )
        if needs and replica in self.unclear:
            return  # docs/failback.md: `unseal` cannot see which run of an id completed one
        if needs or (job is not None and self.draw.random() < 0.7):
            assert job is not None
            request = unseal.UnsealRequest(replica, job.root)
        else:
            request = unseal.UnsealRequest(replica, None)
        operation = self._upkeep(
            "unseal", f"{replica} job={request.job}", lambda: unseal.unseal(request), replica
        )
        self._perform(
            replace(operation, because=f"{job} needs the replica") if needs else operation
        )

    def fail_over(self) -> None:
        """Promote a replica and start a job from it, which may be replicated back."""
        replicas = [each for each in self._replicas() if "/dc" in each]
        if not replicas:
            return
        replica = self.draw.choice(replicas)
        if replica not in self._sealed() and not self.promote(replica):
            return
        side = "A" if replica.startswith("file:/dcA/") else "B"
        start = self._promoted(replica)
        if replica in self.starts or self.wrong or start is None:
            return
        if self._is_taken(side):
            for job in [each for each in self.flink.running() if each.side == side]:
                self.flink.cancel(job)
        job = self._started(side, replica, start)
        for _ in range(self.draw.randint(0, 3)):
            self.model_step("")
        if self.draw.random() < 0.6:
            with quiet(self.disk):
                self.flink.complete(job)
            self.sync(job=job)
        elif self.draw.random() < 0.5:
            self.unseal()

    def _started(self, side: str, replica: str, start: Checkpoint) -> Job:
        name = (
            FIXED
            if self.is_fixed
            else self.draw.choice([f"{len(self.flink.jobs) + 1:032x}", uri.name(replica)])
        )
        for job in [each for each in self.flink.running() if each.root == self._flink(side, name)]:
            self.flink.cancel(job)  # one job of an id runs at a time
        if self._completed_since_the_seal(self._flink(side, name), replica):
            self.unclear.add(replica)
        mode = self.draw.choice(["NO_CLAIM", "CLAIM"])
        job = self.starts[replica] = self.flink.restore(side, self._flink(side, name), start, mode)  # type: ignore[arg-type]
        self.history.append(f"{job} starts from the replica {start.place} with {mode}")
        return job

    def _completed_since_the_seal(self, root: str, replica: str) -> bool:
        sealed = self.disk.stat(f"{replica}/{OWN}/sealed")
        return sealed is not None and any(
            uri.below(made.place, root) and self.flink.completed[tag] >= sealed.modified
            for tag, made in self.flink.checkpoints.items()
        )

    def share(self) -> None:
        """Replicate into a directory of others, start a job from the replica, and go on with both.

        Nobody promoted the replica, and the job writes its checkpoints below it.
        """
        job, replica = self._sync_among_others()
        if not replica:
            return
        self._start_unpromoted(replica, completed=self.draw.randint(0, 3))
        with quiet(self.disk):
            if job in self.flink.running():
                self.flink.complete(job)
        self.sync(job=job, follow=self.draw.random() < 0.5)
        if not self.wrong and self.draw.random() < 0.5:
            self.sweep(replica)

    def delay(self) -> None:
        """A watch delays its deletes, and a job that was started before needs what they delete.

        Its first checkpoint shows that, which is accepted before the watch goes on.
        """
        job, replica = self._sync_among_others()
        if not replica or job not in self.flink.running():
            return
        self._start_unpromoted(replica, completed=0)
        with quiet(self.disk):
            self.flink.complete(job)
        self.delayed = 1.0
        self.sync(job=job, follow=True)
        self.delayed = DELAYED
        if self.wrong or not (replica in self.backlogs and self.backlogs[replica].targets):
            return
        with quiet(self.disk):
            for started in [each for each in self.flink.running() if each.root == replica]:
                self.flink.complete(started)
                self.counts["completed before delayed deletes"] += 1
        self.sync(job=job, follow=True)

    def _sync_among_others(self) -> tuple[Job, str]:
        """Replicate any job into a directory of others. Return the job and the replica, or ""."""
        job = self._any_job()
        replica = f"{self._target(_other(job.side))}/{uri.name(job.root)}"
        if not self._below(replica):
            place = f"{replica}/shared/of-another"
            self.disk.place(place, b"of another program")
            self.flink.owned[place] = b"of another program"
        self.sync(job=job)
        if self.wrong or replica not in self._replicas() or replica in self._sealed():
            return job, ""
        return job, replica

    def _start_unpromoted(self, replica: str, completed: int) -> None:
        newest = newest_recorded(self.disk, replica)
        start = self._published(f"{replica}/{newest}") if newest is not None else None
        if start is None:
            return
        side = "A" if replica.startswith("file:/dcA/") else "B"
        root = self._flink(side, uri.name(replica))
        for job in [each for each in self.flink.running() if each.side == side]:
            if self.is_fixed or job.root == root:
                self.flink.cancel(job)  # one job of an id runs at a time
        mode = self.draw.choice(["NO_CLAIM", "CLAIM", "LEGACY", "LEGACY"])
        job = self.flink.restore(side, root, start, mode)  # type: ignore[arg-type]
        self.history.append(f"{job} starts from {start.place}, not promoted, with {mode}")
        self.counts["started unpromoted"] += 1
        with quiet(self.disk):
            for _ in range(completed):
                self.flink.complete(job)

    def sync_restored(self) -> None:
        """Sync a job, start another one from its newest checkpoint, and sync that one, too.

        The manifest of the earlier job's replica may be forged in between.
        """
        earlier = self._any_job()
        if self.is_fixed or len(self.flink.jobs) >= 8:
            return
        self.sync(job=earlier)
        start = self._newest(earlier.root)
        if self.wrong or start is None or not self._is_whole(start):
            return
        root = self._flink(earlier.side, f"{len(self.flink.jobs) + 1:032x}")
        job = self.flink.restore(earlier.side, root, start, "LEGACY")
        self.history.append(f"{job} starts from {start.place} with LEGACY")
        with quiet(self.disk):
            self.flink.complete(job)
        replica = f"{self._target(_other(earlier.side))}/{uri.name(earlier.root)}"
        if self.draw.random() < 0.5 and self._forge(replica):
            self.counts["forged"] += 1
            self.broken.add(replica)
        self.sync(job=job)

    def _forge(self, replica: str) -> bool:
        """Have a manifest name another file, which is no pack, as the pack of all files."""
        name = newest_recorded(self.disk, replica)
        with quiet(self.disk):
            listed = manifest.read(self.disk, replica, name) if name is not None else None
        others = {
            place: data
            for place, data in files(self.disk.snapshot(), replica).items()
            if data
            and place not in self.flink.owned
            and not any(part in place for part in (OWN, METADATA, PACKS))
        }
        if listed is None or not others:
            return False
        place = max(sorted(others), key=lambda each: len(others[each]))
        data, pack = others[place], str(uri.below(place, replica))
        members = {
            path: Member(pack, 0, entry.length, google_crc32c.value(data[: entry.length]))
            for path, entry in listed.entries.items()
            if entry.length <= len(data) and path != pack
        }
        entries = {path: each for path, each in listed.entries.items() if path not in members}
        entries[pack] = manifest.ManifestEntry(len(data), len(data), None)
        forged = listed._replace(
            entries=manifest.ManifestTable.of(entries), members=MemberTable.of(members)
        )
        with quiet(self.disk):
            manifest.write(self.disk, replica, str(name), forged)
        self.history.append(f"forged: {replica} {name} names {place}")
        return bool(members)

    def _promoted(self, replica: str) -> Checkpoint | None:
        seal = json.loads(self.disk.data(f"{replica}/{OWN}/sealed") or b"{}")
        return self._published(f"{replica}/{seal['checkpoint']}")

    def _published(self, place: str) -> Checkpoint | None:
        """The checkpoint of a replica in this directory, if it is whole."""
        data = self.disk.data(f"{place}/{METADATA}")
        tag = TAG.search(data) if data is not None else None
        if data is None or tag is None:
            return None
        found = Checkpoint(
            place,
            self.flink.checkpoints[tag[0]].number,
            tuple(files_of(f"{place}/{METADATA}", data)),
            tag[0],
        )
        return found if self._is_whole(found) else None

    def damage(self) -> None:
        """Another tool, an operator or a disk changes a file of a replica, or puts one where a next
        sync will copy.
        """
        replicas = [each for each in self._replicas() if each not in self._sealed()]
        if not replicas:
            return
        replica = self.draw.choice(replicas)
        there = self._below(replica)
        paths = [
            path
            for path in sorted(there)
            if REPLICA_PATH.fullmatch(path) and f"{replica}/{path}" not in self.flink.owned
        ]
        paths += self._to_come(replica, there)
        if paths and self.draw.random() < 0.9:
            path = self.draw.choice(paths)
            self._damage(replica, path, there)
            if f"{replica}/{path}" in self.strangers and self.draw.random() < 0.7:
                self._sync_around_a_stranger(replica)
        elif self.draw.random() < 0.5:
            self._damage_record(replica, there)

    def _sync_around_a_stranger(self, replica: str) -> None:
        """Sync, and mostly go on until the replica no longer needs what the other program wrote."""
        jobs = [job for job in self.flink.jobs if job.root in self.sources[replica]]
        job = self.draw.choice(jobs)
        self.sync(job=job)
        if job not in self.flink.running() or self.following.random() < 0.3:
            return
        for _ in range(2):
            with quiet(self.disk):
                self.flink.complete(job)
            if not self.wrong:
                self.sync(job=job)

    def _to_come(self, replica: str, there: Mapping[str, bytes]) -> list[str]:
        newest = [self._newest(root) for root in self.sources.get(replica, ())]
        files = [
            (each, place) for each in newest if each is not None for place in sorted(each.files)
        ]
        paths = [uri.below(place, uri.parent(each.place)) for each, place in files]
        return [path for path in paths if path is not None and path not in there]

    def _damage(self, replica: str, path: str, there: Mapping[str, bytes]) -> None:
        place = f"{replica}/{path}"
        sound = there.get(path) or self.draw.randbytes(self.draw.choice([1, 40]))
        kind = self.draw.choice(["empty", "truncated", "extended", "zeros", "garbage"])
        known, merged = recorded(self.disk, replica), "merged-" in path
        is_planned = path in known and known[path] is None and not merged
        if path not in there and (is_planned or not self._is_ours(replica, path)):
            self._put_stranger(replica, path, is_planned)
            return
        data = {
            "empty": b"",
            "truncated": sound[: len(sound) // 2],
            "extended": sound + b"more",
            "zeros": bytes(len(sound)),
            "garbage": self.draw.randbytes(len(sound)),
        }[kind]
        if data == there.get(path):
            return
        if self._put_off(replica).get(path) == len(data):  # the service knows it by its length
            known[path], is_planned = len(data), False
        if is_planned and not self._is_ours_but_for_plans(replica, path):
            self._replace_by_a_stranger(place, data)
            return
        length = known.get(path)
        is_pack = path.startswith("packed/") and length is not None and length <= len(data)
        if length == len(data) or is_pack:
            self.hidden.add(place)
        else:
            self.hidden.discard(place)
        self.disk.place(place, data)
        self.damaged[place] = data
        self.damages.add(data)
        self.history.append(f"damage: {place} is {kind}")

    def _put_off(self, replica: str) -> Mapping[str, int]:
        """What a service is going to delete of a replica, with the lengths that it has noted."""
        return self.backlogs[replica].lengths if replica in self.backlogs else {}

    def _is_ours(self, replica: str, path: str) -> bool:
        """Whether records say that cpreplicate wrote this file, or may have."""
        return path in recorded(self.disk, replica) or self._is_ours_but_for_plans(replica, path)

    def _is_ours_but_for_plans(self, replica: str, path: str) -> bool:
        committed = (f"{replica}/{each}" for each in self._below(replica))
        needed = (self._needed(each) for each in committed if COMMITTED.fullmatch(each))
        return replica in self.broken or any(f"{replica}/{path}" in places for places in needed)

    def _replace_by_a_stranger(self, place: str, data: bytes) -> None:
        """Another program replaces a file of which only a plan says that cpreplicate wrote it."""
        self.disk.place(place, data)
        self.flink.owned[place] = data
        self.strangers.add(place)
        self.unproven.add(place)
        self.counts["a stranger where a run only planned to write"] += 1
        self.history.append(f"another program's: {place}, which a run planned to write")

    def write_where_a_run_planned(self) -> None:
        """Another program writes where a run that died planned to. Then one syncs or sweeps."""
        for replica in self._replicas():
            if replica in self.broken or replica in self._sealed():
                continue
            paths = [
                path
                for path, length in sorted(recorded(self.disk, replica).items())
                if length is None
                and REPLICA_PATH.fullmatch(path)
                and not path.startswith("packed/")
                and "merged-" not in path
                and f"{replica}/{path}" not in self.flink.owned
                and not self._is_ours_but_for_plans(replica, path)
                and path not in self._put_off(replica)  # its run did not die, and knows them
            ]
            if paths:
                place = f"{replica}/{self.planning.choice(paths)}"
                there = self.disk.data(place) or b"another program's"
                self._replace_by_a_stranger(place, _other_than(there))
                self.planning.choice([self.sweep, self.sync])()
                return

    def _put_stranger(self, replica: str, path: str, is_planned: bool) -> None:
        """Another program has a file at the path of a copy, which may equal the source's.

        Where a run planned to write, an equal one is proved to be cpreplicate's, so it differs.
        """
        place = f"{replica}/{path}"
        sound = next(
            data
            for root in sorted(self.sources[replica])
            if (data := self.flink.ever.get(f"{root}/{path}")) is not None
        )
        is_equal = self.draw.random() < 0.7 and not is_planned
        data = sound if is_equal else _other_than(sound)
        self.disk.place(place, data)
        self.flink.owned[place] = data
        self.strangers.add(place)
        self.counts["a stranger that equals" if is_equal else "a stranger that differs"] += 1
        if is_planned:
            self.unproven.add(place)
            self.counts["a stranger where a run only planned to write"] += 1
        self.history.append(f"another program's: {place}, equal: {is_equal}")

    def _damage_record(self, replica: str, there: Mapping[str, bytes]) -> None:
        records = [
            path
            for path in sorted(there)
            if path.startswith(OWN) and path.endswith((".json", ".parquet"))
        ]
        path = self.draw.choice(records)
        self.disk.place(f"{replica}/{path}", b"damaged")
        self.broken.add(replica)
        for place in [each for each in self.strangers if uri.below(each, replica)]:
            self.flink.owned.pop(place, None)  # no record says any more whose they are
        self.history.append(f"damage: {replica}/{path} is garbage")

    def link(self) -> None:
        """An operator has a directory of a replica elsewhere, or in its source, by a link.

        Nothing succeeds then and nothing is changed but the lease, which a run takes over from a
        dead one before it looks, and that one's fence. The operator takes the link back.
        """
        replicas = [each for each in self._replicas() if self.sources.get(each)]
        if not replicas:
            return
        replica = self.linking.choice(replicas)
        source = self.linking.choice(sorted(self.sources[replica]))
        if not self._is_replica_of(source, replica):
            return  # of another name of it, under which it would have another replica
        children = sorted({path.partition("/")[0] for path in self._below(replica)})
        place = f"{replica}/{self.linking.choice(children)}"
        before = self.disk.snapshot()
        kind, run = self.linking.choice(list(self._while_linked(replica, source).items()))
        at_source = f"{source}/{uri.name(place)}"
        to = at_source if at_source in before and self.linking.random() < 0.5 else ELSEWHERE
        if to == ELSEWHERE:
            for path, data in files(before, place).items():
                self.disk.place(ELSEWHERE + path.removeprefix(place), data)
        self.disk.link(place, to)
        there = files(self.disk.snapshot())
        outcome = self._outcome(run)
        self.history.append(f"{kind} while {place} is a link to {to}: {outcome!r}")
        self.counts[f"link {type(outcome).__name__}"] += 1
        if not isinstance(outcome, Exception):
            self.wrong.append(f"{kind} must not succeed: {place} is a link")
        now = files(self.disk.snapshot())
        self.wrong += [
            f"{kind} changed {each}, and {place} is a link"
            for each in sorted(there.keys() | now.keys())
            if there.get(each) != now.get(each) and not _is_of_taking_over(each)
        ]
        self.disk.without_links(before)

    def try_in_vain(self) -> None:
        """An operator syncs from a copy of a replica, or unseals one below which a job uploads.

        That must be refused and change nothing. The operator takes it back. Or a job replaces a
        checkpoint that a sync withdraws.
        """
        replicas = self._replicas()
        if not replicas:
            return
        behind = self._behind()
        if behind and self.trying.random() < REPLACED:
            self._replace_in_the_midst(*self.trying.choice(behind))
            return
        sealed = self._sealed()
        is_any = not sealed or self.trying.random() < 0.3
        replica = self.trying.choice(replicas if is_any else sealed)
        if replica not in sealed and not self._is_replica_of(
            f"{COPIES}/{uri.name(replica)}", replica, same_source=True
        ):
            return
        before, now = self.disk.snapshot(), self.disk.clock.now
        self.disk.clock.pass_(1.0)
        if replica in sealed:
            self.disk.place(f"{replica}/shared/uploaded", b"of a job that runs here")
            kind, run = "unseal", self._unsealing(replica)
        else:
            for path, data in files(before, replica).items():
                self.disk.place(f"{COPIES}/{uri.name(replica)}{path.removeprefix(replica)}", data)
            kind, run = "sync from a copy", self._syncing_from_a_copy(replica)
        there = files(self.disk.snapshot())
        outcome = self._outcome(run)
        self.history.append(f"{kind} of {replica}, in vain: {outcome!r}")
        self.counts[f"in vain: {kind}"] += 1
        if not isinstance(outcome, Exception):
            self.wrong.append(f"{kind} of {replica} must not succeed")
        after = files(self.disk.snapshot())
        self.wrong += [
            f"{kind}, in vain, changed {each}"
            for each in sorted(there.keys() | after.keys())
            if there.get(each) != after.get(each) and not PASSING.fullmatch(each)
        ]
        self.disk.become(before)
        self.disk.clock.now = now

    def _is_replica_of(self, source: str, replica: str, **options: Any) -> bool:
        """Whether a sync of this source goes into this replica."""
        with quiet(self.disk):
            request = SyncRequest(source, uri.parent(replica), **options)
            return here(known_root(request)) == replica

    def _behind(self) -> list[tuple[str, str]]:
        """Return replicas of which the next sync withdraws a checkpoint, and the job's root."""
        usable = set(self._replicas()) - {*self._sealed(), *self.broken, *self.renamed}
        found = []
        for replica in sorted(usable):
            there = self._below(replica)
            for root in sorted(self.sources.get(replica, ())):
                newest = self._newest(root)
                if newest is None or not self._is_replica_of(root, replica):
                    continue
                if f"{uri.name(newest.place)}/{METADATA}" not in there:
                    found.append((replica, root))
        return found

    def _replace_in_the_midst(self, replica: str, root: str) -> None:
        """While a sync publishes the newest checkpoint, a job replaces the one published before.

        It is the job's from then on, so it stays. All is taken back.
        """
        before, now = self.disk.snapshot(), self.disk.clock.now
        last = newest_recorded(self.disk, replica)
        old = f"{replica}/{last}/{METADATA}"
        if last is None or old in self.flink.owned:
            return
        theirs = b"of a job"
        replaced = []

        def replace_it(moment: Moment, verb: str, place: str) -> None:
            is_commit = COMMITTED.fullmatch(place) is not None and place != old
            if (moment, verb) == ("after", "rename") and is_commit:
                self.disk.place(old, theirs)
                replaced.append(old)

        request = SyncRequest(
            root,
            uri.parent(replica),
            adopt=replica in self.adopted,
            allow_older=True,
            execution=ExecutionOptions(runner="inline", parallelism=1),
            subsumption_wait=0.0,
        )
        self.disk.clock.pass_(LATER)
        self.disk.hook = replace_it
        outcome = self._outcome(lambda: sync_operation.sync(request, silent))
        self.disk.hook = lambda *_: None
        self.history.append(f"sync of {root}, {old} is replaced in its midst: {outcome!r}")
        self.counts["replaced in the midst"] += len(replaced)
        if replaced and self.disk.data(old) != theirs:
            self.wrong.append(f"a job's {old} was withdrawn")
        self.disk.become(before)
        self.disk.clock.now = now

    @staticmethod
    def _unsealing(replica: str) -> Callable[[], object]:
        return lambda: unseal.unseal(unseal.UnsealRequest(replica, None))

    @staticmethod
    def _syncing_from_a_copy(replica: str) -> Callable[[], object]:
        request = SyncRequest(
            f"{COPIES}/{uri.name(replica)}",
            uri.parent(replica),
            same_source=True,
            allow_older=True,
            execution=ExecutionOptions(runner="inline", parallelism=1),
            subsumption_wait=0.0,
        )
        return lambda: sync_operation.sync(request, silent)

    def _while_linked(self, replica: str, source: str) -> dict[str, Callable[[], object]]:
        inline_only = ExecutionOptions(runner="inline", parallelism=1)
        syncing = SyncRequest(
            source, uri.parent(replica), execution=inline_only, subsumption_wait=0.0
        )
        sweeping = sweep.SweepRequest(replica, 0.0, EVERYTHING, execution=inline_only)
        return {
            "sync": lambda: sync_operation.sync(syncing, silent),
            "sweep": lambda: sweep.sweep(sweeping, silent),
            "relocate": lambda: relocate.relocate(
                relocate.RelocateRequest(replica, "absolute"), silent
            ),
            "promote": lambda: promote.promote(promote.PromoteRequest(replica), silent),
            "verify": lambda: verify.verify(replica, None, verify.ALL, silent, Side()),
        }

    def _upkeep(self, kind: str, text: str, run: Callable[[], object], replica: str) -> Operation:
        return Operation(kind, text, run, replica, because=self._why_no_upkeep(kind, replica))

    def _why_no_upkeep(self, kind: str, replica: str) -> str:
        there = self._below(replica)
        is_sealed = f"{OWN}/sealed" in there
        if f"{OWN}/replica.json" not in there:
            return "the directory is not a replica"
        if is_sealed and kind == "promote":
            return ""
        if is_sealed and kind != "unseal":
            return "the replica is sealed"
        tenants = self._tenants(replica) - self.adopted.get(replica, set())
        return (
            f"a job keeps {min(tenants)}" if tenants else self._why_not_alone(kind, replica, there)
        )

    def _why_not_alone(self, kind: str, replica: str, there: Mapping[str, bytes]) -> str:
        """Flink's files that are newer than the newest checkpoint, or for `unseal`, any.

        `promote` deletes nothing, so that none of them stops it.
        """
        if kind == "promote":
            return ""
        published = [f"{replica}/{path}" for path in there if COMMITTED.fullmatch(f"/{path}")]
        since = max(
            (self.disk.modified(each) for each in published if each not in self.flink.owned),
            default=0.0,
        )
        theirs = [
            f"{replica}/{path}"
            for path in there
            if REPLICA_PATH.fullmatch(path)
            and f"{replica}/{path}" in self.flink.owned.keys() - self.unproven
        ]
        is_any = kind == "unseal" and replica not in self.adopted
        newer = [place for place in theirs if is_any or self.disk.modified(place) > since]
        needed = {place for each in published for place in self._needed(each)}
        newer = [place for place in newer if place not in needed]
        return f"a job wrote {newer[0]}" if newer else ""

    def _needed(self, metadata: str) -> set[str]:
        try:
            return {
                f"file:{need.path}" for need in files_of(metadata, self.disk.data(metadata) or b"")
            }
        except (AssertionError, LookupError, ValueError):
            return set()

    # Looking at the disk

    def _below(self, root: str) -> dict[str, bytes]:
        return {
            place[len(root) + 1 :]: data
            for place, data in files(self.disk.snapshot(), root).items()
        }

    def _replicas(self) -> list[str]:
        return sorted(
            uri.parent(each)
            for each in self.disk.snapshot()
            if uri.name(each) == OWN and self.disk.is_file(f"{each}/replica.json")
        )

    def _sealed(self) -> list[str]:
        return [each for each in self._replicas() if self.disk.is_file(f"{each}/{OWN}/sealed")]

    def _any_job(self) -> Job:
        complete = [job for job in self.flink.jobs if self._newest(job.root)]
        return self.draw.choice(
            complete if complete and self.draw.random() < 0.9 else self.flink.jobs
        )

    def _any_replica(self) -> str:
        replicas = self._replicas()
        jobs = [job.root for job in self.flink.jobs]
        return self.draw.choice(replicas if replicas and self.draw.random() < 0.9 else jobs)

    def _is_whole(self, checkpoint: Checkpoint) -> bool:
        return all(self.disk.is_file(place) for place in checkpoint.files)

    def _tenants(self, replica: str) -> set[str]:
        """The `_metadata` of Flink's checkpoints in a directory."""
        found = (COMMITTED.fullmatch(each) for each in self.flink.owned)
        return {match[0] for match in found if match and match[1] == replica}

    def _newest(self, root: str) -> Checkpoint | None:
        """The checkpoint of a job that completed last."""
        there = [each for each in self.flink.complete_on_disk() if uri.parent(each.place) == root]
        return max(there, key=lambda each: self.disk.modified(each.metadata), default=None)

    # Carrying out and judging

    def _perform(self, operation: Operation) -> object:
        self.disk.clock.pass_(1.0)
        crash_at = (
            self.draw.choice([self.draw.randint(1, 60), self.draw.randint(1, 400)])
            if self.draw.random() < self.crashes
            else 0
        )
        churn = (
            self.draw.choice([0.02, 0.1])
            if not crash_at and self.draw.random() < self.churns
            else 0.0
        )
        before = self._below("file:")
        self.history.append("")
        at = len(self.history) - 1
        self.disk.hook = watcher = Watcher(self, operation, crash_at, churn)
        outcome = self._outcome(operation.run)
        self.disk.hook = lambda *_: None
        how = type(outcome).__name__
        self.history[at] = f"{operation.kind} {operation.text}: {how}" + (
            f": {outcome}" if isinstance(outcome, Exception) else ""
        )
        self.counts[f"{operation.kind} {how}"] += 1
        self.wrong += watcher.wrong
        if isinstance(outcome, Crash):
            self.disk.clock.pass_(LATER)
            self.backlogs = {}
        elif watcher.crashed:
            self.wrong.append(f"the crash was swallowed: {outcome!r}")
        self._remember(operation, outcome)
        self._judge(operation, before, outcome, watcher)
        if (
            not self.wrong
            and operation.request
            and not watcher.meddled
            and isinstance(outcome, Report)
        ):
            self._again(operation)
        return outcome

    def _outcome(self, run: Callable[[], object]) -> object:
        try:
            return run()
        except (CpreplicateError, OSError, Crash) as error:
            return error
        except Exception as error:  # noqa: BLE001  # no other is foreseen
            self.wrong.append(f"unforeseen: {error!r}")
            return error

    def _remember(self, operation: Operation, outcome: object) -> None:
        """What the operator knows of replicas from then on."""
        for replica in self._replicas():
            marker = self._marker_of(replica)
            if marker.get("adopted"):
                self.adopted.setdefault(replica, set())
            if marker and replica not in self.sources:
                self.sources[replica] = {here(each["given"]) for each in marker["sources"]}
        replica, request = operation.replica, operation.request
        if request is not None and request.same_source:
            # a run that died or was overtaken may have noted the name, as it was asked to
            noted = {here(each["given"]) for each in self._marker_of(replica).get("sources", ())}
            if operation.source in noted:
                self.sources[replica].add(operation.source)
        if request is not None and self.disk.is_file(f"{operation.source}/{OWN}/replica.json"):
            self.secondhand.add(replica)
        if request is not None and ALIAS in f"{request.source} {request.target_root}":
            self.renamed.add(replica)
        if request is not None and request.adopt and replica in self.adopted:
            self.adopted[replica] |= self._tenants(replica)
        if operation.kind == "unseal" and isinstance(outcome, unseal.Unsealing):
            self.starts.pop(replica, None)

    def _judge(
        self, operation: Operation, before: Mapping[str, bytes], outcome: object, watcher: Watcher
    ) -> None:
        self._judge_flink()
        self._judge_needed(before)
        is_success = not isinstance(outcome, BaseException)
        if is_success and operation.because and not watcher.meddled:
            self.wrong.append(f"it must not succeed: {operation.because}")
        if (
            operation.must_succeed
            and not is_success
            and not watcher.meddled
            and not watcher.crashed
        ):
            self.wrong.append(f"it must succeed: {outcome!r}")
        if isinstance(outcome, OSError):
            self.wrong.append(f"not explained: {outcome!r}")
        if not watcher.meddled:
            self._judge_what_changed(operation, before, outcome)
            self._judge_points(operation, before, outcome)
        for replica in self._replicas():
            self._judge_replica(replica)
        if isinstance(outcome, Report) and operation.request is not None:
            self.counts["copied within the target"] += len(outcome.plan.reused) > 0
            self.counts["members of a sparse pack moved"] += len(outcome.plan.repacks) > 0
            self.counts["a run turned to a newer checkpoint"] += len(outcome.turned_from) > 0
            self._judge_report(operation, outcome, is_exact=not watcher.meddled)

    def _judge_flink(self) -> None:
        """No byte that Flink wrote was changed or deleted."""
        lost = [place for place, data in self.flink.owned.items() if self.disk.data(place) != data]
        self.wrong += [f"Flink's {place} was changed or deleted" for place in lost]

    def _judge_needed(self, before: Mapping[str, bytes], forgotten: str = "") -> None:
        """Nothing was taken from a checkpoint that Flink had completed in a replica before."""
        replicas = {*self._replicas(), forgotten}
        for checkpoint in self.flink.complete_on_disk():
            replica = uri.parent(checkpoint.place)
            if replica not in replicas or checkpoint.metadata[len("file:/") :] not in before:
                continue
            for place in checkpoint.files - self.flink.released:
                had, has = before.get(place[len("file:/") :]), self.disk.data(place)
                if had is None or had == self.damaged.get(place) or not uri.below(place, replica):
                    continue
                self.counts["shared with a replica"] += place not in self.flink.owned
                if has is None or not has.startswith(had):
                    self.wrong.append(f"Flink's {checkpoint.place} has lost {place}")

    def _judge_points(
        self, operation: Operation, before: Mapping[str, bytes], outcome: object
    ) -> None:
        """No point in time has gone that is kept, also not in a run that was killed."""
        after = self._below("file:")
        for replica in self._replicas():
            passed = self.broken | self.adopted.keys() | self.secondhand
            is_forgotten = operation.kind == "forget" and replica == operation.replica
            if operation.kind == "fleet" or is_forgotten or replica in passed:
                continue  # of a copy of a replica, the time is that of the first copy
            had, has = self._points(replica, before), self._points(replica, after)
            gone = had.keys() - has.keys()
            goes: set[str] = set()
            if operation.request is not None and replica == operation.replica:
                keep = operation.request.keep or self._recorded_retention(replica, before)
                goes = self._points_that_go(replica, keep, had, has)
                last = Retention.of(keep).last
                self.counts["points were kept by their time"] += len(has) > max(last, 2)
                if isinstance(outcome, Report) and gone != goes:
                    self.wrong += [
                        f"{replica}/{each} is kept without reason" for each in goes - gone
                    ]
            self.wrong += [f"the point {replica}/{each} was lost" for each in gone - goes]

    def _points(self, replica: str, there: Mapping[str, bytes]) -> dict[str, float]:
        """Return when each checkpoint was completed that cpreplicate published in a replica."""
        found = {}
        for path, data in there.items():
            match = COMMITTED.fullmatch(f"file:/{path}")
            tag = TAG.search(data) if match and match[1] == replica else None
            if tag is not None and match is not None and match[0] not in self.flink.owned:
                found[f"chk-{match[2]}"] = self.flink.completed[tag[0]]
        return found

    def _recorded_retention(self, replica: str, there: Mapping[str, bytes]) -> Retention | int:
        """Return the retention that was stated last for a replica: one point if none was."""
        data = there.get(f"{replica.removeprefix('file:/')}/{OWN}/retention.json")
        if data is None:
            return 1
        fields = json.loads(data)
        return Retention(*(fields[name] for name in ("last", "within", "hourly", "daily")))

    def _points_that_go(
        self,
        replica: str,
        keep: Retention | int,
        had: Mapping[str, float],
        has: Mapping[str, float],
    ) -> set[str]:
        """Return the points that a retention does not keep once the newest one is published."""
        newest = newest_recorded(self.disk, replica)
        if newest is None or newest not in has:
            return set()
        number = int(newest.removeprefix("chk-"))
        older = {each: at for each, at in had.items() if int(each.removeprefix("chk-")) < number}
        kept = of_restic(Retention.of(keep), [*older.values(), has[newest]])
        return {each for each in had if each != newest and older.get(each) not in kept}

    def _judge_what_changed(
        self, operation: Operation, before: Mapping[str, bytes], outcome: object
    ) -> None:
        after = self._below("file:")
        changed = {
            path
            for path in {*before, *after}
            if before.get(path) != after.get(path) and not PASSING.fullmatch(path)
        }
        if (
            changed
            and isinstance(outcome, (Refused, UsageError, NotThere))
            and not isinstance(outcome, SourceBroken)
        ):
            self.wrong.append(f"refused, but changed {min(changed)}")
        sealed = {
            path.removesuffix(f"/{OWN}/sealed")
            for path in before
            if path.endswith(f"/{OWN}/sealed")
        }
        if operation.kind == "unseal":
            sealed.discard(operation.replica.removeprefix("file:/"))
        self.wrong += [
            f"a sealed replica was changed: {path}"
            for path in changed
            for each in sealed
            if path.startswith(f"{each}/")
        ]
        if operation.source and not isinstance(outcome, Crash):
            root = operation.source.removeprefix("file:/")
            left = [path for path in changed if path not in before and path.startswith(f"{root}/")]
            self.wrong += [f"left in the source: {path}" for path in left]

    def _judge_replica(self, replica: str) -> None:
        """Every checkpoint that cpreplicate published is whole and equals its source."""
        state = self.disk.snapshot()
        inner = tuple(
            (each, id(children)) for each, children in state.items() if each.startswith(replica)
        )
        if self._judged.get(replica) == inner:
            return
        self._judged[replica] = inner
        there = files(state, replica)
        for place, data in there.items():
            match = COMMITTED.fullmatch(place)
            if (
                match
                and match[1] == replica
                and place not in self.flink.owned
                and replica not in self.broken
            ):
                self.wrong += self._checkpoint(place, data, there)
        self.wrong += self._unrecorded(replica, there)

    def _checkpoint(
        self,
        place: str,
        data: bytes,
        there: Mapping[str, bytes],
        strict: Callable[[str], bool] = lambda _: False,
    ) -> Iterator[str]:
        """What is wrong with a committed checkpoint.

        `strict` names the files that must be sound whatever happened to them.
        """
        tag = TAG.search(data)
        if tag is None or tag[0] not in self.flink.checkpoints:
            yield f"not a checkpoint of Flink: {place}"
            return
        source = self.flink.checkpoints[tag[0]]
        for original, copy in zip(source.needs, files_of(place, data), strict=True):
            copied = f"file:{copy.path.rpartition(ALIAS)[2]}"
            found, written = there.get(copied), f"file:{original.path}"
            expected = [self.flink.ever[written], self.flink.before.get(written)]
            is_whole = (
                found is not None
                and len(found) >= copy.extent
                and any(
                    each is not None and checker.is_copy(original, copy, each, found)
                    for each in expected
                )
            )
            is_secondhand = uri.parent(uri.parent(place)) in self.secondhand and any(
                _is_of(damage, copy, found) for damage in self.damages
            )
            if (
                is_whole
                or is_secondhand
                or (not strict(copied) and self._is_explained(copied, found))
            ):
                continue
            yield f"{place} needs {copied}: " + (
                "missing" if found is None else "not as at the source"
            )

    def _is_explained(self, place: str, found: bytes | None) -> bool:
        return place in self.flink.released if found is None else found == self.damaged.get(place)

    def _unrecorded(self, replica: str, there: Mapping[str, bytes]) -> Iterator[str]:
        """Files that cpreplicate wrote and keeps no record of: nobody would ever delete them."""
        if replica in self.broken or replica in self.adopted:
            return
        known = recorded(self.disk, replica)
        for place in there:
            path = place[len(replica) + 1 :]
            is_foreign = (
                place in self.flink.owned or place in self.damaged or UNFINISHED.search(place)
            )
            is_known = path in known or path.rpartition("-")[0] in known
            if REPLICA_PATH.fullmatch(path) and not is_foreign and not is_known:
                yield f"no record of {place}"

    def _judge_report(self, operation: Operation, report: Report, is_exact: bool) -> None:
        """Check that the newest checkpoint is sound, and the last to complete at the source."""
        request, replica = operation.request, operation.replica
        assert request is not None
        place = f"{replica}/{report.plan.checkpoint}/{METADATA}"
        data = self.disk.data(place)
        if data is None:
            self.wrong.append(f"{place} is not there")
            return
        tag = TAG.search(data)
        is_replica = self.disk.is_file(f"{operation.source}/{OWN}/replica.json")
        newest = None if is_replica else self._newest(operation.source)
        if (
            is_exact
            and here(request.source) == operation.source
            and newest
            and tag
            and newest.tag != tag[0]
        ):
            self.wrong.append(f"{place} is not {newest.place}, which completed last")
        strict = lambda each: is_exact and (request.check_content or each not in self.hidden)  # noqa: E731
        self.wrong += self._checkpoint(place, data, files(self.disk.snapshot(), replica), strict)
        if is_exact:
            found = newest_recorded(self.disk, replica)
            self.wrong += (
                [f"the newest of {replica} is {found}"] if found != report.plan.checkpoint else []
            )

    def _again(self, operation: Operation) -> None:
        assert operation.request is not None
        outcome = self._outcome(lambda: sync_operation.sync(operation.request, silent))  # type: ignore[arg-type]
        if not isinstance(outcome, Report) or not outcome.plan.empty or outcome.committed:
            self.wrong.append(f"a second sync does not find everything done: {outcome!r}")

    def _marker_of(self, replica: str) -> dict[str, Any]:
        try:
            found = json.loads(self.disk.data(f"{replica}/{OWN}/replica.json") or b"{}")
        except ValueError:
            return {}
        return dict(found)


def _other_than(data: bytes) -> bytes:
    """Other content, of the same length where that is even and not 0."""
    if not data or len(data) % 2:
        return data + b"!"
    return data[:-1] + bytes([data[-1] ^ 1])


def _other(side: str) -> str:
    return "B" if side == "A" else "A"


def recorded(disk: SimulatedDisk, replica: str) -> dict[str, int | None]:
    """What manifests and journals of a replica list, with the recorded lengths.

    Of a pack that only journals list, it is the end of its last member.
    """
    found: dict[str, int | None] = {}
    storage = disk
    with quiet(disk):
        for status in disk.list(f"{replica}/{OWN}"):
            if status.name.startswith(journal.PREFIX):
                part = journal.read(storage, replica, status.name)
                found.update(dict.fromkeys(part.planned - found.keys()))
                for each in part.copied.values():
                    path, end = each.pack or each.path, (each.offset or 0) + each.length
                    is_other = each.pack is None or path not in found
                    found[path] = end if is_other else max(end, found[path] or 0)
            elif status.name.endswith(manifest.SUFFIX):
                read = manifest.read(storage, replica, status.name.removesuffix(manifest.SUFFIX))
                found.update(
                    {path: each.length for path, each in read.entries.items()} if read else {}
                )
    return found


def newest_recorded(disk: SimulatedDisk, replica: str) -> str | None:
    """The committed checkpoint that was published last.

    The one with the highest number where a record is damaged.
    """
    sequences: dict[str, int | None] = {}
    with quiet(disk):
        for status in disk.list(f"{replica}/{OWN}"):
            name = status.name.removesuffix(".json")
            if re.fullmatch(r"chk-\d+", name) and disk.is_file(f"{replica}/{name}/{METADATA}"):
                sequences[name] = _sequence(disk.data(status.uri))
    if None in sequences.values():
        return max(sequences, key=lambda name: int(name.removeprefix("chk-")))
    return max(sequences, key=lambda name: sequences[name] or 0, default=None)


def _is_of_taking_over(path: str) -> bool:
    """Return whether a file is the lease, or stops the dead run that had it."""
    return path.endswith(LEASE) or FENCE.fullmatch(path) is not None


def _sequence(data: bytes | None) -> int | None:
    """When a checkpoint was published, before all others if it was adopted.

    None if its record is damaged.
    """
    try:
        note = json.loads(data or b"")
        return -1 if note["adopted"] else int(note["sequence"])
    except (ValueError, LookupError, TypeError):
        return None


OPERATIONS: dict[Callable[[World], object], float] = {
    World.sync: 10,
    World.watch: 3,
    World.fleet: 1.5,
    World.sweep: 2.5,
    World.relocate: 1.5,
    World.promote: 0.7,
    World.unseal: 1.5,
    World.fail_over: 2,
    World.damage: 2,
}
SHARING: dict[Callable[[World], object], float] = {
    World.sync: 4,
    World.watch: 3,
    World.share: 3,
    World.delay: 2,
    World.sync_restored: 2,
    World.sweep: 2,
    World.relocate: 0.5,
    World.damage: 1.5,
}
ADOPTING: dict[Callable[[World], object], float] = {
    World.sync: 4,
    World.fail_over: 4,
    World.sweep: 2,
    World.damage: 2,
}
