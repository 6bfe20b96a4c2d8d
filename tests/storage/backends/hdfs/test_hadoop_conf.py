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


def test_a_file_that_is_included_is_read_in_its_place(tmp_path):
    """As the documentation of ViewFs and Ambari add a mount table."""
    write(tmp_path / "more.xml", of_a="2", of_b="3")
    xi = 'xmlns:xi="http://www.w3.org/2001/XInclude"'
    (tmp_path / "core-site.xml").write_text(
        f"<configuration {xi}><property><name>of.a</name><value>1</value></property>"
        '<xi:include href="more.xml"/>'
        '<xi:include href="none.xml"><xi:fallback>'
        '<property name="of.c" value="4"/></xi:fallback></xi:include></configuration>'
    )
    assert read(tmp_path) == {"of.a": "2", "of.b": "3", "of.c": "4"}
    (tmp_path / "more.xml").unlink()
    with pytest.raises(UsageError, match=r"core-site.xml includes .*more.xml, which is not there"):
        read(tmp_path)
    (tmp_path / "core-site.xml").write_text(
        f'<configuration {xi}><xi:include href="core-site.xml"/></configuration>'
    )
    with pytest.raises(UsageError, match="includes itself"):
        read(tmp_path)


def test_a_property_may_have_attributes_and_a_final_one_is_not_replaced(tmp_path):
    (tmp_path / "core-site.xml").write_text(
        '<configuration><property name="of.a" value="1" final="true"/>'
        "<property><name>of.b</name><value>2</value><final>true</final></property></configuration>"
    )
    write(tmp_path / "hdfs-site.xml", of_a="3", of_b="3", of_c="3")
    assert read(tmp_path) == {"of.a": "1", "of.b": "2", "of.c": "3"}


def test_variables_of_the_environment_are_replaced(tmp_path, monkeypatch):
    monkeypatch.setenv("OF_HERE", "nn")
    monkeypatch.setenv("OF_NOTHING", "")
    monkeypatch.delenv("OF_NONE", raising=False)
    write(
        tmp_path / "core-site.xml",
        of_a="${env.OF_HERE}",
        of_b="${env.OF_NONE:-x}",
        of_c="${env.OF_NOTHING-x}",
        of_d="${env.OF_NONE}",
    )
    assert read(tmp_path) == {"of.a": "nn", "of.b": "x", "of.c": "", "of.d": "${env.OF_NONE}"}


def test_a_directory_without_configuration_is_a_usage_error(tmp_path):
    with pytest.raises(UsageError, match=r"holds neither core-site.xml nor hdfs-site.xml"):
        read(tmp_path)


def test_a_damaged_file_is_a_usage_error_that_names_it(tmp_path):
    (tmp_path / "core-site.xml").write_text("<configuration>")
    with pytest.raises(UsageError, match=r"core-site.xml cannot be read"):
        read(tmp_path)
