"""The programs that check `deploy/`, each installed below `.deployment` by its ordinary client."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
DEPLOY = PROJECT / "deploy"
BUILT = PROJECT / ".deployment"
KUBERNETES = "1.31.4"  # as scripts/kube/build.py builds it
_HELM = "helm.sh/helm/v3/cmd/helm@v3.18.6"
_ACTIONLINT = "github.com/rhysd/actionlint/cmd/actionlint@v1.7.7"
_AIRFLOW = "apache-airflow==3.3.2"


def run(*words: str | Path, stdin: str | None = None, env: dict[str, str] | None = None) -> str:
    """Run a command and return its stdout. Exit with its output if it fails."""
    environment = {**os.environ, **(env or {})}
    done = subprocess.run(
        list(map(str, words)), input=stdin, text=True, capture_output=True, env=environment
    )
    if done.returncode != 0:
        sys.exit(f"{words[0]}: exit {done.returncode}\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
    return done.stdout


def packages(**packages: str) -> None:
    """Install Debian's packages whose command is missing."""
    missing = [package for command, package in packages.items() if shutil.which(command) is None]
    if missing:
        run("apt-get", "update", "-q")
        run("apt-get", "install", "-qy", "--no-install-recommends", *missing)


def helm() -> Path:
    """Build Helm from its Go module."""
    return _built("helm", _HELM)


def actionlint() -> Path:
    """Build actionlint from its Go module."""
    return _built("actionlint", _ACTIONLINT)


def _built(name: str, module: str) -> Path:
    program = BUILT / "bin" / name
    if not program.exists():
        run("go", "install", module, env={"GOBIN": str(program.parent)})
    return program


def airflow() -> Path:
    """Install Airflow and cpreplicate into an environment, and return its Python."""
    python = BUILT / "airflow" / "bin" / "python"
    if not (BUILT / "airflow" / "complete").exists():
        run(sys.executable, "-m", "venv", BUILT / "airflow")
        run(python, "-m", "pip", "install", "--quiet", _AIRFLOW, "--editable", PROJECT)
        (BUILT / "airflow" / "complete").touch()
    return python
