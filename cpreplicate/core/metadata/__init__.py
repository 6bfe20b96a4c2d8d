"""Flink's `_metadata`: decode, and rewrite by splicing. Pure: bytes in, bytes out."""

from cpreplicate.core.metadata.decoder import decode
from cpreplicate.core.metadata.model import Handle, Metadata, Operator
from cpreplicate.core.metadata.rewrite import Absolute, Relative, rewrite

__all__ = ["Absolute", "Handle", "Metadata", "Operator", "Relative", "decode", "rewrite"]
