"""Part files that the states of `FileSink` and `StreamingFileSink` name.

Flink 1.13 to 2.3. The order of fields is that of `FileWriterBucketStateSerializer`,
`BucketStateSerializer`, `FileSinkCommittableSerializer`, `CompactorRequestSerializer` and
`CompactorOperator`. Each begins with a number of its own, by which it is known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from cpreplicate.core.positions.fields import Fields
from cpreplicate.core.positions.list_states import datum
from cpreplicate.core.positions.model import (
    FileKind,
    PartFile,
    Positions,
    SourceState,
    Unreadable,
)
from cpreplicate.core.positions.sinks import recoverables
from cpreplicate.core.positions.sinks.committables import COMMITTER, committables
from cpreplicate.core.positions.sinks.recoverables import Recoverable

WRITER = "writer_raw_states"  # of the writer of each sink that keeps states
BUCKETS = "bucket-states"  # of a `StreamingFileSink`, and of the filesystem connector of SQL
_TO_COMPACT, _REQUESTS = "remaining_compact_commit_raw_state", "remaining_requests_raw_state"
STATES = frozenset((WRITER, BUCKETS, COMMITTER, _TO_COMPACT, _REQUESTS))
# beside these, an operator has lists with other serializers, such as `max-part-counter`
BYTES = STATES - {COMMITTER}
_BUCKET, _COMMITTABLE, _REMAINING, _REQUEST = 0x1E764B79, 0x1E765C80, 0xA946BE83, 0x2FC61E19


class PartFiles:
    """The decoder of part files; see `model.PositionDecoder`."""

    states = STATES

    def decode(self, state: SourceState) -> Positions | None:
        """Return the part files that an operator's state names, None if it is no sink of files."""
        of_files = {
            name: elements
            for name, elements in state.elements.items()
            if name in STATES and any(_is_of_files(name, element) for element in elements)
        }
        if not of_files:
            return None
        return Positions(part_files=tuple(_named(state.operator, of_files)))


def _named(operator: str, lists: Mapping[str, tuple[bytes, ...]]) -> Iterator[PartFile]:
    for name in sorted(lists):
        for element in lists[name]:
            yield from _READ[name](operator, element)


def _is_of_files(name: str, element: bytes) -> bool:
    """Return whether an element begins as those of a sink of files do."""
    try:
        if name == COMMITTER:
            return any(_magic(each.data) == _COMMITTABLE for each in committables(element))
        return _magic(datum(element)[1]) == _MAGICS[name]
    except Unreadable:
        return name == BUCKETS  # no other sink has this list


def _magic(data: bytes) -> int:
    return Fields(data).i32() & 0xFFFFFFFF


def _opened(element: bytes, magic: int, versions: int, what: str) -> tuple[int, Fields]:
    """Return the version of an element, and its fields behind the magic number."""
    version, content = datum(element)
    return version, _behind(content, magic, version, versions, what)


def _behind(content: bytes, magic: int, version: int, versions: int, what: str) -> Fields:
    fields = Fields(content)
    if not 0 < version <= versions:
        raise Unreadable(f"version {version} of {what} is not known")
    if fields.i32() & 0xFFFFFFFF != magic:
        raise Unreadable(f"the magic number of {what} is missing")
    return fields


def _bucket(operator: str, element: bytes) -> Iterator[PartFile]:
    """Yield the file that a bucket goes on with, and those that a `StreamingFileSink` commits.

    The restored job writes the next files of the bucket where its path is, wherever its sink is.
    """
    version, fields = _opened(element, _BUCKET, 3, "a bucket")
    fields.i32()  # the version of its id, and the id
    fields.block()
    path = fields.utf()
    fields.i64()  # when its file was begun
    found: list[PartFile] = []
    if fields.flag():
        read = recoverables.in_progress if version > 1 else recoverables.of_filesystem
        found.append(_file(operator, "in-progress", read(fields.i32(), fields.block()), path))
    if version < 3:
        found += _of_bucket(operator, version, fields, path)
    fields.end()
    yield from found or [PartFile(operator, "bucket", path, None, 0)]


def _of_bucket(operator: str, version: int, fields: Fields, bucket: str) -> Iterator[PartFile]:
    """Yield the pending files of a bucket, by checkpoint."""
    read = recoverables.pending if version > 1 else recoverables.of_filesystem
    own = fields.i32()
    for _ in range(fields.count(12)):
        checkpoint = fields.i64()
        for _ in range(fields.count(4)):
            file = _file(operator, "pending", read(own, fields.block()), bucket)
            yield file._replace(checkpoint=checkpoint)


def _file(operator: str, kind: FileKind, of: Recoverable, bucket: str | None = None) -> PartFile:
    target, path = of.target, of.path
    if of.upload is not None and bucket is not None and "://" not in target:
        # the key of an object, whose bucket the path of the sink's bucket names
        place = "/".join(bucket.split("/", 3)[:3])
        target = f"{place}/{target}"
        path = None if path is None else f"{place}/{path}"
    return PartFile(operator, kind, target, path, of.length, of.upload)


def _committable(operator: str, version: int, data: bytes) -> PartFile:
    """Read what a committer does: commit a file, or remove one that is not needed any more."""
    fields = _behind(data, _COMMITTABLE, version, 2, "a committable of files")
    if version > 1:
        fields.utf()  # the id of the bucket
    found = []
    if fields.flag():
        read = recoverables.pending(fields.i32(), fields.block())
        found.append(_file(operator, "pending", read))
    if fields.flag():
        read = recoverables.in_progress(fields.i32(), fields.block())
        found.append(_file(operator, "to-remove", read))
    if version > 1 and fields.flag():
        found.append(PartFile(operator, "to-remove", fields.utf(), None, 0))
    fields.end()
    if len(found) != 1:
        raise Unreadable(f"a committable of {len(found)} files")
    return found[0]


def _committer(operator: str, element: bytes) -> Iterator[PartFile]:
    for each in committables(element):
        if each.is_pending:
            file = _committable(operator, each.version, each.data)
            yield file._replace(checkpoint=each.checkpoint)


def _to_compact(operator: str, element: bytes) -> Iterator[PartFile]:
    yield _committable(operator, *datum(element))


def _requests(operator: str, element: bytes) -> Iterator[PartFile]:
    """Yield the files that are to be compacted, by checkpoint, of a `CompactorOperator`."""
    _, fields = _opened(element, _REMAINING, 1, "requests to compact")
    for _ in range(fields.count(16)):
        checkpoint = fields.i64()
        version = fields.i32()
        for _ in range(fields.count(4)):
            content = fields.block()
            request = _behind(content, _REQUEST, version, 1, "a request to compact")
            request.utf()  # the id of the bucket
            for _ in ("to compact", "to pass on"):
                own = request.i32()
                for _ in range(request.count(4)):
                    file = _committable(operator, own, request.block())
                    yield file._replace(checkpoint=checkpoint if checkpoint >= 0 else None)
            request.end()
    fields.end()


_MAGICS = {WRITER: _BUCKET, BUCKETS: _BUCKET, _TO_COMPACT: _COMMITTABLE, _REQUESTS: _REMAINING}
_READ: Mapping[str, Callable[[str, bytes], Iterator[PartFile]]] = {
    WRITER: _bucket,
    BUCKETS: _bucket,
    COMMITTER: _committer,
    _TO_COMPACT: _to_compact,
    _REQUESTS: _requests,
}
