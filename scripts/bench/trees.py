"""The trees that are copied: a job's checkpoint on HDFS, whose `_metadata` references just its
files.
"""

from __future__ import annotations

import os
import random
import zlib
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from hdfs_native import Client, WriteOptions

from scripts.bench import raw
from tests.support.encoder import File, Incremental, OperatorEntry, Subtask, Tree, encode
from tests.support.jobs import JOB

_KIB, _MIB = 1 << 10, 1 << 20
_WRITERS = 32
_BLOCK = os.urandom(_MIB)
_CHANGED = 0.05
_SKEW = 3  # makes 600 files up to 64 MiB 1.5 GB


@dataclass(frozen=True)
class Files:
    """A tree: name below the job's directory to length."""

    name: str
    sizes: Mapping[str, int]
    incremental: bool = False

    @property
    def bytes(self) -> int:
        return sum(self.sizes.values())

    def __str__(self) -> str:
        return f"{self.name}: {len(self.sizes):,} files, {self.bytes / 1e6:,.0f} MB"


def uniform(name: str, count: int, size: int) -> Files:
    """Files of one size."""
    return Files(name, {f"shared/{index:06d}": size for index in range(count)})


def mixed(count: int, largest: int) -> Files:
    """Sizes from 4 KiB on, spread over their logarithm with more small ones.

    Shuffled, always the same.
    """
    ratio = largest / (4 * _KIB)
    sizes = [int(4 * _KIB * ratio ** ((index / (count - 1)) ** _SKEW)) for index in range(count)]
    random.Random(1).shuffle(sizes)
    return Files(
        "mix", {f"shared/{index:06d}": size for index, size in enumerate(sizes)}, incremental=True
    )


FULL = {
    "small": uniform("small", 2000, 64 * _KIB),
    "large": uniform("large", 20, 64 * _MIB),
    "mix": mixed(600, 64 * _MIB),
}
QUICK = {
    "small": uniform("small", 200, 64 * _KIB),
    "large": uniform("large", 4, 64 * _MIB),
    "mix": mixed(60, 8 * _MIB),
}


def changed(tree: Files) -> tuple[dict[str, int], list[str]]:
    """The next checkpoint's files, one in twenty under another name as RocksDB does it, and the
    names that went.
    """
    names = list(tree.sizes)
    gone = random.Random(2).sample(names, round(len(names) * _CHANGED))
    kept = {name: size for name, size in tree.sizes.items() if name not in set(gone)}
    return {**kept, **{f"{name}-2": tree.sizes[name] for name in gone}}, gone


def content(name: str, size: int) -> bytes:
    """Bytes that neither a disk nor a wire can compress, another beginning for each name."""
    start = zlib.crc32(name.encode()) % _MIB
    return (_BLOCK[start:] + _BLOCK * (size // _MIB + 1))[:size]


def write_checkpoint(
    uri: str, number: int, sizes: Mapping[str, int], present: Collection[str] = ()
) -> None:
    """Write the files that are not `present`, then `chk-N/_metadata`, under the job's directory in
    `uri`.
    """
    client, root = _at(uri)
    options = WriteOptions(create_parent=True)

    def put(name: str, data: bytes) -> None:
        with client.create(f"{root}/{JOB}/{name}", options) as writer:
            writer.write(data)

    with ThreadPoolExecutor(_WRITERS) as pool:
        new = [name for name in sizes if name not in present]
        list(pool.map(lambda name: put(name, content(name, sizes[name])), new))
    put(f"chk-{number}/_metadata", _metadata(uri, number, sizes))


def delete(uri: str, names: list[str]) -> None:
    """Delete files and directories below the job's directory, as a subsumed checkpoint's are."""
    client, root = _at(uri)
    for name in names:
        client.delete(f"{root}/{JOB}/{name}", recursive=True)


def remove(uri: str) -> None:
    """Delete a directory and all that it holds."""
    client, path = _at(uri)
    client.delete(path, recursive=True)


def lengths(uri: str) -> dict[str, int]:
    """The files below a directory: name below it to length."""
    client, path = _at(uri)
    return {
        each.path.removeprefix(f"{path}/"): each.length
        for each in client.list_status(path, recursive=True)
        if not each.isdir
    }


def write_names(path: Path, sizes: Mapping[str, int]) -> Path:
    """The list of files that `raw.py` takes."""
    path.write_text("".join(f"{name} {size}\n" for name, size in sizes.items()))
    return path


def _at(uri: str) -> tuple[Client, str]:
    return raw.client(uri), urlsplit(uri).path


def write_local(directory: Path, sizes: Mapping[str, int]) -> None:
    """The same bytes on the local disk."""
    for name, size in sizes.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content(name, size))


def _metadata(uri: str, number: int, sizes: Mapping[str, int]) -> bytes:
    shared = tuple(
        (f"{i:06d}.sst", File(f"{uri}/{JOB}/{name}", size))
        for i, (name, size) in enumerate(sizes.items())
    )
    state = Incremental(11, number, "backend", (0, 128), 1, None, shared, ())
    return bytes(
        encode(
            Tree(6, (OperatorEntry(bytes(16), 1, 128, (Subtask(0, keyed=state),)),), number)
        ).data
    )
