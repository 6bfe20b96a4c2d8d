"""Places and what can be done there; see `base.Storage` for the verbs and their guarantees."""

from cpreplicate.storage.base import TEMPORARY, FileStatus, Storage
from cpreplicate.storage.copy import Copied, ShortSource, SourceMissing, checksum, copy_file
from cpreplicate.storage.registry import storage_for

__all__ = [
    "TEMPORARY",
    "Copied",
    "FileStatus",
    "ShortSource",
    "SourceMissing",
    "Storage",
    "checksum",
    "copy_file",
    "storage_for",
]
