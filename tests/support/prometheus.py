"""A real Prometheus server, and `promtool`."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.ports import free_port
from tests.support.waiting import PATIENCE

_CONFIGURATION = """\
global: {{scrape_interval: 250ms, scrape_timeout: 250ms, evaluation_interval: 250ms}}
rule_files: {rules}
scrape_configs:
  - job_name: cpreplicate
    static_configs: [{{targets: {targets}}}]
"""


def promtool(*words: object, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run promtool."""
    return subprocess.run(
        ["promtool", *map(str, words)],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )


class Sample(NamedTuple):
    """One sample of a query's result."""

    labels: dict[str, str]
    value: float


class Prometheus:
    """A server that scrapes; `url` is its own address."""

    def __init__(self, url: str) -> None:
        self.url = url

    def query(self, expression: str) -> list[Sample]:
        """The result of an instant query that returns a vector."""
        result = self._get(f"/api/v1/query?query={urllib.parse.quote(expression)}")["result"]
        return [Sample(row["metric"], float(row["value"][1])) for row in result]

    def wait_for(self, expression: str, seconds: float = PATIENCE) -> list[Sample]:
        """The result of a query as soon as it is not empty."""
        deadline = time.monotonic() + seconds
        while not (samples := self.query(expression)):
            assert time.monotonic() < deadline, f"nothing matches {expression}"
            time.sleep(0.1)
        return samples

    def _get(self, path: str) -> Any:
        with urllib.request.urlopen(self.url + path, timeout=PATIENCE) as response:
            return json.load(response)["data"]

    def is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=5) as response:
                return bool(response.status == 200)
        except OSError:
            return False


@contextmanager
def prometheus(
    directory: Path, targets: Sequence[str], rules: Sequence[Path] = ()
) -> Iterator[Prometheus]:
    """A server on the loopback interface that scrapes these addresses four times a second."""
    configuration = directory / "prometheus.yml"
    configuration.write_text(
        _CONFIGURATION.format(
            targets=json.dumps(list(targets)), rules=json.dumps(list(map(str, rules)))
        )
    )
    address = f"127.0.0.1:{free_port()}"
    words = [
        "prometheus",
        f"--config.file={configuration}",
        f"--storage.tsdb.path={directory}/data",
        f"--web.listen-address={address}",
        "--log.level=warn",
    ]
    with (directory / "prometheus.log").open("w") as log:
        process = subprocess.Popen(words, stderr=log, stdout=log)
        try:
            server = Prometheus(f"http://{address}")
            _wait(server, process, directory)
            yield server
        finally:
            process.terminate()
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait(server: Prometheus, process: subprocess.Popen[bytes], directory: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while not server.is_ready():
        assert process.poll() is None, (directory / "prometheus.log").read_text()
        assert time.monotonic() < deadline
        time.sleep(0.1)
