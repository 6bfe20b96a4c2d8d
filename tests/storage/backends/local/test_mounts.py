"""Which mount holds a path, read from lines as the kernel writes them."""

from __future__ import annotations

import pytest

from cpreplicate.storage.backends.local.mounts import (
    are_in_one_mount,
    mount_of,
    mount_points,
    points_below,
)

LINES = (
    b"27 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n"
    b"25 24 0:23 / /dev/shm rw,relatime - tmpfs tmpfs rw\n"
    b"91 27 254:0 /srv/flink/dcA /mnt/with\\040space rw,relatime shared:1 - ext4 /dev/vda rw\n"
    b"92 27 254:0 /x /mnt/back\\134slash rw,relatime - ext4 /dev/vda rw\n"
    b"torn\n"
)
POINTS = mount_points(LINES)


def test_mount_points_are_those_of_the_lines_with_their_escapes_decoded() -> None:
    expected = {"/", "/dev/shm", "/mnt/with space", "/mnt/back\\slash"}
    assert expected == POINTS


@pytest.mark.parametrize(
    ("path", "point"),
    [
        ("/", "/"),
        ("/srv/flink", "/"),
        ("/dev/shm", "/dev/shm"),
        ("/dev/shm/x/y", "/dev/shm"),
        ("/dev/shmx", "/"),
        ("/mnt/with space/job", "/mnt/with space"),
    ],
)
def test_the_nearest_mount_point_at_or_above_a_path_holds_it(path: str, point: str) -> None:
    assert mount_of(path, POINTS) == point


def test_without_mounts_nothing_holds_a_path() -> None:
    assert mount_of("/x", ()) is None


def test_a_directory_with_a_mount_below_it_is_not_in_one_mount_with_its_neighbour() -> None:
    assert not are_in_one_mount("/dev", "/dev/cpreplicate-no-such")
    assert are_in_one_mount("/dev/shm", "/dev/shm/cpreplicate-no-such")
    assert not are_in_one_mount("/dev/shm", "/usr")


def test_the_mounts_below_a_directory_are_listed() -> None:
    assert "/dev/shm" in points_below("/dev")
    assert points_below("/dev/cpreplicate-no-such") == []
