"""Write a page to a file."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from cpreplicate.operations.overview import Overview
from cpreplicate.output.report import page_of
from cpreplicate.output.report.page import html_of

_MODE = 0o666  # less the bits of the umask, as of any new file


def write_page(path: str, result: object, overview: Overview) -> None:
    """Write the page of a result. A reader finds the former file or the whole new one.

    Raises `OSError`.
    """
    data = html_of(page_of(result, overview)).encode()
    number, temporary = _temporary(path)
    try:
        with os.fdopen(number, "wb") as file:
            file.write(data)
            os.fchmod(file.fileno(), _MODE & ~_umask())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def try_to_write(path: str) -> None:
    """Find out whether a page can be written, and leave nothing behind. Raises `OSError`."""
    if Path(path).is_dir():
        raise IsADirectoryError(None, "it is a directory", path)
    number, temporary = _temporary(path)
    os.close(number)
    Path(temporary).unlink(missing_ok=True)


def _temporary(path: str) -> tuple[int, str]:
    place = Path(path)
    return tempfile.mkstemp(prefix=f".{place.name[:100]}.", suffix=".part", dir=place.parent)


def _umask() -> int:
    """Return the umask, which is only returned when it is set."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
