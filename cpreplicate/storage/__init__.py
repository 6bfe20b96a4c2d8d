"""Storages: the filesystems and services that hold files.

See `base.Storage` for the verbs and their guarantees.
"""

from cpreplicate.storage.base import (
    TEMPORARY,
    DamagedFile,
    NotAuthenticated,
    SourceMissing,
    Storage,
    Transient,
    Unreachable,
    WriteSettings,
)
from cpreplicate.storage.sides import HDFS_CLIENTS, Side, Sides
from cpreplicate.storage.statuses import FileStatus
from cpreplicate.storage.transfer import (
    Checksum,
    DamagedPart,
    Range,
    ShortSource,
    WholeFile,
    checksum,
    checksums_of_parts,
    copy_file,
    copy_growing,
    copy_range,
    copy_within,
    length_of,
    read_exactly,
    read_part,
    read_whole,
)
from cpreplicate.storage.wrappers.limits import Limits

__all__ = [
    "HDFS_CLIENTS",
    "TEMPORARY",
    "Checksum",
    "DamagedFile",
    "DamagedPart",
    "FileStatus",
    "Limits",
    "NotAuthenticated",
    "Range",
    "ShortSource",
    "Side",
    "Sides",
    "SourceMissing",
    "Storage",
    "Transient",
    "Unreachable",
    "WholeFile",
    "WriteSettings",
    "checksum",
    "checksums_of_parts",
    "copy_file",
    "copy_growing",
    "copy_range",
    "copy_within",
    "length_of",
    "read_exactly",
    "read_part",
    "read_whole",
]
