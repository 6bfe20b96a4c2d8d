"""Places as text: what Flink's `Path` makes of a recorded path, without its filesystems.

A place is a URI spelled as `org.apache.flink.core.fs.Path.toString` prints it: `file:/a/b` (no
authority), `hdfs://ns/a/b`. Paths are literal: nothing is percent-encoded or decoded, as Flink
records them unescaped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from cpreplicate.errors import Refused, UsageError

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
# Matches a file's name that `resolve` leaves as it is, whatever the directory, and that hides no
# step.
plain_name = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*").fullmatch
_REPEATED_SLASH = re.compile(r"/{2,}")
_JAVA_WHITESPACE = "".join(map(chr, range(0x21)))  # what String.trim removes


class Remap(NamedTuple):
    """Files recorded under the prefix `recorded` are read from `actual`."""

    recorded: str
    actual: str


def resolve(text: str, base: str) -> str:
    """The place that Flink means by a recorded path in a `_metadata` whose directory is `base`.

    A path without scheme is relative to `base`, or, if it begins with `/`, lies on the filesystem
    of `base`: Flink would ask the default filesystem, which this tool never consults. Raises
    `Refused` for what names no place.
    """
    text = text.strip(_JAVA_WHITESPACE)
    if _SCHEME.match(text):
        filesystem, path = _split(text)
    else:
        filesystem, base_path = _split(base)
        path = text if text.startswith("/") else f"{base_path}/{text}"
    return filesystem + _normalise(path, text)


def absolute(text: str, working_directory: str) -> str:
    """The place that a user means by an argument: a URI, or a local path."""
    if not text:
        raise UsageError("an empty path was given; name a directory or a URI")
    return resolve(text, "file:" + working_directory)


def join(base: str, relative: str) -> str:
    """`relative`, already normalised, below `base`."""
    return f"{base}/{relative}" if not base.endswith("/") else base + relative


def parent(uri: str) -> str:
    """The directory of a place."""
    return uri.rpartition("/")[0]


def upwards(uri: str) -> Iterator[str]:
    """Yield a place and the directories that it lies in, without the root of its filesystem."""
    while local_path(uri).strip("/"):
        yield uri
        uri = parent(uri)


def directories(places: Iterable[str]) -> set[str]:
    """The directories of some places."""
    return {place.rpartition("/")[0] for place in places}


def name(uri: str) -> str:
    """The last component of a place."""
    return uri.rpartition("/")[2]


def filesystem(uri: str) -> str:
    """Scheme and authority: `file:`, `hdfs://ns`."""
    return _split(uri)[0]


def local_path(uri: str) -> str:
    """The path part of a place."""
    return _split(uri)[1]


def below(uri: str, root: str) -> str | None:
    """The path of `uri` relative to `root`, or None where it is not below it."""
    prefix = root if root.endswith("/") else root + "/"
    return uri[len(prefix) :] if uri.startswith(prefix) and len(uri) > len(prefix) else None


def within(uri: str, root: str) -> bool:
    """Whether a place lies below a root: a directory, a filesystem (`hdfs://ns`, `file:`) or a
    whole scheme (`s3:`).
    """
    return uri.startswith(root) if root.endswith(":") else below(uri, root) is not None


def quoted(text: str) -> str:
    """A word as a shell reads it."""
    return (
        text
        if all(c.isalnum() or c in "/:._-=@%+," for c in text)
        else "'" + text.replace("'", "'\\''") + "'"
    )


def remap(uri: str, remaps: Sequence[Remap]) -> str:
    """Where a recorded file is read from.

    The longest prefix, a directory or a scheme, that fits wins.
    """
    for recorded, actual in remaps:
        if _prefixes(recorded, uri):
            return actual + uri[len(recorded) :]
    return uri


def parse_remaps(texts: Iterable[str], working_directory: str) -> tuple[Remap, ...]:
    """`FROM=TO` options, longest FROM first. A bare scheme (`s3a=s3`) maps a whole scheme."""
    remaps = []
    for text in texts:
        recorded, equals, actual = text.partition("=")
        if not (equals and recorded and actual):
            raise UsageError(f"--remap {text}: expected FROM=TO, as in hdfs://old=hdfs://new")
        if recorded.isalnum() and actual.isalnum():
            remaps.append(Remap(recorded + ":", actual + ":"))
        else:
            remaps.append(
                Remap(_prefix(recorded, working_directory), _prefix(actual, working_directory))
            )
    return tuple(sorted(remaps, key=lambda each: -len(each.recorded)))


def _prefix(text: str, working_directory: str) -> str:
    return absolute(text, working_directory).rstrip("/")


def _prefixes(recorded: str, uri: str) -> bool:
    return uri.startswith(recorded) and (
        recorded.endswith(":") or uri.startswith("/", len(recorded))
    )


def _split(uri: str) -> tuple[str, str]:
    """(`scheme:` or `scheme://authority`, path)."""
    scheme, _, rest = uri.partition(":")
    if not rest.startswith("//"):
        return scheme + ":", rest
    authority, slash, path = rest[2:].partition("/")
    return (f"{scheme}://{authority}" if authority else scheme + ":"), slash + path


def _normalise(path: str, text: str) -> str:
    """`Path.normalizePath` and `URI.normalize`: one slash, no `.` or `..`, no trailing slash."""
    if "\0" in path or not _encodable(path):
        raise Refused(
            f"{text!r} names no file that a filesystem could hold; the reference is damaged or"
            " hostile"
        )
    if "\\" in path:
        path = path.replace("\\", "/")
    if "//" in path:
        path = _REPEATED_SLASH.sub("/", path)
    if "/." in path:
        path = _without_dots(path, text)
    if path and not path.startswith("/"):
        raise Refused(f"{text!r} is a relative path behind a scheme; Flink rejects it too")
    return path.rstrip("/") or "/"


def _without_dots(path: str, text: str) -> str:
    kept: list[str] = []
    for part in path.split("/")[1:]:
        if part == "..":
            if not kept:
                raise Refused(f"{text!r} climbs above the root of its filesystem")
            kept.pop()
        elif part != ".":
            kept.append(part)
    return "/" + "/".join(kept)


def _encodable(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True
