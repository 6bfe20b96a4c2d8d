"""A damaged manifest or journal counts for nothing, whatever pyarrow makes of it."""

from __future__ import annotations

import random
import struct

import pyarrow as pa
import pytest
from pyarrow import parquet

from cpreplicate.core.ledger import Member, MemberTable
from cpreplicate.core.memory import Memo
from cpreplicate.protocol import journal, manifest
from cpreplicate.protocol.digest import Digest
from cpreplicate.protocol.journal import JournalRow
from cpreplicate.protocol.manifest import Manifest, ManifestEntry, ManifestTable
from tests.support.memory import MemoryStorage

ROOT = "memory:/dcB/job"
ENTRIES = ManifestTable.of(
    {"shared/a": ManifestEntry(90, 100, 5), "chk-7/b": ManifestEntry(1, 1, None)}
)
MANIFEST = Manifest(7, Digest(100, 1), ENTRIES)
COLUMNS = ["path", "extent", "length", "crc32c"]


JOURNAL = "copied-1-a-000000.parquet"
ROWS = 5_000_000


@pytest.fixture
def storage() -> MemoryStorage:
    return MemoryStorage()


@pytest.fixture(autouse=True)
def nothing_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let what is written be decoded when it is read."""
    monkeypatch.setattr(Memo, "get", lambda *_: None)


def parquet_with_dates_out_of_range() -> bytes:
    """Return a file whose damaged schema has dates for which Python has no values."""
    days = pa.array([2**31 - 1], pa.int32()).view(pa.date32())
    sink = pa.BufferOutputStream()
    parquet.write_table(pa.table(dict.fromkeys(COLUMNS, days)), sink)
    return bytes(sink.getvalue())


def test_a_manifest_is_read_as_it_was_written(storage: MemoryStorage) -> None:
    manifest.write(storage, ROOT, "chk-7", MANIFEST)
    assert manifest.read(storage, ROOT, "chk-7") == MANIFEST


def test_a_manifest_that_does_not_exist_is_none(storage: MemoryStorage) -> None:
    assert manifest.read(storage, ROOT, "chk-7") is None


def test_a_manifest_with_values_out_of_range_is_none(storage: MemoryStorage) -> None:
    damaged = parquet_with_dates_out_of_range()
    storage.put(manifest.manifest_uri(ROOT, "chk-7"), lambda: [damaged])
    assert manifest.read(storage, ROOT, "chk-7") is None


def test_a_journal_with_values_out_of_range_lists_nothing(storage: MemoryStorage) -> None:
    damaged = parquet_with_dates_out_of_range()
    storage.put(f"{ROOT}/.cpreplicate/copied-1-a-000000.parquet", lambda: [damaged])
    assert journal.read(storage, ROOT, "copied-1-a-000000.parquet").paths == frozenset()


@pytest.mark.parametrize("error", [IndexError, MemoryError, OverflowError])
def test_a_manifest_for_which_pyarrow_raises_is_none(
    storage: MemoryStorage, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    def fail(*_: object) -> None:
        raise error("damaged")

    manifest.write(storage, ROOT, "chk-7", MANIFEST)
    monkeypatch.setattr(parquet, "ParquetFile", fail)
    assert manifest.read(storage, ROOT, "chk-7") is None


def parquet_of_many_rows() -> bytes:
    """Return a small file with millions of equal rows, as a damaged footer may announce them."""
    path = pa.DictionaryArray.from_arrays(pa.array([0] * ROWS, pa.int32()), ["shared/a"])
    nulls = {name: pa.nulls(ROWS, pa.int64()) for name in COLUMNS[1:]}
    described = {"checkpoint_id": "7", "metadata_length": "100", "metadata_crc32c": "1"}
    sink = pa.BufferOutputStream()
    table = pa.table({"path": path, **nulls}).replace_schema_metadata(described)
    parquet.write_table(table, sink, store_schema=False)
    return bytes(sink.getvalue())


def test_a_file_with_more_rows_than_its_size_can_hold_is_damaged_and_not_decoded(
    storage: MemoryStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = parquet_of_many_rows()
    assert len(data) < ROWS
    storage.put(manifest.manifest_uri(ROOT, "chk-7"), lambda: [data])
    storage.put(f"{ROOT}/.cpreplicate/{JOURNAL}", lambda: [data])
    decoded: list[str] = []

    class Watched(parquet.ParquetFile):
        def read(self, *_: object, **__: object) -> None:
            decoded.append("decoded")

    monkeypatch.setattr(parquet, "ParquetFile", Watched)
    assert manifest.read(storage, ROOT, "chk-7") is None
    assert journal.read(storage, ROOT, JOURNAL).paths == frozenset()
    assert decoded == []


def test_a_file_that_announces_columns_larger_than_its_size_can_hold_is_damaged(
    storage: MemoryStorage,
) -> None:
    sink = pa.BufferOutputStream()
    path = ["a" * 10_000_000]
    parquet.write_table(pa.table({"path": path}), sink, compression="zstd")
    storage.put(f"{ROOT}/.cpreplicate/{JOURNAL}", lambda: [bytes(sink.getvalue())])
    assert journal.read(storage, ROOT, JOURNAL).paths == frozenset()


@pytest.mark.slow
def test_many_paths_that_compress_well_are_within_the_bounds(storage: MemoryStorage) -> None:
    writer = journal.JournalWriter(storage, ROOT)
    paths = [f"shared/{'a' * 200}{number:07d}" for number in range(200_000)]
    writer.plan(paths)
    [part] = [status.name for status in storage.list(f"{ROOT}/.cpreplicate")]
    assert journal.read(storage, ROOT, part).planned == frozenset(paths)


def test_a_changed_byte_in_a_page_makes_the_whole_manifest_damaged(storage: MemoryStorage) -> None:
    manifest.write(storage, ROOT, "chk-7", MANIFEST)
    path = manifest.manifest_uri(ROOT, "chk-7")
    with storage.open(path) as stream:
        data = stream.read()
    changed = data.replace(b"shared/a", b"shared/b", 1)
    storage.put(path, lambda: [changed])
    assert manifest.read(storage, ROOT, "chk-7") is None


def test_a_manifest_of_0_2_0_without_packs_and_checksums_is_read(storage: MemoryStorage) -> None:
    columns = {
        "path": pa.array(["shared/a", "chk-7/b"]),
        "extent": pa.array([90, 1]),
        "length": pa.array([100, 1]),
        "crc32c": pa.array([5, None], pa.uint32()),
        "written": pa.array([True, True]),
    }
    described = {"checkpoint_id": "7", "metadata_length": "100", "metadata_crc32c": "1"}
    sink = pa.BufferOutputStream()
    parquet.write_table(pa.table(columns).replace_schema_metadata(described), sink)
    storage.put(manifest.manifest_uri(ROOT, "chk-7"), lambda: [bytes(sink.getvalue())])
    assert manifest.read(storage, ROOT, "chk-7") == MANIFEST


def test_several_damaged_bytes_give_a_manifest_or_none(
    storage: MemoryStorage,
) -> None:
    manifest.write(storage, ROOT, "chk-7", MANIFEST)
    path = manifest.manifest_uri(ROOT, "chk-7")
    with storage.open(path) as stream:
        data = stream.read()
    footer = len(data) - 8 - struct.unpack("<I", data[-8:-4])[0]
    for seed in range(300):
        draw, damaged = random.Random(seed), bytearray(data)
        for position in draw.choices(range(footer if seed % 2 else 0, len(data)), k=6):
            damaged[position] = draw.choice([0x7F, 0xFF, draw.randrange(256)])
        storage.put(path, lambda damaged=damaged: [bytes(damaged)])
        manifest.read(storage, ROOT, "chk-7")


PACK = "packed/1-a-b"
WHOLE = {PACK: ManifestEntry(50, 50, None)}
FORGED_ENTRIES = {
    "a file beside the replica": {"../other/shared/a": ManifestEntry(1, 1, 5)},
    "an absolute path": {"/etc/passwd": ManifestEntry(1, 1, 5)},
    "another scheme": {"s3://bucket/key": ManifestEntry(1, 1, 5)},
    "a step that is percent-encoded": {"shared/%2e%2e/x": ManifestEntry(1, 1, 5)},
    "a record": {".cpreplicate/lease": ManifestEntry(1, 1, 5)},
    "a _metadata": {"chk-7/_metadata": ManifestEntry(1, 1, 5)},
    "a negative length": {"shared/a": ManifestEntry(1, -1, 5)},
    "a negative extent": {"shared/a": ManifestEntry(-1, 1, 5)},
}
FORGED_MEMBERS = {
    "a pack beside the replica": ("shared/a", Member("../other/packed/x", 0, 5, 7)),
    "a pack that hides a step": ("shared/a", Member("packed/../../other/x", 0, 5, 7)),
    "a file that is no pack": ("shared/a", Member("shared/b", 0, 5, 7)),
    "a logical path outside": ("../a", Member(PACK, 0, 5, 7)),
    "a negative offset": ("shared/a", Member(PACK, -1, 5, 7)),
    "a negative member": ("shared/a", Member(PACK, 5, -5, 7)),
    "an end beyond the pack": ("shared/a", Member(PACK, 46, 5, 7)),
    "an end that wraps": ("shared/a", Member(PACK, 2**63 - 1, 2, 7)),
}


@pytest.mark.parametrize("forged", FORGED_ENTRIES)
def test_a_manifest_with_a_forged_file_is_none(storage: MemoryStorage, forged: str) -> None:
    entries = ManifestTable.of({"shared/sound": ManifestEntry(1, 1, 5), **FORGED_ENTRIES[forged]})
    manifest.write(storage, ROOT, "chk-7", MANIFEST._replace(entries=entries))
    assert manifest.read(storage, ROOT, "chk-7") is None


@pytest.mark.parametrize("forged", FORGED_MEMBERS)
def test_a_manifest_with_a_forged_member_is_none(storage: MemoryStorage, forged: str) -> None:
    members = MemberTable.of(dict([FORGED_MEMBERS[forged]]))
    made = MANIFEST._replace(entries=ManifestTable.of(WHOLE), members=members)
    manifest.write(storage, ROOT, "chk-7", made)
    assert manifest.read(storage, ROOT, "chk-7") is None


def test_a_member_that_ends_where_its_pack_ends_is_sound(storage: MemoryStorage) -> None:
    members = MemberTable.of({"shared/a": Member(PACK, 45, 5, 7)})
    made = MANIFEST._replace(entries=ManifestTable.of(WHOLE), members=members)
    manifest.write(storage, ROOT, "chk-7", made)
    assert manifest.read(storage, ROOT, "chk-7") == made


FORGED_COPIES = {
    **{
        name: JournalRow(path, member.length, 7, member.pack, member.offset)
        for name, (path, member) in FORGED_MEMBERS.items()
        if name != "an end beyond the pack"  # a journal lists no length of a pack
    },
    "a file beside the replica": JournalRow("../other/shared/a", 1, 5),
    "a negative length": JournalRow("shared/a", -1, 5),
}


@pytest.mark.parametrize("forged", FORGED_COPIES)
def test_a_journal_with_a_forged_row_lists_nothing(storage: MemoryStorage, forged: str) -> None:
    writer = journal.JournalWriter(storage, ROOT)
    writer.done(JournalRow("shared/sound", 1, 5))
    writer.done(FORGED_COPIES[forged])
    writer.flush()
    (name,) = journal.names(status.name for status in storage.list(f"{ROOT}/.cpreplicate"))
    assert journal.read(storage, ROOT, name).paths == frozenset()


@pytest.mark.parametrize("path", ["../other/x", "shared/../../x", "/x", "chk-1/_metadata"])
def test_a_journal_that_plans_a_path_outside_lists_nothing(
    storage: MemoryStorage, path: str
) -> None:
    journal.JournalWriter(storage, ROOT).plan(["shared/sound", path])
    (name,) = journal.names(status.name for status in storage.list(f"{ROOT}/.cpreplicate"))
    assert journal.read(storage, ROOT, name).paths == frozenset()
