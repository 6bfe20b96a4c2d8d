"""Which package is the client of a storage."""

from __future__ import annotations

from importlib import metadata

from cpreplicate.storage.backends.objects.clients import PACKAGES, PROTOCOLS

CLIENTS = {  # by the scheme of URIs; `file:` needs none
    **dict.fromkeys(("hdfs", "viewfs"), "hdfs-native"),
    **dict.fromkeys(("webhdfs", "swebhdfs"), "requests"),
    **{scheme: PACKAGES[protocol] for scheme, protocol in PROTOCOLS.items()},
}


def installed(package: str) -> str | None:
    """Return the version of a package of this Python, None if it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
