"""Questions that are asked before their answers are needed, so that their round trips overlap.

Who knows what is asked next begins these calls at once. The code that asks them later, one after
the other, gets the answers that have come meanwhile. Without a scope, and of local files, nothing
is asked ahead. An answer counts for some seconds, else what is asked is asked again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar, copy_context
from functools import partial
from typing import Any, TypeVar, cast

from cpreplicate.core.clock import Instant
from cpreplicate.storage.base import ANSWER_COUNTS, Storage
from cpreplicate.storage.statuses import FileStatus, Listing
from cpreplicate.storage.waiting.cancellation import cancellable
from cpreplicate.storage.waiting.side_call import SideCall, in_thread
from cpreplicate.storage.wrappers.base import StorageWrapper

T = TypeVar("T")


class _Asked:
    """The questions of a scope whose answers nobody has taken yet."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: dict[Hashable, _Answer] = {}

    def ask(
        self, question: Hashable, call: Callable[[], object], seconds: float, times: int = 1
    ) -> None:
        """Begin a call, unless the question is under way, or the system has no thread left.

        The answer counts for some seconds from now on, and may be taken so many times.
        """
        with self._lock, suppress(RuntimeError):
            if self._fresh(question) is None:
                self._calls[question] = _Answer(call, seconds, times)

    def take(self, question: Hashable) -> _Answer | None:
        """Return the answer to a question, None if it was not asked, or for too long.

        It is another one's as often as it may be taken.
        """
        with self._lock:
            answer = self._fresh(question)
            if answer is not None:
                answer.times -= 1
                if not answer.times:
                    del self._calls[question]
            return answer

    def look(self, question: Hashable) -> _Answer | None:
        """Return the answer to a question, which may still be taken."""
        with self._lock:
            return self._fresh(question)

    def _fresh(self, question: Hashable) -> _Answer | None:
        """Return the answer to a question if it counts; one that is too old is dropped."""
        answer = self._calls.get(question)
        if answer is None or answer.counts:
            return answer
        self._calls.pop(question).is_dropped = True
        return None

    def age(self) -> float:
        """Return how many seconds ago the first question was asked whose answer may be taken."""
        with self._lock:
            return max((answer.asked.age() for answer in self._calls.values()), default=0.0)

    def drop(self) -> None:
        """Leave the calls alone that nobody waits for; a try after them is not begun."""
        with self._lock:
            left, self._calls = list(self._calls.values()), {}
        for answer in left:
            answer.is_dropped = True


class _Dropped(Exception):
    """Ends a call whose answer nobody needs any more."""


class _Answer:
    """The answer to a question, which is on its way."""

    def __init__(self, call: Callable[[], object], seconds: float, times: int) -> None:
        self.is_dropped, self.times = False, times
        self.asked, self._seconds = Instant.now(), seconds
        self._error: BaseException | None = None
        context = copy_context()  # what cancels the caller ends this call, too

        def carried_out() -> object:
            with cancellable(self._go_on):
                return call()

        self._call: SideCall[object] = in_thread(lambda: context.run(carried_out), "ahead")

    @property
    def counts(self) -> bool:
        """Whether the question was asked so lately that its answer counts."""
        return self.asked.age() < self._seconds

    def _go_on(self) -> None:
        if self.is_dropped:
            raise _Dropped

    def wait(self) -> object:
        """Return what the call returned, or raise what it raised."""
        self._call.wait_or_be_cancelled(threading.TIMEOUT_MAX)
        if self._error is None:
            try:
                return self._call.result()
            except BaseException as error:  # noqa: BLE001  # raised below, each time it is taken
                self._error = error
        raise self._error

    def returned(self) -> object:
        """Return what the call returned, None if it failed: who takes the answer sees why."""
        with suppress(Exception):
            return self.wait()
        return None


