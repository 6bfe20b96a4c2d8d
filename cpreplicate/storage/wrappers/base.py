"""The base of all wrappers: a storage around another one."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar

from cpreplicate.storage.base import ANSWER_COUNTS, Storage

T = TypeVar("T")
R = TypeVar("R")
P = ParamSpec("P")
# the verbs that change nothing
READING = frozenset({"open", "read", "stat", "list"})


def _passed_on(
    method: Callable[Concatenate[Any, P], R], verb: str, of: int = 0
) -> Callable[Concatenate[StorageWrapper, P], R]:
    """Return a method of `Storage`, carried out as a verb on the URI that is its argument `of`."""

    def passed_on(wrapper: StorageWrapper, /, *arguments: P.args, **named: P.kwargs) -> R:
        def call() -> R:
            result: R = getattr(wrapper.unwrapped, method.__name__)(*arguments, **named)
            return result

        return wrapper.carry_out(verb, str(arguments[of]), call)

    return passed_on


class StorageWrapper(Storage):
    """A storage that passes every verb on to another one through `carry_out`."""

    def __init__(self, inner: Storage) -> None:
        self._inner = inner
        self.streams, self.closers = inner.streams, inner.closers
        self.retries = inner.retries
        self.put_calls, self.closes_slowly = inner.put_calls, inner.closes_slowly
        self.has_directories, self.copies_within = inner.has_directories, inner.copies_within
        self.needs_conditions, self.keeps_uploads = inner.needs_conditions, inner.keeps_uploads
        self.unusable, self.counts_for_space = inner.unusable, inner.counts_for_space
        self.listed_a_call = inner.listed_a_call
        self.lists_less, self.joins = inner.lists_less, inner.joins
        self.answers_ahead = inner.answers_ahead

    @property
    def unwrapped(self) -> Storage:
        return self._inner.unwrapped

    def inside(self, directory: str) -> Storage:
        inner = self._inner.inside(directory)
        if inner is self._inner:
            return self
        other = copy.copy(self)
        other._inner = inner
        return other

    def carry_out(self, verb: str, uri: str, call: Callable[[], T]) -> T:
        """Carry out a verb. A subclass may act before it, raise instead of it, or repeat it."""
        self.before(verb, uri)
        return self._inner.carry_out(verb, uri, call)

    def ask(
        self, verb: str, *arguments: Any, seconds: float = ANSWER_COUNTS, times: int = 1
    ) -> None:
        self._inner.ask(verb, *arguments, seconds=seconds, times=times)

    def answer(self, verb: str, *arguments: Any) -> Any:
        return self._inner.answer(verb, *arguments)

    def before(self, verb: str, uri: str) -> None:
        """Act before each verb; an exception is raised instead of it."""

    open = _passed_on(Storage.open, "open")
    open_extent = _passed_on(Storage.open_extent, "open")
    read = _passed_on(Storage.read, "open")
    stat = _passed_on(Storage.stat, "stat")
    list = _passed_on(Storage.list, "list")
    listing = _passed_on(Storage.listing, "list")
    files_named = _passed_on(Storage.files_named, "list")
    put = _passed_on(Storage.put, "put")
    create_exclusive = _passed_on(Storage.create_exclusive, "create_exclusive")
    take_over = _passed_on(Storage.take_over, "take_over")
    keep_room = _passed_on(Storage.keep_room, "put")
    delete_into_room = _passed_on(Storage.delete_into_room, "delete")
    fill_room = _passed_on(Storage.fill_room, "put", of=1)
    begin_join = _passed_on(Storage.begin_join, "put")
    write_range = _passed_on(Storage.write_range, "put")
    join = _passed_on(Storage.join, "put")
    give_up_join = _passed_on(Storage.give_up_join, "delete")
    publish = _passed_on(Storage.publish, "put")
    withdraw = _passed_on(Storage.withdraw, "delete")
    fence = _passed_on(Storage.fence, "put")
    ignored_conditions = _passed_on(Storage.ignored_conditions, "put")
    move = _passed_on(Storage.move, "move")
    delete = _passed_on(Storage.delete, "delete")
    rmdir = _passed_on(Storage.rmdir, "rmdir")
    rmdir_left = _passed_on(Storage.rmdir_left, "rmdir")
    abort_uploads = _passed_on(Storage.abort_uploads, "delete")
    space = _passed_on(Storage.space, "stat")
    copy_within = _passed_on(Storage.copy_within, "put", of=1)

    def file_id(self, uri: str) -> object | None:
        return self.unwrapped.file_id(uri)

    def are_in_one_mount(self, uri: str, other: str) -> bool:
        return self.unwrapped.are_in_one_mount(uri, other)

    def mounts_below(self, uri: str) -> Sequence[str]:
        return self.unwrapped.mounts_below(uri)

    def real(self, uri: str) -> str:
        return self.unwrapped.real(uri)
