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
    "fleet.every=soon",
    "fleet.metricsPort=80",
    "image.pullPolicy=Sometimes",
    "kerberos.enabled=true",
    "schedules[0].sorce=x",
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


def _compare() -> None:
    """Exit if the chart does not render the objects of `deploy/kubernetes`."""
    files = (DEPLOY / "kubernetes").glob("*.yaml")
    texts = [file.read_text() for file in files if file.name != "kustomization.yaml"]
    manifests = _objects("\n---\n".join(texts))
    of_chart = _objects(rendered("-f", EXAMPLE))
    with_spark = _objects(rendered("-f", EXAMPLE, "--set", "spark.enabled=true"))
    for key, manifest in manifests.items():
        if manifest != of_chart.get(key, with_spark.get(key)):
            sys.exit(f"deploy/kubernetes and the chart differ in {key}")
    if unknown := of_chart.keys() - manifests.keys():
        sys.exit(f"deploy/kubernetes lacks {unknown}")


def _objects(text: str) -> dict[str, Any]:
    objects = [each for each in yaml.safe_load_all(text) if each]
    return {f"{each['kind']} {each['metadata']['name']}": _stripped(each) for each in objects}


def _stripped(value: Any) -> Any:
    """Return a value without what names the release."""
    if isinstance(value, list):
        return [_stripped(each) for each in value]
    if isinstance(value, dict):
        kept = value.keys() - _OF_THE_RELEASE
        return {key: _stripped(each) for key, each in value.items() if key in kept}
    return value
