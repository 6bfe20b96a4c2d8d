"""Which runner executes a plan."""

from __future__ import annotations

from cpreplicate.runners.base import Runner
from cpreplicate.runners.inline import InlineRunner
from cpreplicate.storage import Sites

_LITTLE_FILES = 256
_LITTLE_BYTES = 64 << 20  # a Spark session costs about six seconds to start; this much is copied in less by one process


def choose_runner(kind: str, files: int, size: int, sites: Sites, master: str | None, parallelism: int | None) -> Runner:
    """The runner for a plan of `files` copies and deletes and `size` bytes; `kind` is `auto`, `spark` or `inline`.

    Only where Spark is chosen is pyspark imported.
    """
    if kind == "inline":
        return InlineRunner(sites, parallelism)
    if kind == "auto" and files <= _LITTLE_FILES and size <= _LITTLE_BYTES:
        return InlineRunner(sites, parallelism, f"auto: {files} files, {size} bytes are not worth starting Spark")
    from cpreplicate.runners.spark import SparkRunner

    reason = "asked for" if kind == "spark" else f"auto: {files} files, {size} bytes"
    return SparkRunner(sites, master, parallelism, reason)
