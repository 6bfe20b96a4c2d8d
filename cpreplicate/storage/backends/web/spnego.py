"""How WebHDFS authenticates with Kerberos: SPNEGO, by the package requests-kerberos."""

from __future__ import annotations

import errno
from typing import Any

from cpreplicate.storage.backends.hdfs.kerberos_errors import raised_for_kerberos
from cpreplicate.storage.base import NotAuthenticated

_NEEDED = (
    "WebHDFS with Kerberos needs the package requests-kerberos. Install it here and on every"
    " executor: pip install requests-kerberos, which needs libkrb5-dev, gcc and"
    " python3-dev (Debian, Ubuntu) or krb5-devel, gcc and python3-devel (RHEL); or name the cluster"
    " by hdfs: or give a delegation token as the option token"
)


class Spnego:
    """Authenticates with the ticket of the environment; many threads can use it."""

    def __init__(self, filesystem: str) -> None:
        """Raises `NotAuthenticated` if the package, or the library that it loads, is missing."""
        try:
            import gssapi  # noqa: F401  # which the package imports late only
            import requests_kerberos
        except ImportError as error:
            raise _unusable(error, filesystem) from error
        self._package: Any = requests_kerberos

    def exchange(self) -> Exchange:
        """Return what authenticates one request."""
        return Exchange(self._package)


class Exchange:
    """The authentication of a request: `auth` is what `requests` takes."""

    def __init__(self, package: Any) -> None:
        # an answer to a request that has the server's cookie has no proof of the server, and
        # neither has one of a DataNode
        self.auth = package.HTTPKerberosAuth(mutual_authentication=package.OPTIONAL)
        self._failures: list[str] = []
        self._generate = self.auth.generate_request_header
        self.auth.generate_request_header = self._generated

    def refused(self, uri: str) -> OSError | None:
        """Return what is raised if there was no ticket to send; None if the server refused it."""
        return raised_for_kerberos(self._failures[-1], uri) if self._failures else None

    def _generated(self, *arguments: Any, **others: Any) -> Any:
        """Note a failure, which the package hides behind the 401 that it was to answer."""
        try:
            return self._generate(*arguments, **others)
        except Exception as error:
            self._failures.append(str(error))
            raise


def _unusable(error: ImportError, filesystem: str) -> OSError:
    if "libgssapi" in str(error) or "libkrb5" in str(error):
        return raised_for_kerberos(f"Failed to load libgssapi: {error}", filesystem)
    return NotAuthenticated(errno.EACCES, _NEEDED, filesystem)
