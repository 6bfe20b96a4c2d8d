"""What the commit protocol asks of every storage: local, HDFS by each of its clients, object
stores, and, for tests, memory.
"""

import contextlib
import errno
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import google_crc32c
import pytest
import s3fs

from cpreplicate.errors import LeaseHeld, Refused, UsageError
from cpreplicate.storage import (
    DamagedPart,
    ShortSource,
    Side,
    Sides,
    SourceMissing,
    WriteSettings,
    checksum,
    copy_file,
    copy_within,
    read_exactly,
)
from cpreplicate.storage.backends.rename_commit import RenamingStorage
from cpreplicate.storage.base import TEMPORARY
from cpreplicate.storage.statuses import Attributes
from tests.support import parts
from tests.support.faults import Faulty
from tests.support.memory import MemoryStorage
from tests.support.registry import serving
from tests.support.s3 import s3fs_options

pytestmark = pytest.mark.xdist_group("hdfs")

NAMES = [
    "plain",
    "with space",
    "50%",
    "%2e%2e",
    "a?b#c",
    "ünïcode",
    "semi;colon",
    "-dash",
    "a+b&c=d",
]
STORAGES = [
    "file",
    "memory",
    "hdfs",
    "hdfs-hadoop",
    parts.rest("hdfs-ha"),  # the clients are those of a cluster with one NameNode
    parts.rest("hdfs-ha-hadoop"),
    "viewfs",
    "webhdfs",
    "s3",
    *(
        pytest.param(name, marks=[pytest.mark.stores, pytest.mark.rest])
        for name in ("versitygw", "azurite", "fake_gcs_server")
    ),
]


# What has no fence: fake-gcs-server ignores the condition of a delete, and moto that of an upload
# in parts; gcsfs and adlfs have none for that.
UNFENCED = {
    "memory": ("withdrawal", "small", "in parts"),
    "fake_gcs_server": ("withdrawal", "in parts"),
    "azurite": ("in parts",),
    "s3": ("in parts",),
}


class Place:
    """A directory of a storage, and the side by which it is reached."""

    def __init__(self, root: str, side: Side) -> None:
        self.root, self.side = root, side
        self.sides = Sides(side, side)
        self.storage = side.storage(root)
        self.unfenced: tuple[str, ...] = ()
        self.has_directories = root.partition(":")[0] not in ("s3", "abfs", "gs")


def hdfs(cluster, client: str = "native", uri: str | None = None, **more: str) -> Place:
    options = (
        ("", tuple({**cluster.conf, "hadoop.user.name": cluster.superuser, **more}.items())),
    )
    return Place(
        f"{uri or cluster.uri}/conformance/{uuid.uuid4().hex}",
        Side(options, client, WriteSettings()),
    )


def s3_side(endpoint: str) -> Side:
    options = {
        "key": "testing",
        "secret": "testing",
        "endpoint_url": endpoint,
        "region": "us-east-1",
    }
    return Side((("s3:", tuple(options.items())),))


def make(name: str, request, tmp_path) -> Place:
    if name in ("file", "memory"):
        return Place(f"{name}:{tmp_path}", Side())
    if name == "s3":
        server = request.getfixturevalue("s3")
        server.make_bucket("conformance")
        return Place(f"s3://conformance/{uuid.uuid4().hex}", s3_side(server.endpoint))
    if name in ("versitygw", "azurite", "fake_gcs_server"):
        store = request.getfixturevalue(name)
        return Place(f"{store.root}/{uuid.uuid4().hex}", store.side())
    cluster = request.getfixturevalue("ha_cluster" if "ha" in name.split("-") else "clusters")
    cluster = getattr(cluster, "a", cluster)
    if name == "viewfs":
        links = {"linkFallback": f"{cluster.uri}/", "link./jobs": f"{cluster.uri}/mnt"}
        mounts = {f"fs.viewfs.mounttable.all.{name}": target for name, target in links.items()}
        return hdfs(cluster, uri="viewfs://all/jobs", **mounts)
    if name == "webhdfs":
        return hdfs(cluster, uri=cluster.webhdfs_uri)
    return hdfs(cluster, "hadoop" if name.endswith("hadoop") else "native")


