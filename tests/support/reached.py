"""States that the simulations must reach at least once: else a run proves less than it seems to.

A simulation calls `sometimes` with the name of a state. `tests/conftest.py` collects the names over
all workers, and fails a run in which a suite did not reach all of its states. The seeds of `make
test`, or those after them (`going_on`), reach those of `STATES`; the longer runs also those of
`RARE_STATES`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from tests.support.parts import Part

reached: Counter[str] = Counter()


def sometimes(state: str, is_so: object = True) -> None:
    """Record that a state was reached."""
    if is_so:
        reached[state] += 1


_FURTHER = range(1_000_000, 1_001_000)  # no seeds of any part: `parts.seeds`


def going_on(seeds: Iterable[int], states: Collection[str]) -> Iterator[int]:
    """Return the seeds, then further ones until each of these states was reached in this process.

    What some given seeds reach changes with each step that the product makes more or less.
    """
    yield from seeds
    for seed in _FURTHER:
        if all(reached[state] for state in states):
            return
        yield seed


def demanded_of(suite: str, beginning: str) -> list[str]:
    """Return the states of `make test` that a suite must reach and whose names begin so."""
    return [state for state in STATES[suite] if state.startswith(beginning)]


def missing(
    suites: Collection[str],
    part: Part,
    found: Mapping[str, int],
    at_night: Collection[str] = (),
) -> list[str]:
    """Return the states that these suites, given by their paths, should have reached in a part.

    Of those `at_night`, only the tests of `make nightly` were run.
    """
    demanded = {
        "main": [STATES, DIRECTED_STATES],
        "rest": [STATES, RARE_STATES],
        "all": [STATES, DIRECTED_STATES, RARE_STATES],
    }[part]
    return [
        f"{suite}: {state}"
        for suite in sorted(suites)
        for states in demanded
        for state in states.get(suite, ())
        if not found.get(state) and not (suite in at_night and state in NOT_AT_NIGHT)
    ]


class Deaths(NamedTuple):
    """Points at which a run dies: in these moments of a step, at such a place."""

    moment: str
    verb: str
    place: str

    def fits(self, moment: str, verb: str, place: str) -> bool:
        """Return whether a point is one of these."""
        is_step = (moment, verb) == (self.moment, self.verb)
        return is_step and re.search(self.place, place) is not None


_FILE = r"/(shared|taskowned|chk-\d+)/(?!_metadata)[^/.]+$"
_COPY = rf"{_FILE}|/packed/"
_METADATA = r"/chk-\d+/_metadata$"
_WITHDRAWN = r"/\.cpreplicate-tmp-withdrawn-[^/]*$"
_LEASE = r"/\.cpreplicate/lease$"
_RECORD = r"/\.cpreplicate/chk-\d+\.json$"
_MANIFEST = r"/\.cpreplicate/chk-\d+\.parquet$"
_JOURNAL = r"/\.cpreplicate/copied-[^/]*$"
DEATHS = {
    "died before it took the lease": Deaths("before", "rename", _LEASE),
    "died with the lease under two names": Deaths("torn", "rename", _LEASE),
    "died right after it took the lease": Deaths("after", "rename", _LEASE),
    "died before it took a stale lease over": Deaths("before", "rename", r"/lease-[^/]*$"),
    "died before it gave the lease back": Deaths("before", "delete", _LEASE),
    "died before the marker": Deaths("before", "rename", r"/replica\.json$"),
    "died before a part of the journal": Deaths("before", "rename", _JOURNAL),
    "died within the bytes of a file": Deaths("torn", "write", ""),
    "died before a copy appeared": Deaths("before", "rename", _FILE),
    "died after a copy had appeared": Deaths("after", "rename", _FILE),
    "died before a file of another job appeared": Deaths("before", "rename", "/foreign/"),
    "died before a pack appeared": Deaths("before", "rename", "/packed/"),
    "died before the record": Deaths("before", "rename", _RECORD),
    "died between the record and the commit": Deaths("before", "rename", _METADATA),
    "died before a manifest": Deaths("before", "rename", _MANIFEST),
    "died before an old checkpoint was withdrawn": Deaths("before", "rename", _WITHDRAWN),
    "died before what was withdrawn was deleted": Deaths("before", "delete", _WITHDRAWN),
    "died between the withdrawal and the deletes": Deaths("before", "delete", _FILE),
    "died before a pack was deleted": Deaths("before", "delete", "/packed/"),
    "died before the record of what is gone was removed": Deaths("before", "delete", _RECORD),
    "died before the journal was removed": Deaths("before", "delete", _JOURNAL),
    "died before the seal": Deaths("before", "rename", "/sealed$"),
    "died before a file went to the trash": Deaths("before", "rename", "/trash/"),
}


def died_at(points: Iterable[tuple[str, str, str, int]]) -> None:
    """Record where a run died, given its points: moment, verb, place, state."""
    for moment, verb, place, _ in points:
        for state, deaths in DEATHS.items():
            sometimes(state, deaths.fits(moment, verb, place))


_READ_AT_SOURCE = re.compile(r"file:/dcA/[^/]+/chk-\d+/_metadata")
TURNS = {
    "died before a turn, after a copy had appeared": Deaths("after", "rename", _COPY),
    "died after a turn, before a copy appeared": Deaths("before", "rename", _COPY),
    "died after a turn, before the commit": Deaths("before", "rename", _METADATA),
    "died after a turn, before a file was deleted": Deaths("before", "delete", _FILE),
}


def died_around_a_turn(points: Sequence[tuple[str, str, str, int]]) -> None:
    """Record where a run died that turned, which read the `_metadata` of two checkpoints."""
    read = [
        (at, place)
        for at, (_, verb, place, _) in enumerate(points)
        if verb == "open" and _READ_AT_SOURCE.fullmatch(place)
    ]
    turn = next((at for at, place in read if place != read[0][1]), None)
    for state, deaths in TURNS.items() if turn is not None else ():
        near = points[:turn] if "before a turn" in state else points[turn:]
        sometimes(state, any(deaths.fits(*each[:3]) for each in near))


_CLASSES = {
    "the lease": r"/\.cpreplicate/lease",
    "a record": _RECORD,
    "a manifest": _MANIFEST,
    "the journal": _JOURNAL,
    "the commit": _METADATA,
    "a file": _FILE,
}
LOST = {
    f"the {what} {verb} {name} was lost": (what, verb, place)
    for what in ("call", "answer")
    for verb, names in {
        "put": ("a record", "a manifest", "the journal", "the commit", "a file"),
        "delete": ("the lease", "a record", "the commit", "a file"),
        "open": ("the lease", "the commit", "a file"),
        "create_exclusive": ("the lease",),
    }.items()
    for name in names
    for place in [_CLASSES[name]]
}


RARELY_LOST = (
    "the call delete a record was lost",
    "the answer delete a record was lost",
    "the call put a manifest was lost",
    "the call put the commit was lost",
    "the call delete the commit was lost",
)


def lost(what: str, verb: str, place: str) -> None:
    """Record that a call or its answer was lost."""
    for state, (lost_what, lost_verb, lost_place) in LOST.items():
        if (what, verb) == (lost_what, lost_verb):
            sometimes(state, re.search(lost_place, place))


Step = tuple[int, str, str]


def raced(steps: Sequence[Step], outcomes: Mapping[int, object], held_up: Collection[int]) -> None:
    """Record what runs beside each other did to each other, given their steps in order."""
    names = {run: type(outcome).__name__ for run, outcome in outcomes.items()}
    for run, name in names.items():
        copies, in_the_midst, since_copies = _around(steps, run)
        _met(name, copies, since_copies, run in held_up)
        sometimes("a run found its temporary file removed", _is_overtaken(outcomes[run]))
        committed = any(_is_rename(step, _METADATA) for step in in_the_midst)
        sometimes("another run committed in the midst", committed)
        deleted = any(_is_delete(step, _FILE) for step in in_the_midst)
        sometimes("files were deleted in the midst of another run", deleted)
        swept = any(names[step[0]] == "Sweep" and step[1] == "delete" for step in since_copies)
        sometimes("a sweep deleted between copy and commit", swept)
    _ended(Counter(names.values()))


def _around(steps: Sequence[Step], run: int) -> tuple[list[Step], list[Step], list[Step]]:
    """Return a run's copies, and the steps of others since its first step and its first copy."""
    own = [at for at, step in enumerate(steps) if step[0] == run]
    copies = [at for at in own if _is_rename(steps[at], _COPY)]
    others = [at for at, step in enumerate(steps) if step[0] != run and at < own[-1]] if own else []
    return (
        [steps[at] for at in copies],
        [steps[at] for at in others if at > own[0]],
        [steps[at] for at in others if copies and at > copies[0]],
    )


