"""What somebody laid into a replica to exhaust a run: it ends in an error, in bounded memory."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from cpreplicate.core.placement import DEEPEST
from cpreplicate.protocol import parquet_files
from cpreplicate.protocol.parquet_pages import pages_of
from tests.support import checker, parts
from tests.support.jobs import JOB, write_checkpoint
from tests.support.replicas import FILES, synced
from tests.support.waiting import PATIENCE

pytestmark = pytest.mark.slow  # a process for each command

MIB = 1 << 20
# A process that replicates files has 150 MiB. The longest file that is read is on top of it.
MOST_RESIDENT = parquet_files.LONGEST + 500 * MIB
# What the loader and the threads of numpy and pyarrow reserve is not used
MOST_RESERVED = 8 << 30

# `ru_maxrss` would count what the process of the tests had, too.
_CHILD = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, ({reserved}, {reserved}))
from cpreplicate.cli import main
try:
    main()
finally:
    peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM:"))
    print("resident KiB:", peak.split()[1], file=sys.stderr)
"""


class Ended:
    """How a command ended: code, messages and bytes that were resident at most."""

    def __init__(self, *words: object) -> None:
        script = _CHILD.format(reserved=MOST_RESERVED)
        command = [sys.executable, "-c", script, *map(str, words)]
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=PATIENCE
        )
        self.code, self.stdout = done.returncode, done.stdout
        self.messages, _, kib = done.stderr.rpartition("resident KiB:")
        self.resident = int(kib) * 1024


