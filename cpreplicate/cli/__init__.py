"""The command line: parse options, call one operation, pass its result to `output`."""

from __future__ import annotations

import gc
import os
import signal
import sys
from typing import NoReturn

import click

from cpreplicate.cli.commands import (
    about,
    completion,
    configuration,
    doctor,
    fleet,
    handover,
    inspection,
    maintenance,
    points,
    rebase,
    status,
    switch,
)
from cpreplicate.cli.commands.replication import cli
from cpreplicate.cli.running import failures
from cpreplicate.cli.running.signals import Stopped, least_to_stop, stop_on_signals, stopped
from cpreplicate.storage.waiting.closing import PromptExit

# the other modules add their commands to `cli`
__all__ = [
    "about",
    "completion",
    "configuration",
    "doctor",
    "execute",
    "fleet",
    "handover",
    "inspection",
    "main",
    "maintenance",
    "points",
    "rebase",
    "status",
    "switch",
]

_INTERRUPTED = 130


def main() -> NoReturn:
    """Run the command line and exit with one of the documented codes.

    A traceback is printed only with `--debug`. A SIGHUP waits until the command is known.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGHUP])  # also if no `__main__` did it
    prompt_exit = PromptExit()
    _fill_closed_descriptors()
    stop_on_signals()
    # a plan creates millions of objects and no cycles: collections took a third of its time
    gc.set_threshold(5_000_000, 20, 20)
    code = execute()
    stopped()  # also if the command returned the code of a signal: what follows is not interrupted
    _end_log(code)
    if "cpreplicate.output.streams" in sys.modules or code:
        from cpreplicate.output.streams import discard_unwritten

        discard_unwritten()
    prompt_exit.is_due(code)
    sys.exit(code)


def _end_log(code: int) -> None:
    """Have the log file end with the exit code, if a command ran."""
    if "cpreplicate.output.log" in sys.modules:
        from cpreplicate.output.log import narrate_in_file

        narrate_in_file(f"ended with exit code {code}")


def _fill_closed_descriptors() -> None:
    """Open /dev/null for each standard stream that was closed, as by `2>&-`.

    Else a file of a replica would get its number. Python has no object for a closed stream. stderr
    gets one that discards what is written.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # open() uses the lowest free number: this one
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115  # it stays open until the process ends


def execute() -> int:
    """Run the command of `sys.argv` and return its exit code; why it failed is printed."""
    failures.expect("text")
    try:
        least_to_stop()  # a mistake ends the command now
        return int(cli.main(standalone_mode=False, prog_name="cpreplicate") or 0)
    except click.ClickException as error:
        return failures.misused(error)
    except (KeyboardInterrupt, click.Abort):
        stopped()
        return failures.interrupted(_INTERRUPTED)
    except Stopped as request:
        stopped()
        return failures.interrupted(request.code)
    except Exception as error:  # noqa: BLE001  # a user gets a message, no traceback
        return failures.failed(error)
