"""What writing many files into packs promises."""

import errno
import threading
from collections.abc import Generator

import pytest
from google_crc32c import value
from hypothesis import given, settings
from hypothesis import strategies as st

from cpreplicate.runners import Copy, Outcome, Read, RunnerStopped
from cpreplicate.runners.batch import perform
from cpreplicate.runners.packs import PackPool, write_packs
from cpreplicate.runners.tasks import Part
from cpreplicate.storage import Sides, Transient
from cpreplicate.storage.base import Content
from cpreplicate.storage.wrappers.base import StorageWrapper
from cpreplicate.storage.wrappers.retry import Retrying
from tests.support.faults import Faulty
from tests.support.memory import MemoryStorage
from tests.support.registry import serving
from tests.support.tracing import Tracing

TWO_WRITERS = PackPool(4, 2)
STEM = "memory:/replica/packed/run"
CONTENTS = st.lists(st.binary(max_size=40), min_size=1, max_size=30)


def filled(contents: list[bytes]) -> tuple[MemoryStorage, dict[int, Copy]]:
    """Return a storage with one source file for each content, and the members to be packed."""
    storage = MemoryStorage()
    for number, content in enumerate(contents):
        storage.put(f"memory:/source/{number}", lambda content=content: [content])
    return storage, {
        number: Copy(
            f"memory:/source/{number}", f"memory:/replica/shared/{number}", len(content), pack=STEM
        )
        for number, content in enumerate(contents)
    }


def packed(members: dict[int, Copy], packing: PackPool = TWO_WRITERS) -> dict[int, Outcome]:
    return write_packs(
        members, Sides(), lambda _count: None, lambda _number, _outcome: None, packing
    )


def read(storage: MemoryStorage, outcome: Outcome) -> bytes:
    assert outcome.pack is not None
    with storage.open(outcome.pack) as stream:
        stream.seek(outcome.offset)
        return stream.read(outcome.bytes)


def packs_of(storage: MemoryStorage) -> list[str]:
    return [status.uri for status in storage.list("memory:/replica/packed")]


@given(
    CONTENTS,
    st.builds(
        PackPool, st.integers(1, 4), st.integers(1, 3), st.integers(1, 99), st.integers(1, 99)
    ),
)
@settings(max_examples=100, deadline=None)
def test_each_member_lies_at_its_offset_with_its_crc32c(contents, packing):
    storage, members = filled(contents)
    with serving("memory", storage):
        outcomes = packed(members, packing)
    assert [read(storage, outcomes[number]) for number in range(len(contents))] == contents
    assert [outcomes[number].crc32c for number in range(len(contents))] == list(
        map(value, contents)
    )
    lengths = sum(storage.stat(pack).length for pack in packs_of(storage))
    assert lengths == sum(map(len, contents))  # nothing else is in them
    assert {outcome.target for outcome in outcomes.values()} == {
        member.target for member in members.values()
    }


def test_a_pack_is_at_most_one_member_longer_than_asked_for():
    storage, members = filled([b"x" * 10] * 100)
    with serving("memory", storage):
        packed(members, PackPool(4, 2, pack_bytes=95))
    assert max(storage.stat(pack).length for pack in packs_of(storage)) <= 100


def test_a_missing_or_short_source_fails_alone():
    storage, members = filled([b"one", b"two", b"three"])
    storage.delete("memory:/source/0")
    storage.put("memory:/source/1", lambda: [b""])
    with serving("memory", storage):
        outcomes = packed(members)
    assert (outcomes[0].missing, outcomes[1].short, outcomes[2].error) == (True, True, None)
    assert [storage.stat(pack).length for pack in packs_of(storage)] == [len(b"three")]