def encoded(table: Any, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    parquet.write_table(table, sink, store_schema=False, write_statistics=False, **options)
    return bytes(sink.getvalue())


def bomb() -> bytes:
    """Return a manifest of 1.4 MB: a million rows that repeat a text of 4,000 bytes."""
    rows = 1_350_000
    text = pa.DictionaryArray.from_arrays(
        pa.array([0] * rows, pa.int32()), ["shared/" + "x" * 4000]
    )
    numbers = {name: pa.array([1] * rows) for name in ("extent", "length")}
    filler = [os.urandom(1_400_000)] + [None] * (rows - 1)  # as many rows as bytes are accepted
    table = pa.table(
        {
            "path": text,
            **numbers,
            "crc32c": pa.array([1] * rows, pa.uint32()),
            "written": pa.array([True] * rows),
            "filler": pa.array(filler, pa.binary()),
        }
    )
    described = {"checkpoint_id": "1", "metadata_length": "1", "metadata_crc32c": "1"}
    repeated = ["path", "extent", "length", "crc32c"]
    return encoded(table.replace_schema_metadata(described), use_dictionary=repeated)


@pytest.fixture(autouse=True)
def emptied(tmp_path: Path) -> Iterator[None]:
    """Remove the directories of a test: pytest would do it by recursion."""
    yield
    subprocess.run(["rm", "-rf", tmp_path], check=True)


@pytest.fixture
def replica(tmp_path: Path) -> Path:
    return synced(tmp_path, {1: FILES})


def commands(replica: Path) -> list[list[object]]:
    root = replica.parent
    write_checkpoint(root.parent / "dcA", 2, FILES)
    return [
        ["sync", "-q", root.parent / "dcA" / JOB, root],
        ["sweep", "-q", replica],
        ["verify", "-q", "--content", replica],
    ]


def check_refused(replica: Path, file: Path, reason: str) -> None:
    before = {path for path in replica.rglob("*") if path.is_file()}
    reading = commands(replica)
    if file.name.startswith("copied-"):
        reading.pop()  # `verify` reads no journal
    for command in reading:
        ended = Ended(*command)
        assert (ended.code, str(file) in ended.messages) == (6, True), (command, ended.messages)
        assert reason in ended.messages
        assert "Traceback" not in ended.messages
        assert ended.resident < MOST_RESIDENT, command
    assert {path for path in replica.rglob("*") if path.is_file()} == before
    assert checker.faults(replica) == []


of_records = pytest.mark.parametrize(
    "name", ["chk-1.parquet", parts.rest("copied-00000000000001-0123-000001.parquet")]
)


@of_records
def test_texts_that_a_million_rows_repeat_are_refused(replica: Path, name: str) -> None:
    data = bomb()
    assert len(data) < 1.5e6
    file = replica / ".cpreplicate" / name
    file.write_bytes(data)
    check_refused(replica, file, "its texts would take 5")


@of_records
def test_a_sparse_file_of_200_gib_is_refused(replica: Path, name: str) -> None:
    file = replica / ".cpreplicate" / name
    with file.open("ab") as stream:
        stream.truncate(200 << 30)
    check_refused(replica, file, "is longer than 512 MiB")


def test_status_shows_the_other_replicas_beside_a_bomb(replica: Path) -> None:
    file = replica / ".cpreplicate" / "chk-1.parquet"
    with file.open("ab") as stream:
        stream.truncate(200 << 30)
    other = replica.parent / ("f" * 32)
    other.mkdir()
    for path in (replica / "chk-1", replica / "shared"):
        (other / path.name).mkdir()
    ended = Ended("status", replica.parent)
    assert "Traceback" not in ended.messages
    assert ended.resident < MOST_RESIDENT
    assert JOB in ended.stdout


def test_a_text_that_each_row_continues_is_damaged() -> None:
    """Front coding stores what a text shares with the one before as a length."""
    text = pa.array(["shared/" + "x" * 10_000] * 5_000)
    filler = pa.array([os.urandom(10_000)] * 5_000)
    data = encoded(
        pa.table({"path": text, "filler": filler}),
        use_dictionary=["filler"],
        column_encoding={"path": "DELTA_BYTE_ARRAY"},
    )
    with pytest.raises(parquet_files.DamagedParquet, match="a page with an unknown encoding"):
        parquet_files.decoded(data, {"path": "string"}, "file:/r/x.parquet")


@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_pages_announce_what_they_take_whatever_the_footer_announces(version: str) -> None:
    data = encoded(
        pa.table({"path": ["a" * 10_000_000]}),
        compression="zstd",
        use_dictionary=False,
        data_page_version=version,
    )
    chunk = parquet.ParquetFile(pa.BufferReader(data)).metadata.row_group(0).column(0)
    place = (chunk.data_page_offset, chunk.total_compressed_size)
    if version == "2.0":  # cpreplicate writes none
        with pytest.raises(ValueError, match="unknown type"):
            pages_of(data, *place)
    else:
        pages = pages_of(data, *place)
        assert (pages.values, pages.has_dictionary) == (1, False)
        assert 10_000_000 < pages.uncompressed < 10_001_000


@pytest.mark.parametrize("end", range(1, 60, 7))
def test_pages_that_end_in_the_middle_are_damaged(end: int) -> None:
    data = encoded(pa.table({"path": [f"shared/{number}" for number in range(50)]}))
    chunk = parquet.ParquetFile(pa.BufferReader(data)).metadata.row_group(0).column(0)
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    with pytest.raises(ValueError, match=r"column|without a size|unknown"):
        pages_of(data, start, chunk.total_compressed_size - end)


def test_a_manifest_of_a_million_files_is_far_below_the_limits() -> None:
    rows = 1_000_000
    paths = pa.array(
        [f"shared/{n * 2654435761 % 2**32:08x}-{'0' * 19}-{n:08d}" for n in range(rows)]
    )
    packs = pa.array([f"packed/0000-{n // 1000:040d}" for n in range(rows)])
    data = parquet_files.encoded(pa.table({"path": paths, "pack": packs}))
    assert len(data) < parquet_files.LONGEST / 5
    table = parquet_files.decoded(data, {"path": "string", "pack": "string"}, "file:/r/x.parquet")
    assert table["path"].to_pylist() == paths.to_pylist()
    assert table["pack"].to_pylist() == packs.to_pylist()


def nested(directory: Path, depth: int) -> None:
    """Make a file below so many directories: a path may be too long to be named at once."""
    here = os.open(directory, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(os.open("f", os.O_CREAT | os.O_WRONLY, dir_fd=here))
    os.close(here)


@pytest.mark.parametrize("depth", [1500, parts.rest(3000)])
def test_directories_1500_deep_are_refused(replica: Path, depth: int) -> None:
    directory = replica / "shared" / "deep"
    directory.mkdir()
    nested(directory, depth)
    too_deep = r"shared/deep/d.* is nested more than 100 directories deep"
    swept = Ended("sweep", "-q", replica)
    assert swept.code == 6, swept.messages
    assert re.search(too_deep, swept.messages)
    assert Ended("verify", "-q", replica).code == 0
    promoted = Ended("promote", replica)
    assert promoted.code == 0, promoted.messages
    assert re.search(too_deep, promoted.stdout), "a warning: it only searches for files of others"


def test_files_at_the_source_1500_deep_lie_flat_in_the_replica(tmp_path: Path) -> None:
    deep = "shared/deep/" + "d/" * 1500
    (tmp_path / "dcA" / JOB / "shared" / "deep").mkdir(parents=True)
    nested(tmp_path / "dcA" / JOB / "shared" / "deep", 1500)
    write_checkpoint(tmp_path / "dcA", 1, {**FILES, f"{deep}f": 0})
    source, target = tmp_path / "dcA" / JOB, tmp_path / "dcB"
    ended = Ended("sync", "-q", source, target)
    assert ended.code == 0, ended.messages
    assert checker.faults(target / JOB) == []
    deepest = max(len(path.relative_to(target).parts) for path in target.rglob("*"))
    assert deepest < 5 < DEEPEST
    assert Ended("sweep", "-q", target / JOB).code == 0


def test_a_target_root_1500_deep_is_made(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "dcA", 1, FILES)
    target = str(tmp_path / "dcB") + "/d" * 1500
    ended = Ended("sync", "-q", tmp_path / "dcA" / JOB, target)
    assert ended.code == 0, ended.messages
