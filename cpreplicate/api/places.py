"""Places: directories, and how their storages are reached."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from cpreplicate.core import uri
from cpreplicate.protocol.users import user_name
from cpreplicate.storage import Side, locations
from cpreplicate.storage.backends.hdfs.hadoop_conf import read
from cpreplicate.storage.wrappers.limits import Limits

if TYPE_CHECKING:
    from cpreplicate.operations.inspect import Inspection


@dataclass(frozen=True)
class Place:
    """A directory by its URI or local path, and how its storage is reached.

    `options` are those of `--target-conf KEY=VALUE`, and `conf_dir` is a directory with
    `core-site.xml` and `hdfs-site.xml`. No environment variable and no file of options is read.
    `retry_for` is in seconds. `principal` and `keytab` are the user of secure HDFS: both or none.
    """

    url: str
    options: Mapping[str, str] = field(default_factory=dict)
    conf_dir: str | os.PathLike[str] | None = None
    hdfs_client: str = "native"
    retry_for: float = 60.0
    principal: str | None = None
    keytab: str | os.PathLike[str] | None = None

    @property
    def uri(self) -> str:
        """The URI. Raises `UsageError` for one that names no directory, or has a password."""
        return locations.absolute(self.url)

    def side(self, limits: Limits | None = None) -> Side:
        """Return how its storage is reached. Raises `UsageError` for a `conf_dir` without files."""
        found = read(Path(self.conf_dir)) if self.conf_dir is not None else {}
        options = {"hadoop.user.name": user_name(), **found, **self.options}
        return Side(
            options=(("", tuple(options.items())),),
            hdfs_client=self.hdfs_client,
            retry_for=self.retry_for,
            limits=limits or Limits(),
            principal=self.principal,
            keytab=None if self.keytab is None else str(Path(self.keytab).absolute()),
        )


@dataclass(frozen=True)
class Checkpoint(Place):
    """A checkpoint (`…/chk-42`), a job's directory (its newest one) or a savepoint."""

    def inspect(self, remap: Mapping[str, str] | None = None) -> Inspection:
        """Return what the checkpoint holds, as `cpreplicate inspect`."""
        from cpreplicate.operations import inspect  # the command line needs places without it

        return inspect.inspect(self.uri, self.side(), remaps(remap or {}))


def remaps(pairs: Mapping[str, str]) -> tuple[uri.Remap, ...]:
    """Return what recorded paths begin with, and from where they are read, as `--remap`."""
    return locations.remaps(pairs.items())
