"""On a disk that is full to its last page, what was copied is known, and a sweep runs."""

import json
import sys
from pathlib import Path

import pytest

from tests.support.jobs import JOB, write_checkpoint
from tests.support.smallfs import CLI, in_small_filesystem

KIB = 1024
FILES = {f"shared/{number:02}": 20_000 for number in range(12)}
RACE = """
import sys
from concurrent.futures import ThreadPoolExecutor
from cpreplicate.storage.backends.local.local import LocalStorage

lease = sys.argv[1]

def contend(number):
    try:
        return LocalStorage().create_exclusive(lease, str(number).encode())
    except OSError as error:
        return error.errno

with ThreadPoolExecutor(8) as pool:
    found = list(pool.map(contend, range(8)))
print(found.count(True), open(lease.removeprefix("file:")).read() == str(found.index(True)))
"""

FILLED = """
import contextlib, sys, threading
from cpreplicate.cli import main
from cpreplicate.storage import Side
from cpreplicate.storage.wrappers.base import StorageWrapper
from tests.support.registry import serving

filler, lock, copied = sys.argv.pop(1), threading.Lock(), []

class Filled(StorageWrapper):
    def carry_out(self, verb, uri, call):
        if verb != "put" or "/shared/" not in uri:
            return super().carry_out(verb, uri, call)
        with lock:  # one after the other: a machine that stands still lets no copy slip through
            if len(copied) >= 5:
                fill()
            copied.append(super().carry_out(verb, uri, call))
            return copied[-1]

def fill():
    with open(filler, "ab", 0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(1 << 16))

with serving("file", Filled(Side().storage("file:/"))):
    main()
"""
PROJECT = Path(__file__).parents[3]


@pytest.fixture
def source(tmp_path):
    write_checkpoint(tmp_path / "dcA", 1, FILES)
    return tmp_path / "dcA" / JOB


@pytest.fixture
def target(tmp_path):
    return tmp_path / "dcB"


def run(target, *lines, kib=KIB):
    """Run a script where the target is a small filesystem; `fill` leaves no page of it."""
    fill = f"fill() {{ cat /dev/zero >> {target}/filler 2>/dev/null; }}"
    done = in_small_filesystem(target, "\n".join(["true", fill, *lines]), kib)
    return done.stdout, done.stderr


def sync(source, target, *words):
    return " ".join([f"{CLI} sync {source} {target} --runner inline --progress none", *words])


def sweep(target):
    return f"{CLI} sweep {target}/{JOB} --runner inline -q; echo $?; ls -A {target}/{JOB}/shared"


def litter(target):
    """Leave what a run that died days ago had not finished."""
    name = f"{target}/{JOB}/shared/.cpreplicate-tmp-1"
    return f"head -c 9000 /dev/zero > {name}; touch -d '3 days ago' {name}"


def test_a_run_that_met_a_full_disk_is_resumed_by_what_it_recorded(source, target):
    program = target.parent / "filled.py"
    program.write_text(FILLED)
    words = sync(source, target, "-q").removeprefix(CLI)
    out, messages = run(
        target,
        f"PYTHONPATH={PROJECT} {sys.executable} {program} {target}/filler {words}; echo $?",
        f"ls {target}/{JOB}/shared | wc -l",
        f"rm {target}/filler",
        sync(source, target, "--output json"),
    )
    code, count, document = out.splitlines()
    assert count == "5"
    copied = json.loads(document)["copy"]["files"]
    assert (int(code), copied) == (3, len(FILES) - int(count))
    assert "Fix what the messages name" in messages
    assert "comparing" not in messages  # it is recorded, and need not be read at both sides


def test_a_sweep_runs_on_a_full_disk(source, target):
    out, messages = run(
        target,
        sync(source, target, "-q"),
        litter(target),
        "fill",
        sweep(target),
        "fill",
        sweep(target),
        f"ls -A {target}/{JOB}/.cpreplicate",
    )
    code, *shared = out.splitlines()
    assert code == "0", messages
    assert ".cpreplicate-tmp-1" not in shared
    assert shared.count("0") == 1, messages  # also after the page of the first lease was taken
    assert "lease-room" in shared
    assert "lease" not in shared


