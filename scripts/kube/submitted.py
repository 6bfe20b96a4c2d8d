"""`spark-submit --deploy-mode cluster` with the script of the package: the driver runs in a pod,
whose service account has no more rights than `deploy/kubernetes/rbac.yaml` gives.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from http.client import HTTPResponse
from pathlib import Path
from typing import Any

import pyspark
import yaml

from cpreplicate.cli.submitted import SCRIPT
from scripts.kube.api import API, SECONDS, TOKEN, asked, delete, opened, pods, wait_until
from scripts.kube.node import IMAGE, pod
from tests.support import checker
from tests.support.jobs import JOB

_ROOT = Path(__file__).resolve().parents[2]
_RBAC = _ROOT / "deploy" / "kubernetes" / "rbac.yaml"
_PODS = "/api/v1/namespaces/default/pods"
_SLOW = ("--bandwidth", "2MB/s", "--batch-files", "20")
_GRACE = 30  # seconds from SIGTERM to SIGKILL: the default of Kubernetes
_TERMINATED = 143
_WAITS = ("--lock-wait", "5m")  # for the lease of a driver that had no time to release it


class _Driver:
    """A run in a pod, which spark-submit follows until it ends."""

    def __init__(self, place: Path, name: str, source: str, target: str, *words: str) -> None:
        self.name, self._began = name, time.monotonic()
        self._log = b""
        sync = ["sync", source, target, "--runner", "spark", "--progress", "none", *words]
        self._submitted = subprocess.Popen(
            [*_spark_submit(place, name), f"local://{SCRIPT}", *sync, "--output", "json"],
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        wait_until(lambda: self._status()["phase"] != "Pending", f"{name} runs")
        self._follower = threading.Thread(target=self._follow, daemon=True)
        self._follower.start()

    def _status(self) -> dict[str, Any]:
        return dict(asked("GET", f"{_PODS}/{self.name}")["status"])

    def _follow(self) -> None:
        """Keep the log: a pod that is deleted has none."""
        answer: HTTPResponse = opened(
            "GET", f"{_PODS}/{self.name}/log?follow=true", timeout=SECONDS
        )
        with answer:
            for line in answer:
                self._log += line

    def ended(self, code: int, what: str) -> dict[str, Any]:
        """Return the result in the log, or exit unless the pod ended with a code.

        A run that had no time to report has no result: an empty one is returned.
        """
        printed = self._submitted.communicate(timeout=SECONDS)[0]
        self._follower.join(SECONDS)
        log = self._log.decode(errors="replace")
        results = [line for line in log.splitlines() if line.startswith('{"schema"')] or ["{}"]
        # spark-submit itself ends with 0 whatever the code is
        if self._submitted.returncode or f"exit code: {code}\n" not in printed:
            sys.exit(f"{what}: spark-submit {self._submitted.returncode}\n{printed}\n{log}")
        seconds = time.monotonic() - self._began
        print(f"{what}: the driver's pod ended with {code} after {seconds:.0f} s", flush=True)
        return dict(json.loads(results[-1]))

    def removed(self) -> None:
        """Delete its pod without grace, and wait for spark-submit."""
        delete(self.name)
        self._submitted.communicate(timeout=SECONDS)


def try_cluster_mode(place: Path, copied: Callable[[str], int]) -> None:
    """Exit unless exit codes, results, the end of a pod and the next run are as documented.

    `copied` returns how many files are whole at a target.
    """
    _install(place)
    data = place / "data"
    source = f"{data}/dcA/{JOB}"

    def run(name: str, target: str, *words: str) -> _Driver:
        return _Driver(place, name, source, str(data / target), *words)

    done = run("whole", "cluster").ended(0, "cluster mode")
    assert done["committed"], done
    _check(data / "cluster")
    (data / "empty" / JOB).mkdir(parents=True)
    empty = _Driver(place, "empty", f"{data}/empty/{JOB}", str(data / "cluster"))
    assert "is not there or is empty" in empty.ended(10, "a source without checkpoint")["error"]
    deleted = run("deleted", "lost", *_SLOW)
    wait_until(lambda: copied("lost") > 30, "30 files are there")
    asked("DELETE", f"{_PODS}/{deleted.name}?gracePeriodSeconds={_GRACE}")
    stopped = deleted.ended(_TERMINATED, "the driver's pod deleted")
    assert not stopped.get("committed"), stopped
    _no_executor_is_left()
    removed = run("removed", "lost", *_SLOW, *_WAITS)
    there = copied("lost")
    wait_until(lambda: copied("lost") > there + 30, "30 more files are there")
    removed.removed()
    _no_executor_is_left()
    following = run("following", "lost", *_WAITS)
    assert following.ended(0, "the run after lost drivers")["committed"]
    _check(data / "lost")


def _check(root: Path) -> None:
    if faults := checker.faults(root / JOB):
        sys.exit("\n".join(faults))


def _no_executor_is_left() -> None:
    wait_until(lambda: not [each for each in pods() if "-exec-" in each], "no executor is left")


def _install(place: Path) -> None:
    """Give the pods what an image with the packages has, and the driver's its rights."""
    packages = (Path(sys.prefix), _ROOT / "cpreplicate")
    (place / "installed.json").write_text(json.dumps(pod(place, packages, has_token=True)))
    role, binding = yaml.safe_load_all(_RBAC.read_text())
    binding["subjects"][0]["namespace"] = "default"
    accounts = "/api/v1/namespaces/default/serviceaccounts"
    asked("POST", accounts, {"metadata": {"name": binding["subjects"][0]["name"]}})
    rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default"
    asked("POST", f"{rbac}/roles", role)
    asked("POST", f"{rbac}/rolebindings", binding)


def _spark_submit(place: Path, name: str) -> list[str]:
    submission = "spark.kubernetes.authenticate.submission"
    conf = {
        "spark.kubernetes.namespace": "default",
        "spark.kubernetes.container.image": IMAGE,
        "spark.kubernetes.container.image.pullPolicy": "Never",
        f"{submission}.caCertFile": f"{place}/certs/apiserver.crt",
        f"{submission}.oauthToken": TOKEN,
        "spark.kubernetes.authenticate.driver.serviceAccountName": "cpreplicate",
        "spark.kubernetes.driver.pod.name": name,
        "spark.kubernetes.driver.master": API,  # no kube-proxy runs for its service
        "spark.kubernetes.driver.podTemplateFile": f"{place}/installed.json",
        "spark.kubernetes.executor.podTemplateFile": f"{place}/installed.json",
        "spark.kubernetes.driver.request.cores": "0.1",
        "spark.kubernetes.executor.request.cores": "0.1",
        "spark.driver.memory": "512m",
        "spark.executor.memory": "512m",
        "spark.executor.instances": "2",
        "spark.executor.cores": "1",
        "spark.cpreplicate.driverCopies": "false",  # the executors are what is tried
        "spark.pyspark.driver.python": sys.executable,
        "spark.pyspark.python": sys.executable,
    }
    words = [word for key, value in conf.items() for word in ("--conf", f"{key}={value}")]
    submit = str(Path(pyspark.__file__).parent / "bin" / "spark-submit")
    return [submit, "--master", f"k8s://{API}", "--deploy-mode", "cluster", *words]
