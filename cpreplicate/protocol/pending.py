"""Files that are written early and appear later, so that waiting for their close costs no time.

On HDFS a close often waits half a second: the NameNode does not yet know of the last block
(`ClientProtocol.complete`). Several files that appear one after the other are therefore written and
closed at the same time, beside other work.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import cast

from cpreplicate.storage import Storage
from cpreplicate.storage.base import Content
from cpreplicate.storage.waiting.cancellation import cancellable
from cpreplicate.storage.waiting.side_call import SideCall, in_thread


def _no_check() -> None:
    """Check nothing."""


class PendingPut:
    """A file that is written now and appears later: a `put`, or a `publish` if `is_fenced`.

    It is written in a thread of its own if the storage closes files slowly, else when the file may
    appear. Without `content`, it is begun, and written once that is given by `fill`. As a context
    manager it removes what it wrote, unless the file appeared.
    """

    def __init__(
        self,
        storage: Storage,
        uri: str,
        content: Content | None,
        replace: bool = True,
        is_fenced: bool = False,
    ) -> None:
        self._storage, self._uri = storage, uri
        self._content, self._filled = content, threading.Event()
        self._replace, self._is_fenced = replace, is_fenced
        self._check: Callable[[], None] = _no_check
        self._is_cancelled = False
        self._may_appear = threading.Event()
        self._waiting, self._error = threading.Lock(), cast(BaseException | None, None)
        self._putting = _in_thread(self._put) if storage.closes_slowly else None

    def appear(self, check: Callable[[], None] = _no_check) -> None:
        """Let the file appear, and wait until it has; raise what the storage raises.

        `check` is called just before that, and may raise.
        """
        self._check = check
        self._may_appear.set()
        if self._putting is None:
            self._put()
        else:
            self.wait_until_there()

    def fill(self, content: Content) -> None:
        """Give the content of a file that was begun without."""
        self._content = content
        self._filled.set()

    def let_appear(self) -> None:
        """Let the file appear as soon as it is written; return at once if it is in a thread.

        What else relies on the file calls `wait_until_there`.
        """
        if self._putting is None:
            self.appear()
        self._may_appear.set()

    def wait_until_there(self) -> None:
        """Wait until the file has appeared; raise what the storage raised, to each that waits."""
        if self._putting is None:
            return
        with self._waiting:
            self._putting.wait()
            try:
                self._putting.result()
            except BaseException as error:  # noqa: BLE001  # raised below, also for others
                self._error = error
        if self._error is not None:
            raise self._error

    def __enter__(self) -> PendingPut:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove what was written, unless the file appeared."""
        self._is_cancelled = True
        self._may_appear.set()
        self._filled.set()
        if self._putting is not None:
            self._putting.wait()

    def _put(self) -> None:
        # without `cancellable`, retries outlast an interrupt
        with suppress(_Cancelled), cancellable(self._raise_if_cancelled):
            self._write()

    def _write(self) -> None:
        storage, uri = self._storage, self._uri
        content = self._content or self._later
        if self._is_fenced:
            storage.publish(uri, content, self._wait, self._replace)
        else:
            storage.put(uri, content, self._wait, None, self._replace)

    def _later(self) -> Iterator[bytes]:
        """Yield the content once it is given. The file is begun meanwhile."""
        self._filled.wait()
        self._raise_if_cancelled()
        assert self._content is not None, "it is filled"
        yield from self._content()

    def _wait(self, _length: int) -> None:
        self._may_appear.wait()
        self._raise_if_cancelled()
        self._check()

    def _raise_if_cancelled(self) -> None:
        if self._is_cancelled:
            raise _Cancelled


def _in_thread(call: Callable[[], None]) -> SideCall[None]:
    """Begin a call in a thread, with what its caller has asked ahead and may cancel."""
    return in_thread(partial(copy_context().run, call), "pending")


class _Cancelled(Exception):
    """Raised where a file is about to appear that nobody wants any more."""
