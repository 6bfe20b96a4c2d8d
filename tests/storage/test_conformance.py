"""What the commit protocol asks of every storage, be it local or, for tests, in memory."""

import contextlib
import errno
import threading

import pytest

from cpreplicate.errors import Refused
from cpreplicate.storage import ShortSource, SourceMissing, checksum, copy_file, storage_for
from cpreplicate.storage.base import TEMPORARY
from cpreplicate.storage.faults import Faulty
from cpreplicate.storage.memory import MemoryStorage
from cpreplicate.storage.registry import serving

NAMES = ["plain", "with space", "50%", "%2e%2e", "a?b#c", "ünïcode", "semi;colon", "-dash"]


@pytest.fixture(params=["file", "memory"])
def root(request, tmp_path):
    with contextlib.ExitStack() as stack:
        if request.param == "memory":
            stack.enter_context(serving("memory", MemoryStorage()))
        yield f"{request.param}:{tmp_path}"


@pytest.fixture
def storage(root):
    return storage_for(root)


def read(storage, uri):
    with storage.open(uri) as stream:
        return stream.read()


@pytest.mark.parametrize("name", NAMES)
def test_what_is_put_is_read_listed_and_deleted_under_its_literal_name(storage, root, name):
    uri = f"{root}/new/{name}"
    assert storage.put(uri, [b"ab", b"c"]) == 3
    assert read(storage, uri) == b"abc"
    assert [(s.uri, s.name, s.length, s.is_directory) for s in storage.list(f"{root}/new")] == [(uri, name, 3, False)]
    assert storage.stat(uri).length == 3
    assert storage.delete(uri)
    assert storage.stat(uri) is None


def test_what_is_not_there_is_told_not_raised(storage, root):
    assert storage.stat(f"{root}/x/y") is None
    assert storage.list(f"{root}/x") == []
    assert storage.delete(f"{root}/x") is False
    assert storage.rmdir(f"{root}/x") is False
    assert storage.move(f"{root}/x", f"{root}/y") is False
    with pytest.raises(FileNotFoundError):
        storage.open(f"{root}/x")


def test_a_put_that_fails_leaves_what_was_there_and_nothing_else(storage, root):
    uri = f"{root}/d/file"
    storage.put(uri, [b"old"])

    def torn():
        yield b"new, but only ha"
        raise OSError(errno.EIO, "the disk failed")

    with pytest.raises(OSError, match="the disk failed"):
        storage.put(uri, torn())

    def too_short(length):
        raise ShortSource(f"{length} bytes")

    with pytest.raises(ShortSource):
        storage.put(uri, [b"new"], too_short)
    assert read(storage, uri) == b"old"
    assert [each.name for each in storage.list(f"{root}/d")] == ["file"]


def test_a_put_replaces_a_file_as_a_whole_while_it_is_read(storage, root):
    uri = f"{root}/file"
    storage.put(uri, [b"old"])
    with storage.open(uri) as reader:
        storage.put(uri, [b"newer"])
        assert reader.read() == b"old"
    assert read(storage, uri) == b"newer"


