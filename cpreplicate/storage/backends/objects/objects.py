"""Storage of object stores, through their fsspec classes.

The schemes are `s3:` (also recorded as `s3a:`, `s3n:`, `s3p:`), `gs:`, `abfs:` and `oss:`. A put is
one request, or a multipart upload that is completed at its end and aborted on error. So no partial
file ever appears. There is no rename, so a lease is taken by conditional puts. Directories are
prefixes: they are never created and never left empty.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import functools
import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from email.utils import parsedate_to_datetime
from itertools import chain
from typing import Any, BinaryIO, TypeVar, cast

from cpreplicate.core import uri as uris
from cpreplicate.core.sizes import counted
from cpreplicate.errors import Refused, UsageError
from cpreplicate.storage.backends.objects import flat_listings, s3_options
from cpreplicate.storage.backends.objects import policies as object_policies
from cpreplicate.storage.backends.objects import uploads as object_uploads
from cpreplicate.storage.backends.objects.clients import PROTOCOLS, client, own_options
from cpreplicate.storage.backends.objects.conditions import Conditions, Tried
from cpreplicate.storage.backends.objects.errors import NO_UPLOAD, code_of, translated_errors
from cpreplicate.storage.backends.objects.fences import raised_if_overtaken, tag_of, withdrawn
from cpreplicate.storage.backends.objects.quick_puts import QuickPuts
from cpreplicate.storage.backends.objects.uploads import Upload
from cpreplicate.storage.base import (
    CHUNK,
    RANGE,
    TEMPORARY,
    Content,
    NoBucket,
    SourceMissing,
    Storage,
    Transient,
    refuse_unusable,
)
from cpreplicate.storage.statuses import Attributes, DeletePolicy, FileStatus
from cpreplicate.storage.waiting.deadlines import DEFAULT

T = TypeVar("T")
# s3fs and adlfs take what follows for the version of an object, also where versions are off
_UNUSABLE = {"s3": "?versionId=", "abfs": "?versionid="}
_PART = 16 << 20  # bytes of one request; 10,000 parts, S3's limit, make a file of 160 GiB
# Seconds between two pieces of the answer to a copy: AWS sends a space now and then while it
# copies, and not every service does.
_COPY_SECONDS = 60.0
_NO_SUCH_RANGE = "InvalidRange"  # an offset at or behind the end
# each class has a name of its own for these; objects of gs: have an ETag, too
_TIMES = ("LastModified", "mtime", "last_modified", "updated")
_TAGS = ("generation", "ETag", "etag")


class ObjectStorage(Storage):
    """One bucket or container. A put is atomic, and durable once the service has answered."""

    streams = 32
    has_directories = False
    needs_conditions = True

    def __init__(
        self,
        filesystem: str,
        options: Mapping[str, str],
        deadline: float = DEFAULT,
        unsafe_lease: bool = False,
    ) -> None:
        """`deadline` is in seconds; it holds for S3.

        `unsafe_lease`: a service is used without conditions that takes none.
        """
        if "://" not in filesystem:
            raise UsageError(f"{filesystem}/… names no bucket. Write {filesystem}//bucket/…")
        self._protocol = PROTOCOLS[filesystem.partition(":")[0]]
        self._bucket = _bucket(f"{filesystem}/")
        self._own = own_options(self._protocol, options, filesystem.partition("://")[2])
        self._deadline, self._unsafe_lease = deadline, unsafe_lease
        self._fs = client(self._protocol, self._own, deadline)
        self._conditions = Conditions(self._fs, self._protocol)
        self.copies_within = self.keeps_uploads = self.joins = self._protocol == "s3"
        self.unusable = _UNUSABLE.get(self._protocol)

    @functools.cached_property
    def _copier(self) -> Any:
        """A client that waits longer between two pieces of an answer, for copies in the service."""
        if self._protocol != "s3":
            return self._fs
        return client("s3", self._own, max(self._deadline, _COPY_SECONDS))

    @functools.cached_property
    def _quick_puts(self) -> QuickPuts | None:
        if self._protocol != "s3":
            return None
        return QuickPuts(self._bucket, self._own, self._deadline)

    def open(self, uri: str) -> BinaryIO:
        with translated_errors(uri):
            file = self._fs.open(_path(uri), "rb", block_size=CHUNK, cache_type="readahead")
        return cast(BinaryIO, _TranslatingFile(file, uri))

    def read(self, uri: str, offset: int = 0, count: int | None = None) -> bytes:
        """Ask S3 for a known count by one request: to open a file asks for its length first, and
        for what is below it where there is none.
        """
        if self._protocol != "s3" or count is None:
            return super().read(uri, offset, count)
        with translated_errors(uri):
            try:
                data = self._fs.cat_file(_path(uri), start=offset, end=offset + count)
            except Exception as error:  # of several classes: it is known by the service's code
                if code_of(error) != _NO_SUCH_RANGE:
                    raise
                return b""
        return bytes(data[:count])  # a service may leave a range aside

    def stat(self, uri: str) -> FileStatus | None:
        try:
            with translated_errors(uri):
                status = _status(uri, self._fs.info(_path(uri), refresh=True))
        except NoBucket:
            raise
        except FileNotFoundError:
            return None
        except PermissionError as error:
            return self._above_rights(uri, error)
        # an empty object may stand for a directory, as in a container of Azure that other tools use
        may_be_marker = not status.is_directory and not status.length
        is_marker = may_be_marker and bool(self.list(uri))
        return status._replace(is_directory=True) if is_marker else status

    def _above_rights(self, uri: str, error: PermissionError) -> FileStatus | None:
        """Return the status of a URI whose object may not be looked at, if what is below may be.

        S3 answers 403 for what is not there where the user may not list. Rights may begin below a
        directory. An object that is there, and may not be read, is an error.
        """
        bucket, _, key = _path(uri).partition("/")
        if self._protocol != "s3":
            raise error
        try:
            page = self._page(bucket, key)
        except PermissionError:
            page = {}
        if any(each["Key"] == key for each in page.get("Contents", ())):
            raise error
        return FileStatus(uri, uris.name(uri), 0, True, 0.0) if self.list(uri) else None

    def _page(self, bucket: str, prefix: str) -> Mapping[str, Any]:
        """Return the answer to a listing of one key below a prefix."""
        with translated_errors(f"s3://{bucket}/{prefix}"):
            answer = self._fs.call_s3("list_objects_v2", Bucket=bucket, Prefix=prefix, MaxKeys=1)
        return cast(Mapping[str, Any], answer)

    def list(self, uri: str) -> list[FileStatus]:
        path = _path(uri)
        try:
            with translated_errors(uri):
                objects = self._listed(path)
        except NoBucket:
            raise
        except FileNotFoundError:
            return []
        # some tools leave an object for a directory
        names = [entry["name"].rstrip("/") for entry in objects]
        return _without_markers(
            _status(uris.join(uri, uris.name(name)), entry)
            for name, entry in zip(names, objects, strict=True)
            if name != path
        )

    def _listed(self, path: str) -> Sequence[Mapping[str, Any]]:
        """List a directory; s3fs's `ls` would list the one above, too, where nothing is there."""
        if self._protocol != "s3":
            return cast(Sequence[Mapping[str, Any]], self._fs.ls(path, detail=True, refresh=True))
        from fsspec.asyn import sync

        found = sync(self._fs.loop, self._fs._lsdir, path, refresh=True)
        return cast(Sequence[Mapping[str, Any]], found)

    def files_named(
        self, uri: str, prefix: str, name: str, most: int
    ) -> Mapping[str, FileStatus] | None:
        """List all keys that begin with the prefix: those of one name are between the others."""
        if self._protocol not in flat_listings.PROTOCOLS:
            return None
        bucket, key = _bucket_and_key(uri)
        begin = f"{key}/{prefix}"
        with translated_errors(uri):
            entries = flat_listings.listed(self._fs, self._protocol, bucket, begin, most)
        if entries is None:
            return None
        found = (_named(entry["name"], f"{bucket}/{key}/", name) for entry in entries)
        return {
            directory: _status(uris.join(uri, f"{directory}/{name}"), entry)
            for directory, entry in zip(found, entries, strict=True)
            if directory is not None and entry["type"] != "directory"
        }

    def put(
        self,
        uri: str,
        content: Content,
        expect: Callable[[int], None] | None = None,
        attributes: Attributes | None = None,  # noqa: ARG002  # objects have no permission bits
        replace: bool = True,
    ) -> int:
        if replace:
            return self._put(uri, content, expect, replace)
        return self._conditional(uri, lambda: self._put(uri, content, expect, replace))

    def _put(
        self, uri: str, content: Content, expect: Callable[[int], None] | None, replace: bool
    ) -> int:
        head, rest = _first(content(), _PART)
        if rest is None:
            if expect is not None:
                expect(len(head))
            if not (replace and self._is_put(uri, head)):
                with translated_errors(uri, is_write=True):
                    condition = {} if replace else self._conditions.of_create(_path(uri))
                    self._fs.pipe_file(_path(uri), head, **condition)
            return len(head)
        return self._upload(uri, chain([head], rest), expect, replace)

    def _is_put(self, uri: str, data: bytes) -> bool:
        """Return whether an object was put without s3fs."""
        _, _, key = _path(uri).partition("/")
        return self._quick_puts is not None and self._quick_puts.put(key, data)

    def publish(
        self, uri: str, content: Content, check: Callable[[int], None], replace: bool
    ) -> int:
        """Write an object on condition that it is the one that was there before `check`."""
        return self._conditional(uri, lambda: self._published(uri, content, check, replace))

    def _published(
        self, uri: str, content: Content, check: Callable[[int], None], replace: bool
    ) -> int:
        tag = tag_of(self._conditions, uri, _path(uri)) if replace else None
        if tag is None:
            return self.put(uri, content, check, None, replace and not self._conditions.can_replace)
        head, rest = _first(content(), _PART)
        with raised_if_overtaken(uri, lambda: check(len(head))):
            if rest is not None:
                return self._upload(uri, chain([head], rest), check, True, tag)
            check(len(head))
            with translated_errors(uri):
                self._conditions.replace(_path(uri), head, tag)
        return len(head)

    def withdraw(
        self, uri: str, aside: str, check: Callable[[], None], keeps_aside: bool = False
    ) -> bool:
        if not self._conditions.can_replace:
            return super().withdraw(uri, aside, check, keeps_aside)
        return withdrawn(self._conditions, uri, _path(uri), check)

    def _upload(
        self,
        uri: str,
        chunks: Iterable[bytes],
        expect: Callable[[int], None] | None,
        replace: bool,
        tag: str | None = None,
    ) -> int:
        """Write an object, and return its length; `expect` gets it before the object appears.

        With a `tag`, the object is replaced only if it still has that. If anything raises, nothing
        appears.
        """
        with translated_errors(uri, is_write=True):
            is_plain = replace or not self._conditions.of_create(_path(uri))
            mode = "wb" if is_plain else "xb"
            file = self._fs.open(_path(uri), mode, block_size=_PART)
        if tag is not None:
            self._conditions.hold(file, tag)
        try:
            for chunk in chunks:  # outside: an error of the source must not name this file
                with translated_errors(uri, is_write=True):
                    file.write(chunk)
            length = int(file.tell())
            if expect is not None:
                expect(length)
            with translated_errors(uri, is_write=True):
                file.close()
        except BaseException:
            file.closed = True  # otherwise its destructor completes the upload
            # The failure itself matters more, and the next run aborts what is left of it.
            with contextlib.suppress(Exception):
                file.discard()
            raise
        return length

    def begin_join(self, uri: str, length: int) -> str | None:
        if not self.joins:
            return None
        with translated_errors(uri, is_write=True):
            upload = object_uploads.begin(self._fs, _bucket_and_key(uri), length, _PART, RANGE)
        return None if upload is None else upload.text

    def write_range(
        self, uri: str, joint: str, offset: int, content: Content, expect: Callable[[int], None]
    ) -> str:
        """Put the parts of an upload. The service refuses those of one that is complete or aborted,
        which another run may have done.
        """
        upload, length, parts = Upload.of(joint), 0, list[dict[str, Any]]()
        rest: Iterator[bytes] | None = iter(content())
        while rest is not None:
            data, rest = _first(rest, upload.part)
            length += len(data)
            if rest is None:
                expect(length)
            if data:
                number = offset // upload.part + len(parts) + 1
                put = object_uploads.put_part
                parts.append(self._of_upload(uri, put, upload, number, data))
        return json.dumps(parts)

    def join(
        self,
        uri: str,
        joint: str,
        receipts: Sequence[str],
        length: int,  # noqa: ARG002  # each part was acknowledged
        attributes: Attributes | None = None,  # noqa: ARG002  # as of `put`
    ) -> None:
        self._of_upload(uri, object_uploads.complete, Upload.of(joint), receipts)

    def give_up_join(self, uri: str, joint: str) -> None:
        self._of_upload(uri, object_uploads.give_up, Upload.of(joint))

    def _of_upload(self, uri: str, call: Callable[..., T], upload: Upload, *arguments: object) -> T:
        """Return what a call returns. An upload that is not there is not there later, either."""
        try:
            return call(self._fs, _bucket_and_key(uri), upload, *arguments)
        except Exception as error:  # as in `translated_errors`
            if code_of(error) == NO_UPLOAD:
                reason = "the upload is not there: another run completed or aborted it"
                raise OSError(errno.ESTALE, reason, uri) from error
            with translated_errors(uri, is_write=True):
                raise

    def create_exclusive(self, uri: str, data: bytes) -> bool:
        create = functools.partial(self._conditions.create, _path(uri), data)
        return self._is_done(uri, create, is_new=True)

    def take_over(self, uri: str, seen: bytes, data: bytes) -> bool:
        """Replace the object on condition that it is still the one that was read."""
        if not self._conditions.has_tags:
            raise Refused(
                f"{uri} was left by a run that died, and {self._protocol}: has no safe way to take"
                " it over. Remove it once you are sure that no run is at work"
            )
        path = _path(uri)
        try:
            with translated_errors(uri):
                tag = self._conditions.tag(path)
                if self._fs.cat_file(path) != seen:
                    return False
            replace = functools.partial(self._conditions.replace, path, data, tag)
            return self._is_done(uri, replace, is_new=False)
        except NoBucket:
            raise
        except FileNotFoundError:
            return False

    def ignored_conditions(self, directory: str) -> Sequence[str]:
        probe = uris.join(directory, f"{TEMPORARY}condition-{uuid.uuid4().hex}")
        try:
            return self._conditions.lacking(_path(probe), lambda put: _tried(probe, put))
        finally:
            # what fails meanwhile matters more, and the next run removes the file
            with contextlib.suppress(OSError), translated_errors(probe):
                self._fs.rm_file(_path(probe))

    def _is_done(self, uri: str, put: Callable[[], object], is_new: bool) -> bool:
        """Return whether the condition of a put was met. `is_new`: it needs no object."""

        def translated() -> None:
            with translated_errors(uri, is_write=is_new):
                put()

        try:
            self._conditional(uri, translated)
        except FileExistsError:
            return False
        return True

    def _conditional(self, uri: str, write: Callable[[], T]) -> T:
        """Carry out a write that has conditions, or has none if the service does not take any.

        Raises `Refused` in that case, unless it was accepted.
        """
        try:
            return write()
        except OSError as error:
            may_be_refused = isinstance(error, FileExistsError) or error.errno == errno.EINVAL
            if not may_be_refused or self._conditions.are_left_out:
                raise
            if isinstance(error, FileExistsError) and self.stat(uri) is not None:
                raise
            lacking = self.ignored_conditions(uris.parent(uri))
            if not lacking:
                raise
            if not self._unsafe_lease:
                raise _no_conditions(uri, lacking, error) from error
        self._conditions.are_left_out = True
        return write()

    def move(self, uri: str, new_uri: str) -> bool:
        """Copy the object within the service, then delete it. A crash between them leaves both."""
        if self.stat(new_uri) is not None:
            raise FileExistsError(errno.EEXIST, "is there already", new_uri)
        try:
            with translated_errors(uri):
                self._copier.cp_file(_path(uri), _path(new_uri))
        except FileNotFoundError:
            return False
        return self.delete(uri)

    def copy_within(self, uri: str, new_uri: str) -> int | None:
        """Copy an object of at most 5 GiB by one request.

        S3 computes the CRC32C that is asked for. Other services of its kind may not.
        """
        bucket, _, key = _path(uri).partition("/")
        new_bucket, _, new_key = _path(new_uri).partition("/")
        try:
            with translated_errors(uri):
                answer = self._copier.call_s3(
                    "copy_object",
                    Bucket=new_bucket,
                    Key=new_key,
                    CopySource={"Bucket": bucket, "Key": key},
                    ChecksumAlgorithm="CRC32C",
                )
        except FileNotFoundError as error:
            raise SourceMissing(f"{uri} is not there") from error
        checksum = answer["CopyObjectResult"].get("ChecksumCRC32C")
        return int.from_bytes(base64.b64decode(checksum), "big") if checksum else None

    def delete(self, uri: str, durable: bool = False) -> bool:  # noqa: ARG002  # the service's answer is durable
        """Delete an object. The services do not report whether there was one, so check first."""
        status = self.stat(uri)
        if status is None:
            return False
        if status.is_directory:
            raise IsADirectoryError(errno.EISDIR, "is a directory", uri)
        with translated_errors(uri):
            self._fs.rm_file(_path(uri))
        return True

    def rmdir(self, uri: str) -> bool:
        """Delete the empty objects that stand for a directory with nothing in it, if there are any.

        A prefix goes with its last object. Hadoop and the browsers of services leave an object for
        it, with a slash or without one.
        """
        path = _path(uri)
        if self.list(uri):
            return False
        status = self.stat(uri)
        if status is None or status.length:
            return False
        with translated_errors(uri), contextlib.suppress(FileNotFoundError):
            self._fs.rm_file(path)
        if self._protocol == "s3":  # the client would drop the slash
            bucket, _, key = path.partition("/")
            with translated_errors(uri):
                self._fs.call_s3("delete_object", Bucket=bucket, Key=f"{key}/")
        return True

    def abort_uploads(self, directory: str, is_left: Callable[[str, float], bool]) -> Sequence[str]:
        if not self.keeps_uploads:  # the other services let theirs expire
            return ()
        bucket, _, key = _path(directory).partition("/")
        root = directory.removesuffix(key)
        with translated_errors(directory):
            aborted = object_uploads.abort(
                self._fs, bucket, f"{key}/", lambda key, began: is_left(f"{root}{key}", began)
            )
        return [f"{root}{key}" for key in aborted]

    def reach(self, uri: str) -> None:
        bucket = _bucket(uri)
        with translated_errors(uri):
            if self._protocol == "s3":  # not the bucket itself: rights may begin below it
                self._page(bucket, _below(uri))
            else:
                self._fs.info(bucket, refresh=True)

    def service_time(self, uri: str) -> float | None:
        if self._protocol != "s3":
            return None
        response = self._page(_bucket(uri), _below(uri))
        date = response["ResponseMetadata"]["HTTPHeaders"].get("date")
        return parsedate_to_datetime(date).timestamp() if date else None

    def delete_policies(self, uri: str) -> Sequence[DeletePolicy] | None:
        return object_policies.of(self._fs, _bucket(uri)) if self._protocol == "s3" else None

    @property
    def settings(self) -> str:
        """The options that decide how objects are stored and asked for, as a message has them."""
        return s3_options.described(self._own) if self._protocol == "s3" else ""


