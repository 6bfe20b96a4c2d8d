"""Settings for how a storage writes files."""

from __future__ import annotations

from typing import NamedTuple


class WriteSettings(NamedTuple):
    """Settings for HDFS. None is the default of the cluster; `block_size` is in bytes."""

    replication: int | None = None
    block_size: int | None = None
