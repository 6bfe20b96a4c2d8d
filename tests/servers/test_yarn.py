"""A sync on a real YARN, a ResourceManager and a NodeManager on loopback."""

import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from cpreplicate.cli.submitted import SCRIPT
from tests.support import checker
from tests.support.jobs import JOB, write_checkpoint
from tests.support.killing import started
from tests.support.waiting import PATIENCE, wait_until
from tests.support.yarn import JARS, QUICKLY, cluster

pytestmark = [pytest.mark.xdist_group("spark-cluster"), pytest.mark.rest]

DEPLOYED = Path(__file__).resolve().parents[2] / "deploy" / "spark"
FILES = {f"shared/{number:04}": 20_000 + number for number in range(40)}


@pytest.fixture(scope="module")
def yarn(tmp_path_factory):
    """A directory with the client's configuration in `conf`."""
    directory = tmp_path_factory.mktemp("yarn")
    with cluster(directory):
        yield directory


@pytest.fixture
def words(yarn, tmp_path, monkeypatch):
    """The options of a sync that runs there."""
    for name, value in (
        ("YARN_CONF_DIR", yarn / "conf"),
        ("HADOOP_CONF_DIR", ""),
        ("SPARK_LOCAL_IP", "127.0.0.1"),
    ):
        monkeypatch.setenv(name, str(value))
    properties = {
        "spark.cpreplicate.driverCopies": "false",
        "spark.yarn.jars": f"local:{JARS}/*",
        "spark.yarn.stagingDir": (tmp_path / "staging").as_uri(),
        "spark.yarn.am.memory": "512m",
        "spark.yarn.am.extraJavaOptions": QUICKLY,
        "spark.executor.instances": "1",
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": QUICKLY,
    }
    return [word for name, value in properties.items() for word in ("--conf", f"{name}={value}")]


DYNAMIC = {
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.minExecutors": "0",
    "spark.dynamicAllocation.initialExecutors": "0",
    "spark.dynamicAllocation.maxExecutors": "2",
    "spark.dynamicAllocation.executorIdleTimeout": "1s",
    "spark.executor.instances": "0",
    "spark.executor.cores": "1",
}


@pytest.mark.parametrize("more", [{}, DYNAMIC], ids=["fixed", "executors by need"])
def test_a_sync_on_yarn_copies_everything_and_leaves_no_application(more, words, tmp_path):
    words += [word for name, value in more.items() for word in ("--conf", f"{name}={value}")]
    checkpoint = write_checkpoint(tmp_path / "dcA", 1, FILES)
    places = (checkpoint, tmp_path / "dcB", "--output", "json")
    with started("sync", *places, "--runner", "spark", "--master", "yarn", *words) as sync:
        assert sync.ended() == 0, sync.messages()
    replica = tmp_path / "dcB" / JOB
    assert checker.faults(replica) == []
    assert [
        name
        for name in FILES
        if (replica / name).read_bytes() != (tmp_path / "dcA" / JOB / name).read_bytes()
    ] == []
    # the ApplicationMaster removes it once the driver is gone
    wait_until(lambda: not list((tmp_path / "staging").glob("*/.sparkStaging/*")))


def submitted(words, tmp_path, *mode):
    """Return what spark-submit did with a sync, by the properties of `deploy/spark`."""
    text = (DEPLOYED / "yarn.conf").read_text()
    here = text.replace("/opt/cpreplicate/bin/python", sys.executable)
    here = here.replace("./environment/bin/python", sys.executable)
    kept = [line for line in here.splitlines() if "archives" not in line]
    (tmp_path / "yarn.conf").write_text("\n".join(kept))
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    small = ["--conf", "spark.executor.cores=1", "--conf", "spark.executor.memoryOverhead=384m"]
    options = ["--properties-file", tmp_path / "yarn.conf", *words, *small, *mode]
    places = [tmp_path / "dcA" / JOB, tmp_path / "dcB"]
    command = [submit, "--master", "yarn", *options, SCRIPT, "sync", *places, "--runner", "spark"]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)


@pytest.mark.parametrize("mode", ["client", "cluster"])
def test_spark_submit_runs_the_script_of_the_package_on_yarn(mode, words, tmp_path):
    write_checkpoint(tmp_path / "dcA", 1, FILES)
    done = submitted(words, tmp_path, "--deploy-mode", mode)
    assert done.returncode == 0, done.stdout + done.stderr
    assert checker.faults(tmp_path / "dcB" / JOB) == []


@pytest.mark.parametrize(("mode", "code"), [("client", 10), ("cluster", 1)])
def test_spark_submit_ends_with_the_code_of_the_command_in_client_mode_only(
    mode, code, words, tmp_path
):
    (tmp_path / "dcA" / JOB).mkdir(parents=True)
    done = submitted(words, tmp_path, "--deploy-mode", mode)
    assert done.returncode == code, done.stdout + done.stderr


OCCUPIES = """
import sys
from pyspark import SparkConf, SparkContext

conf = SparkConf().setMaster("yarn").setAll([each.split("=", 1) for each in sys.argv[1:]])
context = SparkContext(conf=conf)
print("ready", flush=True)
sys.stdin.read()
context.stop()
"""


@pytest.fixture
def full(words):
    """Let another application have all memory of the cluster."""
    others = [word for word in words if word != "--conf"]
    settings = ["spark.yarn.am.memory=3400m", "spark.ui.enabled=false"]
    with subprocess.Popen(
        [sys.executable, "-c", OCCUPIES, *others, *settings],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout.readline() == "ready\n"
            yield
        finally:
            process.kill()


def waiting_applications(yarn):
    """Return the lines of YARN's own command on applications that wait for room."""
    command = [
        "java",
        "-cp",
        f"{yarn}/conf:{JARS}/*",
        "org.apache.hadoop.yarn.client.cli.ApplicationCLI",
    ]
    options = ["application", "-list", "-appStates", "SUBMITTED,ACCEPTED"]
    listed = subprocess.run([*command, *options], capture_output=True, text=True, timeout=PATIENCE)
    assert "Total number of applications" in listed.stdout, listed.stderr
    return [line for line in listed.stdout.splitlines() if line.startswith("application_")]


@pytest.mark.usefixtures("full")
def test_a_full_queue_ends_a_sync_in_time_and_not_one_that_the_driver_ends_alone(
    yarn, words, tmp_path
):
    write_checkpoint(tmp_path / "dcA", 1, FILES)
    in_time = ["--conf", "spark.cpreplicate.driverCopies=false"]
    places = (tmp_path / "dcA" / JOB, tmp_path / "dcB")
    options = ("--runner", "spark", "--master", "yarn", *words)
    with started("sync", *places, *options, *in_time, "--engine-timeout", "5s") as sync:
        assert sync.ended() == 7, sync.messages()
        assert "has not begun Spark's application within 5 s" in sync.messages()
    assert waiting_applications(yarn) == []  # nor does it wait for a driver that is gone
    early = ["--conf", "spark.cpreplicate.driverCopies=true"]
    done = submitted([*words, *early], tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert checker.faults(tmp_path / "dcB" / JOB) == []
