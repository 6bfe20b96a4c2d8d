"""Puts and deletes of object stores that succeed only on a condition.

The lease relies on them, and what `_metadata` replaces and removes.

Each service has its own: `If-None-Match` and `If-Match` with an ETag on S3 and Azure, generations
on Google Cloud Storage. An object has a tag, which changes with its content.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

Tried = Literal["done", "held", "refused"]
"""How a put on a condition ended: it was done, the condition held it up, or it is not known."""

CREATE: dict[str, dict[str, Any]] = {  # options with which a put fails if there is an object
    **{protocol: {"mode": "create"} for protocol in ("s3", "gs", "abfs")},
    "oss": {"headers": {"x-oss-forbid-overwrite": "true"}},
}
_TAGS = {"s3": "ETag", "gs": "generation", "abfs": "etag"}  # names in the status of an object
# Tags that no object has: a put on the condition of one must fail.
_NO_TAG = {"s3": '"00000000000000000000000000000000"', "gs": "1", "abfs": '"0x1"'}
_NAMES = {
    "s3": ("If-None-Match", "If-Match"),
    "gs": ("ifGenerationMatch=0", "ifGenerationMatch"),
    "abfs": ("If-None-Match", "If-Match"),
    "oss": ("x-oss-forbid-overwrite", ""),
}


class Conditions:
    """The conditional puts and deletes of one service, by its fsspec class.

    Paths are `bucket/key`. What is not met raises `FileExistsError` or an exception that is
    translated into it. To replace or delete an object that is gone raises `FileNotFoundError`.
    """

    def __init__(self, filesystem: Any, protocol: str) -> None:
        self._fs, self._protocol = filesystem, protocol
        self.are_left_out = False  # where the service takes none, and that was accepted

    @property
    def has_tags(self) -> bool:
        """Whether objects have tags that change with their content."""
        return self._protocol in _TAGS

    @property
    def can_replace(self) -> bool:
        """Whether an object can be replaced on the condition that it is the one that was seen."""
        return self.has_tags and not self.are_left_out

    def create(self, path: str, data: bytes) -> None:
        """Create an object, unless there is one."""
        self._fs.pipe_file(path, data, **self.of_create(path))

    def of_create(self, path: str) -> dict[str, Any]:
        """Return the options of a put that creates an object.

        Without conditions, `FileExistsError` is raised here if there is one.
        """
        if not self.are_left_out:
            return CREATE[self._protocol]
        try:
            is_object = self._fs.info(path, refresh=True)["type"] != "directory"
        except FileNotFoundError:
            return {}
        if is_object:
            raise FileExistsError(path)
        return {}

    def tag(self, path: str) -> str:
        """Return the tag of an object. Raises `FileNotFoundError`."""
        return str(self._fs.info(path, refresh=True)[_TAGS[self._protocol]])

    def replace(self, path: str, data: bytes, tag: str) -> None:
        """Replace the object of this tag."""
        if self.are_left_out:
            self._fs.pipe_file(path, data)
        else:
            self._replaced(path, data, tag)

    def _replaced(self, path: str, data: bytes, tag: str) -> None:
        replace = {"s3": self._replace_on_s3, "gs": self._replace_on_gs, "abfs": self._replace_blob}
        replace[self._protocol](path, data, tag)

    def delete(self, path: str, tag: str | None) -> None:
        """Delete the object of this tag, or whichever there is if that is None."""
        if tag is None:
            self._fs.rm_file(path)
            return
        delete = {"s3": self._delete_on_s3, "gs": self._delete_on_gs, "abfs": self._delete_blob}
        delete[self._protocol](path, tag)

    def hold(self, file: Any, tag: str) -> None:
        """Let a file that is being written replace only the object of this tag.

        Only on S3: the other classes have no such condition for an upload in parts.
        """
        if self._protocol != "s3":
            return
        call = file._call_s3

        def conditional(method: str, *arguments: Any, **named: Any) -> Any:
            is_last = method in ("put_object", "complete_multipart_upload")
            return call(method, *arguments, **named, **({"IfMatch": tag} if is_last else {}))

        file._call_s3 = conditional

    def lacking(self, path: str, tried: Callable[[Callable[[], None]], Tried]) -> list[str]:
        """Return the conditions that do not hold, by puts to a path of nobody else's.

        A service may ignore one, or refuse a request that has one. On a bucket of S3 with versions,
        it may take an object that was deleted for one that is there.
        """
        of_create, of_replace = _NAMES[self._protocol]
        create = CREATE[self._protocol]
        found = []
        if tried(lambda: self._fs.pipe_file(path, b"first", **create)) == "refused":
            if tried(lambda: self._fs.pipe_file(path, b"first")) != "done":
                return []  # the condition is not to blame
            found.append(of_create)
        elif tried(lambda: self._fs.pipe_file(path, b"second", **create)) != "held":
            found.append(of_create)
        tag = _NO_TAG.get(self._protocol)
        if tag and tried(lambda: self._replaced(path, b"third", tag)) != "held":
            found.append(of_replace)
        if self._protocol == "s3" and of_create not in found:
            tried(lambda: self._fs.rm_file(path))
            if tried(lambda: self._fs.pipe_file(path, b"fourth", **create)) == "held":
                found.append(f"{of_create} where an object was deleted")
        return found

    def _replace_on_s3(self, path: str, data: bytes, tag: str) -> None:
        bucket, _, key = path.partition("/")
        self._fs.call_s3("put_object", Bucket=bucket, Key=key, Body=data, IfMatch=tag)

    def _replace_on_gs(self, path: str, data: bytes, tag: str) -> None:
        """Replace an object of Google Cloud Storage that still has its generation, `tag`."""
        bucket, _, key = path.partition("/")
        service = self._fs.base.removesuffix("storage/v1/")
        self._fs.call(
            "POST",
            f"{service}upload/storage/v1/b/{{}}/o",
            bucket,
            uploadType="media",
            name=key,
            ifGenerationMatch=tag,
            headers={"Content-Type": "application/octet-stream"},
            data=data,
        )

    def _replace_blob(self, path: str, data: bytes, tag: str) -> None:
        from azure.core import MatchConditions
        from fsspec.asyn import sync

        container, _, name = path.partition("/")

        async def upload() -> None:
            async with self._fs.service_client.get_blob_client(container, name) as blob:
                condition = MatchConditions.IfNotModified
                await blob.upload_blob(data, overwrite=True, etag=tag, match_condition=condition)

        sync(self._fs.loop, upload)

    def _delete_on_s3(self, path: str, tag: str) -> None:
        bucket, _, key = path.partition("/")
        self._fs.call_s3("delete_object", Bucket=bucket, Key=key, IfMatch=tag)

    def _delete_on_gs(self, path: str, tag: str) -> None:
        bucket, _, key = path.partition("/")
        self._fs.call("DELETE", "b/{}/o/{}", bucket, key, ifGenerationMatch=tag)

    def _delete_blob(self, path: str, tag: str) -> None:
        from azure.core import MatchConditions
        from fsspec.asyn import sync

        container, _, name = path.partition("/")

        async def delete() -> None:
            async with self._fs.service_client.get_blob_client(container, name) as blob:
                await blob.delete_blob(etag=tag, match_condition=MatchConditions.IfNotModified)

        sync(self._fs.loop, delete)
