"""The properties files of `deploy/spark`, as cpreplicate reads them for `--properties-file`."""

from pathlib import Path

import pytest

from cpreplicate.cli.files.config import spark_properties

DEPLOYED = Path(__file__).resolve().parents[2] / "deploy" / "spark"


@pytest.mark.parametrize("name", ["yarn.conf", "kubernetes.conf"])
def test_cpreplicate_reads_the_properties_that_spark_submit_reads(name):
    properties = dict(spark_properties(str(DEPLOYED / name)))
    assert all(key.startswith("spark.") and value.strip() for key, value in properties.items())
    assert properties["spark.pyspark.driver.python"] == "/opt/cpreplicate/bin/python"
    assert properties["spark.speculation"] == "false"
