"""The failures of Spark, recognised by the messages of its exceptions.

py4j passes an exception of the JVM as text only. Each pattern has a recorded message as a test.
"""

from __future__ import annotations

import re
from errno import EAGAIN, EDQUOT, EMFILE, ENFILE, ENOMEM, ENOSPC

_DIFFERENT = re.compile(
    r"(?<=Differs: )[^\n]+|\[PYTHON_VERSION_MISMATCH\][^\n]+|ModuleNotFoundError: [^\n]+"
)
# The most specific pattern comes first. The first line of py4j's message only names the call, and
# the second begins with the exception of the JVM.
_REASONS = [
    re.compile(r"Lost task [^\n]*?\): ([^\n]+)"),
    re.compile(r"Job aborted due to stage failure:\s*([^\n]+)"),
    re.compile(r"An error occurred while calling [^\n]*\n: ([^\n]+)"),
    re.compile(r"([^\n]+)"),
]
# A traceback of Python, in which Spark 4.1 and later wrap the exception of a worker: its frames are
# indented, and the exception follows them.
_TRACEBACK = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t][^\n]*\n)+([^\s][^\n]*)")
_CANCELLED = re.compile(r"\bJob \d+ cancelled\b(?! because SparkContext was shut down)")
# What the operating system refused is no mistake. Some of it is what a machine lacks: threads,
# memory, descriptors, room on its disk.
_REFUSED = re.compile(r"can't start new thread|\bMemoryError\b|\[Errno \d+\]")
_LACKS = re.compile(
    r"can't start new thread|\bMemoryError\b"
    rf"|\[Errno ({EAGAIN}|{ENOMEM}|{ENFILE}|{EMFILE}|{ENOSPC}|{EDQUOT})\]"
)
_LACK = (
    ". An executor lacks threads, memory, descriptors or room on its local disk: raise its limits,"
    " or give fewer --streams"
)
_LONGEST_REASON = 300  # characters


class BatchFailed(Exception):
    """Raised in a task so that Spark tries its batch again, on another executor if it can."""


def difference(error: Exception | None) -> str | None:
    """Return how an executor differs from the driver, in one line, or None if it does not.

    Such a failure does not pass, whichever executor tries again.
    """
    match = _DIFFERENT.search(str(error))
    if match is None:
        return None
    line = match[0].strip()
    if "docs/clusters.md" in line:
        return line
    return f"{line}; executors do not run what the driver runs, see docs/clusters.md"


def is_mistake(error: Exception) -> bool:
    """Return whether a mistake in this program ended a job, and not a failure of the machines."""
    text = f"{type(error).__name__}: {error}"
    is_expected = BatchFailed.__name__ in text or difference(error) is not None
    is_refused = _REFUSED.search(reason(error)) is not None
    return "PythonException" in text and not is_expected and not is_refused


def is_cancelled(error: Exception) -> bool:
    """Return whether somebody cancelled the job in Spark, by its pages or a call.

    The messages are those of Spark's `DAGScheduler.handleJobCancellation`, also for stages.
    """
    return _CANCELLED.search(str(error)) is not None


def mistake(error: Exception) -> RuntimeError:
    """Return the error for a mistake in this program: what the worker raised, in one line."""
    return RuntimeError(f"PythonException in a task of Spark: {reason(error)}")


def reason(error: Exception | None) -> str:
    """Return the most specific line of an exception of Spark.

    If a Python worker raised an exception, this is the last line of its last traceback.
    """
    text = str(error)
    tracebacks = _TRACEBACK.findall(text)
    if tracebacks:
        return str(tracebacks[-1]).strip()[:_LONGEST_REASON]
    for pattern in _REASONS:
        match = pattern.search(text)
        if match is not None:
            return match[1].strip()[:_LONGEST_REASON]
    return type(error).__name__


def why_cancelled(error: Exception) -> str:
    """Return in one line that somebody cancelled a job."""
    return (
        "a job of this run was cancelled in Spark, so it was not started again:"
        f" {reason(error)}. What was done is kept"
    )


def why_given_up(error: Exception | None) -> str:
    """Return in one line why Spark gave a job up."""
    found = reason(error)
    lack = _LACK if _LACKS.search(found) else ""
    return difference(error) or f"Spark gave up: {found}{lack}"
