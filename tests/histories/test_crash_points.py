"""A run dies before, after and in the midst of every step that it takes on a filesystem.

The steps of one run are recorded with the state that a death would leave between them, so every
point is looked at: each distinct state is judged by the independent checker, and from each the same
run is made again, and must complete.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest

from cpreplicate.core import plan, uri
from cpreplicate.core.packs import PackOptions, is_pack
from cpreplicate.core.path_columns import texts
from cpreplicate.operations.handover import promote
from cpreplicate.operations.sync import sync
from cpreplicate.operations.sync.commit import Committing
from cpreplicate.operations.sync.plan import metadata as sync_metadata
from cpreplicate.operations.sync.plan import plan as sync_plan
from cpreplicate.operations.sync.source.newer import Following
from cpreplicate.operations.upkeep import relocate, removal, sweep
from cpreplicate.operations.verify import verify
from cpreplicate.protocol.ledger import Ledger
from cpreplicate.runners import ExecutionOptions, batch
from cpreplicate.storage import Side
from cpreplicate.storage.backends.local.local import LocalStorage
from cpreplicate.storage.backends.rename_commit import RenamingStorage
from tests.support import checker, parts
from tests.support.reached import died_around_a_turn, died_at
from tests.support.simulated import READS, Recorder, SimulatedDisk, State, files
from tests.support.staging import (
    LATER,
    Scenario,
    Stage,
    at_source,
    examine,
    record,
    running_on,
    silent,
)

COMMITTED = "/_metadata"
OFF = PackOptions("off", 1 << 20)
POINTS = 11_600  # at least so many in the part of these tests that `make test` leaves out


def first(draw: Random) -> Scenario:
    return Stage(draw).complete().sync_scenario()


def incremental(draw: Random) -> Scenario:
    return Stage(draw).complete().sync().complete().sync_scenario()


def foreign_files(draw: Random) -> Scenario:
    return Stage(draw, foreign=True).complete().sync().complete().sync_scenario()


def grown_segments(draw: Random) -> Scenario:
    return Stage(draw, merged=True).complete().sync().complete().sync_scenario()


def keeping_two(draw: Random) -> Scenario:
    stage = Stage(draw, keep=2, merged=draw.random() < 0.5)
    return stage.complete().sync().complete().sync().complete().sync_scenario()


def died_before(draw: Random) -> Scenario:
    """A run died and left its lease, temporary files and what it had copied.

    The next one is interrupted too.
    """
    stage = Stage(draw, merged=draw.random() < 0.5, foreign=draw.random() < 0.5)
    return stage.complete().sync().complete().die().sync_scenario()


def moved_on(draw: Random) -> Scenario:
    """A run died, and the source has completed another checkpoint since."""
    return (
        Stage(draw, merged=draw.random() < 0.5)
        .complete()
        .sync()
        .complete()
        .die()
        .complete()
        .sync_scenario()
    )


def without_manifest(draw: Random) -> Scenario:
    stage = Stage(draw).complete().sync()
    stage.disk.remove(f"{stage.replica}/.cpreplicate/chk-{stage.last}.parquet")
    return stage.sync_scenario()


def spelled_otherwise(draw: Random) -> Scenario:
    """The same checkpoint is published again, with paths of another kind."""
    stage = Stage(draw, merged=draw.random() < 0.5).complete().sync(paths="relative")
    return stage.sync_scenario(paths="absolute")


def taking_over(draw: Random) -> Scenario:
    """A run died while it held the lease."""
    return Stage(draw).complete().sync().complete().die("/.cpreplicate/lease").sync_scenario()


def any_stage(draw: Random) -> Stage:
    """Any replica of some checkpoints with relative paths."""
    stage = Stage(
        draw, keep=draw.choice([1, 2]), foreign=draw.random() < 0.5, merged=draw.random() < 0.5
    )
    return stage.complete().sync(paths="relative").complete().sync(paths="relative")


def sweeping(draw: Random) -> Scenario:
    """Runs died; what they left is old by now, and is deleted or moved to the trash."""
    return swept(any_stage(draw).complete().die().complete().die().complete().sync(), draw)


def swept(stage: Stage, draw: Random) -> Scenario:
    """A sweep of a stage, 48 hours later."""
    stage.disk.clock.now += 48 * 3600.0
    request = sweep.SweepRequest(
        stage.replica,
        trash=draw.random() < 0.5,
        max_delete=plan.Cap(1, is_share=True),
        execution=ExecutionOptions(runner="inline", parallelism=1),
    )
    own = re.compile(r"\.cpreplicate/.*")
    return stage.scenario(
        lambda: sweep.sweep(request, silent),
        is_idle=lambda report: not report.deletes,
        leftover=own,
    )


def relocating(draw: Random) -> Scenario:
    stage = any_stage(draw)
    request = relocate.RelocateRequest(stage.replica, "absolute")
    # as in `Scenario`
    is_idle = lambda report: (  # noqa: E731
        not any(each.rewritten for each in report.checkpoints)
    )
    return stage.scenario(lambda: relocate.relocate(request, silent), is_idle=is_idle)


def promoting(draw: Random) -> Scenario:
    stage = any_stage(draw)
    request = promote.PromoteRequest(stage.replica)
    return stage.scenario(
        lambda: promote.promote(request, silent), is_idle=lambda report: report.sealed is not None
    )


def restored(draw: Random, **options: Any) -> Stage:
    """A job was restored from an earlier one, whose replica holds a file that it references."""
    while True:
        stage = Stage(draw, **options).complete().sync().restart().complete()
        if any(place.length > 1 for place in stage.diff().plan.reused.values()):
            return stage


def of_an_earlier_job(draw: Random) -> Scenario:
    return restored(draw, merged=draw.random() < 0.3).sync_scenario()


def of_an_earlier_job_damaged(draw: Random) -> Scenario:
    """The longest file that the earlier replica should hold has other bytes there."""
    stage = restored(draw, packing=draw.choice([PACKING, None]))
    place = max(stage.diff().plan.reused.values(), key=lambda place: place.length)
    damaged = f"{place.replica}/{place.path}"
    stage.disk.place(damaged, bytes(len(stage.disk.data(damaged) or b"")))
    return stage.sync_scenario()


def of_an_earlier_job_again(draw: Random) -> Scenario:
    """A run died while it copied from the replica of the earlier job, whose lease it may hold."""
    return restored(draw).die().sync_scenario()


PACKING = PackOptions("on", 1 << 20)


def packed(draw: Random, keep: int = 1, merged: bool = False) -> Stage:
    """Return a job and its replica, into which some checkpoints were packed."""
    stage = Stage(draw, keep=keep, merged=merged, packing=PACKING).complete().sync()
    for _ in range(draw.randrange(2)):
        stage.complete().sync()
    return stage


def first_packed(draw: Random) -> Scenario:
    return Stage(draw, merged=draw.random() < 0.5, packing=PACKING).complete().sync_scenario()


def incremental_packed(draw: Random) -> Scenario:
    return packed(draw, merged=draw.random() < 0.5).complete().sync_scenario()


def repacking(draw: Random) -> Scenario:
    """Some packs are sparse by now, so that their members move."""
    while True:
        stage = packed(draw, keep=draw.choice([1, 2]))
        for _ in range(3):
            stage.complete()
            if stage.diff().plan.repacks:
                return stage.sync_scenario()
            stage.sync()


def died_packing(draw: Random) -> Scenario:
    """A run died while it wrote packs, and the source may have completed another checkpoint."""
    stage = packed(draw, merged=draw.random() < 0.5).complete().die()
    if draw.random() < 0.5:
        stage.complete()
    return stage.sync_scenario()


def keeping_two_packed(draw: Random) -> Scenario:
    return packed(draw, keep=2).complete().sync().complete().sync_scenario()


def packing_no_more(draw: Random) -> Scenario:
    """Members stay where they are, and what is new is not packed."""
    return packed(draw).complete().sync_scenario(packing=PackOptions("off", 1 << 20))


def sweeping_packs(draw: Random) -> Scenario:
    """Runs died; the packs that they left are old by now."""
    stage = packed(draw, keep=draw.choice([1, 2])).complete().die().complete().die()
    return swept(stage.complete().sync(), draw)


def of_an_earlier_job_packed(draw: Random) -> Scenario:
    return restored(draw, packing=PACKING).sync_scenario()


def turned(make: Callable[[], Stage]) -> Scenario:
    """The job completes a checkpoint amid the run, which turns to that."""
    while True:
        if (scenario := make().turning_scenario()) is not None:
            return scenario


def turning(draw: Random) -> Scenario:
    def make() -> Stage:
        stage = Stage(draw, keep=draw.choice([1, 2]), merged=draw.random() < 0.5).complete()
        return stage.sync().complete() if draw.random() < 0.5 else stage

    return turned(make)


def turning_packed(draw: Random) -> Scenario:
    return turned(lambda: packed(draw, draw.choice([1, 2]), draw.random() < 0.5).complete())


def named(draw: Random) -> Scenario:
    """The first sync knows the name of the job."""
    return Stage(draw).complete().sync_scenario(name="orders")


def renamed(draw: Random) -> Scenario:
    """The job has another name by now, and has completed a checkpoint since in half of all."""
    stage = Stage(draw).complete().sync(name="orders")
    if draw.random() < 0.5:
        stage.complete()
    return stage.sync_scenario(name="orders-v2")


KINDS = [
    first,
    incremental,
    foreign_files,
    grown_segments,
    keeping_two,
    died_before,
    moved_on,
    taking_over,
    without_manifest,
    spelled_otherwise,
    sweeping,
    relocating,
    promoting,
    of_an_earlier_job,
    of_an_earlier_job_again,
]
PACKED_KINDS = [
    first_packed,
    incremental_packed,
    repacking,
    died_packing,
    keeping_two_packed,
    packing_no_more,
    sweeping_packs,
    of_an_earlier_job_packed,
    of_an_earlier_job_damaged,
]
NAMED_KINDS = [named, renamed]
TURNING_KINDS = [turning, turning_packed]


@pytest.mark.parametrize(
    ("seed", "least", "again"),  # in `make test`, the run is made again from each third state
    [pytest.param(0, 1, 3, id="once"), parts.rest(0, POINTS / len(KINDS), 1, id="often")],
)
@pytest.mark.parametrize("kind", [*KINDS, *PACKED_KINDS, *NAMED_KINDS, *TURNING_KINDS])
def test_a_death_at_any_point_leaves_every_committed_checkpoint_whole_and_running_again_completes(
    kind, seed, least, again
):
    points = 0
    while points < least:
        findings = examine(kind(Random(f"{kind.__name__} {seed}")), again)
        assert findings.wrong == [], f"{kind.__name__}, seed {seed}"
        assert len(findings.points) > 20
        died_at(findings.points)
        died_around_a_turn(findings.points)
        points += len(findings.points)
        seed += 1


def with_a_file_of_another_program(draw: Random) -> tuple[Stage, set[str]]:
    """The packs of a replica were lost, and another program has files at the logical paths of
    their members, equal to the source's. Return these files, too.
    """
    stage = Stage(draw, packing=PACKING).complete().sync()
    (metadata,) = [
        path for path in files(stage.disk.snapshot(), stage.replica) if COMMITTED in path
    ]
    copies = checker.needs_of(stage.disk.data(metadata) or b"", Path(uri.local_path(metadata)))
    sources = stage.job.references[stage.last]
    theirs = {}
    for source, copy in zip(sources, copies, strict=True):
        stage.disk.delete(f"file:{copy.path}")
        theirs[f"{stage.replica}/{copy.segment}"] = stage.job.bytes[source.path]
    for place, data in theirs.items():
        stage.disk.place(place, data)
    return stage, set(theirs)


@pytest.mark.parametrize("seed", [0, *(parts.rest(seed) for seed in range(1, 9))])
@pytest.mark.parametrize("is_made_again", [True, False])
@pytest.mark.parametrize("keep", [parts.rest(1), 2])
def test_wherever_a_run_dies_an_equal_file_of_another_program_is_never_taken_for_its_own(
    seed, is_made_again, keep
):
    stage, theirs = with_a_file_of_another_program(Random(f"theirs {seed}"))
    scenario = stage.sync_scenario(packing=OFF)
    states = record(scenario)[0].states
    stage.complete().complete()
    later = stage.disk.snapshot()
    for number, state in enumerate(states):
        disk = scenario.disk(state, LATER)
        with running_on(disk):
            if is_made_again:
                scenario.run()
        disk = scenario.disk(at_source(disk.snapshot(), later), 2 * LATER)
        recorder = Recorder(disk)
        with running_on(disk):
            sync.sync(stage.request(packing=OFF, keep=keep), silent)
            sync.sync(stage.request(packing=OFF, keep=1, keep_less=True), silent)
        touched = {each.uri for each in recorder.points if each.verb not in READS} & theirs
        assert not touched, f"died in state {number} of {len(states)}"
        assert all(disk.is_file(place) for place in theirs)


def removing(stage: Stage) -> removal.Removal:
    asked = removal.RemovalRequest(
        stage.replica, execution=ExecutionOptions(runner="inline", parallelism=1)
    )
    return removal.remove(asked, lambda _replica, _state: None, silent)


def to_be_removed(draw: Random) -> Stage:
    """A replica with several points, packs, merged files, or what a sync left that died."""
    packing = draw.choice([PACKING, None])
    stage = Stage(draw, keep=draw.choice([1, 3]), merged=draw.random() < 0.5, packing=packing)
    stage.complete().sync(name="orders").complete().sync(name="orders")
    return stage.complete().sync() if draw.random() < 0.5 else stage


@pytest.mark.parametrize("seed", [0, *(parts.rest(seed) for seed in range(1, 12))])
def test_wherever_a_removal_dies_it_is_resumed_or_a_sync_makes_the_replica_whole_again(seed):
    stage = to_be_removed(Random(f"remove {seed}"))
    scenario = stage.scenario(lambda: removing(stage))
    findings, end = record(scenario)
    assert findings.wrong == []
    assert len(findings.points) > 20
    outside = outside_of(scenario.start, stage.replica)
    assert (files(end, stage.replica), outside_of(end, stage.replica)) == ({}, outside)
    assert stage.replica not in end
    for number, state in enumerate(findings.states):
        at = f"state {number} of {len(findings.states)}"
        there = files(state, stage.replica)
        is_left = any(place.startswith(f"{stage.replica}/.cpreplicate") for place in state)
        assert torn(there) == [], at
        disk = scenario.disk(state, LATER)
        with running_on(disk):
            if is_left:
                removing(stage)
        assert files(disk.snapshot(), stage.replica) == {}, at
        assert outside_of(disk.snapshot(), stage.replica) == outside, at
        disk = scenario.disk(state, LATER)
        with running_on(disk):
            sync.sync(stage.request(), silent)
            assert verify.verify(stage.replica, None, verify.NOTHING, silent, Side()).restorable, at


def torn(there: Mapping[str, bytes]) -> list[str]:
    """What the checkpoints lack that are committed."""
    lengths = {uri.local_path(path): len(data) for path, data in there.items()}
    return [
        fault
        for path, data in there.items()
        if re.fullmatch(r".*/chk-\d+/_metadata", path)
        for fault in checker.faults_of(data, Path(uri.local_path(path)), lengths.get)
    ]


def outside_of(state: State, replica: str) -> dict[str, object]:
    """What is elsewhere than in a replica."""
    return {
        path: {name: child for name, child in children.items() if f"{path}/{name}" != replica}
        for path, children in state.items()
        if path != replica and not uri.within(path, replica)
    }


@contextlib.contextmanager
def replacing(
    owner: object, name: str, make: Callable[[Callable[..., object]], Callable[..., object]]
) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, make(getattr(owner, name)))
        yield


def commit_before_copy() -> contextlib.AbstractContextManager[None]:
    def broken(copy):
        def commit_and_copy(work, following, *how):
            # as a put takes it
            content = lambda: sync_metadata.rewritten(  # noqa: E731
                work.source_state, work.replica, work.plan.paths
            )
            work.replica.publish(work.plan.checkpoint, content, lambda: None, replace=True)
            return copy(work, following, *how)

        return commit_and_copy

    return replacing(sync, "copy_missing", broken)


def delete_before_commit() -> contextlib.AbstractContextManager[None]:
    def broken(publish):
        def delete_and_publish(commit, written, *how):
            work = commit.work
            for action in work.plan.deletes:
                work.replica.storage.delete(work.replica.uri_of(action.target))
            return publish(commit, written, *how)

        return delete_and_publish

    return replacing(Committing, "publish", broken)


def non_atomic_put() -> contextlib.AbstractContextManager[None]:
    # what looks at it comes too late
    def in_place(
        disk,
        uri,
        content,
        expect=None,  # noqa: ARG001  # checked too late
        attributes=None,  # noqa: ARG001  # checked too late
        replace=True,  # noqa: ARG001  # checked too late
    ):
        disk.delete(uri)
        return disk.write_new(uri, content)

    return replacing(RenamingStorage, "put", lambda _: in_place)


def extents_ignored() -> contextlib.AbstractContextManager[None]:
    def broken(compare):
        return lambda needed, *rest: compare(
            {path: each._replace(extent=0) for path, each in needed.items()}, *rest
        )

    return replacing(sync_plan, "copies_and_keeps", broken)


@contextlib.contextmanager
def packs_of_others_deleted() -> Iterator[None]:
    """A pack is deleted once the published checkpoint does not reference it any more."""

    needed = [texts(())]

    def remembering(going):
        def remember(gone, new_paths, *rest):
            needed[:] = [new_paths]
            return going(gone, new_paths, *rest)

        return remember

    def broken(deletes):
        def without_others(replaced, going, present):
            made = deletes(replaced, going, present)
            packs = {path for path in present if is_pack(path)}.difference(needed[0].to_pylist())
            return made + tuple(plan.Action("delete", None, path, 0, "") for path in sorted(packs))

        return without_others

    with replacing(sync_plan, "_going", remembering), replacing(sync_plan, "deletes", broken):
        yield


def packs_deleted_before_commit() -> contextlib.AbstractContextManager[None]:
    def broken(publish):
        def delete_and_publish(commit, written, *how):
            work = commit.work
            for action in work.plan.deletes:
                if is_pack(action.target):
                    work.replica.storage.delete(work.replica.uri_of(action.target))
            return publish(commit, written, *how)

        return delete_and_publish

    return replacing(Committing, "publish", broken)


def offsets_forgotten() -> contextlib.AbstractContextManager[None]:
    """Kept members are referenced as if their packs began with them."""

    def broken(members_of):
        def at_the_beginning(ledger, present):
            members = members_of(ledger, present)
            return {path: member._replace(offset=0) for path, member in members.items()}

        return at_the_beginning

    return replacing(Ledger, "whole_members", broken)


def earlier_replica_trusted() -> contextlib.AbstractContextManager[None]:
    """What an earlier replica holds is copied whatever its CRC32C."""

    def broken(_copy):
        def unchecked(uri, new_uri, length, crc32c, side, moved, _inside):
            storage = side.storage(uri)
            with storage.open(uri) as stream:
                data = stream.read()
            storage.put(new_uri, lambda: [data])
            moved(length)
            return length, crc32c

        return unchecked

    return replacing(batch, "copy_within", broken)


def all_deleted_that_was_written_before_a_turn() -> contextlib.AbstractContextManager[None]:
    def broken(_abandoned):
        return lambda following: sorted(following._written)

    return replacing(Following, "abandoned", broken)


def as_plain(draw: Random) -> Scenario:
    while True:
        scenario = of_an_earlier_job_damaged(draw)
        if not any("/packed" in directory for directory in scenario.start):
            return scenario


class Mutation(NamedTuple):
    """A broken protocol, the kind of run that shows it, and what is then found."""

    breaking: Callable[[], contextlib.AbstractContextManager[None]]
    kind: Callable[[Random], Scenario]
    found: str


MUTATIONS = {
    "commit before copy": Mutation(commit_before_copy, incremental, "missing: "),
    "delete before commit": Mutation(delete_before_commit, incremental, "missing: "),
    "non-atomic put": Mutation(non_atomic_put, first, "not understood: "),
    "extents ignored": Mutation(extents_ignored, grown_segments, "short: "),
    "packs of other checkpoints deleted": Mutation(
        packs_of_others_deleted, keeping_two_packed, "missing: "
    ),
    "packs deleted before commit": Mutation(packs_deleted_before_commit, repacking, "missing: "),
    "earlier replica trusted": Mutation(earlier_replica_trusted, as_plain, "other bytes: "),
    "deleted though needed after a turn": Mutation(
        all_deleted_that_was_written_before_a_turn, turning, "missing: "
    ),
    "offsets forgotten": Mutation(offsets_forgotten, packing_no_more, "other bytes: "),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_broken_protocol_is_found_out(name):
    broken = MUTATIONS[name]
    found = []
    for seed in range(3):
        scenario = broken.kind(Random(f"{name} {seed}"))
        with broken.breaking():
            found += examine(scenario, again=0).wrong
    assert any(broken.found in each for each in found)
    # it is not fooled where the checker is not, which does not see that the end of a `_metadata`
    # is torn
    assert not any("verify reports restorable=True" in each for each in found)


def test_the_simulated_disk_does_what_a_local_filesystem_does(tmp_path):
    draw, disk, local = Random(0), SimulatedDisk(links=True), LocalStorage()
    for _ in range(2000):
        verb, *words = _any_call(draw, f"file:{tmp_path}")
        assert _outcome(disk, verb, words) == _outcome(local, verb, words), (verb, words)


def _any_call(draw: Random, root: str) -> tuple[Any, ...]:
    verb = draw.choice(
        [
            "put",
            "create_exclusive",
            "take_over",
            "rename",
            "delete",
            "rmdir",
            "stat",
            "list",
            "open",
        ]
    )
    names = [f"{root}/{path}" for path in ("x/a", "x/b", "x/y/c", "x/y/d", "x/z/e")]
    place, data = draw.choice(names), draw.choice([b"", b"1", b"12345"])
    more: dict[str, list[object]] = {
        "put": [lambda: [data, data]],
        "create_exclusive": [data],
        "take_over": [draw.choice([data, data * 2]), b"new"],
    }
    more["rename"] = [draw.choice([name for name in names if name != place]), draw.random() < 0.5]
    if verb not in more and draw.random() < 0.5:
        return verb, draw.choice([f"{root}/x", f"{root}/x/y", f"{root}/x/z"])
    return verb, place, *more.get(verb, [])


def _outcome(storage: RenamingStorage, verb: str, words: list[object]) -> object:
    """What a call gives or raises, in terms that do not depend on the time."""
    try:
        found = getattr(storage, verb)(*words)
    except OSError as error:
        return type(error)
    if verb == "open":
        with found:
            return found.read()
    statuses = found if verb == "list" else [found] if verb == "stat" and found else None
    return (
        found
        if statuses is None
        else sorted(
            (each.name, each.is_directory, not each.is_directory and each.length)
            for each in statuses
        )
    )
