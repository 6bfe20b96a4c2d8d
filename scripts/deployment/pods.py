"""The manifests and the chart on a real Kubernetes of this machine."""

from __future__ import annotations

import json
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

import yaml

from scripts.deployment import image
from scripts.deployment.chart import ALL_VALUES, CHART, rendered
from scripts.deployment.tools import DEPLOY, helm, run
from scripts.kube.api import API, SECONDS, wait_until
from scripts.kube.build import build
from scripts.kube.node import kubernetes
from tests.support import checker
from tests.support.jobs import JOB, write_checkpoint

_SERVICE = "app.kubernetes.io/component=fleet"


def check() -> None:
    """Exit unless Kubernetes accepts all objects, and what they run does as it should."""
    build()
    images = [image.build(target) for target in ("inline", "spark")]
    with tempfile.TemporaryDirectory(prefix="cpreplicate-kubernetes-") as directory:
        place = Path(directory)
        data = place / "data"
        write_checkpoint(data / "dcA", 1, {f"shared/{each}": 10_000 for each in range(20)})
        place.chmod(0o755)
        data.chmod(0o777)
        with kubernetes(place, *images):
            _check_accepted(place)
            _check_jobs(place, data)
            _check_service(place, data)


def _check_accepted(place: Path) -> None:
    """Let the API server validate every object."""
    env = {"KUBECONFIG": f"{place}/kubeconfig"}
    dry = ("apply", "--dry-run=server", "--validate=strict")
    run("kubectl", *dry, "-k", DEPLOY / "kubernetes", env=env)
    run("kubectl", *dry, "-f", DEPLOY / "kubernetes" / "cronjob.yaml", env=env)
    # the CRDs of the Prometheus Operator are not installed
    monitoring = ("serviceMonitor", "prometheusRule")
    off = ",".join(f"monitoring.{each}.enabled=false" for each in monitoring)
    text = rendered("-f", ALL_VALUES, "--set", off)
    run("kubectl", *dry, "-f", "-", stdin=text, env=env)
    print("Kubernetes: the API server accepts the manifests and the chart", flush=True)


def _check_jobs(place: Path, data: Path) -> None:
    """Run a CronJob in threads, one on executors in pods, and one without a source."""
    source = f"{data}/dcA/{JOB}"
    values = {"inline": _values(data, "inline"), "spark": _values(data, "spark")}
    values["inline"]["podSecurityContext"] = {"runAsUser": image.USER, "runAsGroup": 0}
    values["spark"]["spark"] = _spark(data)
    for release, value in values.items():
        options = [f"--runner={release}"]
        metrics = data / f"metrics-{release}"
        metrics.mkdir(mode=0o777)
        metrics.chmod(0o777)  # whatever the umask is
        value["metricsVolume"] = {"hostPath": {"path": str(metrics)}}
        value["schedules"] = [
            _schedule("there", source, f"{data}/{release}", options),
            _schedule("gone", f"{source}-gone", f"{data}/{release}", options),
        ]
        file = place / f"{release}.yaml"
        file.write_text(yaml.safe_dump(value))
        env = {"KUBECONFIG": f"{place}/kubeconfig"}
        run(helm(), "install", release, CHART, "-f", file, env=env)
        _ends(place, release, "there", "Complete", None)
        assert checker.faults(data / release / JOB) == []
        _ends(place, release, "gone", "Failed", "PodFailurePolicy")
        written = {file.name for file in metrics.iterdir()}
        assert written == {"cpreplicate-sync-there.prom", "cpreplicate-sync-gone.prom"}, written


