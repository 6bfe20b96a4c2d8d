"""A file for a result is written whole or not at all, and never in a replica."""

import os

import pytest

from cpreplicate.operations.inspect.result_file import replacing, replica_around, try_to_write
from tests.support.replicas import FILES, synced


def test_a_try_changes_nothing(tmp_path):
    path = tmp_path / "page.html"
    try_to_write(str(path))
    assert list(tmp_path.iterdir()) == []
    path.write_text("former")
    try_to_write(str(path))
    assert path.read_text() == "former"


@pytest.mark.parametrize("place", ["no/such/page.html", ".", f"{'n' * 300}.html"])
def test_a_try_fails_where_no_file_can_be_written(tmp_path, place):
    with pytest.raises(OSError):  # noqa: PT011  # which one depends on the place
        try_to_write(str(tmp_path / place))


def test_a_name_as_long_as_a_filesystem_holds_can_be_written(tmp_path):
    path = tmp_path / ("\u4e2d" * 80 + ".html")
    try_to_write(str(path))
    with replacing(str(path)) as temporary:
        temporary.write_text("new")
    assert path.read_text() == "new"


def test_the_former_file_stays_if_the_new_one_is_not_complete(tmp_path):
    path = tmp_path / "page.html"
    path.write_text("former")
    with pytest.raises(UnicodeEncodeError), replacing(str(path)) as temporary:
        temporary.write_text("\ud800", "utf-8")
    assert path.read_text() == "former"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_anywhere_in_a_replica_is_found_also_through_a_link(tmp_path):
    replica = synced(tmp_path, {1: FILES})
    (tmp_path / "link").symlink_to(replica / "shared")
    for path in (
        replica / "a.html",
        replica / ".cpreplicate" / "chk-1.parquet",
        replica / "no" / "such" / "a.html",
        tmp_path / "link" / "a.html",
    ):
        assert replica_around(str(path)) == str(replica)
        assert replica_around(os.path.relpath(path)) == str(replica)
    assert replica_around(str(replica.parent / "a.html")) is None
    assert replica_around("a.html") is None