@pytest.fixture(params=STORAGES)
def place(request, tmp_path):
    with contextlib.ExitStack() as stack:
        if request.param == "memory":
            stack.enter_context(serving("memory", MemoryStorage()))
        made = make(request.param, request, tmp_path)
        made.unfenced = UNFENCED.get(request.param, ())
        yield made


@pytest.fixture
def root(place):
    return place.root


@pytest.fixture
def storage(place):
    return place.storage


def put(storage, uri, data=b"", **words):
    return storage.put(uri, lambda: [data], **words)


def read(storage, uri):
    with storage.open(uri) as stream:
        return stream.read()


def torn():
    yield b"new, but only ha"
    raise OSError(errno.EIO, "the disk failed")


@pytest.mark.parametrize("name", NAMES)
def test_what_is_put_is_read_listed_and_deleted_under_its_literal_name(storage, root, name):
    uri = f"{root}/new/{name}"
    assert storage.put(uri, lambda: [b"ab", b"c"]) == 3
    assert read(storage, uri) == b"abc"
    assert [(s.uri, s.name, s.length, s.is_directory) for s in storage.list(f"{root}/new")] == [
        (uri, name, 3, False)
    ]
    assert storage.stat(uri).length == 3
    assert storage.delete(uri)
    assert storage.stat(uri) is None


@pytest.mark.parametrize("name", ["a?versionId=1", "a?versionid=1", "a?generation=1#1"])
def test_a_name_like_that_of_a_version_is_literal_or_refused_by_every_verb(storage, root, name):
    uri = f"{root}/new/{name}"
    put(storage, f"{root}/new/a", b"another file")
    if storage.unusable is None or storage.unusable not in name:
        put(storage, uri, b"abc")
        assert (read(storage, uri), storage.stat(uri).length) == (b"abc", 3)
        assert sorted(s.name for s in storage.list(f"{root}/new")) == ["a", name]
        assert storage.delete(uri)
    else:
        refused_by_every_verb(storage, uri, "takes what follows .* for the version of an object")
    assert [s.name for s in storage.list(f"{root}/new")] == ["a"]
    assert read(storage, f"{root}/new/a") == b"another file"


def test_a_listing_has_what_a_list_has(storage, root):
    for name in ("a", "b c", "sub/d"):
        put(storage, f"{root}/new/{name}", name.encode())
    listed = storage.listing(f"{root}/new")
    files = [listed.status(row) for row in range(len(listed.names))]
    expected = {(s.uri, s.name, s.length, s.modified) for s in storage.list(f"{root}/new")}
    assert {(s.uri, s.name, s.length, s.modified) for s in (*files, *listed.others)} == expected
    assert [other.name for other in listed.others if other.is_directory] == ["sub"]
    assert sorted(listed.names) == ["a", "b c"]


def test_what_does_not_exist_is_returned_as_absent_not_raised(storage, root):
    assert storage.stat(f"{root}/x/y") is None
    assert storage.list(f"{root}/x") == []
    assert storage.listing(f"{root}/x").names == []
    assert storage.delete(f"{root}/x") is False
    assert storage.rmdir(f"{root}/x") is False
    assert storage.take_over(f"{root}/x", b"", b"mine") is False
    with pytest.raises(FileNotFoundError):
        storage.open(f"{root}/x")


def test_nothing_is_below_a_file(storage, root):
    put(storage, f"{root}/file", b"x")
    assert storage.stat(f"{root}/file/below") is None
    with contextlib.suppress(NotADirectoryError):  # object stores list nothing
        assert storage.list(f"{root}/file/below") == []


def test_a_put_that_fails_leaves_what_was_there_and_nothing_else(storage, root):
    uri = f"{root}/d/file"
    put(storage, uri, b"old")
    with pytest.raises(OSError, match="the disk failed"):
        storage.put(uri, torn)

    def too_short(length):
        raise ShortSource(f"{length} bytes")

    with pytest.raises(ShortSource):
        put(storage, uri, b"new", expect=too_short)
    assert read(storage, uri) == b"old"
    assert [each.name for each in storage.list(f"{root}/d")] == ["file"]


def test_a_large_put_that_fails_in_the_middle_leaves_nothing(storage, root):
    def torn_late():
        yield from [bytes(8 << 20)] * 5
        raise OSError(errno.EIO, "the disk failed")

    with pytest.raises(OSError, match="the disk failed"):
        storage.put(f"{root}/d/file", torn_late)
    assert storage.stat(f"{root}/d/file") is None
    assert storage.list(f"{root}/d") == []


