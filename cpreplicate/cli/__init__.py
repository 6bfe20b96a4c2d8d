"""The command line: options in, one call, its result to `output`. No logic of its own."""

from __future__ import annotations

import errno
import gc
import io
import os
import signal
import sys
import traceback
from types import FrameType
from typing import NoReturn

import click

from cpreplicate.cli import fleet as fleet
from cpreplicate.cli import maintenance as maintenance
from cpreplicate.cli.commands import cli
from cpreplicate.errors import CpreplicateError, exit_code_of

_LASTING = (errno.EACCES, errno.EDQUOT, errno.ENOSPC, errno.EROFS)
_AGAIN = "Run the command again to resume"
_INTERRUPTED = 130
_SIGNALLED = 128  # and the number of the signal: 129 after SIGHUP, 143 after SIGTERM


class _Stopped(BaseException):
    """SIGTERM or SIGHUP arrived; like an interrupt, it unwinds through every `finally`."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.code = _SIGNALLED + number


def main() -> NoReturn:
    """Run the command line and exit with one of the documented codes.

    Print a traceback only with `--debug`.
    """
    _fill_closed_descriptors()
    _stop_on_signals()
    # a plan makes millions of objects and no cycles: passes over them took a third of it
    gc.set_threshold(5_000_000, 20, 20)
    code = _exit_code()
    if "cpreplicate.output.streams" in sys.modules or code:
        from cpreplicate.output.streams import discard_unwritten

        discard_unwritten()
    sys.exit(code)


def _fill_closed_descriptors() -> None:
    """Open /dev/null in place of a stream that was closed (`2>&-`): a file of a replica must not
    get its number.

    Python has no object for such a stream. stderr gets one, which takes what is printed and drops
    it.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # it takes the lowest free number: this one
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115  # until the end


def _stop_on_signals() -> None:
    """Unwind on SIGTERM, and on SIGHUP unless nohup had it ignored."""
    signal.signal(signal.SIGTERM, _raise_stopped)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, _raise_stopped)


def _raise_stopped(number: int, _frame: FrameType | None) -> NoReturn:
    # a terminal that closes may send it twice: once more by its shell
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    raise _Stopped(number)


def _exit_code() -> int:
    try:
        return int(cli.main(standalone_mode=False, prog_name="cpreplicate") or 0)
    except click.ClickException as error:
        return _misused(error)
    except (KeyboardInterrupt, click.Abort):
        return _interrupted(_INTERRUPTED)
    except _Stopped as stopped:
        return _interrupted(stopped.code)
    except Exception as error:  # noqa: BLE001  # the last resort: no traceback reaches a user
        return _failed(error)


def _misused(error: click.ClickException) -> int:
    from cpreplicate.output import write_messages

    shown = io.StringIO()
    error.show(shown)
    write_messages(shown.getvalue())
    return error.exit_code


def _failed(error: Exception) -> int:
    from cpreplicate.output import complain, write_messages

    if "--debug" in sys.argv:
        write_messages("".join(traceback.format_exception(error)))
    if isinstance(error, CpreplicateError):
        complain(str(error))
        return error.exit_code
    if isinstance(error, OSError):
        complain(f"{error}. No partial files are visible. {_remedy(error)}")
    else:
        first = str(error).partition("\n")[0]
        complain(
            f"unexpected {type(error).__name__}: {first}; run `cpreplicate --debug …` and report"
            " what it prints"
        )
    return exit_code_of(error)


def _remedy(error: OSError) -> str:
    return (
        "Fix the problem and run the command again to resume" if error.errno in _LASTING else _AGAIN
    )


def _interrupted(code: int) -> int:
    from cpreplicate.output import complain

    complain(f"interrupted. No partial files are visible. {_AGAIN}")
    return code
