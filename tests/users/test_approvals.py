"""What approves is right: `diff`, both dry runs and `doctor` end with the exit code of the `sync`
that follows, and leave everything as it was.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from cpreplicate.errors import exit_code_of
from tests.support.commandline import run
from tests.support.doctor import tree
from tests.support.jobs import JOB, write_checkpoint

pytestmark = pytest.mark.usefixtures("still_source")

FILES = {f"shared/{name}": 100 for name in "abcdefgh"} | {"chk-1/x": 30}
NEXT = {name: size for name, size in FILES.items() if name > "shared/c"} | {"shared/new": 60}
OTHER_USER = 54321


class Place(NamedTuple):
    """The data centres of a test; `words` are the places and options of each command."""

    root: Path
    words: tuple[object, ...]

    @property
    def source(self) -> Path:
        return self.root / "dcA" / JOB

    @property
    def replica(self) -> Path:
        return self.root / "dcB" / JOB

    def sync(self) -> None:
        assert run("sync", self.source, self.root / "dcB", "--runner", "inline").code == 0

    def complete(self, number: int, files: dict[str, int]) -> None:
        write_checkpoint(self.root / "dcA", number, files)

    def given(self, *options: object, source: object = None, target: object = None) -> Place:
        places = (source or self.source, target or self.root / "dcB")
        return self._replace(words=(*places, *options))


Situation = Callable[[Place], Place]


def code_of(*words: object) -> int:
    """The exit code of a command, whatever kind of error it ends with."""
    try:
        return run(*words).code
    except OSError as error:
        return exit_code_of(error)


def fleet_of(place: Place) -> Path:
    source, target, *options = map(str, place.words)
    keys = [f"{name[2:]} = {json.dumps(value)}" for name, value in zip(*[iter(options)] * 2)]  # noqa: B905
    lines = ["[[job]]", f'source = "{source}"', f'target = "{target}"', *keys]
    (place.root / "fleet.toml").write_text("\n".join(lines))
    return place.root / "fleet.toml"


def approvals(place: Place) -> dict[str, int]:
    """The exit codes of all that must approve or refuse as `sync` does."""
    return {
        "diff": code_of("diff", *place.words),
        "sync --dry-run": code_of("sync", "--dry-run", *place.words),
        "doctor": code_of("doctor", *place.words, "--retry-for", "0.3s"),
        "fleet --dry-run": code_of("fleet", "--dry-run", fleet_of(place)),
    }


def nothing(place: Place) -> Place:
    return place


def replicated(place: Place) -> Place:
    place.sync()
    return place


def a_new_checkpoint(place: Place) -> Place:
    place.sync()
    place.complete(2, NEXT)
    return place


def one_of_many_files_is_missing(place: Place) -> Place:
    (place.source / "shared" / "e").unlink()
    return place


def one_of_many_files_is_too_short(place: Place) -> Place:
    (place.source / "shared" / "e").write_bytes(b"short")
    return place


def a_file_is_a_link_to_nothing(place: Place) -> Place:
    (place.source / "shared" / "e").unlink()
    (place.source / "shared" / "e").symlink_to("/nowhere/" + "e" * 200)
    return place


def a_file_is_a_link_to_a_file(place: Place) -> Place:
    (place.source / "shared" / "e").rename(place.root / "e")
    (place.source / "shared" / "e").symlink_to(place.root / "e")
    return place


def every_file_is_elsewhere(place: Place) -> Place:
    (place.root / "dcA").rename(place.root / "moved")
    return place.given(source=place.root / "moved" / JOB)


def a_missing_file_is_in_the_replica(place: Place) -> Place:
    a_new_checkpoint(place)
    (place.source / "shared" / "e").unlink()
    return place


def a_missing_file_is_in_the_replica_of_the_same_checkpoint(place: Place) -> Place:
    place.sync()
    shutil.rmtree(place.source / "shared")
    return place


def no_source(place: Place) -> Place:
    return place.given(source=place.root / "dcA" / "typo")


def an_unknown_version(place: Place) -> Place:
    metadata = place.source / "chk-1" / "_metadata"
    content = bytearray(metadata.read_bytes())
    content[7] = 99
    metadata.write_bytes(content)
    return place


def a_truncated_metadata(place: Place) -> Place:
    metadata = place.source / "chk-1" / "_metadata"
    metadata.write_bytes(metadata.read_bytes()[:50])
    return place


def sealed(place: Place) -> Place:
    place.sync()
    assert run("promote", place.replica).code == 0
    return place


def sealed_and_a_file_is_missing(place: Place) -> Place:
    sealed(place)
    place.complete(2, NEXT)
    (place.source / "shared" / "new").unlink()
    return place


def a_job_writes_into_the_replica(place: Place) -> Place:
    place.sync()
    write_checkpoint(place.root / "dcB", 12, {"shared/of-b": 5})
    return place


def a_job_writes_there_and_a_file_is_missing(place: Place) -> Place:
    a_job_writes_into_the_replica(place)
    place.complete(2, NEXT)
    (place.source / "shared" / "new").unlink()
    return place


def flinks_own_directory(place: Place) -> Place:
    write_checkpoint(place.root / "dcB", 3, {"shared/of-b": 5})
    return place


def the_replica_of_another_source(place: Place) -> Place:
    place.sync()
    shutil.copytree(place.root / "dcA", place.root / "dcC")
    remap = f"file:{place.root}/dcA=file:{place.root}/dcC"
    return place.given("--remap", remap, source=place.root / "dcC" / JOB)


def a_link_in_the_replica(place: Place) -> Place:
    place.sync()
    (place.replica / "shared").rename(place.root / "shared")
    (place.replica / "shared").symlink_to(place.root / "shared")
    return place


def an_older_checkpoint(place: Place) -> Place:
    place.complete(2, NEXT)
    place.sync()
    return place.given(source=place.source / "chk-1")


def the_target_root_is_a_replica(place: Place) -> Place:
    place.sync()
    return place.given(target=place.replica)


def the_source_is_the_target(place: Place) -> Place:
    return place.given(target=place.root / "dcA")


def the_source_is_the_target_by_a_link(place: Place) -> Place:
    (place.root / "linked").symlink_to(place.root / "dcA")
    return place.given(target=place.root / "linked")


def too_many_deletes(place: Place) -> Place:
    return a_new_checkpoint(place).given("--max-delete", "0")


def a_file_in_the_place_of_the_target(place: Place) -> Place:
    (place.root / "dcB").write_text("a file")
    return place


def a_file_in_the_place_of_the_replica(place: Place) -> Place:
    (place.root / "dcB").mkdir()
    place.replica.write_text("a file")
    return place


def the_lease_of_another_host(place: Place, hours: float = 0.0) -> Place:
    """As it is left by a host that died, or by one whose clock is far ahead."""
    times = {name: time.time() + hours * 3600 for name in ("since", "heartbeat", "started")}
    held = {"token": "a" * 32, "owner": "flink", "host": "far-away", "pid": 1, **times}
    held["expires"] = times["heartbeat"] + 1000  # longer than a test takes
    own = place.replica / ".cpreplicate"
    own.mkdir(parents=True, exist_ok=True)
    (own / "lease").write_text(json.dumps(held))
    os.utime(own / "lease", (times["heartbeat"],) * 2)
    return place


def a_lease_of_the_far_future(place: Place) -> Place:
    return the_lease_of_another_host(a_new_checkpoint(place), 24 * 3650)


def a_lease_and_a_missing_file(place: Place) -> Place:
    a_new_checkpoint(place)
    (place.source / "shared" / "new").unlink()
    return the_lease_of_another_host(place)


def a_lease_and_nothing_to_do(place: Place) -> Place:
    return the_lease_of_another_host(replicated(place))


def a_lease_that_cannot_be_read(place: Place) -> Place:
    the_lease_of_another_host(a_new_checkpoint(place))
    (place.replica / ".cpreplicate" / "lease").write_bytes(b"\xff{")
    return place


def sealed_and_a_lease(place: Place) -> Place:
    sealed(place)
    place.complete(2, NEXT)
    return the_lease_of_another_host(place)


def a_damaged_marker(place: Place) -> Place:
    a_new_checkpoint(place)
    (place.replica / ".cpreplicate" / "replica.json").write_text("{")
    return place


SITUATIONS: dict[Situation, int] = {
    nothing: 0,
    replicated: 0,
    a_new_checkpoint: 0,
    one_of_many_files_is_missing: 10,
    one_of_many_files_is_too_short: 10,
    a_file_is_a_link_to_nothing: 10,
    a_file_is_a_link_to_a_file: 0,
    every_file_is_elsewhere: 10,
    a_missing_file_is_in_the_replica: 0,
    a_missing_file_is_in_the_replica_of_the_same_checkpoint: 0,
    no_source: 10,
    an_unknown_version: 5,
    a_truncated_metadata: 5,
    sealed: 6,
    sealed_and_a_file_is_missing: 6,
    a_job_writes_into_the_replica: 6,
    a_job_writes_there_and_a_file_is_missing: 6,
    flinks_own_directory: 6,
    the_replica_of_another_source: 0,
    a_link_in_the_replica: 6,
    an_older_checkpoint: 6,
    the_target_root_is_a_replica: 2,
    the_source_is_the_target: 6,
    the_source_is_the_target_by_a_link: 6,
    too_many_deletes: 6,
    a_file_in_the_place_of_the_target: 6,
    a_file_in_the_place_of_the_replica: 6,
    a_lease_of_the_far_future: 11,
    a_lease_and_a_missing_file: 11,
    a_lease_and_nothing_to_do: 0,
    a_lease_that_cannot_be_read: 11,
    sealed_and_a_lease: 6,
    a_damaged_marker: 6,
}


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda each: each.__name__)
def test_every_approval_ends_with_the_exit_code_of_the_sync(tmp_path, situation):
    place = Place(tmp_path, ())
    place.complete(1, FILES)
    place = situation(place.given())
    fleet_of(place)
    before = {path: facts[:2] for path, facts in tree(tmp_path).items()}
    found = approvals(place)
    assert {path: facts[:2] for path, facts in tree(tmp_path).items()} == before
    found["sync"] = code_of("sync", *place.words, "--runner", "inline")
    assert set(found.values()) == {SITUATIONS[situation]}, found


def a_file_of_the_replica_is_missing(place: Place) -> Place:
    place.sync()
    (place.replica / "shared" / "c").unlink()
    return place


def a_file_of_the_replica_is_too_short(place: Place) -> Place:
    place.sync()
    (place.replica / "shared" / "c").write_bytes(b"short")
    return place


def a_stray_file(place: Place) -> Place:
    place.sync()
    (place.replica / "shared" / "stray").write_text("newer than the checkpoint")
    return place


def a_sealed_replica_that_a_job_writes_into(place: Place) -> Place:
    sealed(place)
    write_checkpoint(place.root / "dcB", 12, {"shared/of-b": 5})
    return place


def a_replica_without_checkpoints(place: Place) -> Place:
    place.sync()
    (place.replica / "chk-1" / "_metadata").unlink()
    return place


OF_REPLICAS: dict[Situation, int] = {
    nothing: 10,
    replicated: 0,
    sealed: 0,
    a_stray_file: 0,
    a_sealed_replica_that_a_job_writes_into: 0,
    a_file_of_the_replica_is_missing: 4,
    a_file_of_the_replica_is_too_short: 4,
    a_job_writes_into_the_replica: 6,
    flinks_own_directory: 6,
    a_link_in_the_replica: 6,
    a_damaged_marker: 6,
    a_replica_without_checkpoints: 10,
}


def sealed_and_claimed(place: Place) -> Place:
    """Flink deleted what the job was restored from with CLAIM."""
    assert run("sync", *place.words, "--runner", "inline", "--keep", "9").code == 0
    place.complete(2, NEXT)
    assert run("sync", *place.words, "--runner", "inline", "--keep", "9").code == 0
    assert run("promote", place.replica).code == 0
    shutil.rmtree(place.replica / "chk-2")
    return place


def a_damaged_seal(place: Place) -> Place:
    sealed(place)
    (place.replica / ".cpreplicate" / "sealed").write_text("{}")
    return place


OF_SEALED: dict[Situation, int] = {sealed_and_claimed: 6, a_damaged_seal: 6}


def a_source_that_holds_no_checkpoint_any_more(place: Place) -> Place:
    """Flink deleted them: the job has ended, or was stopped with a savepoint."""
    place.sync()
    shutil.rmtree(place.source / "chk-1")
    return place


OF_SOURCES: dict[Situation, int] = {a_source_that_holds_no_checkpoint_any_more: 6}
PROMOTIONS = OF_REPLICAS | OF_SEALED | OF_SOURCES
UNSEEN_BY_STATUS = (a_file_of_the_replica_is_missing, a_file_of_the_replica_is_too_short)


@pytest.mark.parametrize("situation", PROMOTIONS, ids=lambda each: each.__name__)
def test_every_approval_of_a_promotion_ends_as_it_does(tmp_path, situation):
    place = Place(tmp_path, ())
    place.complete(1, FILES)
    place = situation(place.given())
    before = tree(tmp_path).keys()
    dry_run = code_of("promote", "--dry-run", place.replica)
    is_approved = code_of("promote", "--all", "--dry-run", place.root / "dcB") == 0
    found = run("status", place.root / "dcB", "--output", "json")
    rows = json.loads(found.out).get("replicas", []) if found.out else []
    assert tree(tmp_path).keys() == before
    code = code_of("promote", place.replica)
    assert code == dry_run == PROMOTIONS[situation]
    assert is_approved == (code == 0)
    if situation not in UNSEEN_BY_STATUS:
        assert any(row["ready"] for row in rows) == (code == 0)


@pytest.mark.parametrize("situation", OF_REPLICAS | OF_SEALED, ids=lambda each: each.__name__)
def test_verify_ends_with_the_exit_code_of_the_promotion(tmp_path, situation):
    place = Place(tmp_path, ())
    place.complete(1, FILES)
    place = situation(place.given())
    found = {name: code_of(name, place.replica) for name in ("verify", "promote")}
    assert set(found.values()) == {(OF_REPLICAS | OF_SEALED)[situation]}, found
