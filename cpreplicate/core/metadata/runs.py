"""Runs: consecutive entries of equal length, so that most of a list is checked as one block.

The *structure* of an entry is the bytes that determine what follows: lengths, types, the sign of a
size. Entries with the same structure have their fields at the same offsets. One such byte over all
entries is a slice with a stride, which is compared in C.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

# entries in a block; blocks grow, so that lists without runs are hardly read twice
_FIRST_BLOCK, _GROWTH, _MOST = 64, 4, 65_536
# bytes of names that are checked column by column; entries with longer ones are read one by one
_LONGEST_TEXT = 64


class Shape(NamedTuple):
    """The structure of an entry, by which the entries that follow it are recognised.

    `structure` are the offsets of the bytes that must equal those of `sample`, `text` those of the
    bytes that must be ASCII. The entry's handle begins at `handle_start`; it has a type, a path of
    `path_length` bytes and `length` bytes in all. Offsets count from the beginning of the entry.
    """

    sample: bytes
    structure: tuple[int, ...]
    text: tuple[int, ...]
    handle_start: int
    kind: int
    path_length: int
    length: int

    @property
    def stride(self) -> int:
        """The number of bytes of an entry."""
        return len(self.sample)


def shape_of(
    sample: bytes, head: tuple[int, ...], text_end: int, handle: tuple[int, int, int, int]
) -> Shape | None:
    """Return the structure of an entry, None if its texts are too long to be checked by columns.

    `head` are the offsets of structure before the handle. Bytes from 2 to `text_end` are a text.
    `handle` is (offset, type, length of its path, length).
    """
    structure, text = _structure(len(sample), head, text_end, handle[:3])
    return Shape(sample, structure, text, *handle) if len(text) <= _LONGEST_TEXT else None


def uniform(buffer: bytes, start: int, entry: Shape, left: int) -> int:
    """Return how many entries from `start` on have the structure of `entry`, at most `left`.

    Their paths are not checked here.
    """
    stride = len(entry.sample)
    room = min(left, (len(buffer) - start) // stride, _MOST)
    alike, block = 0, _FIRST_BLOCK
    while alike < room:
        count = min(block, room - alike)
        first = start + alike * stride
        same = _same(buffer, first, entry, count)
        if same and entry.text and not _ascii(buffer, first, stride, entry.text, same):
            return alike
        alike += same
        if same < count:
            break
        block *= _GROWTH
    return alike


@lru_cache(maxsize=256)
def _structure(
    stride: int, head: tuple[int, ...], text_end: int, handle: tuple[int, int, int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return (offsets that must equal the first entry's, offsets that must be ASCII)."""
    start, kind, path_length = handle
    name = tuple(range(2, text_end))
    if kind == 2:  # type, size, path
        return (*head, start, start + 1, start + 9, start + 10), name
    if kind == 6:  # type, path, size
        return (*head, start, start + 1, start + 2, start + 3 + path_length), name
    logical = (
        start + 23 + path_length
    )  # type 15: type, position, size, scope, path, logical file id
    fixed = (start, start + 1, start + 9, *range(start + 17, start + 23), logical, logical + 1)
    return (*head, *fixed), (*name, *range(logical + 2, stride))


def _same(buffer: bytes, first: int, entry: Shape, count: int) -> int:
    """Return how many of `count` entries from `first` on have the structure of a known one."""
    sample = entry.sample
    stride = len(sample)
    last = first + (count - 1) * stride + 1
    for offset in entry.structure:
        column = buffer[first + offset : last + offset : stride]
        expected = sample[offset : offset + 1]
        if column != expected * count:
            count = len(column) - len(column.lstrip(expected))
            if not count:
                break
            last = first + (count - 1) * stride + 1
    return count


def _ascii(buffer: bytes, first: int, stride: int, offsets: tuple[int, ...], count: int) -> bool:
    end = first + (count - 1) * stride + 1
    # a generator costs as much as the check where lists are short
    for offset in offsets:  # noqa: SIM110  # see the line before
        if not buffer[first + offset : end + offset : stride].isascii():
            return False
    return True
