"""The storages by URI scheme: the extension point for another service."""

from __future__ import annotations

import difflib
import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from cpreplicate.core import uri as uris
from cpreplicate.errors import UsageError
from cpreplicate.storage import option_names
from cpreplicate.storage.base import Storage

if TYPE_CHECKING:
    from cpreplicate.storage.sides import Side


class Factory(Protocol):
    """Make the storage of one filesystem, such as `hdfs://dcA`, with the options that hold for it.

    The storage is used as it is: `builtin.remote` adds the rate limits and retries of a side. Raise
    `UsageError` if the options do not suffice.
    """

    def __call__(self, filesystem: str, options: Mapping[str, str], side: Side, /) -> Storage: ...


class _Scheme:
    """The factory of a scheme, and the storages that it made in this process."""

    def __init__(self, factory: Factory) -> None:
        self.factory = factory
        self.storage = functools.cache(self._create)

    def _create(self, filesystem: str, side: Side) -> Storage:
        return self.factory(filesystem, option_names.accepted(filesystem, side), side)


SCHEMES: dict[str, _Scheme] = {}
"""The schemes that have a factory."""


def register(scheme: str, factory: Factory) -> Factory | None:
    """Use a factory for the storages of a scheme, and return the factory that it replaces, if any.

    It is called once a process for each filesystem and side. Executors need the registration too,
    so it belongs in a module that they import, such as `storage/builtin.py`.
    """
    replaced = SCHEMES.get(scheme)
    SCHEMES[scheme] = _Scheme(factory)
    return replaced.factory if replaced is not None else None


def storage(uri: str, side: Side) -> Storage:
    """Return the storage that holds a URI, as a side reaches it.

    Raises `UsageError` for a scheme without a factory, and what the factory raises.
    """
    filesystem = uris.filesystem(uri)
    scheme = filesystem.partition(":")[0]
    if scheme not in SCHEMES:
        similar = difflib.get_close_matches(scheme, SCHEMES, 1)
        hint = f"Did you mean {similar[0]}:? " if similar else ""
        raise UsageError(
            f"{filesystem}: the scheme {scheme}: is not supported. {hint}Supported schemes are"
            f" {', '.join(SCHEMES)}"
        )
    return SCHEMES[scheme].storage(filesystem, side)
