"""The workflow that builds and publishes: linted, with the shell scripts in it. It does not run."""

from __future__ import annotations

from scripts.deployment.tools import PROJECT, actionlint, packages, run


def check() -> None:
    """Exit if actionlint or shellcheck finds a fault."""
    packages(shellcheck="shellcheck")
    workflows = sorted((PROJECT / ".github" / "workflows").glob("*.yml"))
    run(actionlint(), *workflows)
    print(f"workflows: {len(workflows)} linted", flush=True)
