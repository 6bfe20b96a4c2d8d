"""How a command that failed ends: a message, an object for scripts, and an exit code."""

from __future__ import annotations

import errno
import re
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from cpreplicate.cli.running.form import form_asked
from cpreplicate.errors import CpreplicateError, described, exit_code_of, is_full, is_without_thread

if TYPE_CHECKING:
    from cpreplicate.output import Form

_MAY_PASS = (errno.EAGAIN, errno.EINTR, errno.EIO, errno.ESTALE)
_NOT_THERE = 10
_NOT_REACHED = 7
_MISUSED = 2
UNWRITTEN = 1  # a command that only reads did nothing without its result
# how click 8.2 and later ends a command without arguments
_NO_ARGUMENTS = getattr(click.exceptions, "NoArgsIsHelpError", ())


@dataclass
class _Stdout:
    """In which form stdout was asked for, and whether the result of the command is there."""

    form: Form = "text"
    has_begun: bool = False
    only_reads: bool = False
    advise: Callable[[str], str] = str
    has_result: bool = False


_stdout = _Stdout()


def expect(
    form: Form,
    has_begun: bool = False,
    only_reads: bool = False,
    advise: Callable[[str], str] = str,
) -> None:
    """Record in which form the command was asked to print, and whether it has begun.

    `only_reads` is whether it leaves each replica as it is. `advise` returns a message with the
    options that the command has.
    """
    global _stdout  # a process runs one command
    _stdout = _Stdout(form, has_begun, only_reads, advise)


def advised(message: str) -> str:
    """Return a message of an operation with the options that the command has, as `advice`."""
    return _stdout.advise(message)


def result_is_printed() -> None:
    """Record that stdout has the result: a JSON document gets no other one behind it."""
    _stdout.has_result = True


def misused(error: click.ClickException) -> int:
    """Report wrong arguments, and return the exit code."""
    from cpreplicate.output.log import write_lines
    from cpreplicate.output.streams import write_messages

    if isinstance(error, _NO_ARGUMENTS):  # its message is the help text
        write_messages(error.format_message())
        return _MISUSED
    if isinstance(error, click.UsageError) and error.ctx is not None:
        write_lines(f"{error.ctx.get_usage()}\nTry '{error.ctx.command_path} --help' for help.\n\n")
        expect(form_asked(error.ctx))
    # click lists the words of a missing argument one below the other
    return _ended(re.sub(r"\s*\n\t", " ", error.format_message()), error.exit_code)


def failed(error: Exception) -> int:
    """Report an exception, with its traceback if `--debug` was given; return the exit code."""
    from cpreplicate.output.log import write_lines

    if "--debug" in sys.argv:
        write_lines("".join(traceback.format_exception(error)))
    # a command that only reads, or has not begun, writes nothing else: what is full is stdout
    writes_nothing_else = _stdout.only_reads or not _stdout.has_begun
    if writes_nothing_else and isinstance(error, OSError) and is_full(error):
        is_of_stdout = error.filename is None
        return _ended(unwritten_text(error) if is_of_stdout else _message(error), UNWRITTEN)
    return _ended(_message(error), exit_code_of(error))


def unwritten_text(error: OSError) -> str:
    """Return the message for a result, or a help text, that stdout did not take."""
    return f"the result could not be written to stdout: {error.strerror or error}"


def interrupted(code: int) -> int:
    """Report that a signal ended the command, and return the exit code."""
    return _ended(f"interrupted. {outlook()}", code)


def outlook() -> str:
    """Return what is left of a command that was interrupted, and what to do."""
    return f"{_state()}{_again()}"


def _message(error: Exception) -> str:
    if isinstance(error, CpreplicateError):
        return str(error)
    if isinstance(error, OSError):
        return f"{described(error)}. {_state()}{_remedy(error)}"
    if is_without_thread(error):
        return f"{described(error)}. {outlook()}"
    first_line = str(error).partition("\n")[0]
    return (
        f"unexpected {type(error).__name__}: {first_line}. Run `cpreplicate --debug …` and"
        " report what it prints"
    )


def _remedy(error: OSError) -> str:
    if exit_code_of(error) == _NOT_THERE:  # a bucket, which no run creates
        return f"Create it, or correct the URI, and {_again('run')}"
    may_pass = isinstance(error, (ConnectionError, TimeoutError)) or error.errno in _MAY_PASS
    if may_pass or exit_code_of(error) == _NOT_REACHED:
        return _again()
    return f"Fix the problem and {_again('run')}"


def _state() -> str:
    """Return what is said of the files that a command writes, if it writes any."""
    return "" if _stdout.only_reads else "No partial files are visible. "


def _again(run: str = "Run") -> str:
    return f"{run} the command again{'' if _stdout.only_reads else ' to resume'}"


def _ended(message: str, code: int) -> int:
    """Print why the command ended: to stderr, and for a script to stdout. Return the exit code.

    A JSON document on stdout stays the only one there. It has the reason, too.
    """
    from cpreplicate.output.log import write_error

    message = advised(message)
    write_error(message)
    if _stdout.form == "ndjson" or (_stdout.form == "json" and not _stdout.has_result):
        from cpreplicate.output.json import document
        from cpreplicate.output.streams import write_result

        write_result(document({"error": message, "exit_code": code}))
    return code
