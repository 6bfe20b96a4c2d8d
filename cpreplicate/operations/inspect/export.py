"""`inspect --refs --to FILE`: the state handles of a checkpoint as a table for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from cpreplicate.operations.inspect.references import SCHEMA, References
from cpreplicate.operations.inspect.result_file import replacing

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
    schema, rows = SCHEMA.with_metadata(_VERSION), 0
    with replacing(file) as temporary, _writer(str(temporary), Path(file).suffix, schema) as writer:
        for batch in references.batches():
            writer.write_batch(batch.replace_schema_metadata(_VERSION))
            rows += batch.num_rows
    return ReferencesFile(file, rows)


def _writer(path: str, suffix: str, schema: Any) -> Any:
    if suffix == ".parquet":
        from pyarrow.parquet import ParquetWriter

        return ParquetWriter(path, schema, compression="zstd")
    return pa.ipc.new_file(path, schema)
