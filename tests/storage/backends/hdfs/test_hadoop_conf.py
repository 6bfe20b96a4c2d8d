"""Hadoop's configuration files as an operator has them."""

import pytest

from cpreplicate.errors import UsageError
from cpreplicate.storage.backends.hdfs.hadoop_conf import read


def write(path, **properties):
    rows = "".join(
        f"<property><name>{n.replace('_', '.')}</name><value> {v} </value></property>"
        for n, v in properties.items()
    )
    path.write_text(
        '<?xml version="1.0"?>\n<?xml-stylesheet'
        f' href="x.xsl"?>\n<configuration>{rows}</configuration>'
    )


def test_both_files_are_read_and_the_second_wins(tmp_path):
    write(tmp_path / "core-site.xml", of_a="1", of_b="2", variable="4")
    write(tmp_path / "hdfs-site.xml", of_b="3")
    assert read(tmp_path) == {"of.a": "1", "of.b": "3"}


def test_variables_are_replaced_and_unknown_ones_stay(tmp_path):
    write(
        tmp_path / "core-site.xml",
        host="nn",
        of_uri="hdfs://${host}:${port}",
        of_other="${none}",
        of_loop="${of.loop}",
    )
    assert read(tmp_path)["of.uri"] == "hdfs://nn:${port}"
    assert read(tmp_path)["of.loop"] == "${of.loop}"


def test_a_directory_without_configuration_is_a_usage_error(tmp_path):
    with pytest.raises(UsageError, match=r"holds neither core-site.xml nor hdfs-site.xml"):
        read(tmp_path)


def test_a_damaged_file_is_a_usage_error_that_names_it(tmp_path):
    (tmp_path / "core-site.xml").write_text("<configuration>")
    with pytest.raises(UsageError, match=r"core-site.xml cannot be read"):
        read(tmp_path)
