"""The digest of a file: the length and the CRC32C by which it is recognised."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Digest(NamedTuple):
    """Length in bytes, and CRC32C."""

    length: int
    crc32c: int


def digest_of(pieces: Iterable[bytes]) -> Digest:
    """Return the digest of the concatenated pieces."""
    from google_crc32c import extend

    length = crc32c = 0
    for piece in pieces:
        length, crc32c = length + len(piece), extend(crc32c, piece)
    return Digest(length, crc32c)
