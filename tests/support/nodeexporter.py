"""A real node_exporter, which reads metrics files."""

from __future__ import annotations

import shutil
import subprocess
import urllib.request
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from tests.support.ports import free_port
from tests.support.waiting import PATIENCE, wait_until


def scraped(url: str) -> list[Sample]:
    """Return the samples at the URL of an exporter."""
    with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
        families = text_string_to_metric_families(answer.read().decode())
    return [sample for family in families for sample in family.samples]


def textfile_samples(directory: Path) -> list[Sample]:
    """Return what node_exporter's textfile collector exports for the files in a directory."""
    program = shutil.which("prometheus-node-exporter") or shutil.which("node_exporter")
    assert program is not None, "node_exporter is missing: make promtool"
    address = f"127.0.0.1:{free_port()}"
    words = [
        program,
        f"--web.listen-address={address}",
        "--web.disable-exporter-metrics",
        "--collector.disable-defaults",
        "--collector.textfile",
        f"--collector.textfile.directory={directory}",
    ]
    found: list[Sample] = []

    def answers() -> bool:
        assert process.poll() is None, "node_exporter ended"
        try:
            found[:] = scraped(f"http://{address}/metrics")
        except OSError:
            return False
        return True

    with subprocess.Popen(words, stderr=subprocess.DEVNULL) as process:
        try:
            wait_until(answers)
        finally:
            process.terminate()
    return found
