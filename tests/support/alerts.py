"""Which of the shipped alerts fire over metrics that were really exported."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

from prometheus_client.samples import Sample

from tests.support.prometheus import promtool
from tests.support.shipped import DEPLOY

SERVICE_RULES = ("cpreplicate.rules.yml", "cpreplicate-service.rules.yml")


Exports = Sequence[tuple[float, Sequence[Sample]]]
"""What was exported at times in seconds since the epoch; each is what a scrape sees until the next.
"""
_Test = TypeVar("_Test", bound=Callable[..., None])
FIRED: set[str] = set()
"""The alerts that a test has fire by their real situation."""
SILENT: set[str] = set()
"""The alerts that do not fire in the healthy situation that is nearest, as a test shows."""


def fires(*names: str) -> Callable[[_Test], _Test]:
    """Mark a test as one in which these alerts fire."""
    FIRED.update(names)
    return lambda test: test


def silent(*names: str) -> Callable[[_Test], _Test]:
    """Mark a test as one in which these alerts do not fire, although little is missing."""
    SILENT.update(names)
    return lambda test: test


def _value(sample: Sample, began: float) -> str:
    """Return a value as promtool reads it, whose time begins with 0."""
    is_time = sample.name.endswith(("_timestamp_seconds", "_mtime_seconds"))
    value = sample.value - began if is_time else sample.value
    return f"{value:f}" if math.isfinite(value) else "Inf"


def _name(sample: Sample) -> str:
    labels = {"job": "cpreplicate", "instance": "h", **sample.labels}
    return f"{sample.name}{{{_labels(labels)}}}"


def _input_series(exports: Exports, minutes: int, interval: int) -> list[dict[str, str]]:
    """Return what was exported as input series of promtool, a value each interval."""
    began = exports[0][0]
    steps = [round((at - began) / 60 / interval) for at, _ in exports]
    lasting = [after - step for step, after in pairwise([*steps, minutes // interval + 1])]
    found: dict[str, list[str]] = {}
    for index, (_, samples) in enumerate(exports):
        for sample in samples:
            values = found.setdefault(_name(sample), [f"_x{each}" for each in lasting])
            if lasting[index]:
                values[index] = f"{_value(sample, began)}+0x{lasting[index] - 1}"
    return [
        {"series": name, "values": " ".join(filter(lambda each: each != "_x0", values))}
        for name, values in found.items()
    ]


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
    check_replayed(directory, rules, [(now, list(samples))], minutes, expected)


def check_replayed(
    directory: Path,
    rules: Sequence[str],
    exports: Exports,
    minutes: int,
    expected: Iterable[Mapping[str, str]],
    interval: int = 1,
    within: int = 0,
) -> None:
    """Check which alerts fire so many minutes after the first of these exports, and no other.

    With `within`, those which fired at any time in so many minutes before. `interval` is that of
    the scrapes and of the evaluation, in minutes.
    """
    by = "alertname, flink_job, replica, file"
    firing = 'ALERTS{alertstate="firing"}'  # the alerts that the rules made
    firing = f"count_over_time({firing}[{within}m])" if within else firing
    alerts = {
        "expr": f"count by ({by}) ({firing})",
        "eval_time": f"{minutes}m",
        "exp_samples": [{"labels": f"{{{_labels(each)}}}", "value": 1} for each in expected],
    }
    listed = _input_series(exports, minutes, interval)
    test = {"interval": f"{interval}m", "input_series": listed, "promql_expr_test": [alerts]}
    files = [str(DEPLOY / "prometheus" / name) for name in rules]
    case = {"rule_files": files, "evaluation_interval": f"{interval}m", "tests": [test]}
    (directory / "alerts.test.yml").write_text(json.dumps(case))
    done = promtool("test", "rules", directory / "alerts.test.yml")
    assert done.returncode == 0, done.stdout + done.stderr