class ReadAhead:
    """Small files that are read before their copies begin. Each is taken once."""

    def __init__(self) -> None:
        self._asked = _Asked()

    def begin(self, storage: Storage, uri: str, most: int) -> None:
        """Begin to read a file. It counts for some seconds, if it has at most so many bytes."""

        def read() -> bytes | None:
            data = storage.read(uri, 0, most + 1)
            return data if len(data) <= most else None

        self._asked.ask(uri, read, ANSWER_COUNTS)

    def take(self, uri: str) -> bytes | None:
        """Return the bytes of a file, None if they are not known: who opens it finds out why."""
        answer = self._asked.take(uri)
        if answer is None:
            return None
        try:
            return cast("bytes | None", answer.wait())
        except OSError:
            return None

    def drop(self) -> None:
        """Leave the reads alone that nobody waits for."""
        self._asked.drop()


_asked: ContextVar[_Asked | None] = ContextVar("asked", default=None)


@contextmanager
def asking_ahead() -> Iterator[None]:
    """Let questions be asked ahead while the block runs. Answers that nobody took are dropped."""
    asked = _Asked()
    token = _asked.set(asked)
    try:
        yield
    finally:
        _asked.reset(token)
        asked.drop()


def _answered(question: Hashable, call: Callable[[], T]) -> T:
    """Return the answer to a question that was asked ahead, or raise its error; else call."""
    asked = _asked.get()
    answer = asked.take(question) if asked is not None else None
    return call() if answer is None else cast(T, answer.wait())


def together(*calls: Callable[[], object]) -> None:
    """Make calls at once, in threads but for the last one, and wait for all.

    Raises what the first of them that failed raised, once all have ended.
    """
    others = [_begun(partial(copy_context().run, call)) for call in calls[:-1]]
    try:
        calls[-1]()
    finally:
        for other in others:
            other.wait()
    for other in others:
        other.result()


def overlapping(storage: Storage, *calls: Callable[[], object]) -> None:
    """Make calls `together` where the storage is far away, else one after the other."""
    if storage.answers_ahead:
        together(*calls)
        return
    for call in calls:
        call()


def _begun(call: Callable[[], object]) -> SideCall[object]:
    """Begin a call in a thread, or make it if the system has none left."""
    try:
        return in_thread(call, "together")
    except RuntimeError:
        made = SideCall(call)
        made.run()
        return made


def drop_answers() -> None:
    """Drop the answers that nobody took: from now on, what is asked may have another answer."""
    asked = _asked.get()
    if asked is not None:
        asked.drop()


def age() -> float:
    """Return how many seconds ago what is asked now may have been answered."""
    asked = _asked.get()
    return 0.0 if asked is None else asked.age()


class Answering(StorageWrapper):
    """A storage whose answers may have come before they are asked for.

    Without `asking_ahead`, nothing is asked ahead.
    """

    def __init__(self, inner: Storage) -> None:
        super().__init__(inner)
        self.answers_ahead = True

    def ask(
        self, verb: str, *arguments: Any, seconds: float = ANSWER_COUNTS, times: int = 1
    ) -> None:
        asked = _asked.get()
        if asked is not None:
            call = getattr(super(), verb)
            asked.ask((self, verb, *arguments), partial(call, *arguments), seconds, times)

    def answer(self, verb: str, *arguments: Any) -> Any:
        asked = _asked.get()
        answer = None if asked is None else asked.look((self, verb, *arguments))
        return None if answer is None else answer.returned()

    def stat(self, uri: str) -> FileStatus | None:
        return _answered((self, "stat", uri), lambda: super(Answering, self).stat(uri))

    def list(self, uri: str) -> list[FileStatus]:
        return _answered((self, "list", uri), lambda: super(Answering, self).list(uri))

    def listing(self, uri: str) -> Listing:
        return _answered((self, "listing", uri), lambda: super(Answering, self).listing(uri))

    def files_named(
        self, uri: str, prefix: str, name: str, most: int
    ) -> Mapping[str, FileStatus] | None:
        question = (self, "files_named", uri, prefix, name, most)
        call = super().files_named
        return _answered(question, lambda: call(uri, prefix, name, most))

    def read(self, uri: str, offset: int = 0, count: int | None = None) -> bytes:
        question = (self, "read", uri, offset, count)
        return _answered(question, lambda: super(Answering, self).read(uri, offset, count))

    def as_one(self, verb: str, uri: str, calls: Callable[[Storage], T]) -> T:
        question = (self, "as_one", verb, uri, calls)
        return _answered(question, lambda: super(Answering, self).as_one(verb, uri, calls))
