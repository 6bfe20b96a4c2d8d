"""Places: directories, and how their storages are reached."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from cpreplicate.api import values
from cpreplicate.core import uri
from cpreplicate.errors import UsageError
from cpreplicate.protocol.users import user_name
from cpreplicate.storage import HDFS_CLIENTS, Side, locations
from cpreplicate.storage.backends.hdfs.hadoop_conf import read
from cpreplicate.storage.wrappers.limits import Limits

if TYPE_CHECKING:
    from cpreplicate.operations.inspect import Inspection

AnyPath = str | os.PathLike[str]


@dataclass(frozen=True)
class Place:
    """A directory by its URI or local path, and how its storage is reached.

    `options` are those of `--target-conf KEY=VALUE`, and `conf_dir` is a directory with
    `core-site.xml` and `hdfs-site.xml`. No environment variable and no file of options is read.
    `retry_for` is in seconds, or a text such as `5m`. `principal` and `keytab` are the user of
    secure HDFS: both or none. Raises `UsageError` for a value of a wrong type.
    """

    url: AnyPath
    options: Mapping[str, str] = field(default_factory=dict)
    conf_dir: AnyPath | None = None
    hdfs_client: str = "native"
    retry_for: values.Amount = 60.0
    principal: str | None = None
    keytab: AnyPath | None = None

    def __post_init__(self) -> None:
        """Raise `UsageError` for a value that the command line would refuse."""
        values.path("url", self.url)
        values.texts("options", self.options)
        values.optional(values.path, "conf_dir", self.conf_dir)
        values.word("hdfs_client", self.hdfs_client, *HDFS_CLIENTS)
        values.seconds("retry_for", self.retry_for)
        values.optional(values.text, "principal", self.principal)
        values.optional(values.path, "keytab", self.keytab)
        if (self.keytab is None) is not (self.principal is None):
            raise UsageError(
                "the options principal and keytab of the API are given together: the principal is"
                " the one whose key is in the keytab"
            )

    def __repr__(self) -> str:
        """Return the place without the values of its options, which may be secrets."""
        names = f", options of {', '.join(self.options)}" if self.options else ""
        return f"<{type(self).__name__} {uri.without_password(os.fspath(self.url))}{names}>"

    @property
    def uri(self) -> str:
        """The URI. Raises `UsageError` for one that names no directory, or has a password."""
        return locations.absolute(os.fspath(self.url))

    def side(self, limits: Limits | None = None) -> Side:
        """Return how its storage is reached. Raises `UsageError` for a `conf_dir` without files."""
        found = read(Path(self.conf_dir)) if self.conf_dir is not None else {}
        options = {"hadoop.user.name": user_name(), **found, **self.options}
        return Side(
            options=(("", tuple(options.items())),),
            hdfs_client=self.hdfs_client,
            retry_for=values.seconds("retry_for", self.retry_for),
            limits=limits or Limits(),
            principal=self.principal,
            keytab=values.optional(values.absolute, "keytab", self.keytab),
        )


@dataclass(frozen=True, repr=False)
class Checkpoint(Place):
    """A checkpoint (`…/chk-42`), a job's directory (its newest one) or a savepoint."""

    def inspect(self, remap: Mapping[str, str] | None = None) -> Inspection:
        """Return what the checkpoint holds, as `cpreplicate inspect`."""
        from cpreplicate.operations import inspect  # the command line needs places without it

        return inspect.inspect(self.uri, self.side(), remaps(remap or {}))


AnyPlace = Place | AnyPath


def place_of(name: str, value: object) -> Place:
    """Return a place: the value itself, or the one of its URI or local path.

    Raises `UsageError` for a value of another type.
    """
    if isinstance(value, Place):
        return value
    if isinstance(value, (str, os.PathLike)):
        return Place(values.path(name, value))
    raise values.wrong(name, value, "a Place, a text or a pathlib.Path")


def remaps(pairs: Mapping[str, str]) -> tuple[uri.Remap, ...]:
    """Return what recorded paths begin with, and from where they are read, as `--remap`."""
    return locations.remaps(values.texts("remap", pairs).items())