def _tried(uri: str, put: Callable[[], object]) -> Tried:
    """Return how a put ended. Raises what is neither its condition nor that it has one."""
    try:
        with translated_errors(uri, is_write=True):
            put()
    except FileExistsError:
        return "held"
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return "refused"
    return "done"


def _no_conditions(uri: str, lacking: Sequence[str], error: OSError) -> Refused:
    return Refused(
        f"{uris.filesystem(uri)} does not honour {' and '.join(lacking)}, on which the lease"
        f" relies, so {uri} cannot be written: {error.strerror}. Use a store with conditional puts,"
        " or a bucket without versions if only deleted objects are in the way, or give"
        " --unsafe-lease if only one run at a time ever changes this replica"
    )


class _TranslatingFile:
    """A file object whose reads raise the exceptions of `Storage`."""

    def __init__(self, file: Any, uri: str) -> None:
        self._file, self._uri = file, uri

    def read(self, size: int = -1) -> bytes:
        with translated_errors(self._uri):
            left = max(0, self._file.size - self._file.tell())
            expected = left if size < 0 else min(size, left)
            data = bytes(self._file.read(size))
            if len(data) < expected:  # cut, or the object was replaced after its length was read
                raise Transient(
                    errno.EIO,
                    f"the answer ended after {len(data)} of {counted(expected, 'byte')}",
                    self._uri,
                )
            return data

    def __enter__(self) -> _TranslatingFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def _path(uri: str) -> str:
    """Return `bucket/key`. It stays literal: no fsspec class decodes a path without a scheme."""
    refuse_unusable(uri)
    scheme, _, rest = uri.partition("://")
    authority, _, path = rest.partition("/")
    unusable = _UNUSABLE.get(PROTOCOLS.get(scheme, scheme))
    if unusable is not None and unusable in path:
        raise Refused(
            f"{uri}: the client of {scheme}: cannot use this name, because it takes what follows"
            f" {unusable} for the version of an object. Use another name, or another storage"
        )
    return f"{authority.partition('@')[0]}/{path}".rstrip("/")


