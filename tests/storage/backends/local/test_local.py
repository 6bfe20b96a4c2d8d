"""What only local storage has: a disk, and files that are none."""

import os
import shutil
from pathlib import Path

import pytest

from cpreplicate.errors import TargetGone, UsageError
from cpreplicate.storage import Side, Sides, copy_file


@pytest.fixture
def root(tmp_path):
    return f"file:{tmp_path}"


@pytest.fixture
def storage(root):
    return Side().storage(root)


def test_a_scheme_that_is_not_supported_is_a_usage_error():
    with pytest.raises(UsageError, match="hdfs"):
        Side().storage("hdfs://ns/x")
    with pytest.raises(UsageError, match="memory"):
        Side().storage("memory:/x")


def test_the_place_of_a_file_is_where_it_lies(storage, root, tmp_path):
    storage.put(f"{root}/a/b", lambda: [b"x"])
    assert Path(tmp_path / "a" / "b").read_bytes() == b"x"


def test_what_is_put_is_durable_with_every_directory_on_the_way(
    storage, root, tmp_path, monkeypatch
):
    synced, fsync = [], os.fsync

    def spy(descriptor):
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink())
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", spy)
    storage.put(f"{root}/job/shared/file", lambda: [b"x"])
    assert {tmp_path, tmp_path / "job", tmp_path / "job" / "shared"} <= set(synced)
    assert synced[-1] == tmp_path / "job" / "shared"  # after the rename
    synced.clear()
    storage.put(f"{root}/job/shared/other", lambda: [b"x"])
    assert len(synced) == 2  # the file and its directory


def test_threads_that_need_the_same_new_directory_do_not_meet(storage, root):
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(16) as pool:
        assert (
            list(pool.map(lambda n: storage.put(f"{root}/a/b/c/{n}", lambda: [b"x"]), range(64)))
            == [1] * 64
        )


def test_a_pipe_or_a_device_is_an_error_not_an_endless_copy(root, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for place in (f"{root}/pipe", "file:/dev/zero"):
        with pytest.raises(OSError, match="not a regular file"):
            copy_file(place, f"{root}/copy", 0, Sides())
    assert [each.name for each in tmp_path.iterdir()] == ["pipe"]


def test_a_file_behind_a_symbolic_link_is_read(storage, root, tmp_path):
    (tmp_path / "real").write_bytes(b"x")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with storage.open(f"{root}/link") as stream:
        assert stream.read() == b"x"


@pytest.mark.parametrize("verb", ["put", "create_exclusive"])
def test_a_file_system_that_is_full_leaves_no_temporary_file(
    verb, storage, root, tmp_path, monkeypatch
):
    def full(_descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        (
            storage.put(f"{root}/f", lambda: [b"x"])
            if verb == "put"
            else storage.create_exclusive(f"{root}/f", b"x")
        )
    assert list(tmp_path.iterdir()) == []


def test_an_error_of_an_open_file_has_its_path_and_one_of_its_content_keeps_its_text(
    storage, root, tmp_path, monkeypatch
):
    def content():
        raise OSError("the other side failed")
        yield

    with pytest.raises(OSError, match=r"^the other side failed$"):
        storage.put(f"{root}/f", content)

    def full(_descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left") as raised:
        storage.put(f"{root}/f", lambda: [b"x"])
    assert raised.value.filename == f"{tmp_path}/f"


def test_inside_a_directory_others_are_made_but_never_that_one(root, tmp_path):
    (tmp_path / "replica").mkdir()
    inside = Side().storage(root, f"{root}/replica")
    inside.put(f"{root}/replica/a/b/c", lambda: [b"x"])
    assert (tmp_path / "replica/a/b/c").read_bytes() == b"x"
    shutil.rmtree(tmp_path / "replica")
    with pytest.raises(TargetGone, match="replica is gone"):
        inside.put(f"{root}/replica/a/b/c", lambda: [b"x"])
    with pytest.raises(TargetGone):
        inside.create_exclusive(f"{root}/replica/c", b"x")
    assert list(tmp_path.iterdir()) == []
