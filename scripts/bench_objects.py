"""Compare s3fs, as `storage/objects.py` uses it, with obstore on the S3 server of the tests.

Run it by `.venv/bin/python scripts/bench_objects.py`. It prints the tables of
docs/adr/0009-s3fs-and-not-obstore.md.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.support.s3 import REGION, S3Server, side_options

CHUNK, PART = 4 << 20, 16 << 20
ROUNDS = 2
BUCKET = "bench"


class Tree(NamedTuple):
    """Objects of one size, and how many of them are in flight."""

    files: int
    size: int
    streams: int


TREES = {"2,000 of 64 KiB": Tree(2_000, 64 << 10, 32), "5 of 64 MiB": Tree(5, 64 << 20, 5)}


class Client(NamedTuple):
    """The two verbs that are measured."""

    put: Callable[[str, int], object]
    read: Callable[[str], int]


def through_s3fs(endpoint: str) -> Client:
    """Return the verbs of the product's own storage."""
    from cpreplicate.storage import Side

    uri = f"s3://{BUCKET}"
    storage = Side((("", tuple(side_options(endpoint).items())),)).storage(uri)

    def read(key: str) -> int:
        with storage.open(f"{uri}/{key}") as stream:
            return sum(map(len, pieces(stream.read)))

    return Client(lambda key, size: storage.put(f"{uri}/{key}", lambda: chunks(size)), read)


def through_obstore(endpoint: str) -> Client:
    """Return what a storage on obstore would call: the same parts, buffers and streams."""
    import obstore

    store = obstore_store(endpoint)

    def put(key: str, size: int) -> object:
        if size <= PART:
            return obstore.put(store, key, b"".join(chunks(size)), use_multipart=False)
        return obstore.put(store, key, chunks(size), chunk_size=PART, max_concurrency=1)

    return Client(
        put, lambda key: sum(map(len, obstore.get(store, key).stream(min_chunk_size=CHUNK)))
    )


CLIENTS = {"s3fs": through_s3fs, "obstore": through_obstore}


def obstore_store(endpoint: str) -> Any:
    """Return obstore's client of the test bucket."""
    from obstore.store import S3Store

    return S3Store(
        BUCKET,
        endpoint=endpoint,
        access_key_id="test",
        secret_access_key="test",
        region=REGION,
        client_options={"allow_http": True},
        retry_config={"max_retries": 0},
    )


def chunks(size: int) -> Iterator[bytes]:
    """Return the bytes of a file as a copy passes them on."""
    for start in range(0, size, CHUNK):
        # not zeros, which take no memory until they are written
        yield b"x" * min(CHUNK, size - start)


def pieces(read: Callable[[int], Any]) -> Iterator[Any]:
    """Return the pieces of a stream to its end."""
    while piece := read(CHUNK):
        yield piece


def measure(client: str, tree: str, endpoint: str) -> None:
    """Measure one client in this process, and print what it took as JSON."""
    files, size, streams = TREES[tree]
    verbs = CLIENTS[client](endpoint)
    verbs.put("warm", 1)
    keys = [f"{client}/{number:04}" for number in range(files)]
    with ThreadPoolExecutor(streams) as pool:
        put = timed(lambda: list(pool.map(lambda key: verbs.put(key, size), keys)))
        read = timed(lambda: check(pool.map(verbs.read, keys), size))
    print(
        json.dumps(
            {
                "put": put[0],
                "put cpu": put[1],
                "get": read[0],
                "get cpu": read[1],
                "peak": peak_memory(),
            }
        )
    )


def peak_memory() -> int:
    """Return the KiB that this process has had in memory.

    `ru_maxrss` counts what its parent had, too.
    """
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0])


def check(lengths: Iterable[int], size: int) -> None:
    """Fail unless every object has been read to its end."""
    assert set(lengths) == {size}


def timed(call: Callable[[], object]) -> tuple[float, float]:
    """Return the seconds that passed and the seconds of this process's CPU."""
    started, busy = time.perf_counter(), time.process_time()
    call()
    return time.perf_counter() - started, time.process_time() - busy


