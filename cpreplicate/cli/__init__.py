"""The command line: options in, one call, its result to `output`. No logic of its own."""

from __future__ import annotations

import errno
import gc
import signal
import sys
import traceback
from types import FrameType
from typing import NoReturn

import click

from cpreplicate.cli import fleets as fleets
from cpreplicate.cli import upkeep as upkeep
from cpreplicate.cli.commands import cli
from cpreplicate.errors import CpreplicateError, exit_code_of

_LASTING = (errno.EACCES, errno.EDQUOT, errno.ENOSPC, errno.EROFS)
_INTERRUPTED, _TERMINATED = 130, 143


class _Terminated(BaseException):
    """SIGTERM arrived; like an interrupt, it unwinds through every `finally`."""


def main() -> NoReturn:
    """Run the command line and exit with one of the documented codes; a traceback only with `--debug`."""
    signal.signal(signal.SIGTERM, _raise_terminated)
    gc.set_threshold(5_000_000, 20, 20)  # a plan makes millions of objects and no cycles: passes over them took a third of it
    sys.exit(_exit_code())


def _exit_code() -> int:
    try:
        return int(cli.main(standalone_mode=False, prog_name="cpreplicate") or 0)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        return _interrupted(_INTERRUPTED)
    except _Terminated:
        return _interrupted(_TERMINATED)
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output went away; Python would complain of it at exit
        return 1
    except Exception as error:  # noqa: BLE001  # the last resort: no traceback reaches a user
        return _failed(error)


def _failed(error: Exception) -> int:
    from cpreplicate.output import complain

    if "--debug" in sys.argv:
        traceback.print_exception(error)
    if isinstance(error, CpreplicateError):
        complain(str(error))
        return error.exit_code
    if isinstance(error, OSError):
        complain(f"{error}; nothing half-written is visible, running again {_once(error)}resumes")
    else:
        first = str(error).partition("\n")[0]
        complain(f"unexpected {type(error).__name__}: {first}; run `cpreplicate --debug …` and report what it prints")
    return exit_code_of(error)


def _once(error: OSError) -> str:
    return "once that is mended " if error.errno in _LASTING else ""


def _interrupted(code: int) -> int:
    from cpreplicate.output import complain

    complain("interrupted; nothing half-written is visible, running again resumes")
    return code


def _raise_terminated(_signal: int, _frame: FrameType | None) -> NoReturn:
    raise _Terminated