def test_a_sweep_takes_the_lease_of_a_dead_run_over_on_a_full_disk(source, target):
    later = {f"shared/later-{number}": 20_000 for number in range(12)}  # for minutes at this rate
    write_checkpoint(source.parent, 2, {**FILES, **later})
    own = f"{target}/{JOB}/.cpreplicate"
    out, messages = run(
        target,
        sync(f"{source}/chk-1", target, "-q"),
        f"{sync(source, target, '--bandwidth 1KB/s')} -q & sync=$!",
        f"until ls {own} | grep -q copied-; do sleep 0.1; done",
        "kill -9 $sync; wait $sync",
        litter(target),
        "fill",
        f"test -e {own}/lease && echo left",
        sweep(target),
        f"test -e {own}/lease || echo free",
    )
    left, code, *_, free = out.splitlines()
    assert (left, code, free) == ("left", "0", "free"), messages


def test_a_sweep_runs_on_a_disk_that_others_filled_since_the_last_run(source, target):
    out, messages = run(
        target,
        sync(source, target, "-q"),
        litter(target),
        f"mount -o remount,size={KIB}k {target}",
        "fill",
        sweep(target),
        kib=4 << 20,
    )
    code, *shared = out.splitlines()
    assert (code, ".cpreplicate-tmp-1" in shared) == ("0", False), messages


@pytest.mark.rest
def test_what_only_removes_runs_on_a_full_disk_and_so_its_dry_run_ends(source, target):
    """What writes does not, nor does its dry run, and neither takes the room away."""
    replica = f"{target}/{JOB}"
    unseal = f"{CLI} unseal {replica} --no-job-uses-it -q"
    forget = f"{CLI} forget --last-point {replica}"
    out, messages = run(
        target,
        sync(source, target, "-q"),
        f"{CLI} promote {replica} > /dev/null",
        "fill",
        f"{unseal} --dry-run; echo $?; {unseal}; echo $?; fill",
        f"{CLI} promote --dry-run {replica} > /dev/null; echo $?",
        f"{CLI} promote {replica} > /dev/null; echo $?; fill",
        f"{forget} --dry-run > /dev/null; echo $?; {forget} --yes > /dev/null; echo $?",
        f"ls -A {target}",
    )
    assert out.split() == ["0", "0", "3", "3", "0", "0", "filler"], messages
    assert "promote would fail: cannot write below" in messages
    assert "stdout" not in messages


def test_where_no_run_kept_room_the_message_states_what_to_remove(source, target):
    out, messages = run(
        target,
        sync(source, target, "-q"),
        f"rm {target}/{JOB}/.cpreplicate/lease-room",
        "fill",
        sweep(target),
    )
    assert out.split()[0] == "3"
    assert "the lease cannot be taken: No space left on device. It takes one small file" in messages


def test_where_no_inode_is_left_a_sweep_runs_too(source, target):
    out, messages = run(
        target,
        f"mount -o remount,nr_inodes=200 {target}",
        sync(source, target, "-q"),
        litter(target),
        f"n=0; while touch {target}/file$n 2>/dev/null; do n=$((n+1)); done",
        sweep(target),
    )
    code, *shared = out.splitlines()
    assert (code, ".cpreplicate-tmp-1" in shared) == ("0", False), messages


def test_of_many_contenders_on_a_full_disk_one_gets_the_room(target):
    program = target.parent / "race.py"
    program.write_text(RACE)
    out, messages = run(
        target,
        f"head -c 4096 /dev/urandom > {target}/lease-room",
        "fill",
        f"{sys.executable} {program} file:{target}/lease",
    )
    assert out == "1 True\n", messages


def test_a_replica_that_is_removed_leaves_no_room_behind(source, target):
    out, messages = run(
        target,
        sync(source, target, "-q"),
        f"{CLI} forget --last-point --yes {target}/{JOB} -q; echo $?; ls -A {target}",
    )
    assert out == "0\n", messages


def test_a_sync_that_is_refused_before_it_makes_a_replica_leaves_nothing(source, target):
    out, _ = run(
        target,
        f"mkdir -p {target}/{JOB}/shared; touch {target}/{JOB}/shared/foreign",
        f"{sync(source, target, '-q')}; echo $?; ls -A {target}/{JOB}",
    )
    assert out == "6\nshared\n"
