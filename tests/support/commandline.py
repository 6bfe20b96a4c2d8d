"""The command line in this process, where a process of its own for each command would take most of
a test's time.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from click.testing import CliRunner

from cpreplicate.cli.commands import cli
from cpreplicate.errors import CpreplicateError


class Ended(NamedTuple):
    """How a command ended: its exit code, what it printed on stdout, and its error message."""

    code: int
    out: str
    message: str

    def json(self) -> dict[str, Any]:
        """The result of a command that succeeded, with `--output json`."""
        assert self.code == 0, self
        return dict(json.loads(self.out))


def run(*words: object) -> Ended:
    """Run a command as the console script does; an exception that it does not foresee is raised."""
    done = CliRunner().invoke(
        cli, list(map(str, words)), standalone_mode=False, env={"HADOOP_CONF_DIR": None}
    )
    if isinstance(done.exception, CpreplicateError):
        return Ended(done.exception.exit_code, done.stdout, str(done.exception))
    if done.exception is not None:
        raise done.exception
    return Ended(int(done.return_value or 0), done.stdout, "")
