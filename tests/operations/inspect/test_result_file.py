"""A file for a result is written whole or not at all, and never in a replica."""

import errno
import os

import pytest

from cpreplicate.operations.inspect.result_file import replacing, replica_around, try_to_write
from tests.support.jobs import JOB
from tests.support.replicas import FILES, synced
from tests.support.smallfs import CLI, in_small_filesystem


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


def test_a_write_that_names_no_file_names_the_one_that_was_asked_for(tmp_path):
    path = str(tmp_path / "page.html")
    with pytest.raises(OSError) as raised, replacing(path):  # noqa: PT011  # the fields are below
        raise OSError(errno.EFBIG, "Error writing bytes to file. Detail: [errno 27]")
    assert (raised.value.filename, raised.value.strerror) == (path, "File too large")


def test_a_table_for_which_there_is_no_space_names_its_file_and_not_stdout(tmp_path):
    synced(tmp_path, {1: FILES})
    full = tmp_path / "full"
    fill = f"(head -c 1000000 /dev/zero > {full}/filler || true)"
    done = in_small_filesystem(
        full, f"{fill} && {CLI} inspect --refs {tmp_path}/dcA/{JOB} --to {full}/refs.parquet"
    )
    assert done.returncode == 1
    assert f"{full}/refs.parquet: No space left on device" in done.stderr
    assert "stdout" not in done.stderr
