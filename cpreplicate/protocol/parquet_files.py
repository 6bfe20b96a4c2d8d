"""Parquet files under `.cpreplicate/`: manifests and journals.

They are read without trust in who wrote them, and may be damaged. The pages have checksums, but the
footer that describes them has none. A few changed bytes there may announce billions of rows, for
which pyarrow would run for hours. So what the footer and the headers of the pages announce is
compared with the file's size before anything is decoded.

Who can write to a replica can also make a file that is whole, and far larger when it is decoded: a
text that each of a million rows repeats. So texts from a dictionary are measured before they are
expanded.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Any

from cpreplicate.errors import Refused
from cpreplicate.protocol.parquet_pages import pages_of
from cpreplicate.storage import DamagedFile
from cpreplicate.storage.reading import Reading

# Bytes of a file that is read. A file of the checkpoint takes 60 to 100: that is at least five
# million files.
LONGEST = 1 << 29
# Bytes of decoded texts, of these five million files with paths of 200 bytes.
_MOST_TEXT = 1 << 30
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
_SLACK = 1 << 20  # bytes, for files so small that their proportions say nothing
_MAGIC = b"PAR1"
_TEXT = 0x18  # the head of a field of text that is the next one: thrift-compact-protocol.md
_LONG = 0x80  # a length from here on takes more than a byte
_LONGEST_FOOTER = 1 << 20  # bytes: it describes a part of about a million rows in a few hundred
_REMEDY = (
    "Find out who wrote it, then remove it: the files that it lists count as unrecorded then, and"
    " are compared or copied again"
)


class DamagedParquet(Exception):
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


def content(storage: Reading, uri: str) -> bytes:
    """Return the bytes of a file, none of a damaged one, which is as malformed as other bytes.

    Raises `FileNotFoundError`, and `Refused` for more than `LONGEST`.
    """
    try:
        data = storage.read(uri, 0, LONGEST + 1)
    except DamagedFile:  # the storage has named it
        return b""
    if len(data) > LONGEST:
        raise Refused(
            f"{uri} is longer than {LONGEST >> 20} MiB, so cpreplicate does not read it. {_REMEDY}"
        )
    return data


def ask(storage: Reading, uri: str) -> None:
    """Begin to read a file that `content` is called for soon."""
    storage.ask("read", uri, 0, LONGEST + 1)


def decoded(data: bytes, types: Mapping[str, str], uri: str) -> Any:
    """Return the table of a Parquet file with those columns of `types` that it has.

    Pages without a checksum, which version 0.2.0 wrote, are decoded, too. Raises `DamagedParquet`,
    and `Refused` if the texts are far larger than the file.
    """
    import pyarrow as pa
    from pyarrow import parquet

    try:
        _check_footer(data)
        file = parquet.ParquetFile(pa.BufferReader(data), page_checksum_verification=True)
        _check_size(file.metadata, len(data))
        names = [name for name in file.schema_arrow.names if name in types]
        repeated = _check_pages(data, file.metadata, names)
        # texts stay in their dictionary, whatever type the file says its columns have
        file = parquet.ParquetFile(
            pa.BufferReader(data), page_checksum_verification=True, read_dictionary=repeated
        )
        table = file.read(columns=names, use_threads=False)
        text = sum(_text_bytes(table[name]) for name in repeated)
    except _ERRORS as error:
        raise DamagedParquet(str(error)) from error
    if text > min(_MOST_TEXT, len(data) * _EXPANSION + _SLACK):
        raise Refused(
            f"{uri} has {len(data)} bytes, and its texts would take {text}: cpreplicate writes no"
            f" such file. {_REMEDY}"
        )
    return _expanded(table, repeated)


def described(tail: bytes, names: Iterable[str]) -> Mapping[bytes, bytes]:
    """Return these texts of the metadata of a Parquet file's schema, given its last bytes.

    They are found in its footer as Thrift's compact protocol spells a field of text: its type, its
    length, its bytes. To decode all columns of the footer takes ten times as long. Where that finds
    not all of them, it is decoded. Raises `DamagedParquet`, also if the footer is longer.
    """
    length = int.from_bytes(tail[-8:-4], "little") + 8
    is_whole = tail.endswith(_MAGIC) and length <= len(tail)
    footer, found = tail[-length:] if is_whole else b"", dict[bytes, bytes]()
    for name in map(str.encode, names):
        _, key, rest = footer.rpartition(bytes((_TEXT, len(name))) + name + bytes((_TEXT,)))
        if not key or rest[0] >= _LONG:  # what is behind the footer is longer than one byte
            return _description(tail)
        found[name] = rest[1 : 1 + rest[0]]
    return found


def _description(tail: bytes) -> Mapping[bytes, bytes]:
    import pyarrow as pa
    from pyarrow import parquet

    try:
        return parquet.read_metadata(pa.BufferReader(tail)).metadata or {}
    except _ERRORS as error:
        raise DamagedParquet(str(error)) from error


def columns(table: Any, types: Mapping[str, str]) -> Iterator[list[Any]]:
    """Yield the values of columns; nulls for a column that the table lacks.

    Raises `DamagedParquet` if a column has another type, or if there are rows without a path.
    """
    yield from (column.to_pylist() for column in arrays(table, types, ("path",)).values())


def arrays(table: Any, types: Mapping[str, str], required: Container[str]) -> dict[str, Any]:
    """Return columns as Arrow arrays, texts as large ones; nulls for a column that is not there.

    Raises `DamagedParquet` if a column has another type, or if one of those `required` has nulls.
    """
    return {name: _array(table, name, kind, name in required) for name, kind in types.items()}


def _array(table: Any, name: str, kind: str, is_required: bool) -> Any:
    """Return one column, as `arrays` does."""
    import pyarrow as pa

    if name not in table.column_names:
        column = pa.nulls(table.num_rows, kind)
    elif str(table.schema.field(name).type) == kind:
        column = table[name].combine_chunks()
    else:
        raise DamagedParquet(f"the column {name} has another type")
    if is_required and column.null_count:
        raise DamagedParquet(f"rows without a value of {name}")
    try:
        column.validate(full=True)  # a text may be no UTF-8
    except _ERRORS as error:
        raise DamagedParquet(str(error)) from error
    return column.cast("large_string") if kind == "string" else column


def _check_footer(data: bytes) -> None:
    """Raise `ValueError` if the footer is so long that decoding it would take much memory."""
    length = int.from_bytes(data[-8:-4], "little")
    if length > _LONGEST_FOOTER:
        raise ValueError(f"a footer of {length} bytes")


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


def _check_pages(data: bytes, footer: Any, names: Container[str]) -> list[str]:
    """Return the columns of texts that have a dictionary, of those with these names.

    Raises `ValueError` if their pages announce more than a file of this length can hold.
    """
    repeated, uncompressed = dict[str, None](), 0
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        chunks = map(group.column, range(group.num_columns))
        for chunk in (each for each in chunks if each.path_in_schema in names):
            if not (group.num_rows or chunk.data_page_offset):
                continue  # no rows are written as no data page
            start = min(
                chunk.dictionary_page_offset or chunk.data_page_offset, chunk.data_page_offset
            )
            pages = pages_of(data, start, chunk.total_compressed_size)
            uncompressed += pages.uncompressed
            if pages.values > group.num_rows or uncompressed > len(data) * _EXPANSION:
                raise ValueError(f"{chunk.path_in_schema}: {pages} in {len(data)} bytes")
            if pages.has_dictionary and chunk.physical_type == "BYTE_ARRAY":
                repeated[chunk.path_in_schema] = None
    return list(repeated)


def _text_bytes(column: Any) -> int:
    """Return the bytes of a column of texts, without expanding its dictionary."""
    import pyarrow as pa
    from pyarrow import compute

    total = 0
    for chunk in column.chunks:
        if not pa.types.is_dictionary(chunk.type):
            total += chunk.nbytes
            continue
        lengths = compute.binary_length(chunk.dictionary).cast("int64")
        total += compute.sum(lengths.take(chunk.indices)).as_py() or 0
    return total


def _expanded(table: Any, names: list[str]) -> Any:
    """Return a table whose columns of these names are plain texts."""
    import pyarrow as pa

    for name in names:
        column = table[name]
        if pa.types.is_dictionary(column.type):
            plain = column.cast(column.type.value_type)
            table = table.set_column(table.schema.get_field_index(name), name, plain)
    return table
