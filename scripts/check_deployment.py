"""Checks `deploy/` with the programs that will use it. `make deploy-check`.

Arguments: what to check, of `workflow`, `chart`, `airflow`, `image` and `kubernetes`; default: all.
Needs root, Go and the network for the first time: actionlint, Helm and Kubernetes are built from
their Go modules, Airflow and the image install packages. No image is pulled: Debian is bootstrapped
in place of the base.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scripts.deployment import chart, dag, image, pods, workflow


def check_images() -> None:
    """Build and run both images."""
    image.check("inline", "inline")
    image.check("spark", "spark")


CHECKS = {
    "workflow": workflow.check,
    "chart": chart.check,
    "airflow": dag.check,
    "image": check_images,
    "kubernetes": pods.check,
}


def main() -> None:
    """Run the checks that were named."""
    names = sys.argv[1:] or list(CHECKS)
    if unknown := set(names) - CHECKS.keys():
        sys.exit(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(CHECKS)}")
    for name in names:
        CHECKS[name]()


if __name__ == "__main__":
    main()
