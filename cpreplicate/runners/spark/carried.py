"""Functions that bring this package to the executors of a session that belongs to somebody else.

`SparkContext.addPyFile` changes a session for good: each executor that comes later asks the driver
for the file, also for jobs of others (`Executor.updateDependencies`), and a second file of that
name is refused (`NettyStreamManager.addFile`). A broadcast leaves nothing behind.
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable
from typing import Any

from pyspark import Broadcast, SparkContext, cloudpickle


class Carrier:
    """The archive of this package, as a broadcast of a context."""

    def __init__(self, context: SparkContext, archive: bytes) -> None:
        self._name = f"cpreplicate-{hashlib.sha256(archive).hexdigest()[:16]}.zip"
        self._archive = context.broadcast(archive)

    def carried(self, function: Callable[[Any], Any]) -> Callable[[bytes], bytes]:
        """Return a function of pickled values. Its own pickle needs nothing of this package."""
        pickled = cloudpickle.dumps(function)  # type: ignore[no-untyped-call]  # pyspark's own copy
        return _importing(self._archive, self._name, pickled)

    def close(self) -> None:
        """Remove the archive from the driver and from executors."""
        self._archive.destroy()


def _importing(archive: Broadcast[bytes], name: str, pickled: bytes) -> Callable[[bytes], bytes]:
    """Return a task in which the package can be imported; its worker's `sys.path` stays as it was.

    It is defined in here, and imports what it uses: so cloudpickle takes it along by value.
    """

    def task(value: bytes) -> bytes:
        import pickle
        import sys
        import uuid
        from pathlib import Path

        from pyspark import SparkFiles

        directory = Path(SparkFiles.getRootDirectory()).resolve()  # Spark removes it
        path = directory / name
        if not path.exists():
            written = directory / f"{name}.{uuid.uuid4().hex}"
            written.write_bytes(archive.value)
            written.replace(path)  # other workers of this executor look there, too
        sys.path.insert(1, str(path))
        try:
            return pickle.dumps(pickle.loads(pickled)(pickle.loads(value)))
        finally:
            sys.path.remove(str(path))

    return task


def packed(value: Any) -> bytes:
    """Return a value in the form that a carried function takes."""
    return pickle.dumps(value)


def unpacked(value: bytes) -> Any:
    """Return a value from what a carried function returns."""
    return pickle.loads(value)
