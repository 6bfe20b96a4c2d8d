"""Jobs whose checkpoints are made as a test wants them: real files, and a `_metadata` that references them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.support.encoder import File, Incremental, OperatorEntry, Subtask, Tree, encode

JOB = "0123456789abcdef0123456789abcdef"


def write_checkpoint(root: Path, number: int, files: Mapping[str, int], version: int = 6) -> Path:
    """A completed checkpoint of the job under `root`: `files` is path below the job to length; those there are kept."""
    for name, length in files.items():
        place = root / JOB / name
        place.parent.mkdir(parents=True, exist_ok=True)
        if not place.exists():
            pattern = (name.encode() * (length // len(name.encode()) + 1))[:length]
            place.write_bytes(pattern)
    shared = tuple(
        (f"{index:06d}.sst", File(f"file:{root}/{JOB}/{name}", size)) for index, (name, size) in enumerate(files.items())
    )
    state = Incremental(11, number, "backend", (0, 128), 1, None, shared, ())
    tree = Tree(version, (OperatorEntry(bytes(16), 1, 128, (Subtask(0, keyed=state),)),), number)
    directory = root / JOB / f"chk-{number}"
    directory.mkdir(parents=True)
    (directory / "_metadata").write_bytes(encode(tree).data)
    return directory
