"""Jobs whose checkpoints are made as a test wants them: real files, and a `_metadata` that
references them.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from cpreplicate.storage import Side
from tests.support.encoder import (
    File,
    Incremental,
    OperatorEntry,
    Segment,
    Subtask,
    Tree,
    encode,
)

JOB = "0123456789abcdef0123456789abcdef"
NEXT_JOB = "fedcba9876543210fedcba9876543210"  # restored from it


def write_checkpoint(root: Path, number: int, files: Mapping[str, int], version: int = 6) -> Path:
    """A completed checkpoint of the job under `root`: `files` is path below the job to length.

    Those there are kept.
    """
    for name, length in files.items():
        place = root / JOB / name
        place.parent.mkdir(parents=True, exist_ok=True)
        if not place.exists():
            place.write_bytes(pattern(name, length))
    directory = root / JOB / f"chk-{number}"
    directory.mkdir(parents=True, exist_ok=True)
    # as Flink does it: who looks at the directory meanwhile sees no part of it
    written = directory / "_metadata.inprogress"
    written.write_bytes(metadata(f"file:{root}", number, files, version))
    written.replace(directory / "_metadata")
    return directory


def put_checkpoint(side: Side, root: str, number: int, files: Mapping[str, int]) -> str:
    """The same on any storage; its place. Files that are there are kept."""
    storage = side.storage(root)
    directories = sorted({f"{root}/{JOB}/{name}".rpartition("/")[0] for name in files})
    there = {status.uri for directory in directories for status in storage.list(directory)}
    places = {f"{root}/{JOB}/{name}": pattern(name, length) for name, length in files.items()}
    missing = [place for place in places if place not in there]
    with ThreadPoolExecutor(64) as pool:
        list(pool.map(lambda place: storage.put(place, lambda: [places[place]]), missing))
    checkpoint = f"{root}/{JOB}/chk-{number}"
    storage.put(f"{checkpoint}/_metadata", lambda: [metadata(root, number, files)])
    return checkpoint


def put_restored(
    side: Side,
    root: str,
    number: int,
    own: Mapping[str, int],
    earlier: Mapping[str, int],
    job: str = NEXT_JOB,
    restored: str = JOB,
) -> str:
    """A checkpoint of a job that was restored from another one, whose files it references, too."""
    storage = side.storage(root)
    files = {f"{root}/{job}/{name}": size for name, size in own.items()}
    contents = {place: [pattern(place, size)] for place, size in files.items()}
    for place in contents:
        storage.put(place, functools.partial(contents.__getitem__, place))
    files |= {f"{root}/{restored}/{name}": size for name, size in earlier.items()}
    checkpoint = f"{root}/{job}/chk-{number}"
    storage.put(f"{checkpoint}/_metadata", lambda: [metadata_of(number, files)])
    return checkpoint


def pattern(name: str, length: int) -> bytes:
    """What a file of that name holds."""
    return (name.encode() * (length // len(name.encode()) + 1))[:length]


def metadata(root: str, number: int, files: Mapping[str, int], version: int = 6) -> bytes:
    """The `_metadata` of a checkpoint whose one subtask has these files as incremental state."""
    return metadata_of(
        number, {f"{root}/{JOB}/{name}": size for name, size in files.items()}, version
    )


def metadata_of(number: int, files: Mapping[str, int], version: int = 6) -> bytes:
    """The same of files anywhere, by their URI."""
    shared = tuple(
        (f"{index:06d}.sst", File(place, size)) for index, (place, size) in enumerate(files.items())
    )
    state = Incremental(11, number, "backend", (0, 128), 1, None, shared, ())
    operator = OperatorEntry(bytes(16), 1, 128, (Subtask(0, keyed=state),))
    return bytes(encode(Tree(version, (operator,), number)).data)


def write_merged(
    root: Path, number: int, lengths: Mapping[str, int], segments: Mapping[str, tuple[int, int]]
) -> Path:
    """A checkpoint whose state is in segments of merged files: `segments` is path below the job
    to the offset and size that it references. The files have grown to these `lengths`.
    """
    for name, length in lengths.items():
        place = root / JOB / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(pattern(name, length))
    shared = tuple(
        (f"{name}.sst", Segment(offset, size, 0, f"file:{root}/{JOB}/{name}", f"{number}-{name}"))
        for name, (offset, size) in segments.items()
    )
    state = Incremental(11, number, "backend", (0, 128), 1, None, shared, ())
    operator = OperatorEntry(bytes(16), 1, 128, (Subtask(0, keyed=state),))
    directory = root / JOB / f"chk-{number}"
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "_metadata").write_bytes(encode(Tree(6, (operator,), number)).data)
    return directory
