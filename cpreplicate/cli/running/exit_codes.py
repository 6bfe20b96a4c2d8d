"""The exit codes in the help texts of several commands."""

from __future__ import annotations

from collections.abc import Mapping

_UNREACHABLE = {7: "a storage could not be reached within --retry-for"}
RUNNER: Mapping[int, str] = {  # of a command that may use Spark
    7: "a storage could not be reached within --retry-for, or Spark within --engine-timeout"
}
READ: Mapping[int, str] = {
    0: "done",
    2: "usage",
    5: "metadata not understood",
    **_UNREACHABLE,
    10: "not there",
}
REPLICATE: Mapping[int, str] = {
    0: "done, or nothing to do",
    2: "usage",
    3: "some copies failed: not committed, nothing deleted",
    5: "metadata not understood",
    6: "refused for safety",
    **RUNNER,
    10: "the source is not there, or referenced files are missing or too short",
    11: "lease held by another run",
    12: "source moved on; run again to take the newest checkpoint",
}
REPLICA: Mapping[int, str] = {
    0: "done, or nothing to do",
    2: "usage",
    6: "refused for safety",
    **_UNREACHABLE,
    10: "no replica there",
    11: "lease held by another run",
}
STOPPED: Mapping[int, str] = {
    129: "stopped by SIGHUP; run again to resume",
    130: "stopped by SIGINT (Ctrl-C); run again to resume",
    143: "stopped by SIGTERM; run again to resume",
}
