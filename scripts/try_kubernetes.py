"""Runs cpreplicate on a real Kubernetes of this machine: API server and kubelet, etcd and
containerd. `make try-kubernetes`.

A sync over two pods, one during which a pod is deleted, one that is interrupted, one with executors
by need, and some by `spark-submit`, with the driver here and in a pod; and a service that keeps a
FlinkStateSnapshot of a job current. Needs root, Go, Maven, and Debian's packages (installed where
they are missing). Kubernetes' servers are built from their Go modules: ten minutes the first time.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyspark

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from cpreplicate.cli.submitted import SCRIPT
from scripts.kube.api import API, DRIVER, SECONDS, TOKEN, delete, pods, wait_until
from scripts.kube.build import build
from scripts.kube.node import IMAGE, kubernetes
from scripts.kube.snapshots import try_snapshots
from scripts.kube.submitted import try_cluster_mode
from tests.support import checker
from tests.support.jobs import JOB, write_checkpoint

_DEPLOYED = Path(__file__).resolve().parents[1] / "deploy" / "spark"
_BY_NEED = {
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    "spark.dynamicAllocation.minExecutors": "0",
    "spark.dynamicAllocation.initialExecutors": "0",
    "spark.dynamicAllocation.maxExecutors": "2",
    "spark.executor.instances": "0",
}
_FILES = {f"shared/{number:04}": 200_000 + number for number in range(400)}


def _options(place: Path) -> list[str]:
    """What Spark must know of this Kubernetes."""
    conf = {
        "spark.kubernetes.namespace": "default",
        "spark.kubernetes.container.image": IMAGE,
        "spark.kubernetes.container.image.pullPolicy": "Never",
        "spark.kubernetes.authenticate.caCertFile": f"{place}/certs/apiserver.crt",
        "spark.kubernetes.authenticate.oauthToken": TOKEN,
        "spark.kubernetes.executor.podTemplateFile": f"{place}/pod.json",
        "spark.kubernetes.executor.request.cores": "0.1",
        "spark.executor.instances": "2",
        "spark.executor.cores": "1",
        "spark.executor.memory": "512m",
        "spark.driver.host": DRIVER,
        "spark.driver.bindAddress": DRIVER,
        "spark.cpreplicate.driverCopies": "false",  # the executors are what is tried
        "spark.archives": f"{place}/environment.tar.gz#environment",
        "spark.pyspark.python": "./environment/bin/python",
        "spark.executorEnv.CPREPLICATE_PYTHON": os.path.realpath(sys.executable),
    }
    return [word for name, value in conf.items() for word in ("--conf", f"{name}={value}")]


def _words(place: Path, number: int) -> list[str]:
    places = (f"{place}/data/dcA/{JOB}", f"{place}/data/{number}")
    return ["sync", *places, "--runner", "spark", "--progress", "none"]


def sync(place: Path, number: int, *words: str) -> subprocess.Popen[str]:
    """A run into a target of its own."""
    command = [sys.executable, "-m", "cpreplicate", *_words(place, number)]
    master = ["--master", f"k8s://{API}", *_options(place)]
    return subprocess.Popen([*command, *master, *words], text=True, stdout=subprocess.PIPE)


def submit(place: Path, number: int) -> subprocess.Popen[str]:
    """A run by `spark-submit` with the files of `deploy/spark`; names are those of this machine."""
    own = {
        "spark.kubernetes.authenticate.executor.serviceAccountName": "default",
        "spark.pyspark.driver.python": sys.executable,
        "spark.executor.memoryOverhead": "384m",
    }
    options = [word for name, value in own.items() for word in ("--conf", f"{name}={value}")]
    command = [
        str(Path(pyspark.__file__).parent / "bin" / "spark-submit"),
        *("--master", f"k8s://{API}", "--deploy-mode", "client"),
        *("--properties-file", str(_DEPLOYED / "kubernetes.conf")),
        *(*_options(place), *options, str(SCRIPT)),
    ]
    return subprocess.Popen([*command, *_words(place, number)], text=True, stdout=subprocess.PIPE)


def copied(place: Path, target: object) -> int:
    """How many files are whole at a target."""
    files = (place / "data" / str(target)).glob("*/shared/*")
    return len([file for file in files if not file.name.startswith(".")])


def ended(run: subprocess.Popen[str], code: int, what: str) -> None:
    """Print how long it took, or exit with its output."""
    began = time.monotonic()
    output = run.communicate(timeout=SECONDS)[0]
    if run.returncode != code:
        sys.exit(f"{what}: exit {run.returncode}\n{output}")
    print(f"{what}: exit {code}, {time.monotonic() - began:.0f} s later", flush=True)


def replicated(place: Path, number: int) -> None:
    """Exit if a replica is not whole."""
    if faults := checker.faults(place / "data" / str(number) / JOB):
        sys.exit("\n".join(faults))


def main() -> None:
    """Build, start, run."""
    # a shell that started this in the background made it, and what it starts, ignore SIGINT
    signal.signal(signal.SIGINT, signal.default_int_handler)
    build()
    with tempfile.TemporaryDirectory(prefix="cpreplicate-kubernetes-") as directory:
        place = Path(directory)
        write_checkpoint(place / "data" / "dcA", 1, _FILES)
        script = Path(__file__).parent / "executor_archive.sh"
        archive = ["sh", str(script), f"{place}/environment.tar.gz"]
        subprocess.run(
            archive,
            env={**os.environ, "PYTHON": sys.executable},
            stdout=subprocess.DEVNULL,
            check=True,
        )
        with kubernetes(place):
            ended(sync(place, 1), 0, "a sync")
            replicated(place, 1)
            slow = ("--bandwidth", "3MB/s", "--batch-files", "20")
            run = sync(place, 2, *slow)
            wait_until(lambda: copied(place, 2) > 50, "50 files are there")
            delete(pods()[0])
            ended(run, 0, "a pod deleted in the middle")
            replicated(place, 2)
            run = sync(place, 3, *slow)
            wait_until(lambda: copied(place, 3) > 50, "50 files are there")
            run.send_signal(signal.SIGINT)
            ended(run, 130, "interrupted in the middle")
            wait_until(lambda: not pods(), "no pod is left")
            more = [word for pair in _BY_NEED.items() for word in ("--conf", "=".join(pair))]
            run = sync(place, 5, *slow, *more)
            wait_until(lambda: len(pods()) == 2, "two executors, of none at the start")
            ended(run, 0, "executors by need")
            replicated(place, 5)
            wait_until(lambda: not pods(), "no pod is left")
            ended(submit(place, 4), 0, "spark-submit with deploy/spark")
            replicated(place, 4)
            try_cluster_mode(place, lambda target: copied(place, target))
            try_snapshots(place)


if __name__ == "__main__":
    main()