def test_a_large_file_is_read_back_in_order_and_from_any_position(storage, root):
    uri = f"{root}/large"
    chunks = [bytes([number]) * (3 << 20) for number in range(12)]
    assert storage.put(uri, lambda: chunks) == 36 << 20
    with storage.open(uri) as stream:
        for chunk in chunks:
            assert stream.read(3 << 20) == chunk
        assert stream.read(1) == b""
        stream.seek((30 << 20) - 1)
        assert stream.read(2) == b"\x09\x0a"
        assert stream.seek(0, 2) == 36 << 20
        stream.seek(5)
        assert stream.read(1) == b"\x00"


def test_a_part_of_a_file_is_read_up_to_its_end(storage, root):
    uri, empty = f"{root}/file", f"{root}/empty"
    put(storage, uri, b"0123456789")
    put(storage, empty, b"")
    assert storage.read(uri, 2, 3) == b"234"
    assert storage.read(uri, 0, 1 << 20) == storage.read(uri) == b"0123456789"
    assert storage.read(uri, 8, 5) == b"89"
    assert storage.read(uri, 10, 5) == storage.read(empty, 0, 5) == storage.read(empty) == b""
    with pytest.raises(FileNotFoundError):
        storage.read(f"{root}/none", 0, 5)


def test_a_put_replaces_a_file_as_a_whole(storage, root):
    uri = f"{root}/file"
    put(storage, uri, b"old")
    put(storage, uri, b"newer")
    assert read(storage, uri) == b"newer"
    assert [each.name for each in storage.list(root)] == ["file"]


@pytest.mark.parametrize(
    "length", [3, 17 << 20], ids=["small", "above a part of a multipart upload"]
)
def test_a_put_that_must_not_replace_leaves_what_is_there(place, storage, root, length):
    """A new `chk-N/_metadata` is published so: a job may have written one just before."""
    uri = f"{root}/d/file"
    put(storage, uri, b"old")
    with pytest.raises(FileExistsError):
        put(storage, uri, bytes(length), replace=False)
    assert read(storage, uri) == b"old"
    assert [each.name for each in storage.list(f"{root}/d")] == ["file"]
    assert uploads_under_way(place) == []


@pytest.mark.parametrize(
    "length", [3, 17 << 20], ids=["small", "above a part of a multipart upload"]
)
def test_a_put_that_must_not_replace_creates_what_is_not_there(storage, root, length):
    assert put(storage, f"{root}/d/file", bytes(length), replace=False) == length
    assert storage.stat(f"{root}/d/file").length == length
    assert [each.name for each in storage.list(f"{root}/d")] == ["file"]


def test_of_two_puts_that_must_not_replace_the_later_one_fails(storage, root):
    """The file appears while the second put is under way, so only the publishing itself can notice
    it.
    """
    uri = f"{root}/d/file"

    # to Azurite, unlike Azure, a blob with uncommitted blocks is there already
    is_azurite = root.startswith("abfs")

    def overtaken(_length):
        put(storage, uri, b"first", replace=is_azurite)

    with pytest.raises(FileExistsError):
        put(storage, uri, bytes(17 << 20), replace=False, expect=overtaken)
    assert read(storage, uri) == b"first"
    assert [each.name for each in storage.list(f"{root}/d")] == ["file"]


def uploads_under_way(place):
    """Return the multipart uploads that were neither completed nor aborted, [] except on S3."""
    if not place.root.startswith("s3"):
        return []
    bucket, _, prefix = place.root.removeprefix("s3://").partition("/")
    options = place.side.options_for(f"s3://{bucket}")
    client = s3fs.S3FileSystem(
        **{
            **s3fs_options(options["endpoint_url"]),
            "key": options["key"],
            "secret": options["secret"],
        }
    )
    return [
        each for each in client.list_multipart_uploads(bucket) if each["Key"].startswith(prefix)
    ]


RANGE = 16 << 20  # bytes: what a part of an upload has, so a range may begin at its multiples
DATA = b"".join(bytes([number]) * (5 << 20) for number in range(8))
LONG = 2 << 30  # bytes that are announced: no storage joins what is too short to be worth it


