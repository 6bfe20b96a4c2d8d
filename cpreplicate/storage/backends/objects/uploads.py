"""Multipart uploads of S3 that were never completed: no listing of objects shows them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any


def abort(
    client: Any, bucket: str, prefix: str, is_left: Callable[[str, float], bool]
) -> list[str]:
    """Abort the incomplete uploads below a prefix that fit, and return their keys.

    `is_left` gets the key and when the upload began, in seconds since the epoch.
    """
    aborted: list[str] = []
    for upload in _incomplete(client, bucket, prefix):
        if is_left(upload["Key"], upload["Initiated"].timestamp()):
            client.call_s3(
                "abort_multipart_upload",
                Bucket=bucket,
                Key=upload["Key"],
                UploadId=upload["UploadId"],
            )
            aborted.append(upload["Key"])
    return aborted


def _incomplete(client: Any, bucket: str, prefix: str) -> Iterator[dict[str, Any]]:
    """Yield the incomplete uploads below a prefix, a page at a time."""
    marker: dict[str, str] = {}
    while True:
        page = client.call_s3("list_multipart_uploads", Bucket=bucket, Prefix=prefix, **marker)
        yield from page.get("Uploads", ())
        if not page.get("IsTruncated"):
            return
        marker = {
            "KeyMarker": page["NextKeyMarker"],
            "UploadIdMarker": page.get("NextUploadIdMarker", ""),
        }
