"""How files are written where a storage lets one choose."""

from __future__ import annotations

from typing import NamedTuple


class WriteSettings(NamedTuple):
    """For HDFS; None is the cluster's own default. `block_size` in bytes."""

    replication: int | None = None
    block_size: int | None = None
