"""Runs: consecutive entries of equal length, so that most of a list is checked as one block.

The *structure* of an entry is the bytes that determine what follows: lengths, types, the sign of a
size. Entries with the same structure have their fields at the same offsets. One such byte over all
entries is a slice with a stride, which is compared in C.
"""

from __future__ import annotations

from functools import lru_cache

# entries in a block; blocks grow, so that lists without runs are hardly read twice
_FIRST_BLOCK, _GROWTH, _MOST = 64, 4, 65_536
# bytes of names that are checked column by column; entries with longer ones are read one by one
_LONGEST_TEXT = 64


def uniform(
    buffer: bytes,
    entry: int,
    stride: int,
    text: tuple[tuple[int, ...], range],
    handle: tuple[int, int, int],
    left: int,
) -> int:
    """Return how many entries behind the one at `entry` have its structure, at most `left`.

    Each entry has `stride` bytes. `text` is (offsets of structure before the handle, offsets that
    must be ASCII), and `handle` is (offset of its type, type, length of its path). All offsets
    count from the beginning of the entry. Paths are not checked here.
    """
    structure, text_offsets = _structure(stride, text[0], text[1].stop, handle)
    if len(text_offsets) > _LONGEST_TEXT:
        return 0
    room = min(left, (len(buffer) - entry) // stride - 1, _MOST)
    alike, block = 0, _FIRST_BLOCK
    while alike < room:
        count = min(block, room - alike)
        first = entry + (alike + 1) * stride
        same = _same(buffer, entry, first, stride, structure, count)
        if text_offsets and same and not _ascii(buffer, first, stride, text_offsets, same):
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


def _same(
    buffer: bytes, entry: int, first: int, stride: int, structure: tuple[int, ...], count: int
) -> int:
    for offset in structure:
        column = buffer[first + offset : first + (count - 1) * stride + offset + 1 : stride]
        expected = buffer[entry + offset : entry + offset + 1]
        if column != expected * count:
            count = len(column) - len(column.lstrip(expected))
            if not count:
                break
    return count


def _ascii(buffer: bytes, first: int, stride: int, offsets: tuple[int, ...], count: int) -> bool:
    end = first + (count - 1) * stride + 1
    # a generator costs as much as the check where lists are short
    for offset in offsets:  # noqa: SIM110  # see the line before
        if not buffer[first + offset : end + offset : stride].isascii():
            return False
    return True
