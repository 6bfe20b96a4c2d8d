"""Delegation tokens of HDFS, which the file of HADOOP_TOKEN_FILE_LOCATION holds."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from cpreplicate.core import uri as uris

VARIABLE = "HADOOP_TOKEN_FILE_LOCATION"


def named_as_in_tokens(filesystem: str) -> str:
    """Return a filesystem of `host:port` as its delegation token names it: maybe by IP address.

    Hadoop's client resolves the host before it looks for a token, and hdfs-native does not.
    """
    scheme, _, authority = uris.filesystem(filesystem).partition("://")
    host, colon, port = authority.rpartition(":")
    tokens = _tokens() if colon else b""
    if not tokens or authority.encode() in tokens:
        return filesystem
    address = next((each for each in _addresses(host) if f"{each}:{port}".encode() in tokens), None)
    return filesystem if address is None else f"{scheme}://{address}:{port}"


def _tokens() -> bytes:
    """Return the content of the file of tokens: the names of services are plain text in it."""
    try:
        return Path(os.environ[VARIABLE]).read_bytes()
    except (KeyError, OSError):
        return b""


def _addresses(host: str) -> list[str]:
    try:
        found = socket.getaddrinfo(host, None, socket.AF_INET, socket.SOCK_STREAM)
    except OSError:
        return []
    return [str(address[0]) for *_, address in found]
