"""A page is written whole or not at all."""

import os
import stat

import pytest

from cpreplicate.operations.inspect.overview import Overview
from cpreplicate.operations.replicas.points import Points
from cpreplicate.output.report.file import write_page

RESULT = Points(())


def test_a_page_takes_the_place_of_the_former_file_and_leaves_nothing_else(tmp_path):
    path = tmp_path / "page.html"
    path.write_text("former")
    write_page(str(path), RESULT, Overview())
    assert path.read_text().startswith("<!DOCTYPE html>")
    assert list(tmp_path.iterdir()) == [path]


def test_a_page_has_the_rights_that_the_umask_leaves(tmp_path):
    former = os.umask(0o027)
    try:
        write_page(str(tmp_path / "page.html"), RESULT, Overview())
    finally:
        os.umask(former)
    assert stat.S_IMODE((tmp_path / "page.html").stat().st_mode) == 0o640


def test_the_former_file_stays_if_the_page_cannot_be_made(tmp_path):
    path = tmp_path / "page.html"
    path.write_text("former")
    with pytest.raises(KeyError):
        write_page(str(path), object(), Overview())
    (tmp_path / "directory.html").mkdir()
    with pytest.raises(OSError, match=r"directory\.html"):
        write_page(str(tmp_path / "directory.html"), RESULT, Overview())
    assert path.read_text() == "former"
    assert len(list(tmp_path.iterdir())) == 2
