"""What a round of a standby costs the driver when few files of a large closure changed, in CPU
seconds and memory: part of `make bench`.

The files are on `file:`. They are sparse, so their bytes cost nothing, but a disk must have
room for them; the changed ones have 1 KiB.
"""

from __future__ import annotations

import argparse
import os
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parent.parent))

from cpreplicate.core.metadata import decode
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.operations.sync.sync import sync
from cpreplicate.runners.base import Done
from cpreplicate.runners.inline import InlineRunner
from cpreplicate.runners.tasks import Copy, Outcome, Task
from cpreplicate.storage import Sides
from tests.support.generate import synthetic
from tests.support.jobs import JOB

SUBTASKS = 1_000
CHANGED_BYTES = 1 << 10
FILE_BYTES = 1 << 10  # of the others up to twice that: a disk must have room for all, as sync looks


class Size(NamedTuple):
    """A closure, what changes in a round, and the limits: seconds and MiB of a round, seconds of a
    round in which nothing changed.
    """

    references: int
    changed: int
    seconds: float
    mebibytes: int
    nothing: float


# They were 2 s, 300 MiB and 1.5 s, and 10 s, 1 GiB and 10 s. A listing on local disk stats each
# file in 3 microseconds, and imports take 0.4 s. Each reference is a row of the `_metadata`, of the
# former manifest, of the listing and of the plan at the same time: 1 KiB in all, with its paths.
SIZES = (Size(200_000, 200, 3.5, 450, 3.0), Size(1_000_000, 1_000, 15.0, 1400, 15.0))


class _Linking(InlineRunner):
    """A runner that links instead of copying: it makes the first replica, which is not measured."""

    def run(
        self,
        actions: Sequence[Task],
        level: int = 0,  # noqa: ARG002  # all are as important
        done: Done | None = None,
    ) -> list[Outcome]:
        outcomes = []
        for action in actions:
            assert isinstance(action, Copy)
            source, target = map(_path, (action.source, action.target))
            target.parent.mkdir(parents=True, exist_ok=True)
            os.link(source, target)
            outcomes.append(Outcome(action.target, target.stat().st_size, 0, 0.0))
            if done is not None:
                done(outcomes[-1])
        return outcomes


def _path(uri: str) -> Path:
    return Path(uri.removeprefix("file:"))


def write_job(root: Path, size: Size) -> None:
    """Write a job of two checkpoints, of which the second has `changed` other files."""
    first = bytearray(
        b"".join(synthetic(size.references, SUBTASKS, directory=f"file:{root}/{JOB}"))
    )
    handles = [
        handle
        for handle in decode(bytes(first), f"file:{root}/{JOB}/chk-1").handles
        if handle.kind == "file"
    ]
    for number, handle in enumerate(handles):
        struct.pack_into(">q", first, handle.start + 1, FILE_BYTES + number % FILE_BYTES)
    second = bytearray(first)
    struct.pack_into(">q", second, 8, 2)  # the ID of the checkpoint
    for number, handle in enumerate(handles[:: len(handles) // size.changed][: size.changed]):
        struct.pack_into(">q", second, handle.start + 1, CHANGED_BYTES)
        name = f"changed-{number:06d}".ljust(36, "x").encode()
        second[handle.start + handle.length - len(name) : handle.start + handle.length] = name
        _sparse(root / JOB / "shared" / name.decode(), CHANGED_BYTES)
    for number, handle in enumerate(handles):
        _sparse(_path(str(handle.path)), FILE_BYTES + number % FILE_BYTES)
    for number, data in ((1, first), (2, second)):
        checkpoint = root / JOB / f"chk-{number}"
        _sparse(checkpoint / "f3e4334a-65e1-46a5-b1ff-df077c55f999", 2223)
        (checkpoint / "_metadata").write_bytes(data)


def _sparse(path: Path, length: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.truncate(length)


class Cost(NamedTuple):
    """CPU seconds of a command, and the MiB that it had in memory at most."""

    seconds: float
    mebibytes: int


def measured(*words: str) -> Cost:
    """Run a command of cpreplicate in a process of its own, and return what it cost."""
    process = subprocess.Popen(
        [sys.executable, "-m", "cpreplicate", *words, "-q"], stdout=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"cpreplicate {' '.join(words)} ended with {process.returncode}")
    return Cost(usage.ru_utime + usage.ru_stime, usage.ru_maxrss >> 10)


def prepare(size: Size, root: Path) -> None:
    """Write the job, and replicate its first checkpoint."""
    write_job(root, size)
    sides = Sides()
    request = SyncRequest(f"file:{root}/{JOB}/chk-1", f"file:{root}/dcB", sides=sides)
    sync(request, lambda _line: None, _Linking(sides))


def rounds(size: Size, root: Path) -> Iterator[tuple[str, Cost]]:
    """Yield what each command costs, and its name."""
    # in a process of its own: the memory of this one would count for the commands that it starts
    preparing = get_context("spawn").Process(target=prepare, args=(size, root))
    preparing.start()
    preparing.join()
    source, target = f"file:{root}/{JOB}", f"file:{root}/dcB"
    replicate = ("sync", f"{source}/chk-2", target)
    yield "diff", measured("diff", *replicate[1:])
    yield "sync", measured(*replicate)
    yield "sync, nothing changed", measured(*replicate)
    yield "verify", measured("verify", f"{target}/{JOB}")
    yield "sweep --dry-run", measured("sweep", "--dry-run", f"{target}/{JOB}")


def main() -> None:
    """Print a table of both sizes, and whether the limits are met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, default=len(SIZES), help="how many; default: all")
    print("| references | changed | command | CPU s | peak MiB |\n" + "| --- " * 5 + "|")
    for size in SIZES[: parser.parse_args().sizes]:
        with tempfile.TemporaryDirectory(prefix="cpreplicate-bench-") as root:
            for command, cost in rounds(size, Path(root)):
                seconds = size.nothing if "nothing" in command else size.seconds
                is_met = cost.seconds <= seconds and cost.mebibytes <= size.mebibytes
                missed = "" if is_met else " (missed)"
                print(
                    f"| {size.references:,} | {size.changed:,} | {command} |"
                    f" {cost.seconds:.2f}{missed} | {cost.mebibytes} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
