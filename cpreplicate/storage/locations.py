"""What people write for a place: a URI or a local path."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from cpreplicate.core import uri
from cpreplicate.errors import Refused, UsageError
from cpreplicate.storage.sides import STORAGES

# of a user, at the beginning of a URI; a secret key may hold `/`, and a path with `@` follow a port
_PASSWORD = re.compile(r"[^:/@]*://[^:/@]*:(?!\d+/)[^@]*@")

# what a shell makes of a word, at the beginning of a path
_UNEXPANDED = re.compile(r"~[^/]*|\$(\w+|\{[^/]*\})")


def absolute(text: str) -> str:
    """Return the URI that a text means: it is a URI or a local path.

    Raises `UsageError` for one that is neither, and as `refuse_misspelled`.
    """
    refuse_misspelled(text)
    return _resolved(text)


def remaps(pairs: Iterable[tuple[str, str]]) -> tuple[uri.Remap, ...]:
    """Return the remaps of pairs of FROM and TO, as `uri.parse_remaps`."""
    return uri.parse_remaps(pairs, _resolved)


def _resolved(text: str) -> str:
    """Return the URI that a text means. Only a relative path needs the working directory."""
    try:
        return uri.absolute(text, _working_directory(text) if uri.is_relative(text) else "/")
    except Refused as error:  # which is the word for a path in a checkpoint
        raise UsageError(str(error)) from error


def _working_directory(text: str) -> str:
    try:
        return str(Path.cwd())
    except FileNotFoundError as error:
        raise UsageError(
            f"{text!r} is below the working directory, which was removed. Change to another"
            " directory, or give an absolute path"
        ) from error


def refuse_misspelled(text: str) -> None:
    """Raise `UsageError` for a text that means another place than its writer thinks.

    It is one with a password, or one like `hdfs//dcB/replicas`, or `file://data/replicas`, whose
    first directory is the name of a host: a replica would be written to another place, unnoticed.
    So it would by `~/replicas` or `$HOME/replicas` that no shell has expanded.
    """
    if _PASSWORD.match(text):
        raise UsageError(
            "a URI with a password: it would be in messages, logs and records. Give what the"
            " storage needs with --source-conf or --target-conf. The URI is not shown here"
        )
    unexpanded = _UNEXPANDED.match(text)
    if unexpanded is not None and not os.path.lexists(unexpanded[0]):
        raise UsageError(
            f"{text}: no shell has expanded {unexpanded[0]}, as in quotes or in a file of options."
            f" Write the path itself, or ./{text} for a directory of that name"
        )
    scheme = text.partition("//")[0]
    if scheme in STORAGES and not Path(scheme).exists():
        rest = text.removeprefix(scheme)
        raise UsageError(
            f"{text} has no colon behind its scheme. Write {scheme}:{rest}, or ./{text} for a"
            " local path"
        )
    if text.startswith("file://") and text[7:8] != "/":
        host, _, path = text[7:].partition("/")
        raise UsageError(
            f"{text} names the host {host} and the path /{path}. Write file:///{host}/{path}, with"
            " three slashes, for a local path"
        )
