"""Multipart uploads of S3: files that are joined of ranges, and what was never completed.

No listing of objects shows an upload that is not complete.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

_MOST_PARTS = 9_000  # of the 10,000 that S3 takes: a file may be longer than it was thought to be
_CHECKSUM = "ChecksumSHA256"  # which an upload that has it needs at its end


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


class Upload(NamedTuple):
    """An upload, whose parts have so many bytes, but for the last one."""

    id: str
    part: int

    @property
    def text(self) -> str:
        """The upload as other processes are given it."""
        return json.dumps(self)

    @classmethod
    def of(cls, text: str) -> Upload:
        """Return the upload of a text."""
        return cls(*json.loads(text))


def begin(client: Any, path: tuple[str, str], length: int, part: int, most: int) -> Upload | None:
    """Begin an upload of about so many bytes. None if its parts would have more than `most` each.

    `part` is how many they have where these suffice.
    """
    while part * _MOST_PARTS < length:
        part *= 2
    if part > most:
        return None
    bucket, key = path
    answer = client.call_s3("create_multipart_upload", Bucket=bucket, Key=key)
    return Upload(str(answer["UploadId"]), part)


def put_part(
    client: Any, path: tuple[str, str], upload: Upload, number: int, data: bytes
) -> dict[str, Any]:
    """Put a part of an upload, and return what its end needs. It replaces one of this number."""
    bucket, key = path
    answer = client.call_s3(
        "upload_part",
        Bucket=bucket,
        Key=key,
        UploadId=upload.id,
        PartNumber=number,
        Body=data,
    )
    names = [name for name in ("ETag", _CHECKSUM) if name in answer]
    return {"PartNumber": number, **{name: answer[name] for name in names}}


def complete(client: Any, path: tuple[str, str], upload: Upload, receipts: Sequence[str]) -> None:
    """Let an object appear that has the parts of all these receipts, in their order."""
    parts = [part for receipt in receipts for part in json.loads(receipt)]
    bucket, key = path
    client.call_s3(
        "complete_multipart_upload",
        Bucket=bucket,
        Key=key,
        UploadId=upload.id,
        MultipartUpload={"Parts": parts},
    )


def give_up(client: Any, path: tuple[str, str], upload: Upload) -> None:
    """Abort an upload. What is put to it afterwards is refused by the service."""
    bucket, key = path
    client.call_s3("abort_multipart_upload", Bucket=bucket, Key=key, UploadId=upload.id)