def _met(name: str, copies: list[Step], others: list[Step], was_held_up: bool) -> None:
    """Record what a run met once it had copied; `name` is what came of it."""
    taken = any(_is_rename(step, _LEASE) for step in others)
    sometimes("a lease was taken over between copy and commit", taken)
    sometimes("a lost lease was noticed after copies", copies and name == "LeaseHeld")
    sometimes("a run was held up and committed nothing", was_held_up and name != "Report")
    packs = any(_is_rename(step, "/packed/") for step in copies)
    moved = any(_is_rename(step, "/packed/") for step in others)
    sometimes("a run wrote packs while another that had begun held its own", packs and moved)


def _is_overtaken(outcome: object) -> bool:
    """Return whether a run ended because its lease was lost, which a file that was gone showed."""
    is_lost = type(outcome).__name__ == "LeaseHeld"
    return is_lost and isinstance(getattr(outcome, "__cause__", None), FileNotFoundError)


def _ended(found: Counter[str]) -> None:
    sometimes("two runs were refused the lease", found["LeaseHeld"] >= 2)
    sometimes("two runs committed", found["Report"] >= 2)
    sometimes("a replica was promoted beside a sync", found["Promotion"])
    sometimes("a replica was relocated beside a sync", found["Relocation"])
    sometimes("a sync met the seal of a promotion", found["Promotion"] and found["Sealed"])


