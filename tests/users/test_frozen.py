"""Replicas that earlier versions left behind, in every state, are read, continued and promoted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import checker, frozen
from tests.support.commandline import Ended, run
from tests.support.frozen import REMAP, REPLICA, SOURCE, TARGET_ROOT

pytestmark = pytest.mark.xdist_group("frozen")

# the newest checkpoint that each state has committed
NEWEST = {
    "absolute": 6,
    "adopted": 7,
    "adopted-sharing": 8,
    "died-after-commit": 7,
    "died-at-deletes": 7,
    "died-before-commit": 6,
    "packed": 7,
    "packed-died-after-commit": 7,
    "packed-died-before-commit": 6,
    "plain": 6,
    "promoted": 6,
    "promoted-packed": 6,
    "put-off-deletes": 7,
    "some-copies-failed": 6,
    "two-kept": 7,
}
SEALED = {"promoted", "promoted-packed"}


@pytest.fixture(params=frozen.archives())
def state(request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a state, whose replica and source are in place."""
    with frozen.unpacked(request.param):
        yield request.param.rpartition("/")[2]


def sync(number: int, *options: str) -> Ended:
    words = (
        "--remap",
        f"{REMAP.recorded}={REMAP.actual}",
        "--runner",
        "inline",
        "--output",
        "json",
        *options,
    )
    return run("sync", f"file:{SOURCE}/chk-{number}", f"file:{TARGET_ROOT}", *words)


def usable(state: str) -> None:
    """Take the seal off, where there is one."""
    if state in SEALED:
        assert run("unseal", "--no-job-uses-it", f"file:{REPLICA}").code == 0


def is_as_at_the_source(number: int) -> bool:
    """Whether each reference of a checkpoint has the bytes that the source's has, by a checker that
    shares no code with cpreplicate."""
    recorded, actual = (name.removeprefix("file:") for name in REMAP)
    originals = checker.needs(SOURCE / f"chk-{number}" / "_metadata")
    copies = checker.needs(REPLICA / f"chk-{number}" / "_metadata")
    assert len(originals) == len(copies)
    return all(
        checker.is_copy(each, copy, _bytes(each.path.replace(recorded, actual)), _bytes(copy.path))
        for each, copy in zip(originals, copies, strict=True)
    )


def _bytes(path: str) -> bytes:
    return Path(path).read_bytes()


def test_every_state_is_known() -> None:
    assert {archive.rpartition("/")[2] for archive in frozen.archives()} == set(NEWEST)


def test_status_shows_and_verify_approves_the_newest_checkpoint(state: str) -> None:
    [row] = run("status", f"file:{TARGET_ROOT}", "--output", "json").json()["replicas"]
    assert row["checkpoint"] == f"chk-{NEWEST[state]}"
    assert bool(row["sealed"]) == (state in SEALED)
    for content in ((), ("--content",)):
        result = run("verify", f"file:{REPLICA}", *content, "--output", "json").json()
        assert result["restorable"]
        assert result["checkpoint_id"] == NEWEST[state]


def test_sync_continues_and_then_has_nothing_to_do(state: str) -> None:
    usable(state)
    before = {path: path.read_bytes() for path in REPLICA.glob("README")}
    for number in sorted({max(7, NEWEST[state]), 8}):
        assert sync(number).json()["committed"] or number == NEWEST[state]
        assert is_as_at_the_source(number)
        assert not sync(number).json()["committed"]
    assert {path: path.read_bytes() for path in REPLICA.glob("README")} == before
    assert run("verify", f"file:{REPLICA}", "--content").code == 0


def test_sync_and_sweep_leave_every_checkpoint_whole_also_adopted_ones(state: str) -> None:
    usable(state)
    faults = checker.faults(REPLICA)  # of a checkpoint that was copied here by hand
    sync(8)
    assert run("sweep", f"file:{REPLICA}", "--min-age", "0s", "--max-delete", "100%").code == 0
    assert checker.faults(REPLICA) == faults
    assert is_as_at_the_source(8)


def test_the_newest_checkpoint_is_promoted(state: str) -> None:
    usable(state)
    done = run("promote", f"file:{REPLICA}", "--output", "json").json()
    assert done["checkpoint"].endswith(f"chk-{NEWEST[state]}")
    assert is_as_at_the_source(NEWEST[state])
    assert json.loads((REPLICA / ".cpreplicate" / "sealed").read_text())
    assert sync(8).code == 6