@pytest.fixture
def joint(storage, root):
    """A file that was begun, to be joined of ranges."""
    begun = storage.begin_join(f"{root}/d/file", LONG)
    if begun is None:
        pytest.skip("it joins no files")
    return begun


def write_range(storage, root, joint, number, expect=lambda _length: None):
    start = number * RANGE
    pieces = [
        DATA[at : at + (4 << 20)] for at in range(start, min(start + RANGE, len(DATA)), 4 << 20)
    ]
    return storage.write_range(f"{root}/d/file", joint, start, lambda: pieces, expect)


def visible(storage, root):
    listed = storage.list(f"{root}/d")
    return [each.name for each in listed if not each.name.startswith(TEMPORARY)]


def test_the_storages_that_join_files_are_known(place, request):
    """Else the tests below would be skipped where they must not be."""
    name = request.node.callspec.params["place"]
    joins = ("file", "hdfs", "hdfs-hadoop", "hdfs-ha", "hdfs-ha-hadoop", "viewfs", "webhdfs", "s3")
    begun = place.storage.begin_join(f"{place.root}/d/file", LONG)
    assert (begun is not None) == (name in (*joins, "versitygw"))
    assert place.storage.joins == (begun is not None)


def test_a_file_that_is_joined_of_ranges_appears_whole_and_only_then(place, storage, root, joint):
    uri, lengths = f"{root}/d/file", list[int]()
    put(storage, uri, b"old")
    with ThreadPoolExecutor(3) as pool:  # in any order
        receipts = [
            *pool.map(lambda n: write_range(storage, root, joint, n, lengths.append), range(3))
        ]
    assert sorted(lengths) == [8 << 20, RANGE, RANGE]
    assert (read(storage, uri), visible(storage, root)) == (b"old", ["file"])
    storage.join(uri, joint, receipts, len(DATA), Attributes(0o640, 1_000_000_000.0))
    assert read(storage, uri) == DATA
    assert [each.name for each in storage.list(f"{root}/d")] == ["file"]
    assert uploads_under_way(place) == []
    if place.has_directories:
        assert storage.stat(uri).modified == 1_000_000_000


def test_a_range_that_failed_or_was_written_twice_is_written_again_by_itself(
    place, storage, root, joint
):
    def torn_range():
        yield DATA[: 4 << 20]
        raise OSError(errno.EIO, "the disk failed")

    with pytest.raises(OSError, match="the disk failed"):
        storage.write_range(f"{root}/d/file", joint, 0, torn_range, lambda _length: None)

    def short(length):
        raise ShortSource(f"{length} bytes")

    with pytest.raises(ShortSource):
        write_range(storage, root, joint, 2, short)
    receipts = [write_range(storage, root, joint, number) for number in (0, 1, 2)]
    receipts[1] = write_range(storage, root, joint, 1)
    storage.join(f"{root}/d/file", joint, receipts, len(DATA))
    assert read(storage, f"{root}/d/file") == DATA
    assert visible(storage, root) == ["file"]
    assert uploads_under_way(place) == []


def test_who_writes_a_range_late_changes_nothing(place, storage, root, joint):
    """An executor that was lost may live on. The file was joined meanwhile, or given up."""
    receipts = [write_range(storage, root, joint, number) for number in range(3)]
    storage.join(f"{root}/d/file", joint, receipts, len(DATA))
    with contextlib.suppress(OSError):
        write_range(storage, root, joint, 1)
    assert read(storage, f"{root}/d/file") == DATA
    other = storage.begin_join(f"{root}/d/other", LONG)
    storage.give_up_join(f"{root}/d/other", other)
    with contextlib.suppress(OSError):
        storage.write_range(f"{root}/d/other", other, 0, lambda: [DATA], lambda _length: None)
    assert visible(storage, root) == ["file"]
    assert uploads_under_way(place) == []


def test_a_file_that_is_given_up_leaves_nothing(place, storage, root, joint):
    put(storage, f"{root}/d/other", b"x")
    write_range(storage, root, joint, 0)
    write_range(storage, root, joint, 2)
    storage.give_up_join(f"{root}/d/file", joint)
    assert [each.name for each in storage.list(f"{root}/d")] == ["other"]
    assert uploads_under_way(place) == []