def _bucket_and_key(uri: str) -> tuple[str, str]:
    bucket, _, key = _path(uri).partition("/")
    return bucket, key


def _below(uri: str) -> str:
    """Return the prefix of all keys below a URI."""
    key = _path(uri).partition("/")[2]
    return f"{key}/" if key else ""


def _bucket(uri: str) -> str:
    return _path(uri).partition("/")[0]


def _named(path: str, directory: str, name: str) -> str | None:
    """Return the X of a path `<directory>X/<name>`, None of any other path."""
    inner, _, last = path.removeprefix(directory).rpartition("/")
    return inner if last == name and "/" not in inner and path.startswith(directory) else None


def _status(uri: str, entry: Mapping[str, Any]) -> FileStatus:
    """Return the status of an object, or of a directory.

    An object that stands for a directory has the time when it was made, which is none of what is in
    the directory.
    """
    if entry["type"] == "directory":
        return FileStatus(uri, uris.name(uri), 0, True, 0.0)
    changed: Any = next((entry[name] for name in _TIMES if entry.get(name)), None)
    modified = changed.timestamp() if hasattr(changed, "timestamp") else 0.0
    tag = next((str(entry[name]) for name in _TAGS if entry.get(name)), None)
    length = int(entry.get("size") or 0)
    return FileStatus(uri, uris.name(uri), length, False, modified, tag=tag)


def _without_markers(listed: Iterable[FileStatus]) -> list[FileStatus]:
    """Return what was listed, with each directory once: an empty object may stand for it, too."""
    statuses = list(listed)
    directories = {each.name: each for each in statuses if each.is_directory}
    others = [
        each
        for each in statuses
        if not each.is_directory and (each.length or each.name not in directories)
    ]
    return [*directories.values(), *others]


def _first(chunks: Iterable[bytes], size: int) -> tuple[bytes, Iterator[bytes] | None]:
    """Return at least the first `size` bytes and the remaining chunks, or None if none remain."""
    rest, head = iter(chunks), bytearray()
    for chunk in rest:
        head += chunk
        if len(head) >= size:
            return bytes(head), rest
    return bytes(head), None
