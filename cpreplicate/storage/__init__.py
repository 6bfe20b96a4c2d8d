"""Storages: the filesystems and services that hold files.

See `base.Storage` for the verbs and their guarantees.
"""

import cpreplicate.storage.builtin  # noqa: F401  # registers the storages
from cpreplicate.storage.base import (
    TEMPORARY,
    FileStatus,
    SourceMissing,
    Storage,
    Transient,
    Unreachable,
)
from cpreplicate.storage.copy import Copied, ShortSource, checksum, copy_file
from cpreplicate.storage.settings import WriteSettings
from cpreplicate.storage.sides import HDFS_CLIENTS, Side, Sides
from cpreplicate.storage.wrappers.limits import Limits

__all__ = [
    "HDFS_CLIENTS",
    "TEMPORARY",
    "Copied",
    "FileStatus",
    "Limits",
    "ShortSource",
    "Side",
    "Sides",
    "SourceMissing",
    "Storage",
    "Transient",
    "Unreachable",
    "WriteSettings",
    "checksum",
    "copy_file",
]
