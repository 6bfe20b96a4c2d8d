"""hdfs-native alone, the limit: read, write, close, nothing else. `raw.py SOURCE_URI TARGET_URI
LIST [STREAMS [OPTION…]]`.

The list has a path and a size a line; options are of the target's client.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from urllib.parse import urlsplit

from hdfs_native import Client, WriteOptions

# bytes; the streams below are those that cpreplicate uses for files up to this, and for larger ones
SMALL = 4 << 20
SMALL_STREAMS, LARGE_STREAMS = 64, 8
_CHUNK = 4 << 20
_NO_CONFIGURATION = "/nonexistent"


def client(uri: str, options: Iterable[str] = ()) -> Client:
    """Return the configuration of one NameNode, whatever the environment holds."""
    place = urlsplit(uri)
    given = dict(option.split("=", 1) for option in options)
    return Client(f"{place.scheme}://{place.netloc}", given, config_dir=_NO_CONFIGURATION)


def copy(source: Client, target: Client, path: str, new_path: str) -> None:
    """One file."""
    reader = source.read(path)
    writer = target.create(new_path, WriteOptions(create_parent=True))
    for chunk in reader.read_range_stream(0, len(reader)):
        writer.write(chunk)
    writer.close()


def main(
    source_uri: str, target_uri: str, names: str, streams: str = str(SMALL_STREAMS), *options: str
) -> None:
    """Copy what the list names, relative to both."""
    source, target = client(source_uri), client(target_uri, options)
    base, new_base = urlsplit(source_uri).path, urlsplit(target_uri).path
    files = [
        (name, int(size))
        for name, size in (line.rsplit(" ", 1) for line in Path(names).read_text().splitlines())
    ]

    def one(name: str) -> None:
        copy(source, target, f"{base}/{name}", f"{new_base}/{name}")

    small = [name for name, size in files if size <= SMALL]
    large = [name for name, size in files if size > SMALL]
    with (
        ThreadPoolExecutor(LARGE_STREAMS) as large_pool,
        ThreadPoolExecutor(int(streams)) as small_pool,
    ):
        for _ in chain(large_pool.map(one, large), small_pool.map(one, small)):
            pass


if __name__ == "__main__":
    main(*sys.argv[1:])
