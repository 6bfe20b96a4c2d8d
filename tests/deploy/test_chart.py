"""The chart without Helm; `make deploy-check` renders it."""

import json
import re
from pathlib import Path

import jsonschema
import pytest
import yaml

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
CHART = DEPLOY / "helm" / "cpreplicate"
VALUES = Path(__file__).resolve().parents[2] / "scripts" / "deployment" / "all_values.yaml"


def test_the_chart_installs_no_example_job():
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert (values["schedules"], values["fleet"]["config"]) == ([], "")


def test_each_cronjob_of_the_chart_writes_the_metrics_file_of_its_name():
    text = (CHART / "templates" / "cronjob.yaml").read_text()
    directory = "/var/lib/cpreplicate/metrics"
    assert f"- --metrics-file={directory}/cpreplicate-sync-{{{{ .name }}}}.prom\n" in text
    assert re.search(rf"- name: metrics\n +mountPath: {directory}\n", text)


def test_what_needs_more_than_kubernetes_is_off_by_default():
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert values["fleet"]["shards"] == 1
    assert not values["monitoring"]["serviceMonitor"]["enabled"]
    assert not values["monitoring"]["prometheusRule"]["enabled"]
    assert not values["networkPolicy"]["enabled"]


def test_the_alert_rules_of_the_chart_are_those_of_prometheus():
    # a chart can read only files of its own
    shipped = {path.name: path.read_text() for path in (DEPLOY / "prometheus").glob("*.rules.yml")}
    of_chart = {path.name: path.read_text() for path in (CHART / "files").iterdir()}
    assert of_chart == shipped


def merged(values, others):
    """Values as Helm merges those of a file into the chart's own."""
    if isinstance(values, dict) and isinstance(others, dict):
        both = values.keys() & others.keys()
        return {**values, **others, **{key: merged(values[key], others[key]) for key in both}}
    return others


@pytest.mark.parametrize("others", [{}, yaml.safe_load(VALUES.read_text())], ids=["own", "all"])
def test_the_schema_accepts_the_values(others):
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())
    jsonschema.validate(merged(values, others), schema)


def test_every_shard_of_the_chart_has_a_name_and_a_selector_of_its_own():
    for name in ("deployment", "service", "poddisruptionbudget"):
        text = (CHART / "templates" / f"{name}.yaml").read_text()
        assert 'name: {{ include "cpreplicate.fleet-name" $shard }}' in text
        assert '{{- include "cpreplicate.fleet-selector" $shard | nindent' in text
