"""`inspect --refs --to FILE`: the state handles of a checkpoint as a table for other programs."""

from __future__ import annotations

import os
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from cpreplicate.operations.inspect.references import SCHEMA, References

_VERSION = {b"cpreplicate.schema": b"1"}


class ReferencesFile(NamedTuple):
    """A file that was written, and how many state handles it has."""

    file: str
    rows: int


def write(references: References, file: str) -> ReferencesFile:
    """Write the state handles of a checkpoint to a local file, which appears when it is complete.

    It is Parquet if its name ends with `.parquet`, else the file format of Arrow IPC. Raises
    `OSError`.
    """
    place = Path(file)
    schema = SCHEMA.with_metadata(_VERSION)
    rows = 0
    with ExitStack() as stack:
        number, name = tempfile.mkstemp(dir=place.parent, prefix=f".{place.name}.")
        os.close(number)
        temporary = Path(name)
        stack.callback(temporary.unlink, missing_ok=True)
        with _writer(str(temporary), place.suffix, schema) as writer:
            for batch in references.batches():
                writer.write_batch(batch.replace_schema_metadata(_VERSION))
                rows += batch.num_rows
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(place)
    return ReferencesFile(file, rows)


def _writer(path: str, suffix: str, schema: Any) -> Any:
    if suffix == ".parquet":
        from pyarrow.parquet import ParquetWriter

        return ParquetWriter(path, schema, compression="zstd")
    return pa.ipc.new_file(path, schema)


def _umask() -> int:
    """Return the permissions that new files do not get; it can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
