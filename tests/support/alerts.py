"""Which of the shipped alerts fire over metrics that were really exported."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from prometheus_client.samples import Sample

from tests.support.prometheus import promtool
from tests.support.shipped import DEPLOY

SERVICE_RULES = ("cpreplicate.rules.yml", "cpreplicate-service.rules.yml")


def _series(sample: Sample, now: float) -> dict[str, str]:
    """Return a sample as a constant input series of promtool, whose time begins with 0 at `now`."""
    is_time = sample.name.endswith(("_timestamp_seconds", "_mtime_seconds"))
    value = sample.value - now if is_time else sample.value
    text = f"{value:f}" if math.isfinite(value) else "Inf"
    labels = {"job": "cpreplicate", "instance": "h", **sample.labels}
    return {"series": f"{sample.name}{{{_labels(labels)}}}", "values": f"{text}+0x120"}


def _labels(labels: Mapping[str, str]) -> str:
    return ",".join(f"{key}={json.dumps(value)}" for key, value in labels.items())


def check_firing(
    directory: Path,
    rules: Sequence[str],
    samples: Iterable[Sample],
    minutes: int,
    expected: Iterable[Mapping[str, str]],
    now: float,
) -> None:
    """Check which alerts fire so many minutes after `now`: those `expected`, and no other."""
    by = "alertname, flink_job, replica, file"
    alerts = {
        # over the alerts that the rules made
        "expr": f'count by ({by}) (ALERTS{{alertstate="firing"}})',
        "eval_time": f"{minutes}m",
        "exp_samples": [{"labels": f"{{{_labels(each)}}}", "value": 1} for each in expected],
    }
    listed = [_series(sample, now) for sample in samples]
    test = {"interval": "1m", "input_series": listed, "promql_expr_test": [alerts]}
    files = [str(DEPLOY / "prometheus" / name) for name in rules]
    case = {"rule_files": files, "evaluation_interval": "1m", "tests": [test]}
    (directory / "alerts.test.yml").write_text(json.dumps(case))
    done = promtool("test", "rules", directory / "alerts.test.yml")
    assert done.returncode == 0, done.stdout + done.stderr
