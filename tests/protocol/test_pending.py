"""A file that is written early appears when it is told to, whole, or not at all."""

import errno
import threading

import pytest

from cpreplicate.protocol.pending import PendingPut
from cpreplicate.storage import Transient
from cpreplicate.storage.backends.local.local import LocalStorage
from cpreplicate.storage.base import TEMPORARY
from cpreplicate.storage.wrappers.retry import Retrying
from tests.support.faults import Faulty
from tests.support.waiting import PATIENCE


class SlowlyClosing(LocalStorage):
    """Local files that are written in a thread of their own."""

    closes_slowly = True


STORAGES = pytest.mark.parametrize(
    "storage", [LocalStorage(), SlowlyClosing()], ids=["now", "early"]
)


def names(directory):
    return sorted(path.name for path in directory.iterdir())


@pytest.fixture
def directory(tmp_path):
    path = tmp_path / "replica"
    path.mkdir()
    return path


def test_it_is_written_beside_other_work_and_appears_by_release(directory):
    written = threading.Event()

    def content():
        yield b"data"
        written.set()

    with PendingPut(SlowlyClosing(), f"file:{directory}/f", content) as pending:
        assert written.wait(PATIENCE)
        assert not (directory / "f").exists()
        pending.appear()
        assert (directory / "f").read_bytes() == b"data"
    assert names(directory) == ["f"]


@STORAGES
def test_it_leaves_nothing_if_the_block_ends_before(storage, directory):
    with PendingPut(storage, f"file:{directory}/f", lambda: [b"data"]):
        pass
    assert names(directory) == []


@STORAGES
def test_it_leaves_nothing_if_the_check_raises_and_appear_raises_that(storage, directory):
    def lost():
        raise ValueError("the lease is lost")

    with (
        pytest.raises(ValueError, match="the lease is lost"),
        PendingPut(storage, f"file:{directory}/f", lambda: [b"data"]) as pending,
    ):
        pending.appear(lost)
    assert names(directory) == []


@STORAGES
def test_a_failure_while_it_is_written_is_raised_by_appear(storage, directory):
    full = OSError(errno.ENOSPC, "no space left")
    storage = Faulty(storage, lambda verb, _uri: full if verb == "put" else None)
    with (
        PendingPut(storage, f"file:{directory}/f", lambda: [b"data"]) as pending,
        pytest.raises(OSError, match="no space left"),
    ):
        pending.appear()


@STORAGES
def test_without_replace_it_raises_where_a_file_is_and_keeps_that(storage, directory):
    (directory / "f").write_bytes(b"of another program")
    with (
        PendingPut(storage, f"file:{directory}/f", lambda: [b"data"], False) as pending,
        pytest.raises(FileExistsError),
    ):
        pending.appear()
    assert (directory / "f").read_bytes() == b"of another program"
    assert not [name for name in names(directory) if name.startswith(TEMPORARY)]


@pytest.mark.parametrize("is_released", [False, True])
def test_it_gives_up_a_storage_that_is_down_once_the_block_ends(directory, is_released):
    tried = threading.Event()

    def down(verb, _uri):
        if verb == "put":
            tried.set()
            return Transient(errno.EIO, "down")
        return None

    storage = Retrying(Faulty(SlowlyClosing(), down), 3600)
    with PendingPut(storage, f"file:{directory}/f", lambda: [b"data"]) as pending:
        assert tried.wait(PATIENCE)
        if is_released:
            interrupt = threading.Timer(0.2, pending.close)
            interrupt.start()
            pending.appear()
            interrupt.join()
    assert names(directory) == []