def _is_delete(step: Step, place: str) -> bool:
    return step[1] == "delete" and re.search(place, step[2]) is not None


def _is_rename(step: Step, place: str) -> bool:
    return step[1] == "rename" and re.search(place, step[2]) is not None


STATES: dict[str, Collection[str]] = {
    "tests/histories/test_crash_points.py": (
        *(state for state in DEATHS if "trash" not in state),
        *TURNS,
    ),
    "tests/histories/test_point_summary.py": (
        "a sync read few of its points",
        "a sync read few of its points of an object store",
        "a summary was there when a `_metadata` was replaced",
        "a summary was doubted",
        "a run with points died",
        "an earlier version wrote beside a summary",
        "a summary came from a backup",
        "a summary named fewer files than points need",
    ),
    "tests/faults/test_fault_seeds.py": (
        *(state for state in LOST if state not in RARELY_LOST),
        "a lasting fault ended with done",
        "a lasting fault ended with OSError",
        "a lasting fault ended with CopyFailed",
        "a lasting fault ended with Transient",
        "a lasting fault ended with NotThere",
    ),
    "tests/histories/test_races.py": (
        "a lease was taken over between copy and commit",
        "a run was held up and committed nothing",
        "another run committed in the midst",
        "files were deleted in the midst of another run",
        "two runs were refused the lease",
        "two runs committed",
        "a replica was promoted beside a sync",
        "a replica was relocated beside a sync",
        "a sync met the seal of a promotion",
        "a run found its temporary file removed",
        "a run wrote packs while another that had begun held its own",
        "files of an earlier job came from its replica",
        "the earlier replica was swept meanwhile",
        "a run turned to a newer checkpoint",
        "a run that had turned died",
    ),
    "tests/histories/test_retention.py": (
        "a policy that keeps less was refused",
        "a policy was recorded in place of another",
        "a run that states no policy kept several points",
        "a run that stated a policy died",
        "a checkpoint dated in the future was kept",
    ),
    "tests/histories/test_stateful.py": (
        "a sync met a seal",
        "deletes were put off",
        "a replica was unsealed",
        "a run died that had several states to leave",
        "a relocation died",
        "a sweep died",
    ),
    "tests/histories/test_cotenant.py": (
        "a history had: sync Report",
        "a history had: sync Refused",
        "a history had: sync Crash",
        "a history had: watch Report",
        "a history had: fleet FleetReport",
        "a history had: sweep Sweep",
        "a history had: sweep Refused",
        "a history had: relocate Relocation",
        "a history had: promote Promotion",
        "a history had: unseal Unsealing",
        "a history had: link Refused",
        "a history had: a fleet met a replica",
        "a history had: replaced in the midst",
        "a history had: points were kept by their time",
        "a history had: members of a sparse pack moved",
        "a history had: a run turned to a newer checkpoint",
        "a shared history had: started unpromoted",
        "a shared history had: shared with a replica",
        "a shared history had: copied within the target",
        "a shared history had: forged",
        "a shared history had: a stranger that equals",
        "a shared history had: completed before delayed deletes",
        "a shared history had: a run turned to a newer checkpoint",
    ),
    "tests/histories/test_forgetting.py": (
        "a forgetting history had: forget Removal",
        "a forgetting history had: an earlier life was forgotten",
        "a forgetting history had: not to be forgotten",
        "a forgetting history had: started unpromoted",
        "a forgetting history had: adopted again",
        "a forgetting history had: sealed after it was chosen",
    ),
}
# What single tests of `make test` reach, and no seeds
DIRECTED_STATES: dict[str, Collection[str]] = {
    "tests/histories/test_races.py": ("a withdrawal met the fence",),
}
# What the seeds that only `make nightly` runs need not reach: others, or single tests, do
NOT_AT_NIGHT = (
    "a pack was made sparse and its members moved",  # the cotenant histories do
    "a run that had turned died",
    "a run wrote packs while another that had begun held its own",
    "a subsumed checkpoint was committed",
)
RARE_STATES: dict[str, Collection[str]] = {
    "tests/histories/test_crash_points.py": ("died before a file went to the trash",),
    "tests/faults/test_fault_seeds.py": RARELY_LOST,
    "tests/histories/test_races.py": (
        "a lost lease was noticed after copies",
        "a sweep deleted between copy and commit",
        "a subsumed checkpoint was committed",
    ),
    "tests/histories/test_stateful.py": (
        "a restored job's files came from the earlier replica",
        "a pack was made sparse and its members moved",
    ),
    "tests/histories/test_cotenant.py": (
        "a history had: unseal Refused",
        "a shared history had: a stranger that differs",
    ),
}