def test_of_many_contenders_one_creates(storage, root):
    start, won = threading.Barrier(16), []

    def contend(number):
        start.wait()
        if storage.create_exclusive(f"{root}/d/lease", b"%d" % number):
            won.append(number)

    threads = [threading.Thread(target=contend, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert read(storage, f"{root}/d/lease") == b"%d" % won[0]
    assert len(storage.list(f"{root}/d")) == 1


def test_of_many_contenders_one_moves_away(storage, root):
    storage.put(f"{root}/lease", [b""])
    moved = [storage.move(f"{root}/lease", f"{root}/aside-{n}") for n in range(3)]
    assert moved == [True, False, False]


def test_a_directory_is_never_deleted_with_what_it_holds(storage, root):
    storage.put(f"{root}/d/file", [b""])
    with pytest.raises(OSError, match="director"):
        storage.delete(f"{root}/d")
    assert storage.rmdir(f"{root}/d") is False
    assert storage.stat(f"{root}/d/file") is not None


def test_a_copy_tells_length_and_crc32c(storage, root):
    storage.put(f"{root}/a", [b"123456789"])
    copied = copy_file(f"{root}/a", f"{root}/new/b", 9)
    assert copied == (9, 0xE3069283)  # the check value of CRC-32C
    assert checksum(f"{root}/new/b") == copied


def test_a_merged_file_is_copied_to_its_end(storage, root):
    storage.put(f"{root}/a", [b"123456789"])
    assert copy_file(f"{root}/a", f"{root}/b", 4).bytes == 9


def test_a_source_that_is_missing_or_short_is_told_apart_and_publishes_nothing(storage, root):
    with pytest.raises(SourceMissing):
        copy_file(f"{root}/none", f"{root}/b", 0)
    storage.put(f"{root}/a", [b"123"])
    with pytest.raises(ShortSource, match="has 3 bytes, the checkpoint needs 4"):
        copy_file(f"{root}/a", f"{root}/b", 4)
    assert [status.name for status in storage.list(root)] == ["a"]


def test_a_new_file_whose_bytes_fail_never_appears(storage, root):
    def torn():
        yield b"half"
        raise OSError(errno.EIO, "the disk failed")

    with pytest.raises(OSError, match="the disk failed"):
        storage.put(f"{root}/d/file", torn())
    assert storage.stat(f"{root}/d/file") is None
    assert storage.list(f"{root}/d") == []


def test_a_file_being_written_is_not_there_yet(storage, root):
    seen = []

    def chunks():
        yield b"first"
        seen.append(storage.stat(f"{root}/d/file"))
        yield b"second"

    storage.put(f"{root}/d/file", chunks())
    assert seen == [None]


def test_a_listing_hides_nothing(storage, root):
    names = {"file", ".hidden", TEMPORARY + "left-by-a-run-that-died"}
    for name in names:
        storage.put(f"{root}/d/{name}", [b""])
    storage.put(f"{root}/d/directory/file", [b""])
    assert {(each.name, each.is_directory) for each in storage.list(f"{root}/d")} == {
        *((name, False) for name in names),
        ("directory", True),
    }


def test_an_empty_directory_goes_when_asked(storage, root):
    storage.put(f"{root}/d/file", [b""])
    storage.delete(f"{root}/d/file")
    assert storage.rmdir(f"{root}/d") is True
    assert storage.stat(f"{root}/d") is None


def test_a_file_is_never_put_over_a_directory(storage, root):
    storage.put(f"{root}/d/file", [b"x"])
    with pytest.raises(OSError, match="director"):
        storage.put(f"{root}/d", [b"y"])
    assert read(storage, f"{root}/d/file") == b"x"
    assert [each.name for each in storage.list(root)] == ["d"]


@pytest.mark.parametrize("name", ["a\0b", "a\ud800b"])
def test_a_name_that_no_filesystem_could_hold_is_refused_by_every_verb(storage, root, name):
    bad, good = f"{root}/{name}", f"{root}/good"
    storage.put(good, [b""])
    verbs = [
        lambda: storage.open(bad),
        lambda: storage.stat(bad),
        lambda: storage.list(bad),
        lambda: storage.put(bad, [b""]),
        lambda: storage.create_exclusive(bad, b""),
        lambda: storage.move(bad, good),
        lambda: storage.move(good, bad),
        lambda: storage.delete(bad),
        lambda: storage.rmdir(bad),
    ]
    for verb in verbs:
        with pytest.raises(Refused, match="no file that a filesystem could hold"):
            verb()


def test_a_fault_at_the_target_is_not_taken_for_a_missing_source(storage, root):
    storage.put(f"{root}/a", [b"x"])
    error = FileNotFoundError(errno.ENOENT, "the directory went", f"{root}/b")
    faulty = Faulty(storage, lambda verb, _uri: error if verb == "put" else None)
    with serving(root.partition(":")[0], faulty), pytest.raises(FileNotFoundError) as raised:
        copy_file(f"{root}/a", f"{root}/b", 1)
    assert not isinstance(raised.value, SourceMissing)