def test_a_file_of_which_a_range_is_missing_does_not_appear(storage, root, joint):
    receipts = [write_range(storage, root, joint, number) for number in range(2)]
    if root.startswith("s3"):
        pytest.skip("the parts that are named are those that were acknowledged")
    with pytest.raises(OSError, match="bytes"):
        storage.join(f"{root}/d/file", joint, receipts, len(DATA))
    assert visible(storage, root) == []


def test_of_many_contenders_one_creates(storage, root):
    start, won = threading.Barrier(16), []

    def contend(number):
        start.wait()
        if storage.create_exclusive(f"{root}/d/lease", b"%d" % number):
            won.append(number)

    run_all(contend)
    assert len(won) == 1
    assert read(storage, f"{root}/d/lease") == b"%d" % won[0]
    assert len(storage.list(f"{root}/d")) == 1


def run_all(contend, count=16):
    threads = [threading.Thread(target=contend, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_of_many_contenders_one_takes_over(storage, root):
    put(storage, f"{root}/d/lease", b"stale")
    start, won = threading.Barrier(16), []

    def contend(number):
        start.wait()
        if storage.take_over(f"{root}/d/lease", b"stale", b"%d" % number):
            won.append(number)

    run_all(contend)
    assert len(won) <= 1
    held = read(storage, f"{root}/d/lease")
    assert held == (b"%d" % won[0])
    rest = [each.name for each in storage.list(f"{root}/d") if each.name != "lease"]
    assert len(rest) <= 1  # what was taken over may stay, so that nobody can take it over once more
    assert all(name.startswith("lease-") for name in rest)
    assert storage.take_over(f"{root}/d/lease", b"stale", b"late") is False
    assert read(storage, f"{root}/d/lease") == held


def test_only_what_was_seen_is_taken_over(storage, root):
    put(storage, f"{root}/d/lease", b"renewed")
    assert storage.take_over(f"{root}/d/lease", b"stale", b"mine") is False
    assert storage.take_over(f"{root}/d/lease", b"", b"mine") is False
    assert read(storage, f"{root}/d/lease") == b"renewed"
    assert len(storage.list(f"{root}/d")) == 1


class Held:
    """A run that looks at its lease, is held up after that, and finds it lost when it looks again.

    What another run does meanwhile is a call.
    """

    def __init__(self, meanwhile=lambda: None):
        self.looks, self._meanwhile = 0, meanwhile

    def check(self, _length=0):
        self.looks += 1
        if self.looks > 1:
            raise LeaseHeld("lost")
        self._meanwhile()


def test_what_is_withdrawn_is_gone(storage, root):
    put(storage, f"{root}/chk-1/_metadata", b"old")
    put(storage, f"{root}/chk-2/_metadata", b"older")
    aside = f"{root}/own/{TEMPORARY}aside"
    put(storage, f"{root}/own/file")
    assert storage.withdraw(f"{root}/chk-1/_metadata", aside, Held().check)
    assert storage.withdraw(f"{root}/chk-2/_metadata", aside, Held().check)
    assert storage.withdraw(f"{root}/chk-3/_metadata", aside, Held().check) is False
    assert storage.stat(f"{root}/chk-1/_metadata") is None
    assert storage.stat(f"{root}/chk-2/_metadata") is None
    assert [each.name for each in storage.list(f"{root}/own")] == ["file"]


def test_what_another_run_published_after_the_check_is_not_withdrawn(place, storage, root):
    metadata, aside = f"{root}/chk-1/_metadata", f"{root}/own/{TEMPORARY}aside"
    put(storage, f"{root}/own/file")
    put(storage, metadata, b"old")

    def overtake():
        storage.fence(aside)
        put(storage, metadata, b"another")

    if "withdrawal" not in place.unfenced:
        with pytest.raises(LeaseHeld):
            storage.withdraw(metadata, aside, Held(overtake).check)
        assert read(storage, metadata) == b"another"


def test_a_fence_holds_whatever_was_there_and_cannot_be_deleted(storage, root):
    metadata, aside = f"{root}/chk-1/_metadata", f"{root}/own/{TEMPORARY}aside"
    put(storage, metadata, b"old")
    if isinstance(storage.unwrapped, RenamingStorage):
        put(storage, aside, b"of a run that died between the rename and the delete")
        storage.fence(aside)
        storage.fence(aside)
        with pytest.raises(LeaseHeld):
            storage.withdraw(metadata, aside, Held().check)
        with pytest.raises(IsADirectoryError):
            storage.delete(aside)
        assert read(storage, metadata) == b"old"


def test_a_publication_replaces_what_was_there_before_the_check(storage, root):
    metadata = f"{root}/chk-1/_metadata"
    assert storage.publish(metadata, lambda: [b"new"], Held().check, replace=False) == 3
    assert storage.publish(metadata, lambda: [b"new", b"er"], Held().check, replace=True) == 5
    assert read(storage, metadata) == b"newer"
    with pytest.raises(FileExistsError):
        storage.publish(metadata, lambda: [b"third"], Held().check, replace=False)
    large = [b"x" * (1 << 20)] * 20
    assert storage.publish(metadata, lambda: large, Held().check, replace=True) == 20 << 20
    assert storage.stat(metadata).length == 20 << 20


@pytest.mark.parametrize("size", ["small", "in parts"])
def test_a_publication_does_not_replace_what_another_run_published_after_the_check(
    place, storage, root, size
):
    """As a run that takes a lease over does, it removes what is not finished."""
    metadata = f"{root}/chk-1/_metadata"
    put(storage, metadata, b"old")

    def overtake():
        for each in storage.list(f"{root}/chk-1"):
            if each.name.startswith(TEMPORARY):
                assert storage.delete(each.uri)
        put(storage, metadata, b"another")

    late = [b"x" * (1 << 20)] * (20 if size == "in parts" else 1)
    if size not in place.unfenced:
        with pytest.raises((LeaseHeld, FileNotFoundError)):
            storage.publish(metadata, lambda: late, Held(overtake).check, replace=True)
        assert read(storage, metadata) == b"another"


@pytest.mark.parametrize("is_there", [True, False])
def test_a_publication_does_not_replace_what_another_run_removed_or_created(
    storage, root, is_there
):
    metadata = f"{root}/chk-1/_metadata"
    if storage.needs_conditions:
        if is_there:
            put(storage, metadata, b"old")

        def overtake():
            storage.delete(metadata) if is_there else put(storage, metadata, b"another")

        with pytest.raises((LeaseHeld, FileExistsError)):
            storage.publish(metadata, lambda: [b"late"], Held(overtake).check, replace=True)
        assert (storage.stat(metadata) is None) == is_there


def test_a_file_is_moved_to_a_free_name_only(storage, root):
    put(storage, f"{root}/d/a", b"moved")
    put(storage, f"{root}/e/taken", b"there")
    with pytest.raises(FileExistsError):
        storage.move(f"{root}/d/a", f"{root}/e/taken")
    assert read(storage, f"{root}/e/taken") == b"there"
    assert storage.move(f"{root}/d/a", f"{root}/e/b") is True
    assert storage.move(f"{root}/d/a", f"{root}/e/c") is False
    assert read(storage, f"{root}/e/b") == b"moved"
    assert storage.stat(f"{root}/d/a") is None


def test_what_a_directory_holds_is_never_deleted_with_it(place, storage, root):
    put(storage, f"{root}/d/file")
    if place.has_directories:
        with pytest.raises(OSError, match="director"):
            storage.delete(f"{root}/d")
    else:
        with contextlib.suppress(IsADirectoryError):
            storage.delete(f"{root}/d")
    assert storage.rmdir(f"{root}/d") is False
    assert storage.stat(f"{root}/d/file") is not None


def test_a_copy_returns_length_and_crc32c(place, storage, root):
    put(storage, f"{root}/a", b"123456789")
    copied = copy_file(f"{root}/a", f"{root}/new/b", 9, place.sides)
    assert copied == (9, 0xE3069283)  # the check value of CRC-32C
    assert checksum(f"{root}/new/b", place.side) == copied


def test_an_empty_file_is_copied(place, storage, root):
    put(storage, f"{root}/a", b"")
    assert copy_file(f"{root}/a", f"{root}/b", 0, place.sides) == (0, 0)
    assert storage.stat(f"{root}/b").length == 0


def test_a_merged_file_is_copied_to_its_end(place, storage, root):
    put(storage, f"{root}/a", b"123456789")
    assert copy_file(f"{root}/a", f"{root}/b", 4, place.sides).bytes == 9


def test_a_missing_and_a_short_source_raise_different_errors_and_publish_nothing(
    place, storage, root
):
    with pytest.raises(SourceMissing):
        copy_file(f"{root}/none", f"{root}/b", 0, place.sides)
    put(storage, f"{root}/a", b"123")
    with pytest.raises(ShortSource, match="has 3 bytes, the checkpoint needs 4"):
        copy_file(f"{root}/a", f"{root}/b", 4, place.sides)
    assert [status.name for status in storage.list(root)] == ["a"]


def test_a_copy_within_a_storage_has_the_recorded_bytes(place, storage, root):
    data = bytes(range(256)) * 20_000  # more than a chunk
    crc = google_crc32c.value(data)
    put(storage, f"{root}/a", data)
    for _ in range(2):  # what is there is replaced
        assert copy_within(f"{root}/a", f"{root}/new/b", len(data), crc, place.side) == (
            len(data),
            crc,
        )
        assert read(storage, f"{root}/new/b") == data
    assert read_exactly(f"{root}/a", len(data), crc, place.side) == (data, crc)


def test_a_copy_within_a_storage_of_other_bytes_or_of_nothing_leaves_no_file(place, storage, root):
    put(storage, f"{root}/a", b"123456789")
    for length, crc in [(9, 1), (8, 0xE3069283), (10, 0xE3069283)]:
        with pytest.raises((DamagedPart, ShortSource)):
            read_exactly(f"{root}/a", length, crc, place.side)
        if crc != 1 and storage.copies_within:
            continue  # the length is known from a listing
        with pytest.raises(DamagedPart):
            copy_within(f"{root}/a", f"{root}/b", length, crc, place.side)
    with pytest.raises(SourceMissing):
        copy_within(f"{root}/none", f"{root}/b", 9, 0xE3069283, place.side)
    assert [status.name for status in storage.list(root)] == ["a"]


def test_a_file_being_written_is_not_there_yet(storage, root):
    seen = []

    def chunks():
        yield b"first"
        seen.append(storage.stat(f"{root}/d/file"))
        yield b"second"

    storage.put(f"{root}/d/file", chunks)
    assert seen == [None]


def test_a_listing_hides_nothing(storage, root):
    names = {"file", ".hidden", TEMPORARY + "left-by-a-run-that-died"}
    for name in names:
        put(storage, f"{root}/d/{name}")
    put(storage, f"{root}/d/directory/file")
    assert {(each.name, each.is_directory) for each in storage.list(f"{root}/d")} == {
        *((name, False) for name in names),
        ("directory", True),
    }


def test_a_listing_of_more_than_a_page_is_complete(storage, root):
    """A page is 1,000 objects on S3, and 100 files on the clusters of these tests."""
    names = {f"{number:04}" for number in range(1100 if root.startswith(("s3", "gs")) else 220)}
    with ThreadPoolExecutor(64) as pool:
        list(pool.map(lambda name: put(storage, f"{root}/d/{name}"), names))
    assert {each.name for each in storage.list(f"{root}/d")} == names


def test_files_of_one_name_are_found_in_many_directories_as_a_list_has_them(storage, root):
    for path in ("chk-1/a", "chk-1/file", "chk-2/file", "chk-2/z", "chk-3/a", "chk-4/in/file"):
        put(storage, f"{root}/{path}", path.encode())
    for path in ("chk-5", "other/file", "xchk-6/file", "chk-8/file-7", "chk-", "file"):
        put(storage, f"{root}/{path}")
    expected = {
        name: status
        for name in ("chk-1", "chk-2")
        for status in storage.list(f"{root}/{name}")
        if status.name == "file"
    }
    named = storage.files_named(root, "chk-", "file", 1)
    if named is not None:
        assert {name: status._replace(permission=None) for name, status in named.items()} == {
            name: status._replace(permission=None) for name, status in expected.items()
        }
        assert storage.files_named(f"{root}/nothing", "chk-", "file", 1) == {}
    assert (named is not None) is root.startswith(("s3:", "gs:", "abfs:"))


def test_files_are_not_looked_for_by_more_calls_than_allowed(storage, root):
    """A page has at least 1,000 objects, and 5,000 on Azure."""
    if storage.files_named(root, "d", "0042", 1) is None or root.startswith("abfs"):
        return  # test_files_of_one_name_… has where that is
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda number: put(storage, f"{root}/d/{number:04}"), range(1001)))
    put(storage, f"{root}/d2/0042")
    assert storage.files_named(root, "d", "0042", 1) is None
    assert storage.files_named(root, "d", "0042", 2).keys() == {"d", "d2"}


