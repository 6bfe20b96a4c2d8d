"""Puts of small objects to S3 by obstore, with a quarter of the CPU that s3fs takes (ADR 0009).

obstore has a short way only: what it refuses, for whatever reason, is put by s3fs, whose errors are
those of `Storage`. So there is one client that decides what an answer means.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping
from typing import Any

from cpreplicate.storage.backends.objects import s3_options

# the options that both clients understand in the same way; with any other one, s3fs puts alone
_SHARED = {"key", "secret", "token", "endpoint_url", "region", *s3_options.OWN}
_SLOWEST = 128 << 10  # bytes a second: larger objects may take longer than the deadline
_FAILURES = 3  # in a row: then it is not tried again
_BUCKET = re.compile("[A-Za-z0-9._-]+")
_REGION = "us-east-1"  # botocore signs for it if an endpoint is given, and no region


class QuickPuts:
    """Puts objects of one bucket, as long as that works."""

    def __init__(self, bucket: str, options: Mapping[str, str], deadline: float) -> None:
        """`options` are those of s3fs, `deadline` is in seconds."""
        self._largest = int(deadline * _SLOWEST)
        self._lock = threading.Lock()
        self._failures = 0
        self._store = _store(bucket, options, deadline)

    def put(self, key: str, data: bytes) -> bool:
        """Put an object, replacing one that is there. Return False if s3fs has to do it."""
        if self._store is None or len(data) > self._largest or self._failures >= _FAILURES:
            return False
        import obstore

        try:
            obstore.put(self._store, key, data, use_multipart=False)
        except Exception:  # noqa: BLE001  # s3fs tries the same, and raises what is to be raised
            with self._lock:
                self._failures += 1
            return False
        self._failures = 0
        return True


def _store(bucket: str, options: Mapping[str, str], deadline: float) -> Any | None:
    """Return a client for a bucket, None if obstore is not installed or cannot be as s3fs is.

    Credentials that botocore would look for in profiles and roles are left to it.
    """
    has_keys = {"key", "secret"} <= options.keys()
    has_place = bool({"endpoint_url", "region"} & options.keys())
    is_known = options.keys() <= _SHARED and has_keys and has_place
    # obstore ends with a panic where a value cannot be in a header, or a bucket in a URL
    is_sound = all(each.isascii() and each.isprintable() for each in options.values())
    if not (is_known and is_sound and _BUCKET.fullmatch(bucket)):
        return None
    try:
        from obstore.store import S3Store
    except ImportError:
        return None
    try:
        config = _config(options)
        return config and S3Store(
            bucket,
            config=config,
            client_options={"allow_http": True, "timeout": f"{deadline:g} seconds"},
            retry_config={"max_retries": 0},
        )
    except Exception:  # noqa: BLE001  # s3fs explains what is wrong with an option
        return None


def _config(options: Mapping[str, str]) -> Any:
    """Return the options of s3fs by the names of obstore, None if it lacks one."""
    config = s3_options.of_obstore(options)
    if config is None:
        return None
    config |= {
        "access_key_id": options["key"],
        "secret_access_key": options["secret"],
        "region": options.get("region", _REGION),
    }
    if token := options.get("token"):
        config["session_token"] = token
    if endpoint := options.get("endpoint_url"):
        config["endpoint"] = endpoint
    return config
