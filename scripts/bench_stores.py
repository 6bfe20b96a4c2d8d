"""Compare cpreplicate with rclone: 1,000 files of 64 KiB to versitygw, which checks signatures.

Run it by `make bench-stores`, after `make stores`. It prints the seconds of each of some rounds, in
turn, and the requests. `rclone` is taken from the PATH or from `.stores/bin`; without it, only
cpreplicate is measured. Seconds include the start of the process.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.support.jobs import JOB, write_checkpoint
from tests.support.s3 import FaultyProxy
from tests.support.stores import Store, running

ROOT = Path(__file__).parent.parent
FILES = {f"shared/{number:04}": 64 << 10 for number in range(1000)}
ROUNDS = 3


def through_cpreplicate(source: Path, store: Store, endpoint: str) -> None:
    """Replicate the checkpoint by the command, into a new replica."""
    place = f"{store.root}/{uuid.uuid4().hex}"
    words = [*store.words(endpoint_url=endpoint), "--runner", "inline", "-q"]
    command = [sys.executable, "-m", "cpreplicate", "sync", str(source / JOB), place, *words]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def through_rclone(program: str, source: Path, store: Store, endpoint: str) -> None:
    """Copy the same directory with 32 transfers."""
    keys = {"ACCESS_KEY_ID": store.options["key"], "SECRET_ACCESS_KEY": store.options["secret"]}
    settings = {"TYPE": "s3", "PROVIDER": "Other", "ENDPOINT": endpoint, **keys}
    environment = {f"RCLONE_CONFIG_STORE_{name}": value for name, value in settings.items()}
    place = f"store:{store.root.removeprefix('s3://')}/{uuid.uuid4().hex}"
    words = ["--transfers", "32", "--checkers", "32", "--config", "/dev/null"]
    command = [program, "copy", str(source), place, *words]
    # rclone takes no bundle of certificates from this variable: it ends with an error
    inherited = {name: value for name, value in os.environ.items() if name != "AWS_CA_BUNDLE"}
    subprocess.run(command, check=True, env={**inherited, **environment})


def seconds_of(run: Callable[[str], None], endpoint: str) -> float:
    """Return how long a run takes."""
    started = time.monotonic()
    run(endpoint)
    return time.monotonic() - started


def requests_of(run: Callable[[str], None], endpoint: str) -> int:
    """Return how many requests a run makes, counted by a proxy, which slows it down."""
    with FaultyProxy(endpoint) as proxy:
        run(proxy.endpoint)
        return len(proxy.requests)


def main() -> None:
    """Print the table."""
    rclone = shutil.which("rclone", path=f"{os.environ['PATH']}:{ROOT / '.stores' / 'bin'}")
    with tempfile.TemporaryDirectory() as directory, running("versitygw") as store:
        source, endpoint = Path(directory), store.options["endpoint_url"]
        write_checkpoint(source, 1, FILES)
        runs = {"cpreplicate": lambda place: through_cpreplicate(source, store, place)}
        if rclone is not None:
            runs["rclone"] = lambda place: through_rclone(rclone, source, store, place)
        seconds: dict[str, list[float]] = {name: [] for name in runs}
        for _ in range(ROUNDS):
            for name, run in runs.items():
                seconds[name].append(seconds_of(run, endpoint))
        for name, run in runs.items():
            each = " ".join(f"{value:5.1f}" for value in seconds[name])
            print(f"{name:12} {each} s, {requests_of(run, endpoint)} requests")


if __name__ == "__main__":
    main()
