"""Flink's `_metadata`: decode it, and rewrite it by splicing.

Pure: bytes in, bytes out.
"""

from cpreplicate.core.metadata.decoder import decode
from cpreplicate.core.metadata.handle import Handle, Operator
from cpreplicate.core.metadata.model import Metadata
from cpreplicate.core.metadata.rewrite import Absolute, PathRewriter, Relative, rewrite

__all__ = [
    "Absolute",
    "Handle",
    "Metadata",
    "Operator",
    "PathRewriter",
    "Relative",
    "decode",
    "rewrite",
]