def _check_service(place: Path, data: Path) -> None:
    """Run the Deployment: ready when all is replicated, and whole when a pod is gone."""
    env = {"KUBECONFIG": f"{place}/kubeconfig"}
    value = _values(data, "inline")
    configuration = f'[[root]]\nsource = "{data}/dcA"\ntarget = "{data}/service"\n'
    value["fleet"] = {"every": "1s", "args": ["--runner=inline"], "config": configuration}
    value["podSecurityContext"] = {"runAsUser": image.USER, "runAsGroup": 0}
    value["schedules"] = []
    file = place / "service.yaml"
    file.write_text(yaml.safe_dump(value))
    run(helm(), "install", "service", CHART, "-f", file, env=env)
    wait_until(lambda: len(_ready(env)) == 2, "two pods of the service are ready")
    assert checker.faults(data / "service" / JOB) == []
    for address in _ready(env).values():
        with urllib.request.urlopen(f"http://{address}:9464/metrics", timeout=10) as answer:
            assert "cpreplicate_replica_lag_seconds{" in answer.read().decode()
    gone = min(_ready(env))
    run("kubectl", "delete", "pod", gone, "--wait=false", env=env)
    write_checkpoint(data / "dcA", 2, {f"shared/{each}": 10_000 for each in range(5, 25)})
    replicated = data / "service" / JOB / "chk-2" / "_metadata"
    wait_until(replicated.exists, "the next checkpoint is replicated")
    wait_until(lambda: len({*_ready(env)} - {gone}) == 2, "another pod is ready")
    assert checker.faults(data / "service" / JOB) == []
    run(helm(), "uninstall", "service", "--wait", env=env)
    print("Kubernetes: the Deployment follows jobs, also when a pod is deleted", flush=True)


def _ready(env: dict[str, str]) -> dict[str, str]:
    """Return the address of each pod of the service that is ready, by its name."""
    found = run("kubectl", "get", "pods", "-l", _SERVICE, "-o", "json", env=env)
    return {
        pod["metadata"]["name"]: pod["status"]["podIP"]
        for pod in json.loads(found)["items"]
        for condition in pod["status"].get("conditions", ())
        if (condition["type"], condition["status"]) == ("Ready", "True")
    }


def _values(data: Path, tag: str) -> dict[str, Any]:
    return {
        "image": {"repository": image.NAME, "tag": tag, "pullPolicy": "Never"},
        "fleet": {"enabled": False},
        "volumes": [{"name": "data", "hostPath": {"path": str(data)}}],
        "volumeMounts": [{"name": "data", "mountPath": str(data)}],
        "resources": {"requests": {"cpu": "100m"}, "limits": {"memory": "2Gi"}},
    }


def _spark(data: Path) -> dict[str, Any]:
    volume = "spark.kubernetes.executor.volumes.hostPath.data"
    properties = {
        "spark.executor.memory": "512m",
        "spark.kubernetes.executor.request.cores": "0.1",
        f"{volume}.mount.path": str(data),
        f"{volume}.options.path": str(data),
    }
    # no kube-proxy runs, so the API server's own address and not that of its service
    return {"enabled": True, "apiServer": API, "properties": properties}


def _schedule(name: str, source: str, target_root: str, args: list[str]) -> dict[str, Any]:
    never = "0 0 30 2 *"
    schedule = {"name": name, "schedule": never, "source": source, "targetRoot": target_root}
    return {**schedule, "args": args}


def _ends(place: Path, release: str, name: str, condition: str, reason: str | None) -> None:
    """Start the job of a CronJob, and exit unless it ends so."""
    env = {"KUBECONFIG": f"{place}/kubeconfig"}
    job = f"{release}-{name}"
    began = time.monotonic()
    run("kubectl", "create", "job", f"--from=cronjob/{job}", job, env=env)

    def conditions() -> dict[str, Any]:
        status = json.loads(run("kubectl", "get", "job", job, "-o", "json", env=env))["status"]
        return {each["type"]: each.get("reason") for each in status.get("conditions", ())}

    wait_until(lambda: {"Complete", "Failed"} & conditions().keys(), f"job {job} ends")
    reached = conditions()
    if condition not in reached or (reason and reached[condition] != reason):
        messages = run("kubectl", "logs", f"job/{job}", "--all-containers", env=env)
        raise SystemExit(f"job {job}: {reached}\n{messages}")
    seconds = time.monotonic() - began
    print(f"Kubernetes: job {job}: {condition}, {seconds:.0f} of {SECONDS} s", flush=True)
