"""The settings of a bucket of S3 that decide what becomes of deleted objects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from cpreplicate.core.sizes import counted
from cpreplicate.storage.backends.objects.errors import translated_errors
from cpreplicate.storage.statuses import DeletePolicy


def of(client: Any, bucket: str) -> Sequence[DeletePolicy]:
    """Return the settings of a bucket, none for one that forgets what is deleted."""
    settings = [_versioning(client, bucket), _object_lock(client, bucket)]
    return [DeletePolicy(text, True) for text in settings if text]


def _versioning(client: Any, bucket: str) -> str | None:
    status = _setting(client, "get_bucket_versioning", bucket).get("Status")
    if status != "Enabled":
        return None
    rules = _setting(client, "get_bucket_lifecycle_configuration", bucket).get("Rules", ())
    expires = [rule for rule in rules if "NoncurrentVersionExpiration" in rule]
    if expires:
        return (
            f"bucket {bucket} keeps versions of deleted objects;"
            f" {counted(len(expires), 'lifecycle rule expires', 'lifecycle rules expire')} them"
        )
    return f"bucket {bucket} keeps versions of deleted objects, and no lifecycle rule expires them"


def _object_lock(client: Any, bucket: str) -> str | None:
    lock = _setting(client, "get_object_lock_configuration", bucket)
    enabled = lock.get("ObjectLockConfiguration", {}).get("ObjectLockEnabled") == "Enabled"
    return f"bucket {bucket} has an object lock" if enabled else None


def _setting(client: Any, call: str, bucket: str) -> Mapping[str, Any]:
    """Return a setting of a bucket: nothing if it has none, which S3 answers with an error."""
    try:
        with translated_errors(f"s3://{bucket}"):
            return cast(Mapping[str, Any], client.call_s3(call, Bucket=bucket))
    except PermissionError:
        raise
    except OSError:
        return {}
