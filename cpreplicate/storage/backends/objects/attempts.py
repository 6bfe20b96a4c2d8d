"""How long a call of each fsspec class may take, and that none is tried again within it.

`Retrying` retries. The classes would try each call several times within each of its tries, with
pauses of their own, so that `--retry-for` bounded nothing.
"""

from __future__ import annotations

import base64
import errno
import functools
import zlib
from collections.abc import Awaitable, Callable
from typing import Any

from cpreplicate.storage.base import NoAnswer
from cpreplicate.storage.waiting.bounds import answered, limit

CONNECT_SECONDS = 10.0  # at most, to connect
# bytes a second of an upload that makes so little progress that it is broken off
_SLOWEST = 128 << 10
# these may take long for a large object
_WITHIN_THE_SERVICE = ("copy_object", "upload_part_copy", "complete_multipart_upload")


def bound(filesystem: Any, protocol: str, deadline: float) -> None:
    """Let each call of a filesystem end at its deadline in seconds, without tries of its own."""
    if protocol == "s3":
        _bound_s3(filesystem, deadline)
    elif protocol == "gs":
        _bound_gs(filesystem, deadline)
    elif protocol == "abfs":
        _bound_abfs(filesystem, deadline)


def _bound_s3(filesystem: Any, deadline: float) -> None:
    """botocore's own timeouts do not end a request whose body nobody reads."""
    from fsspec.asyn import sync_wrapper

    filesystem.retries = 1
    call_s3, service = filesystem._call_s3, filesystem.endpoint_url or "of S3"

    async def call(method: str, *arguments: Any, **named: Any) -> Any:
        answer = call_s3(method, *arguments, **named)
        if method in _WITHIN_THE_SERVICE:
            copied = await answer
            answered()
            return copied
        return await _within(answer, named.get("Body"), deadline, service)

    filesystem._call_s3 = call
    filesystem.call_s3 = sync_wrapper(call, obj=filesystem)


def with_checksums_in_headers(filesystem: Any) -> None:
    """Let puts of S3 carry a checksum in front of their content.

    botocore adds none behind it then.
    """
    from fsspec.asyn import sync_wrapper

    call_s3 = filesystem._call_s3

    async def call(method: str, *arguments: Any, **named: Any) -> Any:
        body = named.get("Body")
        if method in ("put_object", "upload_part") and isinstance(body, (bytes, bytearray)):
            checksum = zlib.crc32(body).to_bytes(4, "big")
            named.setdefault("ChecksumCRC32", base64.b64encode(checksum).decode())
        return await call_s3(method, *arguments, **named)

    filesystem._call_s3 = call
    filesystem.call_s3 = sync_wrapper(call, obj=filesystem)


def _bound_gs(filesystem: Any, deadline: float) -> None:
    """Let each request of gcsfs be tried once, within the deadline."""
    retried = getattr(type(filesystem), "_request", None)
    once: Callable[..., Awaitable[Any]] | None = getattr(retried, "__wrapped__", None)
    if once is None:  # another release of gcsfs: its own tries stay
        return
    service = filesystem.base.removesuffix("/storage/v1/")

    @functools.wraps(once)
    async def request(*arguments: Any, **named: Any) -> Any:
        sent = once(filesystem, *arguments, **named)
        return await _within(sent, named.get("data"), deadline, service)

    filesystem._request = request


def _bound_abfs(filesystem: Any, deadline: float) -> None:
    """adlfs makes its client without these settings: make it again with them."""
    from azure.storage.blob.aio import BlobServiceClient

    former = filesystem.service_client
    filesystem.service_client = BlobServiceClient(
        former.url,
        credential=former.credential,
        retry_total=0,
        connection_timeout=min(CONNECT_SECONDS, deadline),
        read_timeout=deadline,
    )


async def _within(answer: Any, sent: object, deadline: float, service: str) -> Any:
    """Await an answer for the time of its deadline, and that which the bytes sent take."""
    import asyncio  # here, because it takes 25 ms that other commands need not spend

    length = len(sent) if isinstance(sent, (bytes, bytearray, memoryview)) else 0
    seconds = limit(deadline) + length / _SLOWEST
    try:
        result = await asyncio.wait_for(answer, seconds)
    except asyncio.TimeoutError:
        raise NoAnswer(
            errno.ETIMEDOUT, f"the service {service} has not answered for {seconds:.3g} s"
        ) from None
    answered()
    return result
