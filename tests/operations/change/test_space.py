"""`sync` and `diff` look whether the target has room for a plan, before anything is copied."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from cpreplicate.core.plan import Action
from cpreplicate.errors import NoSpace
from cpreplicate.operations.change.space import refuse_no_space, shortage, too_little_space
from cpreplicate.storage.statuses import Space
from tests.support.jobs import JOB, write_checkpoint
from tests.support.smallfs import CLI, in_small_filesystem

KIB = 1024
LARGE = {"shared/a": 200 * KIB, "shared/b": 200 * KIB}
DISK = Space("the filesystem", 100, 10)


@pytest.fixture
def source(tmp_path):
    return tmp_path / "dcA" / JOB


@pytest.fixture
def target(tmp_path):
    return tmp_path / "dcB"


def on_small_disk(source, target, *commands):
    """Run commands one after the other, up to the first that fails, then list the files."""
    lines = [f"{CLI} {command} {source} {target} --progress none" for command in commands]
    listed = f"find {target} -type f"
    done = in_small_filesystem(target, f"({' && '.join(lines)}); code=$?; {listed}; exit $code")
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("command", ["sync", "sync --dry-run", "diff"])
def test_a_plan_that_the_disk_has_no_room_for_is_refused_and_nothing_is_left(
    source, target, command
):
    write_checkpoint(source.parent, 1, LARGE)
    code, out, message = on_small_disk(source, target, command)
    assert code == 3
    assert f"file:{target / JOB}: the filesystem leaves 25" in message
    assert "but a sync would write 2 files, 400.0 KiB. Nothing was copied, committed" in message
    assert str(target / JOB / "shared") not in out
    assert str(target / JOB / ".cpreplicate") not in out


def test_a_fleet_is_refused_as_each_of_its_syncs(source, target, tmp_path):
    write_checkpoint(source.parent, 1, LARGE)
    (tmp_path / "fleet.toml").write_text(f"[[job]]\nsource='{source}'\ntarget='{target}'\n")
    for words in ("fleet", "fleet --dry-run"):
        done = in_small_filesystem(target, f"{CLI} {words} {tmp_path}/fleet.toml")
        assert (done.returncode, "but a sync would write" in done.stdout) == (3, True), done


def test_a_watch_waits_for_space_and_then_replicates(source, target, tmp_path):
    write_checkpoint(source.parent, 1, {"shared/a": 150 * KIB})
    log, committed = tmp_path / "log", target / JOB / "chk-1" / "_metadata"
    script = (
        f"head -c 150000 /dev/zero > {target}/full;"
        f" {CLI} watch {source} {target} --interval 100ms 2> {log} & watch=$!;"
        f" until grep -q 'It is tried again' {log}; do sleep 0.1; done; rm {target}/full;"
        f" until test -e {committed}; do sleep 0.1; done; kill -TERM $watch; wait $watch"
    )
    assert in_small_filesystem(target, script).returncode == 143
    assert "a sync would write 1 file, 150.0 KiB" in log.read_text()


def test_what_the_replica_holds_needs_no_space_again(source, target):
    write_checkpoint(source.parent, 1, {"shared/a": 100 * KIB})
    first = f"sync --keep 9 {source}/chk-1 {target} -q"
    write_checkpoint(source.parent, 2, {"shared/a": 100 * KIB, "shared/b": 100 * KIB})
    script = f"{CLI} {first} && {CLI} sync --keep 9 {source} {target} -q"
    assert in_small_filesystem(target, script).returncode == 0


def test_what_a_sync_will_delete_is_no_space_before_it_commits(source, target):
    write_checkpoint(source.parent, 1, {"shared/a": 150 * KIB})
    write_checkpoint(source.parent, 2, {"shared/b": 150 * KIB})
    first = f"{CLI} sync {source}/chk-1 {target} -q"
    script = f"{first}; {CLI} sync {source}/chk-2 {target}; code=$?; {CLI} verify {target}/{JOB} -q"
    done = in_small_filesystem(target, f"{script} && exit $code")
    assert (done.returncode, "1 file, 150.0 KiB" in done.stderr) == (3, True)


def test_packs_count_with_their_bytes(source, target):
    small = {f"shared/{number}": 1 * KIB for number in range(100)}
    write_checkpoint(source.parent, 1, small)
    assert on_small_disk(source, target, "sync --pack on")[0] == 0
    write_checkpoint(source.parent, 2, {f"shared/{number}": 1 * KIB for number in range(300)})
    code, _, message = on_small_disk(source, target, "sync --pack on")
    assert (code, "would write 0 files, 300.0 KiB" in message) == (3, True)


# what is asked of which storage


@dataclass
class Target:
    """A replica whose storage leaves so much."""

    spaces: Any
    counts_for_space: bool = False
    asked: list[Any] = field(default_factory=list)
    root: str = "hdfs://b/replicas/job"

    @property
    def storage(self):
        return self

    def space(self, uri, briefly):
        self.asked.append((uri, briefly))
        if isinstance(self.spaces, Exception):
            raise self.spaces
        return self.spaces


def rows(verb, count, each):
    return tuple(Action(verb, None, f"{verb}-{number}", each, "") for number in range(count))


def plan(copies=(), keeps=(), packed=(), repacks=()):
    made = {"copies": copies, "keeps": keeps, "repacks": repacks, "packed": frozenset(packed)}
    return SimpleNamespace(**made, empty=not (copies or repacks))


@pytest.mark.parametrize(
    ("needed", "is_short"),
    [
        (plan(rows("copy", 10, 10)), False),
        (plan(rows("copy", 10, 11)), True),
        (plan(rows("copy", 11, 1)), True),
        (plan(rows("copy", 11, 1), packed={"copy-3"}), False),
        (plan(rows("copy", 1, 60), repacks=rows("repack", 1, 60)), True),
        (plan(rows("copy", 1, 40), repacks=rows("repack", 1, 60)), False),
        (plan(), False),
        (None, False),
    ],
)
def test_bytes_and_files_are_compared_with_each_limit(needed, is_short):
    assert (shortage(needed, [Space("wide", None, None), DISK]) is not None) is is_short


def test_nothing_is_asked_for_a_plan_that_copies_nothing():
    target = Target([Space("the filesystem", 0, 0)])
    refuse_no_space(plan(keeps=rows("keep", 3, 10)), target)
    assert too_little_space(plan(keeps=rows("keep", 3, 10)), target) is None
    assert target.asked == []


def test_a_service_that_counts_files_is_asked_once_and_only_for_a_large_plan():
    target = Target([DISK], counts_for_space=True)
    refuse_no_space(plan(rows("copy", 1, 10), keeps=rows("keep", 10, 10)), target)
    assert target.asked == []
    with pytest.raises(NoSpace):
        refuse_no_space(plan(rows("copy", 1, 101), keeps=rows("keep", 10, 10)), target)
    assert target.asked == [(target.root, True)]


def test_a_disk_is_always_asked():
    with pytest.raises(NoSpace):
        refuse_no_space(plan(rows("copy", 1, 101), keeps=rows("keep", 100, 100)), Target([DISK]))


@pytest.mark.parametrize("spaces", [[], PermissionError(13, "denied")])
def test_what_is_not_known_is_no_obstacle(spaces):
    refuse_no_space(plan(rows("copy", 1, 10**15)), Target(spaces))
    assert too_little_space(plan(rows("copy", 1, 10**15)), Target(spaces)) is None
