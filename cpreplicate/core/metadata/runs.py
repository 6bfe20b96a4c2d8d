"""Runs: lists of files are long runs of entries of equal length, so most of a list can be checked
as one block.

The first entry tells where its *structure* lies: the bytes that say what follows (lengths, types,
the sign of a size). Entries whose structure is the same have their fields at the same places. A
column of one such byte over all entries is a slice with a stride, compared in C.
"""

from __future__ import annotations

from functools import lru_cache

# entries; growing, so that lists without runs cost no second look at each entry
_FIRST_TRY, _MORE, _MOST = (
    64,
    4,
    65_536,
)
_LONGEST_TEXT = (
    64  # bytes of names that are checked column by column; longer ones are read one by one
)


def uniform(
    buffer: bytes,
    entry: int,
    stride: int,
    text: tuple[tuple[int, ...], range],
    handle: tuple[int, int, int],
    left: int,
) -> int:
    """How many entries behind the one at `entry`, of `stride` bytes, have its structure; at most
    `left`.

    `text` is (places of structure before the handle, places that must be ASCII), `handle` (place of
    its type, type, length of its path), all places counted from the entry's begin. Paths are not
    looked at here.
    """
    structure, ascii_at = _structure(stride, text[0], text[1].stop, handle)
    if len(ascii_at) > _LONGEST_TEXT:
        return 0
    room = min(left, (len(buffer) - entry) // stride - 1, _MOST)
    done, block = 0, _FIRST_TRY
    while done < room:
        count = min(block, room - done)
        same = _same(buffer, entry, entry + (done + 1) * stride, stride, structure, count)
        if (
            ascii_at
            and same
            and not _ascii(buffer, entry + (done + 1) * stride, stride, ascii_at, same)
        ):
            return done
        done += same
        if same < count:
            break
        block *= _MORE
    return done


@lru_cache(maxsize=256)
def _structure(
    stride: int, head: tuple[int, ...], text_end: int, handle: tuple[int, int, int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(places that must equal the first entry's, places that must be ASCII)."""
    at, kind, path_length = handle
    name = tuple(range(2, text_end))
    if kind == 2:  # type, size, path
        return (*head, at, at + 1, at + 9, at + 10), name
    if kind == 6:  # type, path, size
        return (*head, at, at + 1, at + 2, at + 3 + path_length), name
    logical = at + 23 + path_length  # type 15: type, position, size, scope, path, logical file id
    fixed = (at, at + 1, at + 9, *range(at + 17, at + 23), logical, logical + 1)
    return (*head, *fixed), (*name, *range(logical + 2, stride))


def _same(
    buffer: bytes, entry: int, first: int, stride: int, structure: tuple[int, ...], count: int
) -> int:
    for place in structure:
        column = buffer[first + place : first + (count - 1) * stride + place + 1 : stride]
        expected = buffer[entry + place : entry + place + 1]
        if column != expected * count:
            count = len(column) - len(column.lstrip(expected))
            if not count:
                break
    return count


def _ascii(buffer: bytes, first: int, stride: int, places: tuple[int, ...], count: int) -> bool:
    end = first + (count - 1) * stride + 1
    for place in places:  # noqa: SIM110  # a generator costs as much as the check where lists are short
        if not buffer[first + place : end + place : stride].isascii():
            return False
    return True
