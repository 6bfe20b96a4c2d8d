"""Write a page to a file."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from errno import EISDIR
from pathlib import Path

from cpreplicate.operations.overview import Overview
from cpreplicate.output.report import page_of
from cpreplicate.output.report.page import html_of

_MODE = 0o666  # the umask takes its bits away


def write_page(path: str, result: object, overview: Overview) -> None:
    """Write the page of a result. A reader finds the former file or the whole new one.

    Raises `OSError`.
    """
    data = html_of(page_of(result, overview)).encode()
    with _new_file(path) as (number, temporary):
        with os.fdopen(number, "wb") as file:
            file.write(data)
        temporary.replace(path)


def try_to_write(path: str) -> None:
    """Find out whether a page can be written, and leave nothing behind. Raises `OSError`."""
    if Path(path).is_dir():
        raise IsADirectoryError(EISDIR, os.strerror(EISDIR), path)
    with _new_file(path) as (number, _):
        os.close(number)


@contextmanager
def _new_file(path: str) -> Iterator[tuple[int, Path]]:
    """Yield the descriptor and the path of a new file beside `path`, which is gone at the end."""
    place = Path(path)
    temporary = place.with_name(f".{place.name[:100]}.{secrets.token_hex(4)}.part")
    number = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _MODE)
    try:
        yield number, temporary
    finally:
        temporary.unlink(missing_ok=True)
