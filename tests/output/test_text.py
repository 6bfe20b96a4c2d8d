"""Results as text, on a terminal and in a pipe."""

import os
import pty
import re
import shutil
import subprocess
import sys

import pytest

from tests.support.commandline import run
from tests.support.corpus import RECORDED, ROOT
from tests.support.jobs import JOB
from tests.support.replicas import FILES, synced
from tests.support.waiting import PATIENCE

FOLDER = ROOT / "2.3.0-chain-claim"
CHECKPOINT = next(FOLDER.glob("ckpt/*/chk-9"))


def on_a_terminal(*words, columns=80):
    """What the command prints when its stdout is a terminal of so many columns."""
    leader, follower = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(columns), "TERM": "xterm"}
    command = [sys.executable, "-m", "cpreplicate", *map(str, words)]
    process = subprocess.Popen(command, stdout=follower, stderr=subprocess.PIPE, env=environment)
    os.close(follower)
    printed = b""
    try:
        while piece := os.read(leader, 1 << 16):
            printed += piece
    except OSError:
        pass  # Linux raises this once the other side of the terminal is closed
    process.communicate(timeout=PATIENCE)
    os.close(leader)
    assert process.returncode == 0
    return printed.decode()


def test_a_terminal_gets_a_table_in_which_nothing_is_cut_short():
    remap = f"{RECORDED}/{FOLDER.name}={FOLDER}"
    printed = on_a_terminal("inspect", CHECKPOINT, "--remap", remap)
    assert "\x1b[1m" in printed
    assert "…" not in printed
    assert "2 files, 7.8 KiB of file:" in printed


def test_a_pipe_gets_plain_columns():
    command = [sys.executable, "-m", "cpreplicate", "inspect", str(CHECKPOINT)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "\x1b" not in printed
    assert "e7beec23fd9f6ed5e1b8395129d43728  " in printed


ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture(scope="module")
def target_root(tmp_path_factory):
    """Two replicas, one of a job with a name, of which one begins with the same letters."""
    root = tmp_path_factory.mktemp("status")
    replica = synced(root, {1: FILES}, name="a long name of orders")
    other = replica.with_name(f"{JOB[:10]}{'f' * (len(JOB) - 10)}")
    shutil.copytree(replica, other)
    return replica.parent


@pytest.mark.parametrize("columns", [40, 80, 100, 200])
def test_the_status_fits_the_terminal_and_cuts_no_word(target_root, columns):
    printed = ESCAPES.sub("", on_a_terminal("status", target_root, columns=columns))
    table = printed.replace("\r\n", "\n").partition("\n\n")[0].splitlines()
    assert max(map(len, table)) <= columns
    assert JOB not in printed.partition("\n\n")[0]
    assert sum(f"({JOB[:11]})" in line for line in table) == 1, "which of the two it is"
    assert not any(line.endswith("…") for line in table)
    shown = "\n".join(table)
    for word in ("chk-1", "lag", "ready", "state"):
        assert word in shown or word == "state"
    if columns == 80:
        assert "packs" not in table[0]


def test_what_a_narrow_terminal_does_not_show_is_named(target_root):
    printed = ESCAPES.sub("", on_a_terminal("status", target_root, columns=80))
    (note,) = re.findall(r"not shown at this width: (.*)\r", printed)
    wide = ESCAPES.sub("", on_a_terminal("status", target_root, columns=200)).splitlines()[0]
    assert set(note.split(", ")) < set(wide.split())


def test_a_pipe_gets_whole_ids_and_every_column(target_root):
    printed = run("status", target_root).out
    assert JOB in printed
    head = printed.splitlines()[0].split()
    assert head[:5] == ["job", "checkpoint", "age", "source", "lag"]
    assert {"packs", "verified", "state"} <= set(head)
