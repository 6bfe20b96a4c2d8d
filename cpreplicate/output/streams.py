"""Write to stdout and stderr.

Control characters are escaped, and a stream that cannot be written to does not end a run.
"""

from __future__ import annotations

import os
import re
import select
import sys
from collections.abc import Callable
from contextlib import suppress
from errno import EBADF
from typing import TextIO

_HEADING = ("\x1b[1m", "\x1b[0m")  # begin and end of a table's heading on a terminal
_PLAIN = bytes(range(0x20, 0x7F)) + b"\n"
_HEADING_OR_CHARACTER = re.compile(r"\x1b\[[01]m|.", re.DOTALL)


def printable(text: str) -> str:
    """Return a text as one line in which control characters are escaped.

    An escape byte becomes `\\x1b`, a newline `\\n`. File names come from other programs and could
    else overwrite what the terminal shows.
    """
    return text if text.isprintable() else "".join(map(_escaped, text))


def emphasised(heading: str) -> str:
    """Return the heading of a table as a terminal shows it."""
    return heading.join(_HEADING)


_clear: Callable[[], None] | None = None


def clear_before_writing(clear: Callable[[], None] | None) -> None:
    """Record what removes from the terminal what stands on the line of the cursor, if anything.

    It is called before each line that is written to either stream: they may be one terminal.
    """
    global _clear  # a process has one terminal
    _clear = clear


def write_result(text: str) -> OSError | None:
    """Write a result of several lines to stdout.

    Return the error if it could not be written, else None.
    """
    if not _is_plain(text):
        text = "\n".join(map(_printable_line, text.split("\n")))
    return _write(sys.stdout, text + "\n")


def write_message(line: str) -> None:
    """Write one line to stderr, and ignore a failure.

    The line is written in one piece, because jobs of a fleet write from many threads.
    """
    _write(sys.stderr, printable(line) + "\n")


def write_messages(lines: str) -> None:
    """Write a text of several lines, such as a traceback, to stderr, and ignore a failure."""
    _write(sys.stderr, "\n".join(map(printable, lines.rstrip("\n").split("\n"))) + "\n")


def is_terminal(stream: TextIO | None) -> bool:
    """Return whether a stream is a terminal; None, a stream that was closed, is not."""
    return stream is not None and stream.isatty()


def discard_unwritten() -> None:
    """Discard buffered output that cannot be written, for which Python would exit with 120."""
    for stream in filter(None, (sys.stdout, sys.stderr)):
        try:
            stream.flush()
        except OSError:
            with suppress(OSError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _is_plain(text: str) -> bool:
    """Return whether a text of many lines is printable ASCII: a quick look, as for JSON."""
    return text.isascii() and not text.encode("ascii").translate(None, _PLAIN)


def _escaped(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode()


def _printable_line(line: str) -> str:
    if line.isprintable():
        return line
    return _HEADING_OR_CHARACTER.sub(
        lambda match: match[0] if match[0] in _HEADING else _escaped(match[0]), line
    )


def _write(stream: TextIO | None, text: str) -> OSError | None:
    if stream is None:  # it was closed when the process started
        return OSError(EBADF, os.strerror(EBADF))
    if _clear is not None:
        _clear()
    try:
        _write_all(stream, text.encode(stream.encoding or "utf-8", "backslashreplace"))
    except OSError as error:
        return error
    return None


def _write_all(stream: TextIO, data: bytes) -> None:
    """Write without the stream's buffer, which would fail again at exit with what it holds."""
    stream.flush()
    try:
        number = stream.fileno()
    except OSError:  # a stream in memory
        stream.write(data.decode(stream.encoding or "utf-8"))
        return
    while data:
        try:
            data = data[os.write(number, data) :]
        except BlockingIOError:  # another process set the shared pipe to non-blocking
            select.select([], [number], [])
