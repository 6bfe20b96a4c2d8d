"""Flink keeps its checkpoints beside cpreplicate's replicas, and everything happens to both: no
byte of Flink's is lost.

`make cotenant` plays 20,000 histories. A failure prints its seed and the history;
`World(seed).play(STEPS)` plays it again.
"""

from __future__ import annotations

import errno
import os
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from shutil import rmtree
from types import SimpleNamespace
from typing import NamedTuple, TypeAlias

import pyarrow as pa
import pytest

from cpreplicate.core import plan
from cpreplicate.core.ledger import LedgerEntry, LedgerTable
from cpreplicate.core.packs import is_pack
from cpreplicate.core.path_columns import as_texts, texts
from cpreplicate.core.placement import METADATA
from cpreplicate.core.retention import Retention
from cpreplicate.errors import CopyFailed, NotThere, Refused
from cpreplicate.operations.handover import unseal
from cpreplicate.operations.sync import content, put_off, sync
from cpreplicate.operations.sync.content import Compared
from cpreplicate.operations.sync.plan import earlier_replicas as earlier_replicas
from cpreplicate.operations.sync.plan import plan as sync_plan
from cpreplicate.operations.sync.put_off import Backlog
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.operations.upkeep import orphans as orphan
from cpreplicate.operations.verify import verify
from cpreplicate.protocol import (
    manifest,
    needed,
    ownership,
    publication,
    replica_name,
    same_place,
    seal,
    source,
)
from cpreplicate.protocol.journal import JournalWriter
from cpreplicate.protocol.ledger import Ledger
from cpreplicate.protocol.pending import PendingPut
from cpreplicate.protocol.source import Source, completed_names
from cpreplicate.runners import ExecutionOptions, inline
from cpreplicate.storage import Side
from tests.support import parts
from tests.support.adopting import SHARED, Adopted
from tests.support.histories import World
from tests.support.jobs import JOB, NEXT_JOB, put_restored
from tests.support.reached import demanded_of, going_on, sometimes
from tests.support.replicas import FILES, NEXT, synced
from tests.support.simulated import files
from tests.support.staging import TARGET_ROOT, Stage, running_on, silent

