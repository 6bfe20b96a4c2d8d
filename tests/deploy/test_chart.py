"""The chart without Helm; `make deploy-check` renders it."""

import re
from pathlib import Path

import yaml

CHART = Path(__file__).resolve().parents[2] / "deploy" / "helm" / "cpreplicate"


def test_the_chart_installs_no_example_job():
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert (values["schedules"], values["fleet"]["config"]) == ([], "")


def test_each_cronjob_of_the_chart_writes_the_metrics_file_of_its_name():
    text = (CHART / "templates" / "cronjob.yaml").read_text()
    directory = "/var/lib/cpreplicate/metrics"
    assert f"- --metrics-file={directory}/cpreplicate-sync-{{{{ .name }}}}.prom\n" in text
    assert re.search(rf"- name: metrics\n +mountPath: {directory}\n", text)