def test_another_content_of_the_same_length_has_another_tag(storage, root):
    tags = []
    for content in (b"first", b"other"):
        put(storage, f"{root}/d/file", content)
        (status,) = storage.list(f"{root}/d")
        assert storage.listing(f"{root}/d").status(0) == status._replace(permission=None)
        assert storage.stat(f"{root}/d/file").tag == status.tag
        tags.append(status.tag)
    assert tags == [None, None] or tags[0] != tags[1]
    assert (None not in tags) is root.startswith(("s3:", "gs:", "abfs:"))


def test_an_empty_directory_goes_when_asked(place, storage, root):
    put(storage, f"{root}/d/file")
    storage.delete(f"{root}/d/file")
    assert storage.rmdir(f"{root}/d") is place.has_directories
    assert storage.stat(f"{root}/d") is None


def test_a_file_is_never_put_over_a_directory(place, storage, root):
    put(storage, f"{root}/d/file", b"x")
    if place.has_directories:
        with pytest.raises(OSError, match="director"):
            put(storage, f"{root}/d", b"y")
        assert [each.name for each in storage.list(root)] == ["d"]
    assert read(storage, f"{root}/d/file") == b"x"


def test_attributes_are_set_where_there_are_any(storage, root):
    put(storage, f"{root}/file", b"x", attributes=Attributes(0o640, 1_500_000_000.0))
    status = storage.stat(f"{root}/file")
    if status.permission is not None:
        assert (status.permission, status.modified) == (0o640, 1_500_000_000.0)


