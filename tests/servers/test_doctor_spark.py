"""`doctor` with real Spark sessions, with each fault made on purpose."""

import os
import subprocess
import sys

import pytest

from tests.support.doctor import parsed
from tests.support.jobs import JOB, write_checkpoint
from tests.support.s3 import side_options
from tests.support.standalone import QUICKLY, StandaloneCluster

pytestmark = [pytest.mark.xdist_group("spark-cluster"), pytest.mark.rest]


@pytest.fixture
def doctor(tmp_path):
    """Runs `doctor --runner spark` in a process of its own."""
    write_checkpoint(tmp_path / "dcA", 1, {"shared/a": 100})

    def run(*words, target=None, environment=None):
        command = [sys.executable, "-m", "cpreplicate", "doctor", "--retry-for", "1s"]
        command += ["--output", "json", "--runner", "spark"]
        places = [tmp_path / "dcA" / JOB, target or tmp_path / "dcB"]
        done = subprocess.run(
            list(map(str, [*command, *places, *words])),
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, **(environment or {})},
        )
        assert done.stdout, done.stderr
        return parsed(done.returncode, done.stdout)

    return run


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with StandaloneCluster(tmp_path_factory.mktemp("standalone"), workers=1) as started:
        yield started


def test_executors_of_a_cluster_report_their_versions_and_reach_both_sides(doctor, cluster):
    environment = {**cluster.environment, **QUICKLY}
    found = doctor("--master", cluster.master, environment=environment)
    assert found.code == 0
    assert found.names("failed") == found.names("skipped") == []
    assert found.status("executors") == "ok"
    version = ".".join(map(str, sys.version_info[:3]))
    assert f"Python {version}, cpreplicate" in found.text("spark")


def test_executors_without_the_packages_of_the_driver(doctor, cluster, tmp_path):
    """Their Python is that of the driver, without the packages of its environment."""
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {os.path.realpath(sys.executable)} -S "$@"\n')
    bare.chmod(0o755)
    conf = f"spark.pyspark.python={bare}"
    environment = {**cluster.environment, **QUICKLY}
    found = doctor("--master", cluster.master, "--conf", conf, environment=environment)
    assert found.names("failed") == ["spark"]
    assert found.code == 1
    assert "docs/clusters.md" in found.text("spark")
    assert found.status("executors") == "skipped"
    assert found.status("target write") == "ok"


def test_a_master_that_does_not_answer(doctor):
    found = doctor("--master", "spark://127.0.0.1:1")
    assert found.code == 7
    assert found.names("failed") == ["spark"]
    assert "no Spark master answers at 127.0.0.1:1" in found.text("spark")


def test_a_master_that_no_spark_understands(doctor):
    found = doctor("--conf", "spark.master=nonsense")
    assert found.code == 1
    assert found.names("failed") == ["spark"]
    assert "Master must" in found.text("spark")
    assert "docs/clusters.md" in found.text("spark")


def test_executors_that_do_not_reach_the_target(doctor, cluster, s3):
    """Their environment sends what they ask to a proxy that is not there; the driver's does not."""
    words = [f"{name}={value}" for name, value in side_options(s3.endpoint).items()]
    conf = [f"--target-conf={word}" for word in words]
    s3.make_bucket("doctor-spark")
    proxy = "spark.executorEnv.HTTP_PROXY=http://127.0.0.1:1"
    found = doctor(
        *conf,
        "--master",
        cluster.master,
        "--conf",
        proxy,
        "--conf",
        "spark.executorEnv.NO_PROXY=",  # the tests set it
        "--conf",
        "spark.executorEnv.no_proxy=",
        target="s3://doctor-spark/replicas",
        environment={**cluster.environment, **QUICKLY},
    )
    assert found.code == 3
    assert found.names("failed") == ["executors"]
    assert "s3://doctor-spark" in found.text("executors")
    assert found.status("target write") == "ok"
