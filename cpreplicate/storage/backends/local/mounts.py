"""The mounts of this machine, from `/proc/self/mountinfo`: proc_pid_mountinfo(5)."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterable

_MOUNTINFO = "/proc/self/mountinfo"
_MOUNT_POINT = 4  # the field of a line
_ESCAPED = re.compile(rb"\\([0-7]{3})")  # space, tab, newline and backslash


def are_in_one_mount(directory: str, other: str) -> bool:
    """Return whether one mount holds both paths and all that is below `directory`.

    Both are real paths. False if the mounts cannot be read. If True, a directory below `directory`
    is at or above `other` only if its path is: no bind mount gives it another name.
    """
    points = _mount_points()
    if points is None:
        return False
    return mount_of(directory, points) == mount_of(other, points) and not any(
        _is_below(point, directory) for point in points
    )


def points_below(directory: str) -> list[str]:
    """Return the mount points below a real path: none if the mounts cannot be read."""
    return sorted(point for point in _mount_points() or () if _is_below(point, directory))


def _mount_points() -> frozenset[str] | None:
    try:
        with open(_MOUNTINFO, "rb", buffering=0) as file:
            return mount_points(file.read())
    except OSError:
        return None


@functools.lru_cache(maxsize=1)  # the same for each of thousands of replicas
def mount_points(mountinfo: bytes) -> frozenset[str]:
    """Return where something is mounted."""
    fields = (line.split(b" ") for line in mountinfo.splitlines())
    points = (line[_MOUNT_POINT] for line in fields if len(line) > _MOUNT_POINT)
    return frozenset(os.fsdecode(_ESCAPED.sub(_character, point)) for point in points)


def _character(escaped: re.Match[bytes]) -> bytes:
    return bytes([int(escaped[1], 8)])


def mount_of(path: str, points: Iterable[str]) -> str | None:
    """Return the mount point that a path is at or below, the nearest one, None without any.

    If two paths have the same nearest mount point, the same mount holds both: also if that is
    hidden by another one, which was mounted over it or above it later.
    """
    above = [point for point in points if point == path or _is_below(path, point)]
    return max(above, key=len, default=None)


def _is_below(path: str, directory: str) -> bool:
    return path != directory and path.startswith(f"{directory.rstrip('/')}/")