def compare(endpoint: str) -> None:
    """Print the best of some rounds for each client and tree, in turns."""
    print(
        "| tree | client | put, s | CPU s | get, s | CPU s | peak memory, MiB |\n| --- | --- | ---"
        " | --- | --- | --- | --- |"
    )
    for tree in TREES:
        rounds: dict[str, list[dict[str, float]]] = {client: [] for client in CLIENTS}
        for _ in range(ROUNDS):
            for client, results in rounds.items():
                command = [sys.executable, __file__, client, tree, endpoint]
                results.append(
                    json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
                )
        for client, results in rounds.items():
            best = [
                min(result[name] for result in results)
                for name in ("put", "put cpu", "get", "get cpu")
            ]
            memory = min(result["peak"] for result in results) / 1024
            print(
                "|",
                tree,
                "|",
                client,
                "|",
                " | ".join(f"{value:.2f}" for value in best),
                f"| {memory:.0f} |",
                flush=True,
            )


def obstore_semantics(endpoint: str) -> None:
    """Print what obstore does where the protocol relies on it."""
    import obstore

    store = obstore_store(endpoint)
    tag = obstore.put(store, "there", b"old", use_multipart=False)["e_tag"]
    report("create where an object is", lambda: obstore.put(store, "there", b"new", mode="create"))
    report(
        "create by multipart where an object is",
        lambda: put_parts(store, "there", mode="create", use_multipart=True),
    )
    report(
        "If-Match with another tag",
        lambda: obstore.put(store, "there", b"new", mode={"e_tag": '"0"'}),
    )
    report(
        "If-Match with the tag", lambda: obstore.put(store, "there", b"new", mode={"e_tag": tag})
    )
    report("length after that", lambda: obstore.head(store, "there")["size"])
    report("content that fails in the middle", lambda: put_parts(store, "torn", fail=True))
    report("is it there", lambda: obstore.head(store, "torn"))
    report("uploads left", lambda: unfinished_uploads(endpoint))
    report("get of what is missing", lambda: obstore.get(store, "missing"))
    report("delete of what is missing", lambda: obstore.delete(store, "missing"))
    obstore.put(store, "50%/a?b#c+ü", b"")
    report(
        "literal names",
        lambda: [found["path"] for found in obstore.list_with_delimiter(store, "50%")["objects"]],
    )
    report("no server", lambda: obstore.head(obstore_store("http://127.0.0.1:1"), "x"))


def put_parts(store: Any, key: str, fail: bool = False, **options: Any) -> object:
    """Put 40 MiB in parts, or fail after 24 of them."""
    import obstore

    def content() -> Iterator[bytes]:
        yield from chunks(24 << 20)
        if fail:
            raise OSError("the disk failed")
        yield from chunks(PART)

    return obstore.put(store, key, content(), chunk_size=PART, max_concurrency=1, **options)


def unfinished_uploads(endpoint: str) -> list[str]:
    """Return the keys of multipart uploads that were neither completed nor aborted."""
    import s3fs

    from tests.support.s3 import s3fs_options

    found = s3fs.S3FileSystem(**s3fs_options(endpoint)).call_s3(
        "list_multipart_uploads", Bucket=BUCKET
    )
    return [upload["Key"] for upload in found.get("Uploads", [])]


def report(name: str, call: Callable[[], object]) -> None:
    """Print what a call returns or raises."""
    try:
        result = repr(call())
    except Exception as error:  # noqa: BLE001  # which class it is, is what is asked
        kind, parent = type(error).__mro__[:2]
        result = f"{kind.__module__}.{kind.__name__}({parent.__name__}): {error}"
    print(f"{name}: {result[:300]!r}")


def main() -> None:
    """Measure in processes of their own, then show the semantics."""
    if len(sys.argv) == 4:
        measure(*sys.argv[1:])
        return
    with S3Server() as server:
        server.make_bucket(BUCKET)
        obstore_semantics(server.endpoint)
        compare(server.endpoint)


if __name__ == "__main__":
    main()
