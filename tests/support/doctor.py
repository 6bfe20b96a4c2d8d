"""Runs `doctor` and returns its findings."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.commandline import run


class Examined(NamedTuple):
    """The exit code of `doctor`, and its checks by name."""

    code: int
    checks: Mapping[str, Mapping[str, Any]]

    def status(self, check: str) -> str:
        """Return the status of a check."""
        return str(self.checks[check]["status"])

    def names(self, status: str) -> list[str]:
        """Return the names of the checks with a status, in their order."""
        return [name for name, check in self.checks.items() if check["status"] == status]

    def text(self, check: str) -> str:
        """Return the message of a check with its remedy."""
        return f"{self.checks[check]['message']}. {self.checks[check]['remedy'] or ''}"


def examined(*words: object) -> Examined:
    """Run `doctor` in this process, with little patience."""
    ended = run("doctor", *words, "--output", "json", "--retry-for", "0.3s", "-q")
    assert ended.message == "", ended
    return parsed(ended.code, ended.out)


def parsed(code: int, out: str) -> Examined:
    """Return what `doctor --output json` printed."""
    result = json.loads(out)
    assert result["exit_code"] == code
    return Examined(code, {check["check"]: check for check in result["checks"]})


def tree(root: Path) -> dict[str, tuple[bool, int, int]]:
    """Return every path below a directory, with its kind, its length and its time."""
    return {
        str(path.relative_to(root)): (path.is_dir(), path.lstat().st_size, path.lstat().st_mtime_ns)
        for path in root.rglob("*")
    }
