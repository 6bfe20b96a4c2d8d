"""Places and what can be done there; see `base.Storage` for the verbs and their guarantees."""

from cpreplicate.storage.base import TEMPORARY, FileStatus, Storage, Transient, Unreachable
from cpreplicate.storage.copy import Copied, ShortSource, SourceMissing, checksum, copy_file
from cpreplicate.storage.settings import WriteSettings
from cpreplicate.storage.sites import HDFS_CLIENTS, Site, Sites
from cpreplicate.storage.wrappers.limits import Limits

__all__ = [
    "HDFS_CLIENTS",
    "TEMPORARY",
    "Copied",
    "FileStatus",
    "Limits",
    "ShortSource",
    "Site",
    "Sites",
    "SourceMissing",
    "Storage",
    "Transient",
    "Unreachable",
    "WriteSettings",
    "checksum",
    "copy_file",
]
