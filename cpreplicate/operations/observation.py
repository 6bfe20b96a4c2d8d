"""What is known of a job that is replicated: the basis of metrics, of `status` and of probes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from cpreplicate.core.lag import Newest, checkpoints_behind, lag_seconds


@dataclass
class Observation:
    """What a process has seen of a job since it started; times are seconds since the epoch.

    `is_sealed`, `is_lease_held` and `orphan_bytes` are None if nobody looked. `failures` counts
    failed tries by their exit code. `seconds` are spent by phase.
    """

    name: str
    source: str = ""
    replica: str = ""
    priority: int = 0
    source_newest: Newest | None = None
    replica_newest: Newest | None = None
    tries: int = 0
    last_success: float | None = None
    last_error: str | None = None
    last_exit_code: int | None = None
    is_sealed: bool | None = None
    is_lease_held: bool | None = None
    orphan_bytes: int | None = None
    files: Counter[str] = field(default_factory=Counter)
    """By `copied`, `kept` and `deleted`."""
    bytes: Counter[str] = field(default_factory=Counter)
    """As `files`."""
    seconds: Counter[str] = field(default_factory=Counter)
    """By phase, such as `copy`."""
    failures: Counter[int] = field(default_factory=Counter)

    def lag(self, now: float) -> float:
        """Return the lag in seconds, see `lag_seconds`."""
        return lag_seconds(self.source_newest, self.replica_newest, now)

    def behind(self) -> int:
        """Return how many checkpoints the replica is behind."""
        return checkpoints_behind(self.source_newest, self.replica_newest)
