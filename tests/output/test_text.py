"""Results as text, on a terminal and in a pipe."""

import os
import pty
import subprocess
import sys

from tests.support.corpus import RECORDED, ROOT
from tests.support.waiting import PATIENCE

FOLDER = ROOT / "2.3.0-chain-claim"
CHECKPOINT = next(FOLDER.glob("ckpt/*/chk-9"))


def on_a_terminal(*words):
    """What the command prints when its stdout is a terminal of 80 columns."""
    leader, follower = pty.openpty()
    environment = {**os.environ, "COLUMNS": "80", "TERM": "xterm"}
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
