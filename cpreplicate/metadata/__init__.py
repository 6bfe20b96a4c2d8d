"""Flink's `_metadata`: decode, and rewrite by splicing. Pure: bytes in, bytes out."""

from cpreplicate.metadata.decoder import decode
from cpreplicate.metadata.model import Handle, Metadata, Operator
from cpreplicate.metadata.rewrite import Absolute, Relative, rewrite

__all__ = ["Absolute", "Handle", "Metadata", "Operator", "Relative", "decode", "rewrite"]
