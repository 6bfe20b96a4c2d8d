"""The Java of this machine, which Spark and Hadoop's own client need."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess

_LEAST, _LEAST_OF_SPARK_3 = 17, 8  # by Spark's pages "Overview" of 4.0 and of 3.5
_SECONDS = 30.0  # in which `java -version` must answer
_VERSION = re.compile(r'version "(?:1\.)?(\d+)([^"]*)"')


def executable() -> str | None:
    """Return the path of the `java` of JAVA_HOME, else of PATH, or None if there is none."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java", path=f"{home}/bin") if home else shutil.which("java")


def least() -> int:
    """Return the least major version that the installed release of Spark needs."""
    try:
        spark = importlib.metadata.version("pyspark")
    except importlib.metadata.PackageNotFoundError:
        return _LEAST
    return _LEAST_OF_SPARK_3 if spark.startswith("3.") else _LEAST


def version(java: str) -> tuple[int, str] | None:
    """Return the major and the full version that a `java` reports, None if it does not run."""
    try:
        done = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    reported = _VERSION.search(done.stderr + done.stdout)
    return (int(reported[1]), reported[1] + reported[2]) if reported else None