@pytest.mark.parametrize("name", ["a\0b", "a\ud800b"])
def test_a_name_that_no_filesystem_could_hold_is_refused_by_every_verb(storage, root, name):
    refused_by_every_verb(storage, f"{root}/{name}", "no file that a filesystem could hold")


def refused_by_every_verb(storage, bad, reason):
    verbs = [
        lambda: storage.open(bad),
        lambda: storage.stat(bad),
        lambda: storage.list(bad),
        lambda: put(storage, bad),
        lambda: storage.create_exclusive(bad, b""),
        lambda: storage.take_over(bad, b"", b""),
        lambda: storage.delete(bad),
        lambda: storage.rmdir(bad),
    ]
    for verb in verbs:
        with pytest.raises(Refused, match=reason):
            verb()


def test_a_fault_at_the_target_is_not_taken_for_a_missing_source(place, storage, root):
    put(storage, f"{root}/a", b"x")
    error = FileNotFoundError(errno.ENOENT, "the directory went", f"{root}/b")
    faulty = Faulty(storage, lambda verb, _uri: error if verb == "put" else None)
    with serving(root.partition(":")[0], faulty), pytest.raises(FileNotFoundError) as raised:
        copy_file(f"{root}/a", f"{root}/b", 1, place.sides)
    assert not isinstance(raised.value, SourceMissing)


@pytest.mark.parametrize("scheme", ["s3a", "s3n", "s3p"])
def test_an_object_is_the_same_under_every_name_that_s3_was_recorded_by(s3, scheme):
    s3.make_bucket("conformance")
    side, key = s3_side(s3.endpoint), f"conformance/{uuid.uuid4().hex}/file"
    side = replace(
        side,
        options=tuple(
            (f"{name}:", options) for name in ("s3", scheme) for _, options in side.options
        ),
    )
    put(side.storage("s3://conformance"), f"s3://{key}", b"x")
    assert read(side.storage(f"{scheme}://conformance"), f"{scheme}://{key}") == b"x"


def test_a_storage_whose_package_is_not_installed_raises_an_error_that_names_it():
    with pytest.raises(UsageError, match="pip install ossfs"):
        Side().storage("oss://b/x")
