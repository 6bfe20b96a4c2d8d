"""`--report`: the result of a command as a page, in a file."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

import click

if TYPE_CHECKING:
    from cpreplicate.operations.overview import Overview

WritePage: TypeAlias = Callable[[], None]
"""Writes a page. Raises `OSError`."""


def refuse_unwritable(path: str | None) -> None:
    """Raise `click.UsageError` if no page can be written to `path`: before any work is done."""
    if path is None:
        return
    from cpreplicate.output.report.file import try_to_write

    try:
        try_to_write(path)
    except OSError as error:
        raise click.UsageError(
            f"--report {path} cannot be written: {error.strerror or error}. Nothing was done."
            " Create its directory, or give another file"
        ) from error


def page_writer(
    path: str | None, result: object, overview: Callable[[], Overview] | None = None
) -> WritePage | None:
    """Return what writes the page of a result to `path`, None without a path.

    `overview` reads what the page shows beside the result.
    """
    if path is None:
        return None

    def write() -> None:
        from cpreplicate.operations.overview import Overview
        from cpreplicate.output.report.file import write_page

        write_page(path, result, Overview() if overview is None else overview())

    return write
