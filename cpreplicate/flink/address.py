"""The URL of a JobManager, which may contain a user and a password."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from cpreplicate.errors import UsageError

_SCHEMES = ("http", "https")
_NEVER = frozenset(' \\?"<>\N{REPLACEMENT CHARACTER}')  # in a URL; the last is of no known encoding
Origin = tuple[str, str | None, int]


class JobManagerAddress(NamedTuple):
    """Where a JobManager answers: `url` may be shown, `user` with its password may not."""

    url: str
    user: tuple[bytes, bytes] | None = None


def parse(text: str) -> JobManagerAddress:
    """Return the address that a URL means.

    The user and the password end at the last `@`, so that none of a password is shown, whatever
    characters it has. Raises `UsageError`, without the text: it may be a password.
    """
    scheme, separator, rest = text.strip().partition("://")
    who, at, place = rest.rpartition("@")
    url = f"{scheme.lower()}://{place.partition('#')[0].rstrip('/')}"
    if not separator or not _is_of_http(url):
        raise UsageError(
            "a URL of a JobManager is none: expected http://HOST:PORT or"
            " https://USER:PASSWORD@HOST:PORT. In a path write %40 for @"
        )
    name, _, password = who.partition(":")
    return JobManagerAddress(
        url, (unquote(name).encode(), unquote(password).encode()) if at else None
    )


def origin(url: str) -> Origin:
    """Return the scheme, the host and the port of a URL. Raises `ValueError`."""
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or (443 if parts.scheme == "https" else 80)


def _is_of_http(url: str) -> bool:
    if not url.isprintable() or _NEVER.intersection(url):
        return False
    try:
        scheme, host, _ = origin(url)
    except ValueError:  # its text would show the URL
        return False
    return scheme in _SCHEMES and bool(host)
