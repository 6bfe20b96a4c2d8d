"""`--kubernetes-snapshots` against the real API server, with the CRDs of the operator's release and
no more rights than `deploy/kubernetes/snapshots-rbac.yaml` gives.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import yaml

from scripts.kube.api import API, SECONDS, asked, wait_until
from tests.support import jobs

_OPERATOR = "1.10.0"  # of the Flink Kubernetes Operator: the first one with this resource
_ARTIFACT = f"org.apache.flink:flink-kubernetes-operator-api:{_OPERATOR}"
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"
_CRD = "META-INF/fabric8/flinkstatesnapshots.flink.apache.org-v1.yml"
_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_NAMESPACE = "flink"
_OBJECTS = f"/apis/flink.apache.org/v1beta1/namespaces/{_NAMESPACE}/flinkstatesnapshots"
_RBAC = Path(__file__).resolve().parents[2] / "deploy" / "kubernetes" / "snapshots-rbac.yaml"


def try_snapshots(place: Path) -> None:
    """Exit if the object of a job does not follow its checkpoints, or an object of others goes."""
    _install(place)
    kubeconfig = _access(place)
    theirs = _foreign()
    root = place / "snapshots"
    jobs.write_checkpoint(root / "dcA", 1, {"shared/a": 10})
    service = _watch(root, kubeconfig)
    try:
        wait_until(lambda: paths() == {theirs, _path(root, 1)}, "the object of chk-1 is there")
        jobs.write_checkpoint(root / "dcA", 2, {"shared/b": 10})
        wait_until(lambda: paths() == {theirs, _path(root, 2)}, "that of chk-2 replaces it")
        _revoke()
        jobs.write_checkpoint(root / "dcA", 3, {"shared/c": 10})
        wait_until(lambda: "403" in (root / "log").read_text(), "a lost right is reported")
        _bind()
        wait_until(lambda: paths() == {theirs, _path(root, 3)}, "the right is there again")
    finally:
        service.send_signal(signal.SIGTERM)
        service.wait(SECONDS)
    print(
        f"a FlinkStateSnapshot followed three checkpoints; the log:\n{(root / 'log').read_text()}"
    )


def paths() -> set[str]:
    """The checkpoints of all objects."""
    return {str(each["spec"]["savepoint"]["path"]) for each in asked("GET", _OBJECTS)["items"]}


def _path(root: Path, number: int) -> str:
    return f"file:{root}/dcB/{jobs.JOB}/chk-{number}"


def _watch(root: Path, kubeconfig: Path) -> subprocess.Popen[bytes]:
    words = [f"{root}/dcA/{jobs.JOB}", f"{root}/dcB", "--interval", "1s", "--progress", "none"]
    command = [sys.executable, "-m", "cpreplicate", "watch", *words]
    with (root / "log").open("wb") as log:
        return subprocess.Popen(
            [*command, "--kubernetes-snapshots", _NAMESPACE, "--runner", "inline"],
            stdout=log,
            stderr=log,
            env={**os.environ, "KUBECONFIG": str(kubeconfig)},
        )


def _install(place: Path) -> None:
    """Install the CRD from the release of the operator."""
    options = [f"-Dartifact={_ARTIFACT}", f"-DoutputDirectory={place}", "-Dmdep.stripVersion=true"]
    subprocess.run(["mvn", "-q", "-B", _COPY, *options], check=True)
    with zipfile.ZipFile(place / "flink-kubernetes-operator-api.jar") as jar:
        asked("POST", _CRDS, yaml.safe_load(jar.read(_CRD)))
    asked("POST", "/api/v1/namespaces", {"metadata": {"name": _NAMESPACE}})
    wait_until(lambda: asked("GET", _OBJECTS), "the resource is served")


def _access(place: Path) -> Path:
    """Return the kubeconfig of an account with the documented rights, and no others."""
    accounts = f"/api/v1/namespaces/{_NAMESPACE}/serviceaccounts"
    asked("POST", accounts, {"metadata": {"name": "cpreplicate"}})
    role, _binding = yaml.safe_load_all(_RBAC.read_text())
    asked("POST", _rbac("roles"), role)
    _bind()
    token = asked("POST", f"{accounts}/cpreplicate/token", {"spec": {}})["status"]["token"]
    cluster = {"server": API, "certificate-authority": f"{place}/certs/apiserver.crt"}
    config = {
        "current-context": "own",
        "clusters": [{"name": "own", "cluster": cluster}],
        "users": [{"name": "own", "user": {"token": token}}],
        "contexts": [{"name": "own", "context": {"cluster": "own", "user": "own"}}],
    }
    path = place / "snapshots.kubeconfig"
    path.write_text(json.dumps(config))
    return path


def _bind() -> None:
    _role, binding = yaml.safe_load_all(_RBAC.read_text())
    binding["subjects"][0]["namespace"] = _NAMESPACE
    asked("POST", _rbac("rolebindings"), binding)


def _revoke() -> None:
    asked("DELETE", f"{_rbac('rolebindings')}/cpreplicate-snapshots")


def _rbac(kind: str) -> str:
    return f"/apis/rbac.authorization.k8s.io/v1/namespaces/{_NAMESPACE}/{kind}"


def _foreign() -> str:
    """Create an object of another owner, and return its path."""
    path = "hdfs://elsewhere/savepoint"
    savepoint: dict[str, Any] = {"path": path, "alreadyExists": True, "disposeOnDelete": False}
    manifest = {
        "apiVersion": "flink.apache.org/v1beta1",
        "kind": "FlinkStateSnapshot",
        "metadata": {"name": "of-another-owner"},
        "spec": {"savepoint": savepoint},
    }
    asked("POST", _OBJECTS, manifest)
    return path
