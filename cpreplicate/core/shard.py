"""Shards: parts of the jobs, each of which one service follows."""

from __future__ import annotations

import hashlib
from typing import NamedTuple


class Shard(NamedTuple):
    """One of `shards` parts of all jobs; `number` counts from 1."""

    number: int
    shards: int

    def has(self, name: str) -> bool:
        """Return whether a job is in this shard, by the name of its directory.

        Each name is in exactly one of the shards, on every host and in every release.
        """
        digest = hashlib.blake2b(name.encode(errors="surrogatepass"), digest_size=8).digest()
        return int.from_bytes(digest, "big") % self.shards == self.number - 1

    def __str__(self) -> str:
        return f"{self.number}/{self.shards}"


WHOLE = Shard(1, 1)