class BreaksOnce(StorageWrapper):
    """Fails the first put after `good` pieces of its content."""

    def __init__(self, inner: MemoryStorage, good: int) -> None:
        super().__init__(inner)
        self.good, self.left = good, 1

    def put(self, uri: str, content: Content, *args: object, **kwargs: object) -> int:
        if not self.left:
            return super().put(uri, content, *args, **kwargs)
        self.left -= 1
        pieces = iter(content())
        for _ in range(self.good):
            next(pieces)
        assert isinstance(pieces, Generator)
        pieces.close()
        raise Transient(errno.EIO, "the connection was lost", uri)


def test_a_pack_that_is_written_again_has_every_member_once():
    contents = [bytes([number]) * number for number in range(1, 20)]
    storage, members = filled(contents)
    with serving("memory", Retrying(BreaksOnce(storage, 5), 60)):
        outcomes = packed(members, PackPool(4, 1, read_ahead=50))
    assert [read(storage, outcomes[number]) for number in range(len(contents))] == contents
    assert storage.stat(packs_of(storage)[0]).length == sum(map(len, contents))


def test_where_packs_cannot_be_written_every_member_fails_and_nothing_appears():
    storage, members = filled([b"abc"] * 50)
    no_puts = Faulty(
        storage, lambda verb, _uri: OSError(errno.EDQUOT, "full") if verb == "put" else None
    )
    with serving("memory", no_puts):
        outcomes = packed(members, PackPool(4, 2, pack_bytes=10, read_ahead=12))
    assert len(outcomes) == 50
    assert all(outcome.is_worth_a_try for outcome in outcomes.values())
    assert packs_of(storage) == []


def test_what_breaks_off_is_raised_and_nothing_appears():
    storage, members = filled([b"abc"] * 50)
    calls = iter(range(20))

    def moved(_count: int) -> None:
        if next(calls, None) is None:
            raise RunnerStopped

    with serving("memory", storage), pytest.raises(RunnerStopped):
        write_packs(members, Sides(), moved, lambda *_: None, PackPool(4, 1, read_ahead=9))
    assert packs_of(storage) == []


def test_a_member_is_done_only_when_its_pack_is_there():
    storage, members = filled([b"abc"] * 10)
    lock, missing = threading.Lock(), []

    def done(_number: int, outcome: Outcome) -> None:
        with lock:
            if storage.stat(str(outcome.pack)) is None:
                missing.append(outcome)

    with serving("memory", storage):
        write_packs(members, Sides(), lambda _count: None, done, PackPool(2, 2, pack_bytes=4))
    assert len(packs_of(storage)) >= 2
    assert missing == []


def test_the_members_of_a_pack_are_read_through_one_stream():
    storage, members = filled([b"one", b"two", b"three"])
    tracing = Tracing(storage)
    with serving("memory", tracing):
        outcomes = packed(members, PackPool(1, 1))
        reads = [
            Read(outcome.target, outcome.bytes, outcome.pack, outcome.offset)
            for outcome in outcomes.values()
        ]
        tracing.calls.clear()
        results = perform(reads, Sides())
    assert [result.crc32c for result in results] == [value(b"one"), value(b"two"), value(b"three")]
    assert [verb for verb, _uri in tracing.calls] == ["open"]


@pytest.mark.parametrize("pack", [None, STEM])
def test_a_member_is_copied_out_of_its_pack_only_if_its_crc32c_is_the_recorded_one(pack):
    storage, members = filled([b"one", b"two"])
    with serving("memory", storage):
        outcomes = packed(members, PackPool(1, 1))
        copies = [
            Copy(
                str(outcome.pack), f"memory:/replica/shared/again-{number}", outcome.bytes,
                pack=pack, part=Part(outcome.offset, outcome.crc32c + number),
            )
            for number, outcome in outcomes.items()
        ]  # fmt: skip
        good, damaged = perform(copies, Sides())
    assert good.crc32c == value(b"one")
    assert good.error is None
    assert str(damaged.error).startswith("Damaged")
    assert storage.stat("memory:/replica/shared/again-1") is None