HISTORIES = int(os.environ.get("TESTS_HISTORIES", "2000"))
PORTION = -(-HISTORIES // 8)
NOT_RARE = [
    "sync Report",
    "sync Refused",
    "sync Crash",
    "watch Report",
    "fleet FleetReport",
    "sweep Sweep",
    "sweep Refused",
    "relocate Relocation",
    "promote Promotion",
    "unseal Unsealing",
    "unseal Refused",
    "points were kept by their time",
    "members of a sparse pack moved",
    "a run turned to a newer checkpoint",
]
NOT_RARE_WHERE_SHARED = [
    "started unpromoted",
    "shared with a replica",
    "copied within the target",
    "completed before delayed deletes",
    "forged",
    "a stranger that equals",
    "a stranger that differs",
    "sync Report",
    "watch Report",
    "sweep Sweep",
    "a run turned to a newer checkpoint",
]
STEPS = 8
SUITE = "tests/histories/test_cotenant.py"


def described(world: World) -> str:
    return "\n  ".join([*world.history, "WRONG:", *world.wrong])


@pytest.mark.parametrize("seeds", parts.seeds(main=60, full=HISTORIES, portion=PORTION, portions=2))
def test_flink_loses_nothing_and_every_replica_equals_its_source(seeds):
    counts: Counter[str] = Counter()
    for seed in going_on(seeds, demanded_of(SUITE, "a history had")):
        world = World(seed, is_adopting=seed % 10 == 0)
        assert not world.play(STEPS), described(world)
        for kind in world.counts:
            sometimes(f"a history had: {kind}", world.counts[kind])
        counts += world.counts
    if len(seeds) >= 250:
        assert [each for each in NOT_RARE if not counts[each]] == []


@pytest.mark.parametrize("seeds", parts.seeds(24, HISTORIES // 2, PORTION, portions=1))
def test_nothing_is_taken_from_jobs_that_share_files_with_replicas(seeds):
    """Jobs start from replicas that nobody promoted, other tools write into them, and manifests are
    forged.
    """
    counts: Counter[str] = Counter()
    for seed in going_on(seeds, demanded_of(SUITE, "a shared history had")):
        world = World(seed, is_sharing=True)
        assert not world.play(STEPS), described(world)
        for kind in world.counts:
            sometimes(f"a shared history had: {kind}", world.counts[kind])
        counts += world.counts
    if len(seeds) >= 250:
        assert [each for each in NOT_RARE_WHERE_SHARED if not counts[each]] == []


Mutate: TypeAlias = Callable[[pytest.MonkeyPatch], None]


class Everything(set):  # type: ignore[type-arg]
    """Contains whatever is asked for."""

    def __contains__(self, _each: object) -> bool:
        return True


def without_reason(words: str) -> Mutate:
    def mutate(patch: pytest.MonkeyPatch) -> None:
        foreign = ownership.foreign
        patch.setattr(
            ownership,
            "foreign",
            lambda *args: (each for each in foreign(*args) if words not in each),
        )

    return mutate


def without(owner: object, name: str, instead: object = None) -> Mutate:
    return lambda patch: patch.setattr(owner, name, lambda *_args: instead)


def publish_replaces(patch: pytest.MonkeyPatch) -> None:
    class Replacing(PendingPut):
        def __init__(self, storage, uri, content, replace=True, is_fenced=False):  # noqa: ARG002  # left out
            super().__init__(storage, uri, content, is_fenced=is_fenced)

    patch.setattr(publication, "PendingPut", Replacing)


def sweep_takes_everything(patch: pytest.MonkeyPatch) -> None:
    why = orphan.why_orphan
    patch.setattr(
        orphan, "why_orphan", lambda path, committed, _written: why(path, committed, Everything())
    )


def highest_number_is_newest(patch: pytest.MonkeyPatch) -> None:
    def newest(root, side, _allow_older):
        names = completed_names(root, side)
        if not names:
            raise NotThere(root)
        return Source(f"{root}/{names[0]}", root.rpartition("/")[2], root)

    patch.setattr(source, "newest", newest)


def present_is_done(patch: pytest.MonkeyPatch) -> None:
    split = plan.copies_and_keeps

    def trusting(needed, committed, present, ledger, members):
        trusted = {path: LedgerEntry(length, 0, True) for path, length in present.items()}
        ledger = LedgerTable.merged([LedgerTable.of(trusted), ledger])
        return split(needed, committed, present, ledger, members)

    patch.setattr(sync_plan, "copies_and_keeps", trusting)


def adopted_files_are_overwritten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(content, "keeping_what_is_equal", lambda work: Compared(work.plan, {}))


def adopted_files_are_deleted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Ledger, "of_others", lambda *_args: texts(()))


def packs_of_others_are_deleted(patch: pytest.MonkeyPatch) -> None:
    """A pack is deleted once the checkpoint that is published does not reference it."""
    deletes, going_of, needed_paths = plan.deletes, sync_plan._going, [texts(())]

    def remember(gone, new_paths, *rest):
        needed_paths[:] = [as_texts(new_paths)]
        return going_of(gone, new_paths, *rest)

    def without_others(replaced, going, present):
        packs = {path for path in present if is_pack(path)}
        packs -= set(needed_paths[0].to_pylist())
        made = deletes(replaced, going, present)
        return made + tuple(plan.Action("delete", None, path, 0, "") for path in packs)

    patch.setattr(sync_plan, "_going", remember)
    patch.setattr(sync_plan, "deletes", without_others)


def needed_by_its_own(_replica, state, left_out=()):
    """Only what cpreplicate published is asked what it needs."""
    own = [each.files.paths for each in state.committed if each.name not in left_out]
    return pa.concat_arrays([texts(()), *own])


def without_asking(owner: object) -> Mutate:
    """An operation does not ask what checkpoints of others need."""
    asking = SimpleNamespace(**{**vars(needed), "needed": needed_by_its_own})
    return lambda patch: patch.setattr(owner, "needed", asking)


def any_source_is_the_replicas(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ownership, "other_source", lambda *_args: ())
    patch.setattr(replica_name, "claims", lambda *_args: True)


def others_are_ours(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Ledger, "of_others", lambda *_args: texts(()))


def records_are_trusted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(manifest, "_checked", lambda listed: listed)


def links_are_followed(patch: pytest.MonkeyPatch) -> None:
    without_reason("is a symbolic link")(patch)
    patch.setattr(sync_plan, "refuse_links", lambda *_: None)


def only_the_last_are_kept(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        Retention, "kept", lambda self, completed, _now: range(min(self.last, len(completed)))
    )


def all_points_are_kept(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Retention, "kept", lambda _self, completed, _now: range(len(completed)))


class Mutant(NamedTuple):
    """A check that is left out, and what is then found.

    `by` is the first history that found it. It is played first, and others if it no longer does.
    """

    mutate: Mutate
    found: str
    by: int
    is_adopting: bool = False
    is_sharing: bool = False


MUTANTS = {
    "a directory needs no marker": Mutant(
        without_reason("is not a replica of cpreplicate's making"),
        "must not succeed: the directory is not a replica",
        25,
    ),
    "any source may be replicated": Mutant(
        any_source_is_the_replicas, "must not succeed: the replica is of", 13
    ),
    "a checkpoint needs no record": Mutant(
        without_reason("was not written by cpreplicate"), "must not succeed: a job keeps", 6
    ),
    "a commit replaces what is there": Mutant(publish_replaces, "changed Flink's", 33),
    "the lease is not looked for at the source": Mutant(
        without(same_place, "refuse_same_place"), "the source was written to", 7
    ),
    "sweep takes what nobody recorded": Mutant(sweep_takes_everything, "changed Flink's", 5, True),
    "newer files of others are no reason": Mutant(
        without(orphan, "refuse_newer"), "must not succeed: a job wrote", 51
    ),
    "unseal asks for no job": Mutant(without(unseal, "refuse_used"), "needs the replica", 36),
    "the highest number is the newest": Mutant(
        highest_number_is_newest, "which completed last", 210
    ),
    "what is present is done": Mutant(present_is_done, "not as at the source", 16),
    "adopted files are overwritten": Mutant(
        adopted_files_are_overwritten, "changed Flink's", 57, True
    ),
    "adopted files are deleted": Mutant(adopted_files_are_deleted, "changed Flink's", 57, True),
    "packs of others are deleted": Mutant(packs_of_others_are_deleted, "missing", 82),
    "points are not kept by their time": Mutant(only_the_last_are_kept, "was lost", 3),
    "no point goes": Mutant(all_points_are_kept, "is kept without reason", 0),
    "a seal is no reason": Mutant(
        without(seal, "refuse_sealed"), "a sealed replica was changed", 12
    ),
    "what was put off is not recorded": Mutant(
        without(Ledger, "left_over", texts(())), "no record of", 0
    ),
    "a plan asks its own checkpoints only": Mutant(
        without_asking(sync_plan), "has lost", 101, is_sharing=True
    ),
    "a sweep asks its own checkpoints only": Mutant(
        without_asking(orphan), "has lost", 300, is_sharing=True
    ),
    "every file at the path of a copy is ours": Mutant(others_are_ours, "changed Flink's", 47),
    "links are followed": Mutant(links_are_followed, "is a link", 13),
    "forged records are believed": Mutant(
        records_are_trusted, "not as at the source", 25, is_sharing=True
    ),
}
ENOUGH = 1000  # histories, of which few are played until it is found


@pytest.mark.parametrize("name", MUTANTS)
def test_the_histories_find_a_check_that_is_left_out(name):
    mutant = MUTANTS[name]
    for seed in (mutant.by, *range(ENOUGH)):
        world = World(seed, mutant.is_adopting, mutant.is_sharing)
        with pytest.MonkeyPatch.context() as patch:
            mutant.mutate(patch)
            if any(mutant.found in each for each in world.play(STEPS)):
                return
    raise AssertionError(f"not found in {ENOUGH} histories")


# What the histories cannot express: each returns what is wrong


def replaced_before_it_is_withdrawn(_root: Path) -> list[str]:
    """A job deletes the replica's old checkpoint and writes its own of that name while the new one
    is published.
    """
    stage = Stage(Random(0)).complete().sync().complete()
    old, new = (
        f"{stage.replica}/chk-{number}/_metadata" for number in sorted(stage.job.references)
    )

    def replace(moment: str, verb: str, place: str) -> None:
        if (moment, verb, place) == ("after", "rename", new):
            stage.disk.place(old, b"of a job")

    stage.disk.hook = replace
    with suppress(Refused):
        stage.sync()
    return [] if stage.disk.data(old) == b"of a job" else ["the job's checkpoint was deleted"]


def copied_replica_as_source(_root: Path) -> list[str]:
    stage = Stage(Random(0)).complete().sync(paths="relative")
    before = files(stage.disk.snapshot())
    for place, data in files(stage.disk.snapshot(), stage.replica).items():
        stage.disk.place(place.replace("/dcB/", "/dcC/"), data)
    request = SyncRequest(
        f"file:/dcC/{stage.job.job}",
        TARGET_ROOT,
        same_source=True,
        execution=ExecutionOptions(runner="inline", parallelism=1),
    )
    with running_on(stage.disk), suppress(Refused):
        sync.sync(request, silent)
    return (
        []
        if before.items() <= files(stage.disk.snapshot()).items()
        else ["the replica was changed"]
    )


def interrupted_copy(_root: Path) -> list[str]:
    """The last copy of a run fails; the next run copies that file only, and reads no other."""
    stage = Stage(Random(0)).complete()
    last = max(files(stage.disk.snapshot(), f"{stage.job.root}/shared"))
    full = last.replace(stage.job.root, stage.replica)

    def fail(moment: str, verb: str, place: str) -> None:
        if (moment, verb, place) == ("before", "rename", full):
            raise OSError(errno.ENOSPC, "full", place)

    stage.disk.hook = fail
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inline, "PAUSE", 0.0)
        with pytest.raises(CopyFailed):
            stage.sync()
    read = set()

    def note(_moment: str, verb: str, place: str) -> None:
        if verb == "open" and place.startswith(f"{stage.replica}/shared/"):
            read.add(place)

    stage.disk.hook = note
    with running_on(stage.disk):
        copies = sync.sync(stage.request(), silent).plan.copies
    twice = [f"copied twice: {each.target}" for each in copies if not full.endswith(each.target)]
    return [*twice, *(f"read: {place}" for place in sorted(read))]


def linked_to_the_source(root: Path) -> list[str]:
    """A directory of the replica is a symbolic link to the source's."""
    replica = synced(root, {1: FILES})
    rmtree(replica / "shared")
    (replica / "shared").symlink_to(root / "dcA" / JOB / "shared")
    with suppress(Refused):
        synced(root, {2: NEXT})
    return [
        f"deleted at the source: {path}"
        for path in FILES
        if not (root / "dcA" / JOB / path).exists()
    ]


def put_off_and_adopted(root: Path) -> list[str]:
    """A checkpoint is adopted that needs files whose deletes were put off."""
    adopted = Adopted(root)
    adopted.moves_on()
    request = adopted.request(async_deletes=True, adopt=True)
    backlog = Backlog(request)
    backlog.add(sync.sync(request, silent))
    adopted.complete(SHARED)
    adopted.sync(adopt=True)
    backlog.work_off(time.monotonic() + 600, silent)
    return [f"deleted: {name}" for name in sorted(SHARED.keys() - adopted.there())]


def verified_through_a_link(root: Path) -> list[str]:
    """A directory of the replica is a link to the source, which may be gone tomorrow."""
    replica = synced(root, {1: FILES})
    rmtree(replica / "shared")
    (replica / "shared").symlink_to(root / "dcA" / JOB / "shared")
    with suppress(Refused):
        found = verify.verify(f"file:{replica}", None, verify.ALL, silent, Side())
        return ["a replica without files of its own was approved"] if found.restorable else []
    return []


def verify_follows_links(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(verify, "_refuse_links", lambda *_: None)


def copied_through_a_link(root: Path) -> list[str]:
    """A directory in the replica of an earlier job is a link to another program's files."""
    inner = {"shared/inner/a": 100}
    replica = synced(root, {1: inner})
    rmtree(replica / "shared/inner")
    (root / "private").mkdir()
    (root / "private/a").write_bytes((root / "dcA" / JOB / "shared/inner/a").read_bytes())
    (replica / "shared/inner").symlink_to(root / "private")
    put_restored(Side(), f"file:{root}/dcA", 2, {"shared/n": 70}, inner)
    options = ExecutionOptions(runner="inline")
    request = SyncRequest(f"file:{root}/dcA/{NEXT_JOB}", f"file:{root}/dcB", execution=options)
    within = sync.sync(request, silent).plan.reused
    return [f"copied from {place.path}" for place in within.values()]


def earlier_replicas_follow_links(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(earlier_replicas, "refuse_links", lambda *_: None)


SCENARIOS = {
    "the record is looked at before a withdrawal": (
        replaced_before_it_is_withdrawn,
        lambda patch: patch.setattr(
            publication,
            "withdraw",
            lambda replica, name, *_: replica.withdraw(f"{name}/{METADATA}"),
        ),
    ),
    "a copy of the replica is no source": (
        copied_replica_as_source,
        without(ownership, "same_replica", ()),
    ),
    "the journal resumes a copy": (interrupted_copy, without(JournalWriter, "done")),
    "links are not followed": (linked_to_the_source, links_are_followed),
    "deletes that were put off ask again": (put_off_and_adopted, without_asking(put_off)),
    "verify follows no link": (verified_through_a_link, verify_follows_links),
    "nothing is copied through a link": (copied_through_a_link, earlier_replicas_follow_links),
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_check_prevents_what_happens_without_it(name, tmp_path):
    scenario, mutate = SCENARIOS[name]
    assert scenario(tmp_path / "with") == []
    with pytest.MonkeyPatch.context() as patch:
        mutate(patch)
        assert scenario(tmp_path / "without") != []
