"""The command line: parse options, call one operation, pass its result to `output`."""

from __future__ import annotations

import errno
import gc
import os
import sys
import traceback
from typing import NoReturn

import click

from cpreplicate.cli import (
    about,
    configuration,
    doctor,
    fleet,
    handover,
    maintenance,
    points,
    rebase,
    status,
)
from cpreplicate.cli.commands import cli
from cpreplicate.cli.signals import Stopped, least_to_stop, stop_on_signals, stopped
from cpreplicate.errors import CpreplicateError, exit_code_of
from cpreplicate.storage.closing import PromptExit

# the other modules add their commands to `cli`
__all__ = [
    "about",
    "configuration",
    "doctor",
    "execute",
    "fleet",
    "handover",
    "main",
    "maintenance",
    "points",
    "rebase",
    "status",
]

_PERSISTENT = (errno.EACCES, errno.EDQUOT, errno.EINVAL, errno.ENOSPC, errno.EROFS)
_NOT_THERE = 10
_RESUME = "Run the command again to resume"
_MISUSED = 2
_INTERRUPTED = 130
# how click 8.2 and later ends a command without arguments
_NO_ARGUMENTS = getattr(click.exceptions, "NoArgsIsHelpError", ())


def main() -> NoReturn:
    """Run the command line and exit with one of the documented codes.

    A traceback is printed only with `--debug`.
    """
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
    try:
        least_to_stop()  # a mistake ends the command now
        return int(cli.main(standalone_mode=False, prog_name="cpreplicate") or 0)
    except click.ClickException as error:
        return _misused(error)
    except (KeyboardInterrupt, click.Abort):
        stopped()
        return _interrupted(_INTERRUPTED)
    except Stopped as request:
        stopped()
        return _interrupted(request.code)
    except Exception as error:  # noqa: BLE001  # a user gets a message, no traceback
        return _failed(error)


def _misused(error: click.ClickException) -> int:
    from cpreplicate.output.log import write_error, write_lines
    from cpreplicate.output.streams import write_messages

    if isinstance(error, _NO_ARGUMENTS):  # its message is the help text
        write_messages(error.format_message())
        return _MISUSED
    if isinstance(error, click.UsageError) and error.ctx is not None:
        write_lines(f"{error.ctx.get_usage()}\nTry '{error.ctx.command_path} --help' for help.\n\n")
    write_error(error.format_message())
    return error.exit_code


def _failed(error: Exception) -> int:
    from cpreplicate.output.log import write_error, write_lines

    if "--debug" in sys.argv:
        write_lines("".join(traceback.format_exception(error)))
    if isinstance(error, CpreplicateError):
        write_error(str(error))
        return error.exit_code
    if isinstance(error, OSError):
        write_error(f"{error}. No partial files are visible. {_remedy(error)}")
    else:
        first_line = str(error).partition("\n")[0]
        write_error(
            f"unexpected {type(error).__name__}: {first_line}. Run `cpreplicate --debug …` and"
            " report what it prints"
        )
    return exit_code_of(error)


def _remedy(error: OSError) -> str:
    if exit_code_of(error) == _NOT_THERE:  # a bucket, which no run creates
        return "Create it, or correct the URI, and run the command again"
    if error.errno in _PERSISTENT:
        return "Fix the problem and run the command again to resume"
    return _RESUME


def _interrupted(code: int) -> int:
    from cpreplicate.output.log import write_error

    write_error(f"interrupted. No partial files are visible. {_RESUME}")
    return code
