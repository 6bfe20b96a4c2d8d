"""Parquet files under `.cpreplicate/`: manifests and journals.

They are read without trust in who wrote them, and may be damaged. The pages have checksums, but the
footer that describes them has none. A few changed bytes there may announce billions of rows, for
which pyarrow would run for hours. So what the footer announces is compared with the file's size
before anything is decoded.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from typing import Any

# What pyarrow raises for a damaged file
_ERRORS = (
    OSError,
    ValueError,
    LookupError,
    TypeError,
    NotImplementedError,
    ArithmeticError,
    MemoryError,
)
# Each row has a path of its own, which takes more than a byte: 5 were measured for a million paths
# that differ in their number only.
_ROWS_PER_BYTE = 1
# Snappy stores at most 64 bytes in 3.
_EXPANSION = 64


class Damaged(Exception):
    """A Parquet file cannot be decoded, or announces more than its size can hold."""


def encoded(table: Any) -> bytes:
    """Return the bytes of a Parquet file, with a checksum of each page."""
    import pyarrow as pa
    from pyarrow import parquet

    sink = pa.BufferOutputStream()
    repeated = [name for name in ("pack",) if name in table.column_names]  # all paths differ
    parquet.write_table(
        table, sink, write_page_checksum=True, use_dictionary=repeated, write_statistics=False
    )
    return bytes(sink.getvalue())


def decoded(data: bytes) -> Any:
    """Return the table of a Parquet file, or raise `Damaged`.

    Pages without a checksum, which version 0.2.0 wrote, are decoded, too.
    """
    import pyarrow as pa
    from pyarrow import parquet

    try:
        file = parquet.ParquetFile(pa.BufferReader(data), page_checksum_verification=True)
        _check_size(file.metadata, len(data))
        return file.read(use_threads=False)
    except _ERRORS as error:
        raise Damaged(str(error)) from error


def description(tail: bytes) -> Mapping[bytes, bytes]:
    """Return the metadata of a Parquet file's schema, given its last bytes, at least its footer.

    Raises `Damaged`, also if the footer is longer.
    """
    import pyarrow as pa
    from pyarrow import parquet

    try:
        return parquet.read_metadata(pa.BufferReader(tail)).metadata or {}
    except _ERRORS as error:
        raise Damaged(str(error)) from error


def columns(table: Any, types: Mapping[str, str]) -> Iterator[list[Any]]:
    """Yield the values of columns; nulls for a column that the table lacks.

    Raises `Damaged` if a column has another type, or if there are rows without a path.
    """
    yield from (column.to_pylist() for column in arrays(table, types, ("path",)).values())


def arrays(table: Any, types: Mapping[str, str], required: Container[str]) -> dict[str, Any]:
    """Return columns as Arrow arrays, texts as large ones; nulls for a column that is not there.

    Raises `Damaged` if a column has another type, or if one of those `required` has nulls.
    """
    return {name: _array(table, name, kind, name in required) for name, kind in types.items()}


def _array(table: Any, name: str, kind: str, is_required: bool) -> Any:
    import pyarrow as pa

    if name not in table.column_names:
        column = pa.nulls(table.num_rows, kind)
    elif str(table.schema.field(name).type) == kind:
        column = table[name].combine_chunks()
    else:
        raise Damaged(f"the column {name} has another type")
    if is_required and column.null_count:
        raise Damaged(f"rows without a value of {name}")
    try:
        column.validate(full=True)  # a text may be no UTF-8
    except _ERRORS as error:
        raise Damaged(str(error)) from error
    return column.cast("large_string") if kind == "string" else column


def _check_size(footer: Any, length: int) -> None:
    """Raise `ValueError` if a footer announces more than a file of this length can hold."""
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    rows = max(footer.num_rows, sum(group.num_rows for group in groups))
    if rows > length * _ROWS_PER_BYTE:
        raise ValueError(f"{rows} rows in {length} bytes")
    sizes = [
        group.column(number).total_uncompressed_size
        for group in groups
        for number in range(group.num_columns)
    ]
    if min(sizes, default=0) < 0 or sum(sizes) > length * _EXPANSION:
        raise ValueError(f"{sum(sizes)} bytes in {length} bytes")
