"""A command in a mount namespace of its own, where a directory is a small filesystem."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.waiting import PATIENCE

CLI = f"{sys.executable} -m cpreplicate"
_IN_NAMESPACE = ("unshare", "--mount", "--map-root-user", "sh", "-c")


def in_small_filesystem(
    directory: Path, script: str, kib: int = 256
) -> subprocess.CompletedProcess[str]:
    """Run a script of the shell where a directory is a tmpfs of so many KiB.

    Skips the test where the machine does not allow that.
    """
    directory.mkdir(exist_ok=True)
    mount = f"mount -t tmpfs -o size={kib}k none {directory}"
    if subprocess.run([*_IN_NAMESPACE, mount], check=False, capture_output=True).returncode != 0:
        pytest.skip("this machine does not let the tests mount a filesystem")
    return subprocess.run(
        [*_IN_NAMESPACE, f"{mount} && {script}"],
        check=False,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
