"""The Helm chart: linted, rendered, and compared with the manifests of `deploy/kubernetes`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from scripts.deployment.tools import DEPLOY, KUBERNETES, helm, run

CHART = DEPLOY / "helm" / "cpreplicate"
ALL_VALUES = Path(__file__).with_name("all_values.yaml")
EXAMPLE = Path(__file__).with_name("example_values.yaml")
_MISTAKES = (
    "fleet.replica=2",
    "fleet.shards=0",
    "fleet.every=soon",
    "fleet.metricsPort=80",
    "image.pullPolicy=Sometimes",
    "kerberos.enabled=true",
    "schedules[0].sorce=x",
    "monitoring.serviceMonitor.interval=soon",
    "networkPolicy.ingress=x",
)
_SCHEDULE = (
    "fleet.enabled=false,schedules[0].name=a,schedules[0].schedule=0 0 * * *,"
    "schedules[0].source=file:/a,schedules[0].targetRoot=file:/b"
)
_OF_THE_RELEASE = {"labels", "annotations", "matchLabels", "selector", "namespace"}


def rendered(*words: str | Path) -> str:
    """Return the objects of the chart as YAML."""
    return run(helm(), "template", "cpreplicate", CHART, "--kube-version", KUBERNETES, *words)


def check() -> None:
    """Exit if a tool finds a fault in the chart, or if it differs from the manifests."""
    for words in ((), ("-f", EXAMPLE), ("-f", ALL_VALUES)):
        run(helm(), "lint", "--strict", CHART, *words)
    rendered("-f", ALL_VALUES)
    for mistake in _MISTAKES:
        wrong = ("template", "x", CHART, "--kube-version", KUBERNETES, "--set", mistake)
        done = subprocess.run([helm(), *wrong], capture_output=True, text=True)
        if done.returncode == 0 or "schema" not in done.stderr:
            sys.exit(f"values.schema.json accepts {mistake}")
    _check_required()
    _check_shards()
    _check_rules()
    _compare()
    print(f"chart: linted and rendered, {len(_MISTAKES)} wrong values refused", flush=True)


def _check_required() -> None:
    """Exit unless the chart runs only what its values name, and asks for what is missing."""
    for given, missing in (("image.tag=x", "fleet.config"), (_SCHEDULE, "metricsVolume")):
        words = ("template", "x", CHART, "--kube-version", KUBERNETES, "--set", given)
        done = subprocess.run([helm(), *words], capture_output=True, text=True)
        if done.returncode == 0 or missing not in done.stderr:
            sys.exit(f"the chart without {missing}: exit {done.returncode}, {done.stderr}")
    if "CronJob" in rendered("--set", "fleet.config=x"):
        sys.exit("the chart installs a CronJob that no value names")


def _check_shards() -> None:
    """Exit unless each shard has its pods, and no pod is one of two shards."""
    objects = _objects(rendered("--set", "fleet.config=x,fleet.shards=3"))
    for kind in ("Deployment", "Service", "PodDisruptionBudget"):
        names = sorted(key for key in objects if key.startswith(f"{kind} "))
        if names != [f"{kind} cpreplicate-{number}" for number in (1, 2, 3)]:
            sys.exit(f"three shards are {names}")
    for number in (1, 2, 3):
        template = objects[f"Deployment cpreplicate-{number}"]["spec"]["template"]
        selector = objects[f"Service cpreplicate-{number}"]["spec"]["selector"]
        [container] = template["spec"]["containers"]
        is_selected = selector.items() <= template["metadata"]["labels"].items()
        if f"--shard={number}/3" not in container["args"] or not is_selected:
            sys.exit(f"shard {number} of the chart: {container['args']}, {selector}")


def _check_rules() -> None:
    """Exit unless the chart renders the alert rules unchanged: with schedules also of cron."""
    for values, names in (((), ("", "-service")), (("-f", EXAMPLE), ("", "-service", "-cron"))):
        wanted = ("--set", "fleet.config=x,monitoring.prometheusRule.enabled=true")
        objects = _objects(rendered(*values, *wanted))
        files = (DEPLOY / "prometheus" / f"cpreplicate{name}.rules.yml" for name in names)
        groups = [each for file in files for each in yaml.safe_load(file.read_text())["groups"]]
        if objects["PrometheusRule cpreplicate"]["spec"]["groups"] != groups:
            sys.exit("the chart's PrometheusRule differs from deploy/prometheus")


def _compare() -> None:
    """Exit if the chart does not render the objects of `deploy/kubernetes`."""
    files = (DEPLOY / "kubernetes").glob("*.yaml")
    texts = [file.read_text() for file in files if file.name != "kustomization.yaml"]
    manifests = _stripped(_objects("\n---\n".join(texts)))
    of_chart = _stripped(_objects(rendered("-f", EXAMPLE)))
    optional = "spark.enabled=true,fleet.kubernetesSnapshots=flink"
    with_roles = _stripped(_objects(rendered("-f", EXAMPLE, "--set", optional)))
    for key, manifest in manifests.items():
        if manifest != of_chart.get(key, with_roles.get(key)):
            sys.exit(f"deploy/kubernetes and the chart differ in {key}")
    if unknown := of_chart.keys() - manifests.keys():
        sys.exit(f"deploy/kubernetes lacks {unknown}")


def _objects(text: str) -> dict[str, Any]:
    """Return the objects by kind and name."""
    objects = [each for each in yaml.safe_load_all(text) if each]
    return {f"{each['kind']} {each['metadata']['name']}": each for each in objects}


def _stripped(value: Any) -> Any:
    """Return a value without what names the release."""
    if isinstance(value, list):
        return [_stripped(each) for each in value]
    if isinstance(value, dict):
        kept = value.keys() - _OF_THE_RELEASE
        return {key: _stripped(each) for key, each in value.items() if key in kept}
    return value
