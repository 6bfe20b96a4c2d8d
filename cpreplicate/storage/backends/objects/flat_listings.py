"""Listings of all objects whose keys begin alike, in whatever directories: 1,000 or more a call.

The methods of fsspec's classes list whole directories, or ask for more than the listing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

Entry: TypeAlias = Mapping[str, Any]
"""An object as `ls` of its class describes it."""

PROTOCOLS = ("s3", "gs", "abfs")
_OF_GS: Mapping[str, Any] = {
    "fields": "nextPageToken,items(name,size,updated,generation)",
    "maxResults": 1_000,
}


class _Page(NamedTuple):
    """The answer to one call, and what asks for the next one.

    None after the last; empty where the listing goes on and the service does not say how.
    """

    entries: Sequence[Entry]
    token: str | None


def listed(
    client: Any, protocol: str, bucket: str, prefix: str, most: int
) -> Sequence[Entry] | None:
    """Return the objects whose keys begin with a prefix.

    None if they take more calls than `most`, or if the service does not say how its listing goes
    on. `client` is of the class of the protocol. Raises what that raises.
    """
    ask = {"s3": _page_of_s3, "gs": _page_of_gs, "abfs": _page_of_abfs}[protocol]
    entries: list[Entry] = []
    token: str | None = None
    for _ in range(most):
        page = ask(client, bucket, prefix, token)
        entries += page.entries
        token = page.token
        if not token:
            return entries if token is None else None
    return None


def _page_of_s3(client: Any, bucket: str, prefix: str, token: str | None) -> _Page:
    begin = {} if token is None else {"ContinuationToken": token}
    page = client.call_s3("list_objects_v2", Bucket=bucket, Prefix=prefix, **begin, **client.req_kw)
    entries = [
        {**each, "name": f"{bucket}/{each['Key']}", "size": each["Size"], "type": "file"}
        for each in page.get("Contents", ())
    ]
    next_token = page.get("NextContinuationToken", "") if page.get("IsTruncated") else None
    return _Page(entries, next_token)


def _page_of_gs(client: Any, bucket: str, prefix: str, token: str | None) -> _Page:
    begin = {} if token is None else {"pageToken": token}
    page = client.call("GET", "b/{}/o", bucket, prefix=prefix, json_out=True, **_OF_GS, **begin)
    entries = [client._process_object(bucket, each) for each in page.get("items", ())]
    return _Page(entries, page.get("nextPageToken"))


def _page_of_abfs(client: Any, container: str, prefix: str, token: str | None) -> _Page:
    from fsspec.asyn import sync

    async def ask() -> _Page:
        async with client.service_client.get_container_client(container=container) as connected:
            blobs = connected.list_blobs(name_starts_with=prefix, include=["metadata"])
            pages = blobs.by_page(continuation_token=token)
            async for page in pages:
                entries = await client._details([blob async for blob in page])
                return _Page(entries, pages.continuation_token or None)
        return _Page((), None)

    page: _Page = sync(client.loop, ask)
    return page
