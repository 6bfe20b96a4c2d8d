"""A manifest that is damaged vouches for nothing, whatever pyarrow raises for it."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyarrow import parquet

from cpreplicate.protocol import journal, manifest
from cpreplicate.protocol.digest import Digest
from cpreplicate.protocol.manifest import Entry, Manifest
from tests.support.memory import MemoryStorage

ROOT = "memory:/dcB/job"
MANIFEST = Manifest(
    7, Digest(100, 1), {"shared/a": Entry(90, 100, 5), "chk-7/b": Entry(1, 1, None)}
)
COLUMNS = ["path", "extent", "length", "crc32c"]


@pytest.fixture
def storage() -> MemoryStorage:
    return MemoryStorage()


def parquet_with_dates_out_of_range() -> bytes:
    """A file of which a damaged schema says that it holds dates: Python has none so late."""
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
