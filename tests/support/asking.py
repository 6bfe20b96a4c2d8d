"""For tests: a simulated disk that is far away, so that what is asked of it is asked ahead.

What is asked ahead is asked by the thread that asks, in an order that is always the same. An answer
is that of the moment of `asking`, which is as old as one of a real storage can be, or that of the
moment of `taking`. Each verb takes a round trip of the disk's clock.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Literal, TypeAlias, TypeVar

import pytest

from cpreplicate.storage.base import Storage
from cpreplicate.storage.waiting.side_call import SideCall
from cpreplicate.storage.wrappers import ahead
from tests.support import staging
from tests.support.simulated import SimulatedDisk

T = TypeVar("T")
Moment: TypeAlias = Literal["asking", "taking"]
MOMENTS: tuple[Moment, ...] = ("asking", "taking")
ROUND_TRIP = 0.04  # seconds


class Far(ahead.Answering):
    """A simulated disk, each verb of which takes a round trip. It answers ahead."""

    def __init__(self, disk: SimulatedDisk) -> None:
        super().__init__(disk)
        self._clock = disk.clock

    def carry_out(self, verb: str, uri: str, call: Callable[[], T]) -> T:
        self._clock.pass_(ROUND_TRIP)
        return super().carry_out(verb, uri, call)


class Asked(Counter[str]):
    """How many questions were `asked` ahead, and how many of their answers were `taken`."""

    def begin(self, call: Callable[[], T], is_made: bool) -> SideCall[T]:
        """Return a call that is made now, or by who waits for it."""
        self["asked"] += 1
        begun = Answer(call, self)
        if is_made:
            begun.run()
        return begun


class Answer(SideCall[T]):
    """The answer to a question, which is counted once it is taken."""

    def __init__(self, call: Callable[[], T], asked: Asked) -> None:
        super().__init__(call)
        self._asked = asked

    def wait_or_be_cancelled(self, seconds: float) -> bool:  # noqa: ARG002  # it is made at once
        self._asked["taken"] += 1
        if not self.has_ended:
            self.run()
        return True


@contextlib.contextmanager
def asked_ahead(moment: Moment) -> Iterator[Asked]:
    """Let simulated disks answer ahead while the block runs, with the answer of some moment."""
    asked = Asked()

    def begin(call: Callable[[], Any], name: str) -> SideCall[Any]:
        if name == "ahead":
            return asked.begin(call, moment == "asking")
        begun = SideCall(call)
        begun.run()
        return begun

    far: dict[SimulatedDisk, Storage] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ahead, "in_thread", begin)
        patch.setattr(staging, "served", lambda disk: far.setdefault(disk, Far(disk)))
        yield asked
