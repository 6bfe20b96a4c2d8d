"""Numbers of bytes, and counts of things, as people read them."""

from __future__ import annotations

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def size(number: int) -> str:
    """Return a number of bytes as people read it, such as `3.4 MiB`."""
    value, unit = float(number), 0
    while value >= 1024 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{number} B" if unit == 0 else f"{value:.1f} {_UNITS[unit]}"


def counted(count: int, one: str, many: str = "") -> str:
    """Return a count with what it counts, such as `1 file` and `2 files`.

    `many` is what follows each count but 1, if it is not `one` with an s: `files are`.
    """
    return f"{count} {plural(count, one, many)}"


def plural(count: float, one: str, many: str = "") -> str:
    """Return what follows a count, such as `file` behind 1 and `files` behind 2; see `counted`."""
    return one if count == 1 else many or f"{one}s"
