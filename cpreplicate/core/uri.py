"""URIs as text: what Flink's `Path` makes of a recorded path, without its filesystems.

A URI is spelled as `org.apache.flink.core.fs.Path.toString` prints it: `file:/a/b` (no authority),
`hdfs://ns/a/b`. Paths are literal. Nothing is percent-encoded or decoded, because Flink records
them unescaped.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from cpreplicate.errors import Refused, UsageError

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
# A file name that `resolve` leaves as it is in any directory, and that percent-decoding leaves as
# it is too. Without backtracking, so that RE2 reads it alike.
PLAIN_NAME = r"[A-Za-z0-9_-][A-Za-z0-9_.-]*"
plain_name = re.compile(PLAIN_NAME).fullmatch
_REPEATED_SLASH = re.compile(r"/{2,}")
# Behind a host comes a port, not a password. A secret may have slashes, before its first `@`.
_PORT = r"(?![^\s/:@\[]*:\d*(?:[/\s,;'\")\]]|$))"
_PASSWORD = re.compile(rf"://{_PORT}[^\s/:@\[]*:(?:[^/\s]*@|[^\s@]*@)")
_JAVA_WHITESPACE = "".join(map(chr, range(0x21)))  # what String.trim removes


class Remap(NamedTuple):
    """Files recorded under the prefix `recorded` are read from `actual`."""

    recorded: str
    actual: str


def resolve(text: str, base: str) -> str:
    """Return the URI that Flink means by a path recorded in a `_metadata` in the directory `base`.

    A path without a scheme is relative to `base`. If it begins with `/`, it is on the filesystem
    of `base`: Flink would use the default filesystem, which this tool never consults. Raises
    `Refused` if the path names no file.
    """
    text = text.strip(_JAVA_WHITESPACE)
    if _SCHEME.match(text):
        filesystem, path = _split(text)
    else:
        filesystem, base_path = _split(base)
        path = text if text.startswith("/") else f"{base_path}/{text}"
    return filesystem + _normalise(path, text)


def absolute(text: str, working_directory: str) -> str:
    """Return the URI that a user means by an argument, which is a URI or a local path."""
    if not text.strip(_JAVA_WHITESPACE):
        raise UsageError("an empty path was given. Name a directory or a URI")
    return resolve(text, "file:" + working_directory)


def is_relative(text: str) -> bool:
    """Return whether `absolute` would add its working directory to a text."""
    text = text.strip(_JAVA_WHITESPACE)
    return not text.startswith("/") and _SCHEME.match(text) is None


def join(base: str, relative: str) -> str:
    """Return the URI of the normalised path `relative` below `base`."""
    return f"{base}/{relative}" if not base.endswith("/") else base + relative


def parent(uri: str) -> str:
    """Return the directory of a URI."""
    return uri.rpartition("/")[0]


def upwards(uri: str) -> Iterator[str]:
    """Yield a URI and the directories that it is in, without the root of its filesystem."""
    while local_path(uri).strip("/"):
        yield uri
        uri = parent(uri)


def directories(uris: Iterable[str]) -> set[str]:
    """Return the directories of some URIs."""
    return {uri.rpartition("/")[0] for uri in uris}


def name(uri: str) -> str:
    """Return the last component of a URI."""
    return uri.rpartition("/")[2]


def filesystem(uri: str) -> str:
    """Return the scheme and authority of a URI: `file:`, `hdfs://ns`."""
    return _split(uri)[0]


def local_path(uri: str) -> str:
    """Return the path part of a URI."""
    return _split(uri)[1]


def without_password(text: str) -> str:
    """Return a text without the users of its URIs that have a password, and without those.

    A user without one stays: `abfss://container@account` names a container.
    """
    return _PASSWORD.sub("://", text)


def below(uri: str, root: str) -> str | None:
    """Return the path of `uri` relative to `root`, or None if it is not below `root`."""
    prefix = root if root.endswith("/") else root + "/"
    return uri[len(prefix) :] if uri.startswith(prefix) and len(uri) > len(prefix) else None


def within(uri: str, root: str) -> bool:
    """Return whether a URI is below a root.

    The root is a directory, a filesystem (`hdfs://ns`, `hdfs:/`) or a whole scheme (`s3:`).
    """
    if root.endswith(":/"):  # the filesystem that has no authority, and no other
        return uri.startswith(root) and not uri.startswith(f"{root}/")
    return uri.startswith(root) if root.endswith(":") else below(uri, root) is not None


def remap(uri: str, remaps: Sequence[Remap]) -> str:
    """Return the URI from which a recorded file is read.

    The first remap whose prefix, a directory or a scheme, fits applies. `parse_remaps` puts the
    longest prefix first.
    """
    for recorded, actual in remaps:
        if _prefixes(recorded, uri):
            return actual + uri[len(recorded) :]
    return uri


def remap_pair(text: str) -> tuple[str, str]:
    """Return FROM and TO of `FROM=TO`, in which FROM ends before the first `=`."""
    recorded, _, actual = text.partition("=")
    if not (recorded and actual):
        raise UsageError(f"--remap {text}: expected FROM=TO, as in hdfs://old=hdfs://new")
    return recorded, actual


def parse_remaps(
    pairs: Iterable[tuple[str, str]], resolved: Callable[[str], str]
) -> tuple[Remap, ...]:
    """Return the remaps of pairs of FROM and TO, the longest FROM first.

    A bare scheme (`s3a` and `s3`) maps a whole scheme. `resolved` returns the URI that a text
    means, as `absolute` does for one working directory.
    """
    remaps = []
    for recorded, actual in pairs:
        if recorded.isalnum() and actual.isalnum():
            remaps.append(Remap(recorded + ":", actual + ":"))
        else:
            remaps.append(Remap(resolved(recorded).rstrip("/"), resolved(actual).rstrip("/")))
    return tuple(sorted(remaps, key=lambda mapping: -len(mapping.recorded)))


def _prefixes(recorded: str, uri: str) -> bool:
    return uri.startswith(recorded) and (
        recorded.endswith(":") or uri.startswith("/", len(recorded))
    )


def _split(uri: str) -> tuple[str, str]:
    """Return (`scheme:` or `scheme://authority`, path)."""
    scheme, _, rest = uri.partition(":")
    if not rest.startswith("//"):
        return scheme + ":", rest
    authority, slash, path = rest[2:].partition("/")
    return (f"{scheme}://{authority}" if authority else scheme + ":"), slash + path


def _normalise(path: str, text: str) -> str:
    """Return a path with single slashes, without `.`, `..` or a trailing slash.

    It is what `Path.normalizePath` and `URI.normalize` make of it.
    """
    if "\0" in path or not _encodable(path):
        raise Refused(
            f"{text!r} names no file that a filesystem could hold. The reference is damaged or"
            " hostile"
        )
    if "\\" in path:
        path = path.replace("\\", "/")
    if "//" in path:
        path = _REPEATED_SLASH.sub("/", path)
    if "/." in path:
        path = _without_dots(path, text)
    if path and not path.startswith("/"):
        raise Refused(f"{text!r} is a relative path behind a scheme. Flink rejects it too")
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
