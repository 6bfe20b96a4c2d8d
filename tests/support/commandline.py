"""The command line in this process, where a process of its own for each command would take most of
a test's time.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

from click.testing import CliRunner

from cpreplicate.cli import execute
from cpreplicate.cli.commands.replication import cli
from cpreplicate.errors import CpreplicateError
from cpreplicate.output.log import LogSettings, configure
from tests.support import documents


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
    documents.check([*map(str, words)], done.stdout)
    if isinstance(done.exception, CpreplicateError):
        return Ended(done.exception.exit_code, done.stdout, str(done.exception))
    if done.exception is not None:
        raise done.exception
    return Ended(int(done.return_value or 0), done.stdout, "")


def printed(
    *words: object, cwd: Path | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a command as the console script does, errors and all: what a process would return.

    It differs from a process in what outlives a command: modules, threads, handlers of signals.
    """
    configure(LogSettings())  # as the first import does it in a process
    arguments = list(map(str, words))
    stdout, stderr = io.StringIO(), io.StringIO()
    with (
        _working_directory(cwd),
        mock.patch.dict(os.environ, environment),
        mock.patch("sys.argv", ["cpreplicate", *arguments]),
        redirect_stdout(stdout),
        redirect_stderr(stderr),
    ):
        code = execute()
    documents.check(arguments, stdout.getvalue())
    return subprocess.CompletedProcess(arguments, code, stdout.getvalue(), stderr.getvalue())


@contextmanager
def _working_directory(path: Path | None) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(path or before)
    try:
        yield
    finally:
        os.chdir(before)
