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

# what a shell makes of a word: `~` at the beginning, a variable, and the output of a command
_HOME = re.compile(r"~[^/]*")
_UNEXPANDED = re.compile(r"\$\w+|.*(\$\{\w[^/]*\}|\$\([^/]*|`).*")
# host:/path of scp and rsync; `host:` without a user would be a scheme
_OF_A_HOST = re.compile(r"[^/]+@[^/:]+:")


def absolute(text: str) -> str:
    """Return the URI that a text means: it is a URI or a local path.

    Raises `UsageError` for one that is neither, and as `refuse_misspelled`.
    """
    refuse_misspelled(text)
    return _resolved(text)


def remaps(pairs: Iterable[tuple[str, str]]) -> tuple[uri.Remap, ...]:
    """Return the remaps of pairs of FROM and TO, as `uri.parse_remaps`.

    Raises `UsageError` also for two names that are no schemes: their writer means directories.
    """
    pairs = tuple(pairs)
    for recorded, actual in pairs:
        if recorded.isalnum() and actual.isalnum() and actual not in STORAGES:
            raise UsageError(
                f"--remap {recorded}={actual} names two schemes, and {actual}: is none that is"
                f" supported. Write ./{recorded}=./{actual} for local paths"
            )
    return uri.parse_remaps(pairs, _resolved)


def _resolved(text: str) -> str:
    """Return the URI that a text means. Only a relative path needs the working directory."""
    try:
        return uri.absolute(text, _working_directory(text) if uri.is_relative(text) else "/")
    except Refused as error:  # which is the word for a path in a checkpoint
        raise UsageError(f"{error}{_instead_of_relative(text)}") from error


def _instead_of_relative(text: str) -> str:
    """Return what to write instead of `file:x` or `hdfs:x`, nothing for another mistake."""
    scheme, _, path = text.partition(":")
    if not path or path.startswith("/"):
        return ""
    if scheme == "file":
        return f". Write {path} for a path below the working directory, else file:/ and the path"
    return f". Write {scheme}://, then the name of the cluster or bucket, and the path in it"


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
    So it would by `~/replicas` or `/data/$JOB` that no shell has expanded, and `user@host:/data`.
    """
    if _PASSWORD.match(text):
        raise UsageError(
            "a URI with a password: it would be in messages, logs and records. Give what the"
            " storage needs with --source-conf or --target-conf. The URI is not shown here"
        )
    _refuse_unexpanded(text)
    if _OF_A_HOST.match(text) and not os.path.lexists(text.partition("/")[0]):
        raise UsageError(
            f"{text} names a host, as for scp. Write a URI such as hdfs://nameservice/path, the"
            f" path of a mount, or ./{text} for a local path"
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


def _refuse_unexpanded(text: str) -> None:
    """Raise `UsageError` for a local path that is not there and has what a shell would expand."""
    is_relative = uri.is_relative(text)
    if (not is_relative and not text.startswith(("/", "file:/"))) or text.startswith("./"):
        return
    path = text.removeprefix("file:")
    parts = path.split("/")
    first = next((number for number, part in enumerate(parts) if part), 0)
    for number, part in enumerate(parts):
        is_home = number == first and _HOME.fullmatch(part)
        if (is_home or _UNEXPANDED.fullmatch(part)) and not os.path.lexists(
            "/".join(parts[: number + 1])
        ):
            named = f"./{text} for" if is_relative else "create"
            raise UsageError(
                f"{text}: no shell has expanded {part}, as in quotes or in a file of options. Write"
                f" the path itself, or {named} a directory of that name"
            )
